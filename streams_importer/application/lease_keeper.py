"""Renews what this process holds, tells slots whose lease is lost, and says that the process is alive.

1. Renews an explicit list of leases, on a connection of its own.
2. Cancels the attempt of a lease that is no longer held.
3. Beats: what the worker does, and the longest lease it uses.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ..domain.errors import Unavailable
from ..domain.model import Lease
from ..ports import ShardQueue
from .cancellation import CancelToken
from .outages import Outages
from .shard_importer import LOST

RENEWALS_A_LEASE = 4


class LeaseKeeper:
    def __init__(
        self,
        queue: ShardQueue,
        outages: Outages,
        beat: Callable[[int], None],
        lease_s: Callable[[], float],
        failed: Callable[[Exception], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._outages = outages
        self._beat = beat
        self._lease_s = lease_s
        self._failed = failed
        self._clock = clock
        self._held: dict[Lease, CancelToken] = {}
        self._renewed: dict[Lease, float] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()
        self._thread.join(timeout=5)

    def hurry(self) -> None:
        """Leases may have been taken away: renews now, and so finds out which."""
        self._wake.set()

    def hold(self, lease: Lease, cancel: CancelToken) -> None:
        """To be called when it has just been claimed, or renewed."""
        with self._lock:
            self._held[lease] = cancel
            self._renewed[lease] = self._clock()
        cancel.unsure_while(lambda: self._has_run_out(lease))

    def _has_run_out(self, lease: Lease) -> bool:
        """By our own clock: this process, or Redis, stood still. Until the next renewal somebody else may have the shard."""
        renewed = self._renewed.get(lease)
        return renewed is not None and self._clock() - renewed > (self._lease_s() or float("inf"))

    def let_go(self, lease: Lease) -> CancelToken | None:
        with self._lock:
            self._renewed.pop(lease, None)
            return self._held.pop(lease, None)

    def held(self) -> dict[Lease, CancelToken]:
        with self._lock:
            return dict(self._held)

    def run_once(self) -> int:
        """Renews and beats; returns how many leases turned out to be lost."""
        held, asked = self.held(), self._clock()
        lost = [lease for lease, ok in zip(held, self._queue.renew(list(held)), strict=True) if not ok] if held else []
        for lease in lost:
            held[lease].cancel(LOST)
        with self._lock:
            self._renewed.update({lease: asked for lease in held if lease in self._renewed and lease not in lost})
        self._beat(len(held))
        return len(lost)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.run_once()
            except Unavailable as error:
                self._outages.away(error)
                self._stop.wait(0.1)
                continue
            except Exception as error:  # without a keeper a worker must not go on
                self._failed(error)
                return
            self._outages.back("Redis")
            self._wake.wait(min((self._lease_s() or 1.0) / RENEWALS_A_LEASE, 1.0))
            self._wake.clear()
