"""A ledger in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid4

from streams_importer.domain.errors import Unavailable
from streams_importer.domain.model import FINAL_STATES, RECORD_COUNTS, STORED_VERSION, Checkpoint, Failure, Lease
from streams_importer.ports import LedgerRow, LedgerTotals


class FakeLedger:
    """`rows` is open to tests, by import and shard key. While `away` is True every call fails as in an outage."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], LedgerRow] = {}
        self.owners: dict[tuple[str, str], str] = {}
        self.finished: dict[str, datetime] = {}
        """When rounds ended, by job."""
        self.away = False

    def plan(self, import_name: str, keys: Sequence[str], run: str) -> tuple[dict[str, LedgerRow], int]:
        self._reach()
        new = 0
        for key in keys:
            if (import_name, key) not in self.rows:
                row = LedgerRow(key, str(uuid4()), run, "pending", 0, Checkpoint(), None, None, STORED_VERSION)
                self.rows[import_name, key] = row
                new += 1
        return self.look(import_name, keys), new

    def reopen(self, import_name: str, keys: Sequence[str], state: str, run: str) -> dict[str, LedgerRow]:
        self._reach()
        if state not in FINAL_STATES:
            raise ValueError(f"{state} is not a final state")
        for key, row in self.look(import_name, keys).items():
            if row.status == state and row.v <= STORED_VERSION:
                checkpoint = row.checkpoint if state == "failed" else Checkpoint(counts=row.checkpoint.counts)
                fresh = LedgerRow(key, str(uuid4()), run, "pending", 0, checkpoint, state, None, row.v, row.counted_as == state)
                self.rows[import_name, key] = fresh
        return self.look(import_name, keys)

    def look(self, import_name: str, keys: Sequence[str]) -> dict[str, LedgerRow]:
        self._reach()
        return {key: self.rows[import_name, key] for key in keys if (import_name, key) in self.rows}

    def pending(self, import_name: str) -> Iterator[LedgerRow]:
        self._reach()
        rows = [row for (name, _), row in self.rows.items() if name == import_name]
        return iter([row for row in rows if row.status not in FINAL_STATES])

    def has_pending(self, import_name: str) -> bool:
        return any(True for _ in self.pending(import_name))

    def totals(self, import_name: str) -> LedgerTotals:
        self._reach()
        rows = [row for (name, _), row in self.rows.items() if name == import_name]
        newest = max((row.run for row in rows), default="")
        of_run = Counter(row.status for row in rows if row.run == newest)
        ended = [self.finished[row.job] for row in rows if row.run == newest and row.job in self.finished]
        is_over = of_run.total() == sum(of_run[state] for state in FINAL_STATES)
        records = {name: sum(getattr(row.checkpoint.counts, name) for row in rows) for name in RECORD_COUNTS}
        states = Counter(row.status if row.status in FINAL_STATES else row.counted_as for row in rows)
        return LedgerTotals(
            sum(row.status not in FINAL_STATES for row in rows),
            {state: states[state] for state in FINAL_STATES},
            records,
            newest,
            {state: of_run[state] for state in FINAL_STATES},
            max(ended, default=None) if is_over else None,
        )

    def disown(self, import_name: str) -> None:
        self._reach()
        for place, row in self.rows.items():
            if place[0] == import_name and self.owners.pop(place, "") and row.status not in FINAL_STATES:
                self.rows[place] = replace(row, status="pending")

    def start(self, leases: Sequence[Lease], until: datetime) -> None:
        self._reach()
        for lease in leases:
            if row := self._open(lease):
                self.owners[lease.import_name, lease.shard_key] = lease.consumer
                self._put(lease, replace(row, status="leased", run=lease.run, crashes=lease.crashes))

    def checkpoint(self, lease: Lease, checkpoint: Checkpoint, until: datetime) -> bool:
        self._reach()
        row = self._held(lease)
        if row and row.checkpoint.page <= checkpoint.page:
            self._put(lease, replace(row, status="leased", checkpoint=checkpoint, crashes=0))
        return row is not None

    def put_back(self, settled: Sequence[tuple[Lease, Checkpoint, int, Failure | None]]) -> None:
        self._reach()
        for lease, checkpoint, attempts, why in settled:
            if (row := self._held(lease)) and row.checkpoint.page <= checkpoint.page:
                failure = why or row.failure
                back = replace(row, status="pending", checkpoint=checkpoint, attempts=attempts, failure=failure)
                self._put(lease, replace(back, crashes=lease.crashes))
                self.owners.pop((lease.import_name, lease.shard_key))

    def finish(self, settled: Sequence[tuple[Lease, Checkpoint, str, int, Failure | None]]) -> dict[tuple[str, str], LedgerRow]:
        self._reach()
        unchanged = {}
        for lease, checkpoint, state, attempts, why in settled:
            if (row := self._held(lease)) and row.checkpoint.page <= checkpoint.page:
                final = replace(row, status=state, checkpoint=checkpoint, attempts=attempts, failure=why or row.failure)
                self.finished[lease.job] = datetime.now(UTC)
                self._put(lease, replace(final, counted_as=None, is_count_sure=True, run=lease.run, crashes=lease.crashes))
                continue
            there = self.rows.get((lease.import_name, lease.shard_key))
            wanted = (lease.job, state, attempts, checkpoint)
            if there and (there.job, there.status, there.attempts, there.checkpoint) != wanted:
                unchanged[lease.import_name, lease.shard_key] = there
        return unchanged

    def counted(self, settled: Sequence[tuple[Lease, str]]) -> None:
        self._reach()
        for lease, state in settled:
            row = self.rows.get((lease.import_name, lease.shard_key))
            if row and row.job == lease.job and row.status == state and row.v <= STORED_VERSION:
                self._put(lease, replace(row, counted_as=state))

    def _held(self, lease: Lease) -> LedgerRow | None:
        is_owner = self.owners.get((lease.import_name, lease.shard_key)) == lease.consumer
        return self._open(lease) if is_owner else None

    def _open(self, lease: Lease) -> LedgerRow | None:
        row = self.rows.get((lease.import_name, lease.shard_key))
        if row is None or row.job != lease.job or row.status in FINAL_STATES or row.v > STORED_VERSION:
            return None
        return row

    def _put(self, lease: Lease, row: LedgerRow) -> None:
        self.rows[lease.import_name, lease.shard_key] = row

    def _reach(self) -> None:
        if self.away:
            raise Unavailable("MongoDB", "away")
