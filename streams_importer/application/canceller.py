"""Takes shards back: the ledger says the last word, then the script takes them from wherever they are.

1. Finishes what an earlier call began and could not finish.
2. Shards that are somewhere in Redis first: they make room in one that is full.
3. Then the rest. What is nowhere is queued before it is cancelled, so that the counters know it like any other.

A crash between ledger and script is healed by the next claim, which follows what the ledger says, or by the next call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..domain.definition import Definition
from ..domain.filters import Filter
from ..domain.model import STORED_VERSION
from ..ports import LedgerRow, ShardQueue
from .batches import batches
from .healer import queue_up, queued_shard
from .recount import Recount
from .shards import BATCH, LIVE_STATES, Shards, ShardState


@dataclass(frozen=True, slots=True)
class CancelReport:
    cancelled: Counter[str] = field(default_factory=Counter)
    """Shards by the state they were in."""
    left: Counter[str] = field(default_factory=Counter)
    """Named shards that are not in flight, by state, and those that were finished just before we came."""
    unknown: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Canceller:
    queue: ShardQueue
    recount: Recount
    shards: Shards
    progress: Callable[[int], None] = lambda number: None
    """Told after every batch how many are cancelled so far."""

    def cancel_found(
        self, definition: Definition, states: Sequence[str], filters: Sequence[Filter], *, dry_run: bool
    ) -> CancelReport:
        """All shards in these states, all of them live ones, that the filters let through."""
        return self._cancel(definition.name, lambda: self.shards.found(definition, states, filters), dry_run)

    def cancel_named(self, definition: Definition, keys: Sequence[str], *, dry_run: bool) -> CancelReport:
        named = self.shards.named(definition, keys)

        def live() -> list[ShardState]:
            return [shard for shard in self.shards.named(definition, named).values() if shard.status in LIVE_STATES]

        report = self._cancel(definition.name, live, dry_run)
        report.left.update(shard.status for shard in named.values() if shard.status not in LIVE_STATES)
        report.unknown.extend(key for key in dict.fromkeys(keys) if key not in named)
        return report

    def _cancel(self, import_name: str, find: Callable[[], Iterable[ShardState]], dry_run: bool) -> CancelReport:
        if dry_run:
            return _foreseen(find())
        report = CancelReport()
        for rows in self.shards.records.uncounted(import_name):
            self._take(import_name, rows)
        left: set[str] = set()
        # Looked for a second time, which also meets what was claimed or put back while the first went on.
        for is_nowhere_too in (False, True):
            wanted = (shard for shard in find() if is_nowhere_too or not shard.is_nowhere)
            for batch in batches((shard for shard in wanted if shard.record.row.job not in left), BATCH):
                left |= self._cancel_batch(import_name, batch, report)
                self.progress(report.cancelled.total())
        return report

    def _cancel_batch(self, import_name: str, shards: Sequence[ShardState], report: CancelReport) -> set[str]:
        """Returns the rounds that could not be cancelled."""
        ours = [shard for shard in shards if shard.record.row.v <= STORED_VERSION]
        settling = {shard.key for shard in ours if shard.is_settling}
        settling |= self._queue_missing(import_name, [shard.record.row for shard in ours if shard.is_nowhere])
        cancelled = self.shards.records.cancel(import_name, [shard.record.row for shard in ours if shard.key not in settling])
        self._take(import_name, cancelled)
        keys = {row.shard_key for row in cancelled}
        report.cancelled.update(shard.status for shard in shards if shard.key in keys)
        left = [shard.record.row for shard in shards if shard.key not in keys]
        report.left.update(_why_left(row, row.shard_key in settling) for row in left)
        return {row.job for row in left}

    def _queue_missing(self, import_name: str, rows: Sequence[LedgerRow]) -> set[str]:
        """Returns the shards of which Redis still has the round before: that one must be counted first, by who claims it."""
        for run in {row.run for row in rows}:
            queue_up(self.queue, self.recount, import_name, [queued_shard(row) for row in rows if row.run == run], run)
        places = self.shards.places.look(import_name, [row.shard_key for row in rows]) if rows else {}
        return {row.shard_key for row in rows if row.shard_key in places and places[row.shard_key].job not in (None, row.job)}

    def _take(self, import_name: str, rows: Sequence[LedgerRow]) -> None:
        if not rows:
            return
        taken = self.shards.places.cancel(import_name, rows)
        self.shards.records.counted(import_name, [row for row, is_taken in zip(rows, taken, strict=True) if is_taken])


def _foreseen(shards: Iterable[ShardState]) -> CancelReport:
    report = CancelReport()
    for shard in shards:
        if shard.is_settling or shard.record.row.v > STORED_VERSION:
            report.left[_why_left(shard.record.row, shard.is_settling)] += 1
        else:
            report.cancelled[shard.status] += 1
    return report


def _why_left(row: LedgerRow, is_settling: bool) -> str:
    if row.v > STORED_VERSION:
        return "of a newer version"
    return "whose last round is not settled yet" if is_settling else "finished meanwhile"
