"""What any worker does for all, jittered, so that nothing depends on one of them.

1. Promotes delayed shards whose time has come.
2. Reclaims shards whose lease ran out.
3. Forgets consumers that are gone and have nothing pending.
4. Queues what the ledger has as pending and Redis does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..domain.definition import Definition
from ..domain.model import STORED_VERSION, Garbage, Lease
from ..domain.shard_key import is_key
from ..ports import Claimed, Ledger, LedgerRow, QueuedShard, ShardQueue
from .batches import batches
from .outages import Outages

PROMOTE_BATCH = 500
REQUEUE_BATCH = 500
SPECIAL_CONSUMERS = ("released", "newer")


class Housekeeper:
    def __init__(
        self,
        queue: ShardQueue,
        ledger: Ledger,
        outages: Outages,
        live_leases: Callable[[], dict[str, float]],
        forget_dead: Callable[[], None],
        redis_uptime_s: Callable[[], float],
    ) -> None:
        self._queue = queue
        self._ledger = ledger
        self._outages = outages
        self._live_leases = live_leases
        self._forget_dead = forget_dead
        self._redis_uptime_s = redis_uptime_s

    def promote(self, imports: Sequence[str]) -> int:
        return sum(self._queue.promote(name, PROMOTE_BATCH) for name in imports)

    def reclaim(self, definitions: dict[str, Definition], free: int, held: Sequence[Lease]) -> Claimed:
        """Up to `free` shards of dead workers. The longest lease that a live worker announced counts for all."""
        live = self._live_leases()
        leases, garbage, too_new = list[Lease](), list[Garbage](), 0
        for name, definition in definitions.items():
            lease_s = max([definition.lease_s, *live.values()])
            if free <= len(leases) or self._is_grace(lease_s):
                continue
            own = [lease for lease in held if lease.import_name == name]
            claimed = self._queue.reclaim(name, free - len(leases), lease_s, own)
            leases += claimed.leases
            garbage += claimed.garbage
            too_new += claimed.too_new
        return Claimed(leases, garbage, too_new)

    def _is_grace(self, lease_s: float) -> bool:
        """Idle time runs on while Redis is away: after an outage holders get one lease to renew before anyone reclaims."""
        return min(self._outages.seconds_since("Redis"), self._redis_uptime_s()) < lease_s

    def reap(self, imports: Sequence[str]) -> int:
        self._forget_dead()
        alive = {*self._live_leases(), *SPECIAL_CONSUMERS}
        reaped = 0
        for name in imports:
            gone = [
                consumer for consumer, pending in self._queue.consumers(name).items() if not pending and consumer not in alive
            ]
            reaped += self._queue.reap(name, gone)
        return reaped

    def requeue_missing(self, import_name: str) -> int:
        """A shard that is pending in the ledger and has no place in Redis was lost between the two: it is queued."""
        return sum(self._requeue(import_name, batch) for batch in batches(self._ledger.pending(import_name), REQUEUE_BATCH))

    def _requeue(self, import_name: str, rows: Sequence[LedgerRow]) -> int:
        queued = 0
        for run in {row.run for row in rows}:
            shards = [queued_shard(row) for row in rows if row.run == run and can_be_queued(row)]
            queued += sum(self._queue.enqueue(import_name, shards, run)) if shards else 0
        return queued


def can_be_queued(row: LedgerRow) -> bool:
    """Not what only a newer version understands, nor what nobody can run: it would be dead-lettered and missing for ever."""
    return row.v <= STORED_VERSION and is_key(row.shard_key)


def queued_shard(row: LedgerRow) -> QueuedShard:
    return QueuedShard(row.shard_key, row.job, row.counted_as, row.checkpoint)
