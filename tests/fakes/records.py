"""The ledger in memory, read shard by shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from streams_importer.domain.filters import Filter
from streams_importer.domain.model import FINAL_STATES, STORED_VERSION
from streams_importer.ports import LedgerRow, ShardRecord
from tests.fakes.ledger import FakeLedger


class FakeRecords:
    """Implements ports.ShardRecords on the rows of a fake ledger. `read` counts the rows that were handed out."""

    def __init__(self, ledger: FakeLedger) -> None:
        self.ledger = ledger
        self.read = 0

    def in_states(self, import_name: str, states: Sequence[str], filters: Sequence[Filter]) -> Iterator[list[ShardRecord]]:
        for key in sorted(key for name, key in self.ledger.rows if name == import_name):
            row = self.ledger.rows[import_name, key]
            if row.status in states and _fits(row, filters):
                self.read += 1
                yield [ShardRecord(row)]

    def of(self, import_name: str, keys: Sequence[str], filters: Sequence[Filter] = ()) -> dict[str, ShardRecord]:
        rows = self.ledger.look(import_name, keys)
        return {key: ShardRecord(row) for key, row in rows.items() if _fits(row, filters)}

    def near(self, import_name: str, key: str, limit: int) -> list[str]:
        keys = sorted(known for name, known in self.ledger.rows if name == import_name)
        following = [known for known in keys if known >= key][:limit]
        return following + [known for known in reversed(keys) if known < key][:limit]

    def cancel(self, import_name: str, rows: Sequence[LedgerRow]) -> list[LedgerRow]:
        for row in rows:
            known = self.ledger.rows.get((import_name, row.shard_key))
            if known and known.job == row.job and known.status not in FINAL_STATES and known.v <= STORED_VERSION:
                changed = replace(known, status="cancelled", counted_as=None, is_count_sure=True)
                self.ledger.rows[import_name, row.shard_key] = changed
        found = [(row, self.ledger.rows.get((import_name, row.shard_key))) for row in rows]
        return [known for row, known in found if known and (known.job, known.status) == (row.job, "cancelled")]

    def uncounted(self, import_name: str) -> Iterator[list[LedgerRow]]:
        rows = [row for (name, _), row in self.ledger.rows.items() if name == import_name and row.v <= STORED_VERSION]
        yield [row for row in rows if row.status == "cancelled" and row.counted_as is None]

    def counted(self, import_name: str, rows: Sequence[LedgerRow]) -> None:
        for row in rows:
            known = self.ledger.rows.get((import_name, row.shard_key))
            if known and (known.job, known.status) == (row.job, "cancelled") and known.v <= STORED_VERSION:
                self.ledger.rows[import_name, row.shard_key] = replace(known, counted_as="cancelled")


def _fits(row: LedgerRow, filters: Sequence[Filter]) -> bool:
    values = {"shard": row.shard_key, "run": row.run, "attempts": str(row.attempts)}
    values |= {"error": row.failure.code} if row.failure else {}
    return all(one.field in values and one.matches(values[one.field]) for one in filters if one.field != "worker")
