"""What any worker does for all, jittered, so that nothing depends on one of them.

1. Promotes delayed shards whose time has come.
2. Reclaims shards whose lease ran out.
3. Forgets consumers that are gone and have nothing pending.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..domain.definition import Definition
from ..domain.model import Garbage, Lease
from ..ports import Claimed, ShardQueue
from .outages import Outages

PROMOTE_BATCH = 500


class Housekeeper:
    def __init__(
        self,
        queue: ShardQueue,
        outages: Outages,
        live_leases: Callable[[], dict[str, float]],
        forget_dead: Callable[[], None],
        redis_uptime_s: Callable[[], float],
    ) -> None:
        self._queue = queue
        self._outages = outages
        self._live_leases = live_leases
        self._forget_dead = forget_dead
        self._redis_uptime_s = redis_uptime_s

    def promote(self, imports: Sequence[str]) -> int:
        return sum(self._queue.promote(name, PROMOTE_BATCH) for name in imports)

    def reclaim(self, definitions: dict[str, Definition], free: int, held: Sequence[Lease]) -> Claimed:
        """Up to `free` shards of dead workers. The longest lease that a live worker announced counts for all."""
        live = self._live_leases()
        leases, garbage, too_new, deleted = list[Lease](), list[Garbage](), 0, 0
        there_s = min(self._outages.seconds_since("Redis"), self._redis_uptime_s())
        for name, definition in definitions.items():
            lease_s = max([definition.lease_s, *live.values()])
            # Idle time runs on while Redis is away: after an outage holders get one lease to renew before anyone reclaims.
            if free <= len(leases) or there_s < lease_s:
                continue
            own = [lease for lease in held if lease.import_name == name]
            claimed = self._queue.reclaim(name, free - len(leases), lease_s, own, there_s)
            leases += claimed.leases
            garbage += claimed.garbage
            too_new += claimed.too_new
            deleted += claimed.deleted
        return Claimed(leases, garbage, too_new, deleted)

    def reap(self, imports: Sequence[str]) -> int:
        self._forget_dead()
        alive = self._live_leases()
        reaped = 0
        for name in imports:
            gone = [
                consumer for consumer, pending in self._queue.consumers(name).items() if not pending and consumer not in alive
            ]
            reaped += self._queue.reap(name, gone)
        return reaped
