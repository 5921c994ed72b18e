"""Holds a producer back while enough is in flight: Redis' memory follows what is in flight, and nothing is ever dropped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

LOOK_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class Backlog:
    """`in_flight` counts the shards queued, leased and delayed; `waiting` is told of them whenever there is no room;
    `sleep` may raise to end the waiting."""

    most: int
    in_flight: Callable[[], int]
    waiting: Callable[[int], None]
    sleep: Callable[[float], object]

    def room_for(self, wanted: int) -> int:
        """How many of `wanted` shards may be queued now: at least one, after waiting for it."""
        # Not for every single shard that a worker finishes: a batch costs as much as one.
        worthwhile = min(wanted, max(1, self.most // 10))
        while True:
            in_flight = self.in_flight()
            room = self.most - in_flight
            if room >= worthwhile:
                return min(wanted, room)
            self.waiting(in_flight)
            self.sleep(LOOK_EVERY_S)
