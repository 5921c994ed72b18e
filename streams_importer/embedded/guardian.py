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


class Guardian:
    """The children by name, and the folder they live in."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._die_with_us = die_with_parent()

    def handle(self, line: bytes) -> None:
        request = json.loads(line)
        name = request["name"]
        if request["do"] == "start":
            self._start(name, request["argv"])
        elif (child := self._children.get(name)) is not None:
            child.send_signal(request["signal"])

    def _start(self, name: str, argv: list[str]) -> None:
        try:
            with open(os.path.join(self._folder, f"{name}.log"), "ab") as log:
                # Safe although there is a preexec_fn: this process has one thread.
                self._children[name] = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self._folder, preexec_fn=self._die_with_us
                )
        except (OSError, subprocess.SubprocessError) as error:
            _say(failed=name, why=str(error))
        else:
            _say(started=name, pid=self._children[name].pid)

    def reap(self) -> None:
        for name, child in list(self._children.items()):
            if child.poll() is not None:
                del self._children[name]
                _say(ended=name, code=child.returncode)

    def end(self) -> None:
        for child in self._children.values():
            child.terminate()
        deadline = time.monotonic() + GRACE_S
        for child in self._children.values():
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


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


def _allow_many_files() -> None:
    """mongod opens a file for each collection and index and dies where it cannot; most systems begin with 1,024."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY_FILES if most == resource.RLIM_INFINITY else min(MANY_FILES, most)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _say(**message: Any) -> None:
    with suppress(OSError):  # the owner is gone; the loop is about to notice
        os.write(1, json.dumps(message).encode() + b"\n")


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
    wake_in, wake_out = os.pipe()
    os.set_blocking(wake_out, False)
    signal.set_wakeup_fd(wake_out, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
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
    _allow_many_files()
    folder = tempfile.mkdtemp(dir=sys.argv[2], prefix=sys.argv[3])  # mode 0700
    guardian = Guardian(folder)
    try:
        _say(folder=folder)
        _serve(guardian, int(sys.argv[1]))
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        guardian.end()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
