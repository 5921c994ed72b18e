"""The ledger shard by shard, and its side of cancelling: in memory and on MongoDB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo.database import Database

from streams_importer.adapters.mongo_ledger import MongoLedger
from streams_importer.adapters.mongo_setup import set_up
from streams_importer.adapters.mongo_shards import BATCH, MongoShards
from streams_importer.application.shards import shard_filter
from streams_importer.domain.model import FINAL_STATES, STORED_VERSION, Checkpoint, Counts, Failure, Lease
from streams_importer.ports import Ledger, LedgerRow, ShardRecord, ShardRecords
from tests.fakes.ledger import FakeLedger
from tests.fakes.records import FakeRecords

UNTIL = datetime(2026, 2, 21, 10, tzinfo=UTC)
KEYS = ["country:DE", "ids:0..10", "ids:10..20", "ids:20..30"]
SOME = Checkpoint(3, 2**40, Counts(1, 2, 3, 4, 5, 6, 7, 8))
BAD = Failure("http_502", "answered 502", 502)
UNFINISHED = ["pending", "leased"]


@dataclass
class Book:
    ledger: Ledger
    records: ShardRecords
    make_newer: Callable[[str], None]

    def plan(self, *keys: str, run: str = "run1") -> list[Lease]:
        rows, _ = self.ledger.plan("a", keys or KEYS, run)
        return [Lease("a", "1-1", "w:1", 1, row.shard_key, row.job, row.run) for row in rows.values()]

    def start(self, *leases: Lease) -> None:
        self.ledger.start(leases, UNTIL)

    def row(self, key: str) -> LedgerRow:
        return self.ledger.look("a", [key])[key]

    def cancel(self, *keys: str) -> list[LedgerRow]:
        return self.records.cancel("a", [self.row(key) for key in keys])

    def keys(self, *states: str, filters: tuple[str, ...] = ()) -> list[str]:
        chosen = [shard_filter(one) for one in filters]
        return [record.row.shard_key for batch in self.records.in_states("a", states, chosen) for record in batch]


@pytest.fixture(params=["fake", "mongodb"])
def book(request: pytest.FixtureRequest) -> Book:
    if request.param == "fake":
        fake = FakeLedger()

        def newer_fake(key: str) -> None:
            fake.rows["a", key] = replace(fake.rows["a", key], v=STORED_VERSION + 1)

        return Book(fake, FakeRecords(fake), newer_fake)
    db: Database[dict[str, Any]] = request.getfixturevalue("mongo_db")
    set_up(db, "pois")

    def newer_real(key: str) -> None:
        db["import_windows"].update_one({"shardKey": key}, {"$set": {"v": STORED_VERSION + 1}})

    return Book(MongoLedger(db, "si"), MongoShards(db, "si"), newer_real)


# Reading.


def test_rows_are_found_by_their_state_in_the_order_of_their_keys(book: Book) -> None:
    leases = book.plan(*reversed(KEYS))
    book.start(*leases[:2])
    book.ledger.finish([(leases[1], SOME, "done", 0, None)])
    assert book.keys(*UNFINISHED) == [KEYS[0], KEYS[1], KEYS[3]]
    assert book.keys("leased") == [KEYS[3]]
    assert book.keys("done", "failed") == [KEYS[2]]
    assert [list(book.records.in_states(name, UNFINISHED, [])) for name in ("b", "c")] == [[], []]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        (("shard=ids:0..10",), ["ids:0..10"]),
        (("shard=ids:*",), ["ids:0..10", "ids:10..20", "ids:20..30"]),
        (("shard=*0..*0", "shard=ids:1*"), ["ids:10..20"]),
        (("shard=ids:?..10",), []),
        (("shard=.*",), []),
        (("run=run2",), ["ids:20..30"]),
        (("run=run*", "shard=country:*"), ["country:DE"]),
        (("error=http_5*",), ["ids:10..20"]),
        (("error=http_500",), []),
        (("attempts=2",), ["ids:10..20"]),
        (("error=*",), ["ids:10..20"]),
        (("worker=anybody",), KEYS),
    ],
)
def test_all_filters_must_hold_and_the_worker_is_none_of_the_ledgers(
    book: Book, filters: tuple[str, ...], found: list[str]
) -> None:
    leases = book.plan(*KEYS[:3])
    book.plan(KEYS[3], run="run2")
    book.start(leases[2])
    book.ledger.put_back([(leases[2], SOME, 2, BAD)])
    assert book.keys(*UNFINISHED, filters=filters) == found
    assert sorted(book.records.of("a", KEYS, [shard_filter(one) for one in filters])) == found


def test_a_record_is_the_row_as_the_ledger_has_it(book: Book) -> None:
    [lease, *_] = book.plan()
    book.start(lease)
    book.ledger.put_back([(lease, SOME, 2, BAD)])
    assert {key: record.row for key, record in book.records.of("a", [*KEYS, "ids:77..78"]).items()} == book.ledger.look("a", KEYS)
    assert book.records.of("b", KEYS) == {}


def test_the_keys_beside_an_unknown_one_are_told(book: Book) -> None:
    book.plan()
    assert book.records.near("a", "ids:0..1", 2) == ["ids:0..10", "ids:10..20", "country:DE"]
    assert book.records.near("a", "ids:99..100", 2) == ["ids:20..30", "ids:10..20"]
    assert book.records.near("b", "ids:0..10", 2) == []


# Cancelling.


def test_unfinished_rows_are_cancelled_with_their_checkpoint(book: Book) -> None:
    leases = book.plan()
    book.start(*leases[:3])
    book.ledger.checkpoint(leases[1], SOME, UNTIL)
    book.ledger.put_back([(leases[2], SOME, 2, BAD)])
    before = book.ledger.look("a", KEYS)
    cancelled = book.cancel(*KEYS)
    assert {row.shard_key: row for row in cancelled} == book.ledger.look("a", KEYS)
    for row in cancelled:
        assert row == replace(before[row.shard_key], status="cancelled", counted_as=None)
    assert not book.ledger.has_pending("a")


@pytest.mark.parametrize("state", FINAL_STATES)
def test_a_final_row_is_not_cancelled(book: Book, state: str) -> None:
    [lease, *_] = book.plan(KEYS[0])
    book.start(lease)
    book.ledger.finish([(lease, SOME, state, 1, None)])
    before = book.row(KEYS[0])
    assert book.cancel(KEYS[0]) == ([before] if state == "cancelled" else [])
    assert book.row(KEYS[0]) == before


def test_another_round_is_not_cancelled(book: Book) -> None:
    [lease, *_] = book.plan(KEYS[0])
    old = book.row(KEYS[0])
    book.start(lease)
    book.ledger.finish([(lease, SOME, "done", 1, None)])
    book.ledger.reopen("a", KEYS, "done", "run2")
    before = book.row(KEYS[0])
    assert book.records.cancel("a", [old]) == []
    assert book.row(KEYS[0]) == before


def test_a_row_of_a_newer_version_is_not_cancelled_and_not_noted_as_counted(book: Book) -> None:
    book.plan(*KEYS[:2])
    book.cancel(KEYS[1])
    for key in KEYS[:2]:
        book.make_newer(key)
    before = book.ledger.look("a", KEYS)
    assert book.cancel(KEYS[0]) == []
    book.records.counted("a", [book.row(KEYS[1])])
    assert [row for batch in book.records.uncounted("a") for row in batch] == []
    assert book.ledger.look("a", KEYS) == before


def test_a_worker_writes_nothing_more_into_a_cancelled_row(book: Book) -> None:
    [lease, *_] = book.plan(KEYS[0])
    book.start(lease)
    [row] = book.cancel(KEYS[0])
    assert book.ledger.checkpoint(lease, SOME, UNTIL) is False
    book.ledger.put_back([(lease, SOME, 3, BAD)])
    assert book.ledger.finish([(lease, SOME, "done", 0, None)]) == {("a", KEYS[0]): row}
    assert book.row(KEYS[0]) == row


def test_what_redis_was_perhaps_not_told_of_is_known_until_it_is_counted(book: Book) -> None:
    book.plan()
    rows = book.cancel(*KEYS[:3])
    book.records.counted("a", [row for row in rows if row.shard_key != KEYS[1]])
    assert [row.shard_key for batch in book.records.uncounted("a") for row in batch] == [KEYS[1]]
    assert book.row(KEYS[0]).counted_as == "cancelled"
    again = book.ledger.reopen("a", KEYS, "cancelled", "run2")
    assert [(again[key].counted_as, again[key].is_count_sure) for key in KEYS[:2]] == [("cancelled", True), ("cancelled", False)]
    book.records.counted("a", [replace(again[KEYS[1]], status="cancelled")])
    assert book.row(KEYS[1]).counted_as == "cancelled"
    assert book.row(KEYS[1]).is_count_sure is False, "of the round before: too late"
    book.records.cancel("a", [])
    book.records.counted("a", [])


# MongoDB alone.


@pytest.fixture
def db(mongo_db: Database[dict[str, Any]]) -> Database[dict[str, Any]]:
    set_up(mongo_db, "pois")
    return mongo_db


def test_times_come_with_the_record_and_rubbish_in_their_place_is_none(db: Database[dict[str, Any]]) -> None:
    ledger, records = MongoLedger(db, "si"), MongoShards(db, "si")
    row = ledger.plan("a", KEYS[:1], "run1")[0][KEYS[0]]
    lease = Lease("a", "1-1", "w:1", 1, row.shard_key, row.job, row.run)
    ledger.start([lease], UNTIL)
    ledger.put_back([(lease, SOME, 1, BAD)])
    records.cancel("a", [row])
    record = records.of("a", KEYS)[KEYS[0]]
    for time in (record.created_at, record.finished_at, record.failed_at):
        assert time is not None
        assert abs((time - datetime.now(UTC)).total_seconds()) < 60
    [stored] = db["import_windows"].find({})
    assert (stored["leaseOwner"], stored["leaseUntil"]) == (None, None)
    db["import_windows"].update_one({}, {"$set": {"createdAt": "x", "finishedAt": 7, "lastErrorAt": []}})
    found = records.of("a", KEYS)[KEYS[0]]
    assert found == ShardRecord(found.row)


def test_rows_whose_status_nobody_knows_are_among_the_unfinished(db: Database[dict[str, Any]]) -> None:
    ledger, records = MongoLedger(db, "si"), MongoShards(db, "si")
    ledger.plan("a", KEYS, "run1")
    db["import_windows"].update_one({"shardKey": KEYS[2]}, {"$set": {"status": "nonsense"}})
    found = [record.row for batch in records.in_states("a", UNFINISHED, []) for record in batch]
    assert sorted(row.shard_key for row in found) == KEYS
    assert len(records.cancel("a", found)) == len(KEYS)


def test_fifty_of_many_rows_are_read_from_an_index_in_order(db: Database[dict[str, Any]]) -> None:
    ledger, records = MongoLedger(db, "si"), MongoShards(db, "si")
    ledger.plan("a", [f"ids:{n}..{n + 1}" for n in range(3 * BATCH)], "run1")
    queries: list[dict[str, Any]] = [{"status": {"$in": [*UNFINISHED]}}, {"status": {"$in": ["failed"]}}]
    for query in queries:
        cursor = db["import_windows"].find({**records._of("a"), "$and": [query]}).sort("shardKey").limit(50)
        explained = cursor.explain()
        assert explained["executionStats"]["totalDocsExamined"] <= 50
        assert "'SORT'" not in str(explained["queryPlanner"]["winningPlan"])
    first = next(records.in_states("a", UNFINISHED, []))
    assert len(first) == BATCH
    assert [record.row.shard_key for record in first] == sorted(record.row.shard_key for record in first)
