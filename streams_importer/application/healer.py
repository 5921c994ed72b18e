"""Puts right what Redis lost: nobody has to notice, and nobody has to be told.

1. Counters that are gone are rebuilt from the ledger, before anything is queued, and so are dead letters.
2. What the ledger has as pending and Redis does not have is queued.
3. When all has ended, both stores must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..domain.errors import Full, Uncounted
from ..domain.model import STORED_VERSION
from ..domain.shard_key import is_key
from ..ports import Counters, EventSink, Ledger, LedgerRow, QueuedShard, ShardQueue
from .batches import batches
from .recount import Recount

REQUEUE_BATCH = 500


class Healer:
    def __init__(
        self,
        queue: ShardQueue,
        ledger: Ledger,
        counters: Counters,
        events: EventSink,
        server_id: Callable[[], str],
        restore_letters: Callable[[str], int] = lambda _: 0,
    ) -> None:
        self._queue = queue
        self._ledger = ledger
        self._counters = counters
        self._events = events
        self._server_id = server_id
        self._restore_letters = restore_letters
        self._recount = Recount(ledger, counters)
        self._last_server = ""
        self._audited: dict[str, dict[str, str]] = {}

    def heal(self, imports: Sequence[str]) -> list[str]:
        """Looks whether Redis lost its memory, in whole or (another server took over) in part. Returns what was healed."""
        server = self._server_id()
        forgotten = self._counters.forgotten(imports)
        is_another = server != self._last_server and self._last_server != ""
        for name in imports if is_another else forgotten:
            if name in forgotten:
                self._restore_letters(name)  # first: who is interrupted here finds the import forgotten still
                self._recount.rebuild(name)
            queued = self.requeue_missing(name)
            # An import that is new to Redis has nothing to heal, and a restart that kept everything is not worth a line.
            if queued:
                self._events("healed what Redis had lost", level="warning", import_name=name, queued=queued)
        self._last_server = server
        return list(forgotten)

    def requeue_missing(self, import_name: str) -> int:
        """A shard that is pending in the ledger and has no place in Redis was lost between the two: it is queued."""
        try:
            return sum(self._requeue(import_name, batch) for batch in batches(self._ledger.pending(import_name), REQUEUE_BATCH))
        except Full:
            return 0  # it stays missing; what finishes meanwhile makes room

    def audit(self, import_name: str) -> None:
        """Nothing is in flight: whatever a fault left wrong in the counters ends here. Not again while nothing changes."""
        seen = self._counters.read(import_name)
        if seen != self._audited.get(import_name):
            if self._recount.audit(import_name):
                self._events("counters put right", level="warning", import_name=import_name)
            self._audited[import_name] = seen

    def _requeue(self, import_name: str, rows: Sequence[LedgerRow]) -> int:
        queued = 0
        for run in sorted({row.run for row in rows}):
            shards = [queued_shard(row) for row in rows if row.run == run and can_be_queued(row)]
            queued += sum(queue_up(self._queue, self._recount, import_name, shards, run)) if shards else 0
        return queued


def queue_up(
    queue: ShardQueue, recount: Recount, import_name: str, shards: Sequence[QueuedShard], run: str, *, begins: bool = False
) -> list[bool]:
    """Queues shards of ledger rows. The first to do so after a flush rebuilds the counters before."""
    try:
        return queue.enqueue(import_name, shards, run, begins=begins)
    except Uncounted:
        recount.rebuild(import_name)
        return queue.enqueue(import_name, shards, run, begins=begins)


def can_be_queued(row: LedgerRow) -> bool:
    """Not what only a newer version understands, nor what nobody can run: it would be dead-lettered and missing for ever."""
    return row.v <= STORED_VERSION and is_key(row.shard_key)


def queued_shard(row: LedgerRow) -> QueuedShard:
    return QueuedShard(row.shard_key, row.job, row.counted_as, row.checkpoint, row.attempts, row.crashes)
