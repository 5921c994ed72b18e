"""`import_windows`: the ledger, one document a shard. It knows what is finished; Redis knows what is in flight.

Every change is one conditional update: this round (`jobId`), not final yet, not written by a newer version of us. So a
worker that lost its shard changes nothing, and a change asked for twice happens once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any
from uuid import uuid4

from pymongo import UpdateOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from ..domain.model import FINAL_STATES, RECORD_COUNTS, STORED_VERSION, Checkpoint, Failure, Lease
from ..ports import LedgerRow, LedgerTotals
from .ledger_rows import FIELDS, MAX_COUNT, checkpoint_fields, failure_fields, new_row, read_row, read_rows, read_totals
from .mongo_client import Document, mongo_errors, primary, translated

COLLECTION = "import_windows"
KEYS_A_FIND = 10_000
"""Shard keys have up to 256 characters: the list stays far below the 16 MB of one command."""

OPEN = {"status": {"$nin": list(FINAL_STATES)}, "v": {"$not": {"$gt": STORED_VERSION}}}
"""Negated, so that a row whose status or version is broken counts as unfinished and is put right by the next change."""
NOT_LEASED = {"leaseOwner": None, "leaseUntil": None}
_DUPLICATE_KEY = 11000


class MongoLedger:
    def __init__(self, database: Database[Document], namespace: str) -> None:
        self._collection = primary(database, COLLECTION)
        self._namespace = namespace

    def plan(self, import_name: str, keys: Sequence[str], run: str) -> tuple[dict[str, LedgerRow], int]:
        with mongo_errors():
            rows = self._look(import_name, keys)
            fresh = {key: new_row(self._namespace, import_name, key, run) for key in keys if key not in rows}
            lost = self._insert(list(fresh.values())) if fresh else []
            rows |= read_rows(document for key, document in fresh.items() if key not in lost)
            if lost:
                rows |= self._look(import_name, lost)
        return rows, len(fresh) - len(lost)

    def reopen(self, import_name: str, keys: Sequence[str], state: str, run: str) -> dict[str, LedgerRow]:
        if state not in FINAL_STATES:
            raise ValueError(f"{state} is not a final state")
        change = {"status": "pending", "run": run, "attempts": 0, "crashes": 0, "finishedAt": None, **NOT_LEASED}
        change |= failure_fields(None)
        if state != "failed":
            change |= {"page": 0, "cursor": None}  # the counts stay: they are totals over all rounds
        with mongo_errors():
            rows = self._look(import_name, keys)
            updates = [
                UpdateOne(
                    {**self._shard(import_name, key), "status": state, "jobId": row.job, "v": OPEN["v"]},
                    {"$set": {**change, "jobId": str(uuid4()), "countedAs": state, "isCountSure": row.counted_as == state}},
                )
                for key, row in rows.items()
                if row.status == state and row.v <= STORED_VERSION
            ]
            if not updates:
                return rows
            self._collection.bulk_write(updates, ordered=False)
            return self._look(import_name, keys)

    def look(self, import_name: str, keys: Sequence[str]) -> dict[str, LedgerRow]:
        with mongo_errors():
            return self._look(import_name, keys)

    def pending(self, import_name: str) -> Iterator[LedgerRow]:
        with mongo_errors():
            for document in self._collection.find(self._unfinished(import_name), FIELDS):
                row = read_row(document)
                if row is not None:
                    yield row

    def has_pending(self, import_name: str) -> bool:
        with mongo_errors():
            return self._collection.find_one(self._unfinished(import_name), {"_id": 1}) is not None

    def totals(self, import_name: str) -> LedgerTotals:
        """One pass over the rows of the import, on the server."""
        sums: dict[str, Any] = {name: {"$sum": f"$counts.{name}"} for name in RECORD_COUNTS}
        by = {"status": "$status", "run": "$run", "counted": "$countedAs"}
        group = {"_id": by, "shards": {"$sum": 1}, "ended": {"$max": "$finishedAt"}, **sums}
        with mongo_errors():
            of_import = {"$match": {"namespace": self._namespace, "import": import_name}}
            return read_totals(self._collection.aggregate([of_import, {"$group": group}]))

    def disown(self, import_name: str) -> None:
        leased = {"namespace": self._namespace, "import": import_name, **OPEN, "leaseOwner": {"$ne": None}}
        with mongo_errors():
            self._collection.update_many(leased, {"$set": {"status": "pending", **NOT_LEASED}})

    def start(self, leases: Sequence[Lease], until: datetime) -> None:
        """Whoever held the shard before can change nothing in its row any more."""
        if leases:
            updates = []
            for lease in leases:
                leased = {"status": "leased", "leaseUntil": until, "leaseOwner": lease.consumer, "run": lease.run}
                updates.append(UpdateOne(self._open(lease), {"$set": {**leased, "crashes": lease.crashes}}))
            with mongo_errors():
                self._collection.bulk_write(updates, ordered=False)

    def checkpoint(self, lease: Lease, checkpoint: Checkpoint, until: datetime) -> bool:
        change = {"status": "leased", "leaseUntil": until, "crashes": 0, **checkpoint_fields(checkpoint)}
        with mongo_errors():
            if self._collection.update_one({**self._held(lease), **_not_beyond(checkpoint)}, {"$set": change}).matched_count == 1:
                return True
            return self._collection.find_one(self._held(lease), {"_id": 1}) is not None

    def put_back(self, settled: Sequence[tuple[Lease, Checkpoint, int, Failure | None]]) -> None:
        changes = []
        for lease, checkpoint, attempts, why in settled:
            change = {"status": "pending", "attempts": attempts, "crashes": lease.crashes, **NOT_LEASED}
            change |= checkpoint_fields(checkpoint)
            changes.append((lease, change | (failure_fields(why) if why else {}), checkpoint))
        self._change(changes)

    def finish(self, settled: Sequence[tuple[Lease, Checkpoint, str, int, Failure | None]]) -> dict[tuple[str, str], LedgerRow]:
        changes = []
        now = datetime.now(UTC)
        for lease, checkpoint, state, attempts, why in settled:
            change = {
                "status": state,
                "attempts": attempts,
                "crashes": lease.crashes,
                "finishedAt": now,
                "countedAs": None,
                "isCountSure": True,
                "run": lease.run,
            }
            change |= {**NOT_LEASED, **checkpoint_fields(checkpoint)}
            changes.append((lease, change | (failure_fields(why) if why else {}), checkpoint))
        if self._change(changes) == len(changes):
            return {}
        # The bulk only says how many. A row that reads exactly as we wanted it is ours, or no different from ours.
        unchanged = {}
        rows = self._look_at([lease for lease, *_ in settled])
        for lease, checkpoint, state, attempts, _ in settled:
            row = rows.get((lease.import_name, lease.shard_key))
            if row is not None and (row.job, row.status, row.attempts, row.checkpoint) != (
                lease.job,
                state,
                attempts,
                checkpoint,
            ):
                unchanged[lease.import_name, lease.shard_key] = row
        return unchanged

    def _look_at(self, leases: Sequence[Lease]) -> dict[tuple[str, str], LedgerRow]:
        keys: dict[str, list[str]] = {}
        for lease in leases:
            keys.setdefault(lease.import_name, []).append(lease.shard_key)
        return {(name, key): row for name, some in keys.items() for key, row in self.look(name, some).items()}

    def counted(self, settled: Sequence[tuple[Lease, str]]) -> None:
        if settled:
            updates = [
                UpdateOne(
                    {**self._shard(lease.import_name, lease.shard_key), "jobId": lease.job, "status": state, "v": OPEN["v"]},
                    {"$set": {"countedAs": state}},
                )
                for lease, state in settled
            ]
            with mongo_errors():
                self._collection.bulk_write(updates, ordered=False)

    def _change(self, changes: Sequence[tuple[Lease, dict[str, Any], Checkpoint | None]]) -> int:
        """A change that carries a checkpoint never takes the row back to an earlier page."""
        if not changes:
            return 0
        updates = [
            UpdateOne({**self._held(lease), **_not_beyond(checkpoint)}, {"$set": change}) for lease, change, checkpoint in changes
        ]
        with mongo_errors():
            return self._collection.bulk_write(updates, ordered=False).matched_count

    def _look(self, import_name: str, keys: Iterable[str]) -> dict[str, LedgerRow]:
        rows: dict[str, LedgerRow] = {}
        remaining = iter(dict.fromkeys(keys))
        while some := list(islice(remaining, KEYS_A_FIND)):
            query = {"namespace": self._namespace, "import": import_name, "shardKey": {"$in": some}}
            rows |= read_rows(self._collection.find(query, FIELDS, batch_size=len(some) + 1))
        return rows

    def _insert(self, documents: list[Document]) -> list[str]:
        """The keys that somebody else recorded first."""
        try:
            self._collection.insert_many(documents, ordered=False)
            return []
        except BulkWriteError as error:
            errors = error.details["writeErrors"]
            if translated(error) or any(each["code"] != _DUPLICATE_KEY for each in errors):
                raise
            return [documents[each["index"]]["shardKey"] for each in errors]

    def _shard(self, import_name: str, key: str) -> dict[str, Any]:
        return {"namespace": self._namespace, "import": import_name, "shardKey": key}

    def _open(self, lease: Lease) -> dict[str, Any]:
        return {**self._shard(lease.import_name, lease.shard_key), "jobId": lease.job, **OPEN}

    def _held(self, lease: Lease) -> dict[str, Any]:
        return {**self._open(lease), "leaseOwner": lease.consumer}

    def _unfinished(self, import_name: str) -> dict[str, Any]:
        return {"namespace": self._namespace, "import": import_name, "status": OPEN["status"]}


def _not_beyond(checkpoint: Checkpoint | None) -> dict[str, Any]:
    """A former holder that wakes up late must not undo the pages of its successor."""
    # A page that nobody can have reached is broken, and is put right.
    return {} if checkpoint is None else {"page": {"$not": {"$gt": checkpoint.page, "$lt": MAX_COUNT}}}
