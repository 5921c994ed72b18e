"""A server that is away is waited out: one line when it goes, one with the length when it is back, and nobody is charged."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ..domain.errors import Cancelled, Unavailable
from ..ports import Cancel, EventSink

T = TypeVar("T")

FIRST_WAIT_S = 0.05
LONGEST_WAIT_S = 1.0


class Outages:
    """Shared by all threads of a process, so that an outage is told once however many meet it."""

    def __init__(self, events: EventSink, clock: Callable[[], float] = time.monotonic) -> None:
        self._events = events
        self._clock = clock
        self._since: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        self._lock = threading.Lock()

    def patiently(self, cancel: Cancel, action: Callable[[], T], *, is_proof: bool = True) -> T:
        """Does `action`, again and again while a server is away. Raises Cancelled when told to stop meanwhile.

        `is_proof`: that it succeeds shows that the servers it met as away are back. False for what may succeed without
        asking them.
        """
        wait = FIRST_WAIT_S
        met: set[str] = set()
        while True:
            try:
                result = action()
            except Unavailable as error:
                self.away(error)
                met.add(error.server)
            else:
                for server in sorted(met if is_proof else ()):
                    self.back(server)
                return result
            if cancel.wait(wait * random.uniform(0.5, 1.0)):
                raise Cancelled(f"stopped while waiting for {' and '.join(sorted(met))}")
            wait = min(wait * 2, LONGEST_WAIT_S)

    def away(self, error: Unavailable) -> None:
        with self._lock:
            if error.server in self._since:
                return
            self._since[error.server] = self._clock()
        self._events("outage", level="warning", server=error.server, reason=error.reason)

    def back(self, server: str) -> None:
        with self._lock:
            since = self._since.pop(server, None)
            if since is None:
                return
            now = self._ended[server] = self._clock()
        self._events("outage over", server=server, seconds=round(now - since, 1))

    def seconds_since(self, server: str) -> float:
        """How long ago the server's last outage ended; infinite when there was none, 0 while it lasts."""
        with self._lock:
            if server in self._since:
                return 0.0
            return self._clock() - self._ended[server] if server in self._ended else float("inf")
