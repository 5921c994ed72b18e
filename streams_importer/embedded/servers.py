"""A private real redis-server and a private real mongod, thrown away at the end. Neither listens on a TCP port.

What holds when they are up: Redis answers PING, MongoDB is the primary of a one-node replica set. What holds when they are
down, however the owner ended: no process and no folder is left (see guardian).
"""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from types import TracebackType
from typing import Any
from urllib.parse import quote_plus

from ..domain.errors import BadSetting, ImporterError
from .binaries import MONGOD, REDIS_SERVER, find_binary
from .charge import Charge

READY_TIMEOUT_S = 30.0
"""Both are up in well under 2 s; a machine that needs longer than this is too loaded to try anything on."""
LOOK_EVERY_S = 0.005
"""Between two looks whether a server answers. Its death is noticed at once."""
MAX_SOCKET_PATH = 100
"""Bytes. The kernel's limit is 107: mongod refuses more, Redis binds a cut path and says that it is ready."""
DATABASE = "streams_importer"
REPLICA_SET = "streams-importer"

_FOLDER_PREFIX = "streams-importer-"
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/_.+-]+\Z")
"""Redis splits its arguments at blanks and mongod at commas."""
_LOG_LINES = 5


class EmbeddedServers:
    """Both servers, from construction to `stop()`. The `kill_…` and `start_…` pairs make outages; data and socket stay."""

    def __init__(self) -> None:
        programs = {"redis": find_binary(REDIS_SERVER), "mongod": find_binary(MONGOD)}
        self._charge = Charge(_short_folder(), _FOLDER_PREFIX)
        try:
            self.folder = self._charge.folder
            self._argv = {
                "redis": [programs["redis"], *_redis_arguments(self.folder)],
                "mongod": [programs["mongod"], *_mongod_arguments(self.folder)],
            }
            for name in ("redis", "mongod"):
                self.folder.joinpath(name).mkdir()
                self._charge.start(name, self._argv[name])
            self._await("redis", self._redis_answers)
            self._await("mongod", self._mongod_listens)
            self._make_replica_set()
        except BaseException:  # Ctrl-C too
            self.stop()
            raise

    def __enter__(self) -> EmbeddedServers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends both and removes the folder. Safe to repeat."""
        self._charge.close()

    @property
    def redis_url(self) -> str:
        return f"unix://{self._socket('redis')}"

    @property
    def mongodb_uri(self) -> str:
        return self.mongodb_uri_of(DATABASE)

    def mongodb_uri_of(self, database: str) -> str:
        # Direct: there is one member, and nothing to discover.
        return f"mongodb://{quote_plus(self._socket('mongod'))}/{database}?directConnection=true"

    @property
    def redis_pid(self) -> int:
        return self._charge.pid("redis")

    @property
    def mongod_pid(self) -> int:
        return self._charge.pid("mongod")

    @property
    def guardian_pid(self) -> int:
        return self._charge.guardian_pid

    def kill_redis(self, number: int = signal.SIGKILL) -> None:
        """Returns when the process is gone."""
        self._charge.end("redis", number)

    def start_redis(self) -> None:
        """Returns when it answers."""
        self._charge.start("redis", self._argv["redis"])
        self._await("redis", self._redis_answers)

    def kill_mongod(self, number: int = signal.SIGKILL) -> None:
        self._charge.end("mongod", number)

    def start_mongod(self) -> None:
        """Returns when it is primary again."""
        self._charge.start("mongod", self._argv["mongod"])
        self._await("mongod", self._mongod_listens)
        self._await_primary()

    def _socket(self, name: str) -> str:
        return _socket_path(self.folder, name)

    def _await(self, name: str, answers: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not answers():
            if self._charge.ended(name, LOOK_EVERY_S):
                raise ImporterError(f"the embedded {name} ended while starting: {self._last_words(name)}")
            if time.monotonic() > deadline:
                raise ImporterError(f"the embedded {name} is not ready after {READY_TIMEOUT_S:g} s: {self._last_words(name)}")

    def _last_words(self, name: str) -> str:
        try:
            lines = self.folder.joinpath(f"{name}.log").read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        return " | ".join(line.strip()[:300] for line in lines[-_LOG_LINES:]) or "its log is empty"

    def _redis_answers(self) -> bool:
        # By hand: a server that loads its file answers -LOADING, and a client library is not needed for one word.
        return _ask(self._socket("redis"), b"PING\r\n").startswith(b"+PONG")

    def _mongod_listens(self) -> bool:
        return _ask(self._socket("mongod"), None) == b"open"

    def _make_replica_set(self) -> None:
        member = {"_id": 0, "host": self._socket("mongod")}
        with self._mongo_client() as client:
            client.admin.command("replSetInitiate", {"_id": REPLICA_SET, "members": [member]})
        self._await_primary()

    def _await_primary(self) -> None:
        with self._mongo_client() as client:
            self._await("mongod", lambda: bool(client.admin.command("hello").get("isWritablePrimary")))

    def _mongo_client(self) -> Any:
        from pymongo import MongoClient  # late: mongod starts while this is being imported

        client: MongoClient[dict[str, Any]] = MongoClient(
            self.mongodb_uri, serverSelectionTimeoutMS=int(READY_TIMEOUT_S * 1000), connect=False
        )
        return client


def _redis_arguments(folder: Path) -> list[str]:
    arguments = ["--port", "0", "--unixsocket", _socket_path(folder, "redis"), "--unixsocketperm", "700"]
    arguments += ["--dir", str(folder / "redis"), "--daemonize", "no"]
    return [*arguments, "--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"]


def _mongod_arguments(folder: Path) -> list[str]:
    arguments = ["--bind_ip", _socket_path(folder, "mongod"), "--unixSocketPrefix", str(folder)]
    arguments += ["--dbpath", str(folder / "mongod"), "--replSet", REPLICA_SET, "--quiet"]
    # Its default is half of the memory.
    arguments += ["--wiredTigerCacheSizeGB", "0.25"]
    # On SIGTERM a primary would wait 15 s for its clients to leave.
    for parameter in ("diagnosticDataCollectionEnabled=false", "shutdownTimeoutMillisForSignaledShutdown=0"):
        arguments += ["--setParameter", parameter]
    return arguments


def _socket_path(folder: Path, name: str) -> str:
    return str(folder / f"{name}.sock")


def _short_folder() -> str:
    """Where a folder's sockets have short plain paths: the user's temporary folder if it will do, else /tmp."""
    longest = f"/{_FOLDER_PREFIX}{'x' * 8}/mongodb-27017.sock"
    for parent in (gettempdir(), "/tmp"):
        fits = len(os.fsencode(parent + longest)) <= MAX_SOCKET_PATH
        if fits and _PLAIN_PATH.match(parent) and os.access(parent, os.W_OK | os.X_OK):
            return parent
    raise BadSetting(
        "TMPDIR: must name a writable folder with a short plain path (60 characters or fewer) for the server sockets"
    )


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
