"""When a pair is ready: Redis answers PING, MongoDB is the primary of a one-node replica set whose member is its own socket."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..domain.errors import ImporterError
from .server_programs import MONGOD, REDIS, REPLICA_SET, last_words, mongodb_uri, socket_path

READY_TIMEOUT_S = 30.0
"""Both are up in well under 2 s; a machine that needs longer than this is too loaded to try anything on."""
LOOK_EVERY_S = 0.005
"""Between two looks whether a server answers. Its death is noticed at once."""

_SELECTION_TIMEOUT_MS = 500
"""Short: between two tries it is seen whether mongod has ended."""
_NOT_YET_INITIALIZED = 94
_ALREADY_INITIALIZED = 23


class Readiness:
    """Of the pair with these sockets and logs. `ended` waits so long for news, and says whether that server ended."""

    def __init__(self, sockets: str, logs: Path, ended: Callable[[str, float], bool]) -> None:
        self._sockets = sockets
        self._logs = logs
        self._ended = ended

    def wait(self) -> None:
        self.wait_for_redis()
        self.wait_for_mongod()

    def wait_for_redis(self) -> None:
        # By hand: a server that loads its file answers -LOADING, and a client library is not needed for one word.
        path = socket_path(self._sockets, REDIS)
        self._wait(REDIS, lambda: _ask(path, b"PING\r\n").startswith(b"+PONG"))

    def wait_for_mongod(self) -> None:
        """Until it is primary; makes the replica set if there is none yet, and puts it right if the socket has moved."""
        member = socket_path(self._sockets, MONGOD)
        self._wait(MONGOD, lambda: _ask(member, None) == b"open")
        with self._mongo_client() as client:
            self._wait(MONGOD, lambda: _answers(lambda: _is_primary(client) or _has_replica_set(client, member)))
            self._wait(MONGOD, lambda: _answers(lambda: _is_primary(client)))

    def _wait(self, name: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not holds():
            if self._ended(name, LOOK_EVERY_S):
                raise ImporterError(f"the embedded {name} ended while starting: {self._last_words(name)}")
            if time.monotonic() > deadline:
                raise ImporterError(f"the embedded {name} is not ready after {READY_TIMEOUT_S:g} s: {self._last_words(name)}")

    def _last_words(self, name: str) -> str:
        return last_words(self._logs / f"{name}.log")

    def _mongo_client(self) -> Any:
        from pymongo import MongoClient  # late: mongod starts while this is being imported

        client: MongoClient[dict[str, Any]] = MongoClient(
            mongodb_uri(self._sockets), serverSelectionTimeoutMS=_SELECTION_TIMEOUT_MS, connect=False
        )
        return client


def _answers(ask: Callable[[], bool]) -> bool:
    """False while mongod cannot be reached."""
    from pymongo.errors import ConnectionFailure, PyMongoError

    try:
        return ask()
    except ConnectionFailure:
        return False
    except PyMongoError as error:
        raise ImporterError(f"the embedded mongod cannot be made a replica set: {error}") from None


def _is_primary(client: Any) -> bool:
    return bool(client.admin.command("hello").get("isWritablePrimary"))


def _has_replica_set(client: Any, member: str) -> bool:
    """Makes it so. False while mongod is still reading what it knows of its set."""
    from pymongo.errors import OperationFailure

    try:
        config = client.admin.command("replSetGetConfig")["config"]
        if config["members"][0]["host"] != member:
            # It does not find itself in its set any more, and would wait for ever for the others.
            config["members"][0]["host"] = member
            config["version"] += 1
            client.admin.command("replSetReconfig", config, force=True)
    except OperationFailure as error:
        if error.code != _NOT_YET_INITIALIZED:
            raise
        return _initiate(client, member)
    return True


def _initiate(client: Any, member: str) -> bool:
    from pymongo.errors import OperationFailure

    try:
        client.admin.command("replSetInitiate", {"_id": REPLICA_SET, "members": [{"_id": 0, "host": member}]})
    except OperationFailure as error:
        if error.code != _ALREADY_INITIALIZED:
            raise
        return False
    return True


def _ask(path: str, question: bytes | None) -> bytes:
    """One answer over a Unix socket, `open` when nothing was asked, empty when nobody is there yet."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(path)
            if question is None:
                return b"open"
            connection.sendall(question)
            return connection.recv(64)
        except OSError:
            return b""
