"""The process that a shared pair belongs to. It stops both cleanly when nobody has used them for a while, or on SIGTERM.

1. It holds `keeper.lock` for its life. It and both servers hold `servers.lock`: when that is free, nobody writes to the data.
2. Until the command that started it says that all is ready, a server that ends, or that command's end, is the end of all.
3. Afterwards a server that ends is started again, unless that happens too often. If the keeper is killed, the kernel kills both.
4. Commands hold `users.lock` together. When nobody does, and has not for the idle time, the keeper takes it and keeps it until
   all is down: whoever comes meanwhile waits, and then starts anew.

Lines of JSON. In: `{"ready": true}`. Out: `{"sockets": F}`, `{"ready": true}`, `{"ended": N}`, `{"failed": W}`.

Run in isolation and from the standard library only: it starts in a moment, and is small.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..domain.errors import ImporterError
from .guardian import Children, allow_many_files, say, wake_on_signals
from .locks import EXCLUSIVE, KEEPER_LOCK, SERVERS_LOCK, USERS_LOCK, Lock
from .pair_file import NAME, RUNNING, STARTING, STOPPED, Pair
from .server_programs import NAMES, command_lines, last_words
from .socket_folder import SocketFolder

STOP_GRACE_S = 30.0
"""Time for both to write what they have; a second is usual."""
TAKE_OVER_S = 10.0
"""Time for the servers of a keeper that was killed to be gone."""
SHORTEST_TICK_S, LONGEST_TICK_S = 0.05, 1.0
MOST_DEATHS = 5
DEATHS_WITHIN_S = 60.0
_INPUT = 0


class Keeper:
    """In the pair's folder as working folder."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._wake = wake_on_signals(signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP)
        self._life, servers_lock, self._users = Lock(KEEPER_LOCK), Lock(SERVERS_LOCK), Lock(USERS_LOCK)
        for lock in (self._life, servers_lock):
            if not lock.take(EXCLUSIVE, TAKE_OVER_S):
                raise ImporterError("servers that were started before in this folder still run")
        self._life.write_pid()
        self._children = Children(".", keep_open=(servers_lock.descriptor,))
        self._sockets = SocketFolder(order["sockets"], order["parent"])
        self._argv = command_lines(order["programs"], self._sockets.path)
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self._pair = Pair(STARTING, self._sockets.path, started, float(order["idle_s"]))
        self._tick_s = min(LONGEST_TICK_S, max(SHORTEST_TICK_S, self._pair.idle_s / 4))
        self._told_to_stop = False
        self._deaths: list[float] = []
        self._used = time.monotonic()
        self._touched = 0

    def run(self) -> None:
        why = None
        try:
            self._pair.write()
            for name in NAMES:
                Path(f"{name}.log").write_bytes(b"")
                self._children.start(name, self._argv[name])
            say(sockets=self._sockets.path)
            if self._becomes_ready():
                why = self._keep()
        except (OSError, subprocess.SubprocessError) as error:
            why = f"they could not be started: {error}"
            say(failed=str(error))
        finally:
            self._note(STOPPED, why)
            self._children.end(STOP_GRACE_S)
            self._sockets.remove()

    def _becomes_ready(self) -> bool:
        while not self._told_to_stop:
            heard = self._sleep(None, _INPUT)
            for name in self._children.reap():
                say(ended=name)
                return False
            if _INPUT in heard:
                if not os.read(_INPUT, 4096):
                    return False
                self._pair = replace(self._pair, state=RUNNING, pids=self._children.pids)
                self._pair.write()
                say(ready=True)
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, 0)
                os.dup2(nothing, 1)
                return True
        return False

    def _keep(self) -> str | None:
        """Until it is time to stop. Why, unless that was to be expected."""
        while True:
            self._sleep(self._tick_s)
            if self._told_to_stop or self._is_unused() or self._is_removed():
                return None
            ended = list(self._children.reap())
            now = time.monotonic()
            self._deaths = [at for at in self._deaths if now - at < DEATHS_WITHIN_S] + [now] * len(ended)
            if len(self._deaths) >= MOST_DEATHS:
                words = last_words(Path(f"{ended[0]}.log"))
                return f"{ended[0]} ended {MOST_DEATHS} times in {DEATHS_WITHIN_S:g} s: {words}"
            # At once after the first death; after more only at the next tick, so that what passes can pass.
            if not ended or len(self._deaths) == 1:
                self._start_missing()

    def _start_missing(self) -> None:
        missing = [name for name in NAMES if name not in self._children.pids]
        for name in missing:
            self._children.start(name, self._argv[name])
        if missing:
            self._note(RUNNING)

    def _is_unused(self) -> bool:
        """When it is, the lock stays with us."""
        touched = os.fstat(self._users.descriptor).st_mtime_ns  # a command that came and went between two looks
        if touched != self._touched or not self._users.take(EXCLUSIVE):
            self._touched, self._used = touched, time.monotonic()
            return False
        if time.monotonic() - self._used >= self._pair.idle_s:
            return True
        self._users.drop()
        return False

    def _is_removed(self) -> bool:
        """Somebody deleted the folder or the locks: no command finds the pair any more."""
        return any(os.fstat(lock.descriptor).st_nlink == 0 for lock in (self._life, self._users))

    def _note(self, state: str, why: str | None = None) -> None:
        """On a full disk nothing can be written, but a file can be removed: no pair is better than one that is not there."""
        self._pair = replace(self._pair, state=state, pids={} if state == STOPPED else self._children.pids, why=why)
        try:
            self._pair.write()
        except OSError:
            if state == STOPPED:
                with suppress(OSError):
                    os.unlink(NAME)

    def _sleep(self, seconds: float | None, *descriptors: int) -> list[int]:
        """Until a signal comes, or one of the descriptors has something to read. Those that have."""
        heard = select.select([self._wake, *descriptors], [], [], seconds)[0]
        if self._wake in heard:
            self._told_to_stop |= int(signal.SIGTERM) in os.read(self._wake, 4096)
        return heard


def main() -> None:
    """Argument: the order, as JSON. The folder comes as a descriptor: its path may be long, and may come to name another."""
    order = json.loads(sys.argv[1])
    if os.fork():
        os._exit(0)  # the keeper is nobody's child: who started it need not wait for it
    os.umask(0o077)
    os.fchdir(order["folder"])
    os.close(order["folder"])
    allow_many_files()
    try:
        keeper = Keeper(order)
    except (ImporterError, OSError) as error:
        say(failed=str(error))
    else:
        keeper.run()
