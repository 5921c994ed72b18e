"""How an attempt's end is written down: always the ledger first, then the queue's script. The only place that settles.

A crash between the two is healed by the next claim, which looks in the ledger first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..domain.crash_policy import CrashPolicy
from ..domain.definition import Definition
from ..domain.model import (
    FINAL_STATES,
    STORED_VERSION,
    Abandoned,
    Checkpoint,
    Completed,
    Crashed,
    Dead,
    Failure,
    Garbage,
    Lease,
    Outcome,
    Released,
    Retry,
)
from ..domain.retry_policy import RetryPolicy
from ..ports import MAX_LETTERS, EventSink, Ledger, LedgerRow, ShardQueue


@dataclass(frozen=True, slots=True)
class Attempt:
    """A lease and the definition under which it is imported."""

    lease: Lease
    definition: Definition


@dataclass(frozen=True, slots=True)
class Settlement:
    queue: ShardQueue
    ledger: Ledger
    events: EventSink
    dice: Callable[[], float] = random.random

    def settle(self, ended: Sequence[tuple[Attempt, Outcome]], *, is_repeated: bool = False) -> None:
        """Every call may be repeated as a whole after an outage: what was written already is found so.

        All leases are renewed first: one that is lost writes nothing, in the ledger neither.
        """
        leases = [attempt.lease for attempt, outcome in ended if not isinstance(outcome, Abandoned)]
        held = dict(zip(leases, self.queue.renew(leases), strict=True))
        finished: list[tuple[Lease, Checkpoint, str, int, Failure | None]] = []
        put_back: list[tuple[Lease, Checkpoint, int, Failure | None]] = []
        delays: dict[Lease, float] = {}
        released: list[tuple[Lease, float]] = []
        lost: list[Lease] = []
        for attempt, outcome in ended:
            lease, definition = _cleared(attempt.lease, outcome), attempt.definition
            match outcome if held.get(attempt.lease) else Abandoned():
                case Completed(checkpoint):
                    finished.append((lease, checkpoint, "done", lease.attempts, None))
                case Retry(checkpoint, failure, wait_s):
                    attempts = lease.attempts + 1
                    delay = RetryPolicy(definition.max_attempts, definition.retry_delay_s).delay_after(attempts, self.dice())
                    if delay is None:
                        finished.append((lease, checkpoint, "failed", attempts, failure))
                    else:
                        delays[lease] = max(delay, wait_s)
                        put_back.append((lease, checkpoint, attempts, failure))
                case Crashed(checkpoint, failure, crashes):
                    lease = replace(lease, crashes=crashes)
                    if CrashPolicy(definition.max_crashes).is_enough(crashes):
                        finished.append((lease, checkpoint, "failed", lease.attempts, failure))
                    else:
                        waits = RetryPolicy(definition.max_crashes, definition.retry_delay_s)
                        delays[lease] = waits.delay_after(crashes, self.dice()) or 0.0
                        put_back.append((lease, checkpoint, lease.attempts, failure))
                case Dead(checkpoint, failure):
                    finished.append((lease, checkpoint, "failed", lease.attempts + 1, failure))
                case Released(checkpoint, refused):
                    released.append((lease, definition.lease_s))
                    put_back.append((lease, checkpoint, lease.attempts, refused))
                case Abandoned():
                    lost.append(lease)
        self._finish(finished)
        self._put_back(put_back, delays, released)
        self._tell_lost(lost, is_repeated)

    def _tell_lost(self, lost: Sequence[Lease], is_repeated: bool) -> None:
        ended = self._ended_rows(lost)
        cancelled = {lease: row for lease, row in ended.items() if row.status == "cancelled" and row.v <= STORED_VERSION}
        self._cancelled(cancelled)
        for lease in lost:
            # Of what has ended: we may have settled it ourselves, and the reply that said so was lost.
            if lease not in cancelled and not (is_repeated and lease in ended):
                self.events("lease lost", level="warning", **_who(lease))

    def _cancelled(self, rows: Mapping[Lease, LedgerRow]) -> None:
        """Shards cancelled under our hands. The queue is told in case that whoever cancelled them has not come to it."""
        unsettled = [(lease, row.checkpoint) for lease, row in rows.items() if row.counted_as is None]
        if unsettled:
            self._complete(unsettled, "cancelled")
        for lease in rows:
            self.events("shard cancelled", level="info", **_who(lease))

    def _ended_rows(self, leases: Sequence[Lease]) -> dict[Lease, LedgerRow]:
        """Those whose round has ended."""
        keys: dict[str, list[str]] = {}
        for lease in leases:
            keys.setdefault(lease.import_name, []).append(lease.shard_key)
        rows = {(name, key): row for name, some in keys.items() for key, row in self.ledger.look(name, some).items()}
        found = [(lease, rows.get((lease.import_name, lease.shard_key))) for lease in leases]
        return {lease: row for lease, row in found if row is not None and row.job == lease.job and row.status in FINAL_STATES}

    def _finish(self, finished: list[tuple[Lease, Checkpoint, str, int, Failure | None]]) -> None:
        if not finished:
            return
        overruled = self.ledger.finish(finished)
        done = []
        for lease, checkpoint, state, attempts, failure in finished:
            row = overruled.get((lease.import_name, lease.shard_key))
            if row is not None:
                self.follow(lease, row)
            elif state == "done":
                done.append((lease, checkpoint))
            else:
                self._dead_letter(lease, checkpoint, failure, attempts)
        if done:
            self._complete(done, "done")
        for lease, checkpoint in done:
            counts = checkpoint.counts
            self.events("shard done", level="debug", **_who(lease), pages=checkpoint.page, seen=counts.seen)

    def _complete(self, settled: Sequence[tuple[Lease, Checkpoint]], state: str) -> None:
        answers = self.queue.complete(settled, state)
        self.ledger.counted([(lease, state) for (lease, _), ok in zip(settled, answers, strict=True) if ok])

    def _put_back(
        self,
        put_back: list[tuple[Lease, Checkpoint, int, Failure | None]],
        delays: dict[Lease, float],
        released: list[tuple[Lease, float]],
    ) -> None:
        if not put_back:
            return
        self.ledger.put_back(put_back)
        for lease, checkpoint, attempts, failure in put_back:
            if lease in delays and self.queue.retry(lease, checkpoint, delays[lease], attempts) and failure is not None:
                self.events("shard failed, will be tried again", level="warning", **_who(lease), attempts=attempts,
                            wait_s=round(delays[lease], 1), error=failure.code, message=failure.message)  # fmt: skip
            elif lease not in delays and failure is not None:
                self.queue.checkpoint(lease, checkpoint)  # the request that was refused counts as made
        for seconds in {lease_s for _, lease_s in released}:
            self.queue.release([lease for lease, lease_s in released if lease_s == seconds], seconds)

    def follow(self, lease: Lease, row: LedgerRow) -> None:
        """The ledger's row is final, or another round's: the queue is told what the ledger says."""
        if row.v > STORED_VERSION:
            self.queue.hand_over(lease, row.v)
        elif row.job != lease.job:
            self._end_round_before(lease, row)
        elif row.status not in FINAL_STATES:
            self.events("lease lost", level="warning", **_who(lease))  # whoever has it now is further than we are
        elif row.counted_as is not None:
            self.queue.discard([lease])
        elif row.status == "failed":
            self._dead_letter(lease, row.checkpoint, row.failure, row.attempts)
        elif row.status == "cancelled":
            self._cancelled({lease: row})
        else:
            self._complete([(lease, row.checkpoint)], row.status)

    def _end_round_before(self, lease: Lease, row: LedgerRow) -> None:
        """A new round was opened while the entry of the one before was still here. That one is counted if it was not; the new
        one is pending and nowhere, so it will be queued."""
        if row.is_count_sure or row.counted_as is None:
            self.queue.discard([lease])
        else:
            self.queue.complete([(lease, replace(lease.checkpoint, counts=row.checkpoint.counts))], row.counted_as)

    def bury(self, item: Lease | Garbage, code: str, reason: str) -> None:
        """Dead-letters what can never run and has no row in the ledger to say so."""
        checkpoint = item.checkpoint if isinstance(item, Lease) else Checkpoint()
        if isinstance(item, Lease):
            item = Garbage(item.import_name, item.entry, item.consumer, item.count, reason, item.shard_key, item.shard_key)
        buried = self.queue.dead_letter(item, checkpoint, Failure(code, reason), 0)
        if buried:
            self.events("garbage dead-lettered", level="warning", import_name=item.import_name, entry=item.entry, reason=reason)
        self._tell_dropped(item.import_name, buried.dropped)

    def _dead_letter(self, lease: Lease, checkpoint: Checkpoint, failure: Failure | None, attempts: int) -> None:
        failure = failure or Failure("unknown", "the ledger does not say why")
        buried = self.queue.dead_letter(lease, checkpoint, failure, attempts)
        if buried:
            self.ledger.counted([(lease, "failed")])
            self.events("shard dead-lettered", level="error", **_who(lease), attempts=attempts, error=failure.code,
                        message=failure.message)  # fmt: skip
        self._tell_dropped(lease.import_name, buried.dropped)

    def _tell_dropped(self, import_name: str, number: int) -> None:
        if number:
            self.events("dead letters dropped", level="warning", import_name=import_name, dropped=number, kept=MAX_LETTERS,
                        hint="shards list --status failed shows their shards, and dlq replay still takes them")  # fmt: skip


def _cleared(lease: Lease, outcome: Outcome) -> Lease:
    """A shard that stored a page is no suspect any more, however the attempt ended."""
    checkpoint = getattr(outcome, "checkpoint", lease.checkpoint)
    return replace(lease, crashes=0) if lease.crashes and checkpoint.page > lease.checkpoint.page else lease


def with_ledger(lease: Lease, row: LedgerRow) -> Lease:
    """The lease, going on where the later of the two stores says: the ledger is written first, so it may be a page ahead."""
    if row.checkpoint.page > lease.checkpoint.page:
        return replace(lease, checkpoint=row.checkpoint)
    return lease


def _who(lease: Lease) -> dict[str, object]:
    return {"import_name": lease.import_name, "shard": lease.shard_key, "worker": lease.consumer}
