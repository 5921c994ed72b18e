"""Gives shards back so that others can take them at once: they keep their place and their progress, and it costs them nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..domain.errors import Unavailable
from ..domain.model import Lease
from ..ports import EventSink, ShardQueue
from .lease_keeper import LeaseKeeper


class GivingBack:
    def __init__(self, queue: ShardQueue, keeper: LeaseKeeper, events: EventSink, lease_s_of: Callable[[str], float]) -> None:
        self._queue = queue
        self._keeper = keeper
        self._events = events
        self._lease_s_of = lease_s_of
        self._has_told = False

    def give(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            self._queue.release([lease], self._lease_s_of(lease.import_name))
            token = self._keeper.let_go(lease)
            if token is not None:
                token.close()

    def give_all(self) -> None:
        """Whatever is still held, at the end. Where Redis is away leases run out by themselves, which is told once."""
        try:
            self.give(list(self._keeper.held()))
        except Unavailable as error:
            if not self._has_told:
                self._events("could not give shards back; their leases will run out", level="warning", reason=str(error))
            self._has_told = True
