"""A child process that imports one shard. It is told by lines of JSON on its input, and tells by lines of JSON on its output.

Nothing secret is in its arguments. When its parent is gone, however it went, its input ends, and so does it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from ..domain.model import Abandoned, Completed, Crashed, Dead, Failure, Outcome, Released, Retry
from ..domain.text import plain
from ..ports import EventSink

MAX_LINE = 1024 * 1024
LAST_WORDS_S = 5.0
OBEYS_S = 10.0

OUTCOMES: dict[str, type[Outcome]] = {kind.__name__: kind for kind in (Completed, Retry, Dead, Crashed, Released, Abandoned)}


def dump_outcome(outcome: Outcome) -> dict[str, Any]:
    """What went wrong may quote anything: it is made one plain line before it is told."""
    for name in ("failure", "refused"):
        failure = getattr(outcome, name, None)
        if isinstance(failure, Failure):
            told = Failure(plain(failure.code), plain(failure.message), failure.status)
            outcome = replace(outcome, **{name: told})  # type: ignore[arg-type]
    return {"kind": type(outcome).__name__, "outcome": msgspec.to_builtins(outcome)}


class ChildProcess:
    """Implements ports.Child."""

    def __init__(self, module: str, job: Mapping[str, Any], environment: Mapping[str, str], events: EventSink) -> None:
        self._events = events
        self._lock = threading.Lock()
        # Not from the working folder, which may be anybody's, but from where this process has its own code.
        path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already
            self._process.stdin.write(msgspec.json.encode(job) + b"\n")
            self._process.stdin.flush()
        os.set_blocking(self._process.stdin.fileno(), False)

    @property
    def how_it_ended(self) -> str:
        code = self._process.returncode
        if code is not None and code < 0:
            with suppress(ValueError):
                return f"by {signal.Signals(-code).name}"
        return f"with status {code}"

    def outcome(self) -> Outcome | None:
        """Reads until it has ended. None when it did so without a word about how it went."""
        assert self._process.stdout is not None
        outcome = None
        while line := self._process.stdout.readline(MAX_LINE):
            with suppress(msgspec.MsgspecError, ValueError, TypeError, KeyError):  # it may be dying, and say anything
                said = msgspec.json.decode(line, type=dict[str, Any])
                if "kind" in said:
                    outcome = msgspec.convert(said["outcome"], OUTCOMES[said["kind"]])
                else:
                    self._events(said["event"], level=said.get("level", "info"), **said.get("details", {}))
        self._wait()
        return outcome

    def cancel(self, reason: str) -> None:
        """It is given some time to obey."""
        if self._tell({"cancel": reason}):
            timer = threading.Timer(OBEYS_S, self._process.kill)
            timer.daemon = True
            timer.start()
        else:
            self._process.kill()

    def hear(self, message: str) -> None:
        self._tell({"heard": message})

    def close(self) -> None:
        with suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        self._wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _wait(self) -> None:
        try:
            self._process.wait(LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _tell(self, message: Mapping[str, Any]) -> bool:
        """Never waits: whoever tells has other shards to look after. A line this short is written as a whole or not at all.
        False when the child does not listen."""
        assert self._process.stdin is not None
        try:
            with self._lock:
                return os.write(self._process.stdin.fileno(), msgspec.json.encode(message) + b"\n") > 0
        except (OSError, ValueError):  # its pipe is full, or it has ended
            return False
