"""A process that outlives its owner just long enough to clean up: children and folder go, whatever happened to the owner.

1. It makes the folder, so that there is no moment in which an owner has a folder and no guardian.
2. It starts programs on request. If the guardian itself is killed, the kernel kills them.
3. When the owner is gone (its end of our stdin closed, or its process ended) it ends them and removes the folder.

Lines of JSON. In: `{"do": "start", "name": N, "argv": [...]}`, `{"do": "kill", "name": N, "signal": S}`.
Out: `{"folder": F}`, `{"started": N, "pid": P}`, `{"ended": N, "code": C}`, `{"failed": N, "why": W}`.

Run by its file name, in isolation and from the standard library only: it starts in a moment and needs nothing on sys.path.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

GRACE_S = 3.0
"""Time for a server to end on SIGTERM before it is killed: what it would still write is thrown away anyway."""

MANY_FILES = 64_000
"""What MongoDB recommends."""
_PR_SET_PDEATHSIG = 1


class Children:
    """Programs by name, with a log each, in one working folder. If this process is killed, the kernel kills them."""

    def __init__(self, folder: str, keep_open: tuple[int, ...] = ()) -> None:
        self._folder = folder
        self._keep_open = keep_open
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._die_with_us = die_with_parent()

    @property
    def pids(self) -> dict[str, int]:
        return {name: child.pid for name, child in self._running.items()}

    def start(self, name: str, argv: list[str]) -> int:
        """Its process id. Raises OSError or SubprocessError."""
        with open(os.path.join(self._folder, f"{name}.log"), "ab") as log:
            # Safe although there is a preexec_fn: this process has one thread.
            child = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                preexec_fn=self._die_with_us,
                pass_fds=self._keep_open,
            )
        self._running[name] = child
        return child.pid

    def signal(self, name: str, number: int) -> None:
        if (child := self._running.get(name)) is not None:
            child.send_signal(number)

    def reap(self) -> dict[str, int]:
        """Those that ended since the last look, with their exit status."""
        ended = {name: code for name, child in self._running.items() if (code := child.poll()) is not None}
        for name in ended:
            del self._running[name]
        return ended

    def end(self, grace_s: float) -> None:
        for child in self._running.values():
            child.terminate()
        deadline = time.monotonic() + grace_s
        for child in self._running.values():
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


class Guardian:
    """Does what the owner asks for, and tells what became of it."""

    def __init__(self, folder: str) -> None:
        self.children = Children(folder)

    def handle(self, line: bytes) -> None:
        request = json.loads(line)
        name = request["name"]
        if request["do"] == "start":
            self._start(name, request["argv"])
        else:
            self.children.signal(name, request["signal"])

    def _start(self, name: str, argv: list[str]) -> None:
        try:
            pid = self.children.start(name, argv)
        except (OSError, subprocess.SubprocessError) as error:
            say(failed=name, why=str(error))
        else:
            say(started=name, pid=pid)

    def reap(self) -> None:
        for name, code in self.children.reap().items():
            say(ended=name, code=code)


def die_with_parent() -> Callable[[], None] | None:
    """For a child's `preexec_fn`: the kernel ends it when the thread that starts it is gone, however that came about."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork
    guardian = os.getpid()

    def ask_kernel() -> None:
        prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != guardian:  # died between the fork and the request
            os._exit(1)

    return ask_kernel


def allow_many_files() -> None:
    """mongod opens a file for each collection and index and dies where it cannot; most systems begin with 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if most == resource.RLIM_INFINITY else min(MANY_FILES, most)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def say(**message: Any) -> None:
    """A line of JSON on our output."""
    with suppress(OSError):  # the owner is gone; the loop is about to notice
        os.write(1, json.dumps(message).encode() + b"\n")


def wake_on_signals(*numbers: int) -> int:
    """A descriptor that becomes readable when one of these signals came: `select` sleeps through nothing."""
    wake_in, wake_out = os.pipe()
    os.set_blocking(wake_out, False)
    signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda number, frame: None)
    return wake_in


def _watch_owner(owner: int) -> int | None:
    """A descriptor that becomes readable when the owner's process ends: a fork of the owner may hold our stdin open."""
    try:
        descriptor = os.pidfd_open(owner)
    except (AttributeError, OSError):
        return None  # no such call here; stdin alone has to do
    if os.getppid() != owner:  # too late: the number may already be another process's
        raise SystemExit
    return descriptor


def _serve(guardian: Guardian, owner: int) -> None:
    """Until the owner is gone."""
    wake_in = wake_on_signals(signal.SIGCHLD)
    owner_ended = _watch_owner(owner)
    with selectors.DefaultSelector() as selector:
        for descriptor in (0, wake_in, owner_ended):
            if descriptor is not None:
                selector.register(descriptor, selectors.EVENT_READ)
        rest = b""
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if owner_ended in ready:
                return
            if wake_in in ready:
                os.read(wake_in, 4096)
                guardian.reap()
            if 0 in ready:
                data = os.read(0, 65536)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    guardian.handle(line)


def main() -> None:
    """Arguments: the owner's process id, the parent of the folder to make, its prefix."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, leave)
    allow_many_files()
    folder = tempfile.mkdtemp(dir=sys.argv[2], prefix=sys.argv[3])  # mode 0700
    guardian = Guardian(folder)
    try:
        say(folder=folder)
        _serve(guardian, int(sys.argv[1]))
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        guardian.children.end(GRACE_S)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
