"""Three real mongod on loopback ports, a set whose primary can be made to step down. Elections take a second or two."""

from __future__ import annotations

import signal
import socket
from types import TracebackType
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from streams_importer.embedded.binaries import MONGOD, find_binary
from streams_importer.embedded.charge import Charge
from streams_importer.embedded.socket_folder import PREFIX, short_parent
from tests.e2e.fleet import wait_until

NAME = "chaos"
MEMBERS = 3
SETTINGS = {
    "electionTimeoutMillis": 1000,
    "heartbeatIntervalMillis": 200,
    "heartbeatTimeoutSecs": 1,
    "catchUpTimeoutMillis": 1000,
}
"""The shortest with which a busy machine of two cores still keeps its primary."""
STEPPED_DOWN_S = 5


class ReplicaSet:
    """From construction to `stop()`. It ends with its owner, however that ends (see guardian)."""

    def __init__(self) -> None:
        self._charge = Charge(short_parent(), PREFIX)
        try:
            self._ports = free_ports(MEMBERS)
            for port in self._ports:
                self._charge.folder.joinpath(_name(port)).mkdir()
            self.start_mongod(is_new=True)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> ReplicaSet:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        self._charge.close()

    def mongodb_uri_of(self, database: str) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self._ports)
        return f"mongodb://{hosts}/{database}?replicaSet={NAME}"

    def step_down(self) -> None:
        """Returns when another member is primary."""
        before = self.primary()
        with _direct(before) as client:
            client.admin.command("replSetStepDown", STEPPED_DOWN_S, secondaryCatchUpPeriodSecs=STEPPED_DOWN_S - 1)
        wait_until(lambda: self.primary_if_any() not in (None, before), "another primary")

    def kill_mongod(self) -> None:
        """All three at once."""
        for port in self._ports:
            self._charge.end(_name(port), signal.SIGKILL)

    def start_mongod(self, *, is_new: bool = False) -> None:
        """Returns when there is a primary."""
        program = find_binary(MONGOD)
        for port in self._ports:
            self._charge.start(_name(port), [program, *_arguments(port)])
        for port in self._ports:
            wait_until(lambda port=port: _answers(port), f"the mongod on port {port}")  # type: ignore[misc]
        if is_new:
            members = [{"_id": number, "host": f"127.0.0.1:{port}"} for number, port in enumerate(self._ports)]
            with _direct(self._ports[0]) as client:
                client.admin.command("replSetInitiate", {"_id": NAME, "members": members, "settings": SETTINGS})
        self.primary()

    def primary(self) -> int:
        """The port of the primary, waited for."""
        wait_until(lambda: self.primary_if_any() is not None, "a primary")
        port = self.primary_if_any()
        return self.primary() if port is None else port

    def primary_if_any(self) -> int | None:
        return next((port for port in self._ports if _answers(port, "isWritablePrimary")), None)


def free_ports(number: int) -> list[int]:
    """All are held until the last is known, so that none is given twice."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    try:
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()


def _name(port: int) -> str:
    return f"mongod-{port}"


def _arguments(port: int) -> list[str]:
    arguments = ["--bind_ip", "127.0.0.1", "--port", str(port), "--nounixsocket", "--dbpath", f"./{_name(port)}"]
    arguments += ["--replSet", NAME, "--quiet", "--wiredTigerCacheSizeGB", "0.25", "--oplogSize", "128"]
    for parameter in ("diagnosticDataCollectionEnabled=false", "shutdownTimeoutMillisForSignaledShutdown=0"):
        arguments += ["--setParameter", parameter]
    return arguments


def _direct(port: int) -> MongoClient[dict[str, Any]]:
    return MongoClient(f"mongodb://127.0.0.1:{port}/?directConnection=true", serverSelectionTimeoutMS=500)


def _answers(port: int, what: str = "ok") -> bool:
    with _direct(port) as client:
        try:
            return bool(client.admin.command("hello").get(what))
        except PyMongoError:
            return False
