"""Plans shards and queues each once: the ledger first, then the queue."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from ..domain.model import STORED_VERSION
from ..domain.shard_key import Scope
from ..ports import Ledger, LedgerRow, ShardQueue
from .housekeeper import queued_shard

BATCH = 1000


@dataclass(slots=True)
class Produced:
    """What became of the planned shards. Those in flight, done or failed are left as they are."""

    run: str
    planned: int = 0
    queued: int = 0
    in_flight: int = 0
    done: int = 0
    failed: int = 0
    other: int = 0
    """Split or cancelled, or written by a newer version of us."""


def new_run(now: datetime) -> str:
    return f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True)
class Producer:
    queue: ShardQueue
    ledger: Ledger

    def produce(
        self, import_name: str, scopes: Iterable[Scope], run: str, *, again: bool, progress: Callable[[Produced], None]
    ) -> Produced:
        produced = Produced(run)
        plan = iter(scopes)
        while batch := [scope.key for scope in islice(plan, BATCH)]:
            rows, _ = self.ledger.plan(import_name, batch, run)
            if again:
                done = [key for key, row in rows.items() if row.status == "done"]
                rows.update(self.ledger.reopen(import_name, done, "done", run) if done else {})
            self._queue(import_name, [rows[key] for key in dict.fromkeys(batch)], produced)
            progress(produced)
        return produced

    def produce_missing(self, import_name: str, run: str, progress: Callable[[Produced], None]) -> Produced:
        """Queues what the ledger has as pending and Redis does not have."""
        produced = Produced(run)
        rows = iter(self.ledger.pending(import_name))
        while batch := list(islice(rows, BATCH)):
            self._queue(import_name, batch, produced)
            progress(produced)
        return produced

    def _queue(self, import_name: str, rows: Sequence[LedgerRow], produced: Produced) -> None:
        produced.planned += len(rows)
        waiting = []
        for row in rows:
            if row.v > STORED_VERSION or row.status in ("split", "cancelled"):
                produced.other += 1
            elif row.status == "done":
                produced.done += 1
            elif row.status == "failed":
                produced.failed += 1
            else:
                waiting.append(row)
        if waiting:
            queued = sum(
                self.queue.enqueue(import_name, [queued_shard(row) for row in waiting], produced.run, begins=produced.queued == 0)
            )
            produced.queued += queued
            produced.in_flight += len(waiting) - queued
