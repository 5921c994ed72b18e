"""Plans shards and queues each once: the ledger first, then the queue."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from ..domain.shard_key import Scope
from ..ports import Ledger, LedgerRow, ShardQueue
from .healer import can_be_queued, queue_up, queued_shard
from .recount import Recount

BATCH = 1000
T = TypeVar("T")
OPENED_AGAIN = ("done", "cancelled")
"""What `--again` goes over once more; failed shards have a way back of their own, with their checkpoint."""


@dataclass(slots=True)
class Produced:
    """What became of the planned shards. Those in flight, done, failed or cancelled are left as they are."""

    run: str
    planned: int = 0
    queued: int = 0
    in_flight: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0
    other: int = 0
    """Split, written by a newer version of us, or no shard that anybody could run."""


def new_run(now: datetime) -> str:
    return f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def _unbounded(wanted: int) -> int:
    return wanted


def _at_once(action: Callable[[], Any]) -> Any:
    return action()


@dataclass(frozen=True, slots=True)
class Producer:
    queue: ShardQueue
    ledger: Ledger
    recount: Recount
    room_for: Callable[[int], int] = _unbounded
    """How many shards may be queued now, of the number given; it waits until that is one at least."""
    patiently: Callable[[Callable[[], Any]], Any] = _at_once
    """Does what it is given, again and again while a server is away or full."""

    def produce(
        self, import_name: str, scopes: Iterable[Scope], run: str, *, again: bool, progress: Callable[[Produced], None]
    ) -> Produced:
        produced = Produced(run)
        for batch in self._batches(scope.key for scope in scopes):
            rows, _ = self.patiently(partial(self.ledger.plan, import_name, batch, run))
            if again:
                for state in OPENED_AGAIN:
                    keys = [key for key, row in rows.items() if row.status == state]
                    rows.update(self.patiently(partial(self.ledger.reopen, import_name, keys, state, run)) if keys else {})
            self._queue(import_name, [rows[key] for key in dict.fromkeys(batch)], produced)
            progress(produced)
        return produced

    def produce_missing(self, import_name: str, run: str, progress: Callable[[Produced], None]) -> Produced:
        """Queues what the ledger has as pending and Redis does not have."""
        produced = Produced(run)
        for batch in self._batches(self.ledger.pending(import_name)):
            self._queue(import_name, batch, produced)
            progress(produced)
        return produced

    def _batches(self, items: Iterable[T]) -> Iterator[list[T]]:
        """As large as there is room for. Nobody waits for room when nothing is left."""
        remaining = iter(items)
        for first in remaining:
            yield [first, *islice(remaining, self.room_for(BATCH) - 1)]

    def _queue(self, import_name: str, rows: Sequence[LedgerRow], produced: Produced) -> None:
        produced.planned += len(rows)
        waiting = []
        for row in rows:
            if not can_be_queued(row) or row.status == "split":
                produced.other += 1
            elif row.status == "done":
                produced.done += 1
            elif row.status == "failed":
                produced.failed += 1
            elif row.status == "cancelled":
                produced.cancelled += 1
            else:
                waiting.append(row)
        if waiting:
            shards, begins = [queued_shard(row) for row in waiting], produced.queued == 0
            enqueue = partial(queue_up, self.queue, self.recount, import_name, shards, produced.run, begins=begins)
            queued = sum(self.patiently(enqueue))
            produced.queued += queued
            produced.in_flight += len(waiting) - queued
