"""The ledger shard by shard: what people look at, and the ledger's side of cancelling."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from pymongo import ASCENDING, DESCENDING, UpdateOne
from pymongo.database import Database

from ..domain.filters import Filter
from ..domain.model import FINAL_STATES
from ..ports import LedgerRow, ShardRecord
from .ledger_rows import FIELDS, read_row
from .mongo_client import Document, mongo_errors, primary
from .mongo_ledger import COLLECTION, NOT_LEASED, OPEN

T = TypeVar("T")

BATCH = 500
_UNFINISHED = ("pending", "leased")
_RECORD_FIELDS = {**FIELDS, **dict.fromkeys(("createdAt", "finishedAt", "lastErrorAt"), 1)}
_TEXT_FIELDS = {"shard": "shardKey", "run": "run", "error": "lastErrorCode"}


class MongoShards:
    """Implements ports.ShardRecords."""

    def __init__(self, database: Database[Document], namespace: str) -> None:
        self._collection = primary(database, COLLECTION)
        self._namespace = namespace

    def in_states(self, import_name: str, states: Sequence[str], filters: Sequence[Filter]) -> Iterator[list[ShardRecord]]:
        of_import, conditions = self._of(import_name), _conditions(filters)
        ordered = {**of_import, "$and": [{"status": {"$in": list(states)}}, *conditions]}
        yield from self._batches(ordered, _record, sort=[("shardKey", ASCENDING)])
        if "pending" in states:
            # Hardly ever any, so they are not sorted: to get them in order, MongoDB would rather read all rows there are.
            unknown = {"status": {"$nin": [*_UNFINISHED, *FINAL_STATES]}}
            yield from self._batches({**of_import, "$and": [unknown, *conditions]}, _record)

    def of(self, import_name: str, keys: Sequence[str], filters: Sequence[Filter] = ()) -> dict[str, ShardRecord]:
        query = {**self._of(import_name), "$and": [{"shardKey": {"$in": list(keys)}}, *_conditions(filters)]}
        found = (record for batch in self._batches(query, _record) for record in batch)
        return {record.row.shard_key: record for record in found}

    def near(self, import_name: str, key: str, limit: int) -> list[str]:
        following = self._keys(import_name, {"$gte": key}, ASCENDING, limit)
        return following + self._keys(import_name, {"$lt": key}, DESCENDING, limit)

    def cancel(self, import_name: str, rows: Sequence[LedgerRow]) -> list[LedgerRow]:
        change = {"status": "cancelled", "finishedAt": datetime.now(UTC), "countedAs": None, "isCountSure": True, **NOT_LEASED}
        self._update([UpdateOne({**self._round(import_name, row), **OPEN}, {"$set": change}) for row in rows])
        now = self.of(import_name, [row.shard_key for row in rows])
        found = [(row, now[row.shard_key].row) for row in rows if row.shard_key in now]
        return [is_now for row, is_now in found if (is_now.job, is_now.status) == (row.job, "cancelled")]

    def uncounted(self, import_name: str) -> Iterator[list[LedgerRow]]:
        return self._batches({**self._of(import_name), "status": "cancelled", "countedAs": None, "v": OPEN["v"]}, read_row)

    def counted(self, import_name: str, rows: Sequence[LedgerRow]) -> None:
        is_cancelled = {"status": "cancelled", "v": OPEN["v"]}
        change = {"$set": {"countedAs": "cancelled"}}
        self._update([UpdateOne({**self._round(import_name, row), **is_cancelled}, change) for row in rows])

    def _update(self, updates: Sequence[UpdateOne]) -> None:
        if updates:
            with mongo_errors():
                self._collection.bulk_write(updates, ordered=False)

    def _batches(
        self, query: Mapping[str, Any], read: Callable[[Mapping[str, Any]], T | None], **options: Any
    ) -> Iterator[list[T]]:
        with mongo_errors():
            batch: list[T] = []
            for document in self._collection.find(query, _RECORD_FIELDS, batch_size=BATCH, **options):
                one = read(document)
                if one is not None:
                    batch.append(one)
                if len(batch) >= BATCH:
                    yield batch
                    batch = []
            if batch:
                yield batch

    def _keys(self, import_name: str, bound: dict[str, str], direction: int, limit: int) -> list[str]:
        query = {**self._of(import_name), "shardKey": bound}
        with mongo_errors():
            found = self._collection.find(query, {"_id": 0, "shardKey": 1}).sort("shardKey", direction).limit(limit)
            return [str(document["shardKey"]) for document in found]

    def _of(self, import_name: str) -> dict[str, Any]:
        return {"namespace": self._namespace, "import": import_name}

    def _round(self, import_name: str, row: LedgerRow) -> dict[str, Any]:
        return {**self._of(import_name), "shardKey": row.shard_key, "jobId": row.job}


def _conditions(filters: Iterable[Filter]) -> list[dict[str, Any]]:
    conditions: list[dict[str, Any]] = []
    for one in filters:
        if one.field == "attempts":
            conditions.append({"attempts": int(one.pattern)})
        elif one.field in _TEXT_FIELDS:
            value = one.pattern if one.is_exact else {"$regex": one.regex, "$options": "s"}
            conditions.append({_TEXT_FIELDS[one.field]: value})
    return conditions


def _record(document: Mapping[str, Any]) -> ShardRecord | None:
    row = read_row(document)
    if row is None:
        return None
    return ShardRecord(row, *(_time(document.get(name)) for name in ("createdAt", "finishedAt", "lastErrorAt")))


def _time(value: object) -> datetime | None:
    return value if isinstance(value, datetime) else None
