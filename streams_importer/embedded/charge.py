"""The owner's end of a guardian: asks it to start and end programs, and reads what became of them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..domain.errors import ImporterError
from . import guardian
from .json_lines import JsonLines

_ANSWER_TIMEOUT_S = 10.0
"""The guardian answers within milliseconds; only a machine near standstill needs more than this."""


class Charge:
    """The programs in a guardian's charge, by name, and their folder. Methods may be called from several threads."""

    def __init__(self, parent: str, prefix: str) -> None:
        command = [sys.executable, "-I", "-S", guardian.__file__, str(os.getpid()), parent, prefix]
        # A session of its own: Ctrl-C goes to all of a terminal's foreground, and the guardian must outlive that.
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, bufsize=0
        )
        self._lines = JsonLines(self._process)
        self._lock = threading.RLock()
        self._pids: dict[str, int] = {}
        self._folder: Path | None = None
        try:
            self._wait(lambda: self._folder is not None, "make a folder")
        except BaseException:
            self.close()
            raise

    @property
    def folder(self) -> Path:
        assert self._folder is not None
        return self._folder

    @property
    def guardian_pid(self) -> int:
        return self._process.pid

    def pid(self, name: str) -> int:
        """Raises ImporterError when it is not running."""
        with self._lock:
            self._read(0.0)
            if name not in self._pids:
                raise ImporterError(f"the embedded {name} is not running")
            return self._pids[name]

    def start(self, name: str, argv: list[str]) -> None:
        with self._lock:
            self._lines.tell(do="start", name=name, argv=argv)
            self._wait(lambda: name in self._pids, f"start {name}")

    def end(self, name: str, number: int) -> None:
        """Signals it and waits until it is gone."""
        with self._lock:
            self._lines.tell(do="kill", name=name, signal=int(number))
            self._wait(lambda: name not in self._pids, f"end {name}")

    def ended(self, name: str, wait_s: float) -> bool:
        """Whether it is gone; waits up to `wait_s` for news."""
        with self._lock:
            self._read(wait_s)
            return name not in self._pids

    def close(self) -> None:
        """Ends everything. The folder goes too, even when the guardian was killed."""
        with self._lock:
            self._lines.close()
            try:
                self._process.wait(guardian.GRACE_S + _ANSWER_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()  # the kernel kills its children along with it
                self._process.wait()
            self._pids.clear()
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _wait(self, holds: Callable[[], bool], purpose: str) -> None:
        deadline = time.monotonic() + _ANSWER_TIMEOUT_S
        while not holds():
            left = deadline - time.monotonic()
            if left <= 0:
                raise ImporterError(f"the guardian of the embedded servers did not {purpose} in {_ANSWER_TIMEOUT_S:g} s")
            self._read(left)

    def _read(self, wait_s: float) -> None:
        """Takes in what the guardian has said, waiting up to `wait_s` for the first word."""
        if self._lines.closed:
            raise ImporterError("the embedded servers are stopped")
        try:
            messages = self._lines.hear(wait_s)
        except EOFError:
            raise ImporterError("the guardian of the embedded servers ended, and they with it") from None
        for message in messages:
            self._take_in(message)

    def _take_in(self, message: dict[str, Any]) -> None:
        if "folder" in message:
            self._folder = Path(message["folder"])
        elif "started" in message:
            self._pids[message["started"]] = message["pid"]
        elif "ended" in message:
            self._pids.pop(message["ended"], None)
        elif "failed" in message:
            raise ImporterError(f"the embedded {message['failed']} cannot be started: {message['why']}")
