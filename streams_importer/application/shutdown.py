"""Signals. The first one asks for a clean stop; those within two seconds belong to it; a later one ends the process at once."""

from __future__ import annotations

import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from .cancellation import CancelToken

SAME_SIGNAL_S = 2.0
"""A platform sends SIGTERM to every process of a dyno, perhaps more than once, and a terminal's Ctrl-C reaches all of a group."""


class Shutdown:
    def __init__(
        self,
        stop: CancelToken,
        clock: Callable[[], float] = time.monotonic,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._stop = stop
        self._clock = clock
        self._leave = leave
        self._first: float | None = None
        # A handler runs between two instructions of the main thread, whatever locks that holds: it must take none. A
        # SimpleQueue may be written to from a handler; a thread of its own then tells the token.
        self._asked: queue.SimpleQueue[None] = queue.SimpleQueue()
        threading.Thread(target=self._stop_when_asked, name="shutdown", daemon=True).start()

    def install(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.received)

    def received(self, number: int, _frame: FrameType | None) -> None:
        now = self._clock()
        if self._first is None:
            self._first = now
            self._asked.put(None)
        elif now - self._first > SAME_SIGNAL_S:
            self._leave(128 + number)

    def _stop_when_asked(self) -> None:
        self._asked.get()
        self._stop.cancel("stop")
