"""A private real redis-server and a private real mongod, thrown away at the end. Neither listens on a TCP port.

What holds when they are up: see readiness. What holds when they are down, however the owner ended: no process and no folder is
left (see guardian).
"""

from __future__ import annotations

import signal
from types import TracebackType

from .charge import Charge
from .readiness import Readiness
from .server_programs import DATABASE, MONGOD, NAMES, REDIS, command_lines, find_programs, mongodb_uri, redis_url
from .socket_folder import PREFIX, short_parent


class EmbeddedServers:
    """Both servers, from construction to `stop()`. The `kill_…` and `start_…` pairs make outages; data and socket stay."""

    def __init__(self) -> None:
        programs = find_programs()
        self._charge = Charge(short_parent(), PREFIX)
        try:
            self.folder = self._charge.folder
            self._sockets = str(self.folder)
            self._argv = command_lines(programs, self._sockets)
            self._readiness = Readiness(self._sockets, self.folder, self._charge.ended)
            for name in NAMES:
                self.folder.joinpath(name).mkdir()
                self._charge.start(name, self._argv[name])
            self._readiness.wait()
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
        return redis_url(self._sockets)

    @property
    def mongodb_uri(self) -> str:
        return self.mongodb_uri_of(DATABASE)

    def mongodb_uri_of(self, database: str) -> str:
        return mongodb_uri(self._sockets, database)

    @property
    def redis_pid(self) -> int:
        return self._charge.pid(REDIS)

    @property
    def mongod_pid(self) -> int:
        return self._charge.pid(MONGOD)

    @property
    def guardian_pid(self) -> int:
        return self._charge.guardian_pid

    def kill_redis(self, number: int = signal.SIGKILL) -> None:
        """Returns when the process is gone."""
        self._charge.end(REDIS, number)

    def start_redis(self) -> None:
        """Returns when it answers."""
        self._charge.start(REDIS, self._argv[REDIS])
        self._readiness.wait_for_redis()

    def kill_mongod(self, number: int = signal.SIGKILL) -> None:
        self._charge.end(MONGOD, number)

    def start_mongod(self) -> None:
        """Returns when it is primary again."""
        self._charge.start(MONGOD, self._argv[MONGOD])
        self._readiness.wait_for_mongod()
