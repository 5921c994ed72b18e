"""The ledger as it lies in MongoDB: its fields, its indexes, rows that others broke, and rounds that race."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo.database import Database

from streams_importer.adapters.mongo_catalogue import MongoCatalogue
from streams_importer.adapters.mongo_client import connect
from streams_importer.adapters.mongo_ledger import MongoLedger
from streams_importer.adapters.mongo_setup import set_up
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import BadSetting, Unavailable
from streams_importer.domain.model import Checkpoint, Counts, Failure, Lease
from streams_importer.embedded.servers import EmbeddedServers
from streams_importer.ports import LedgerRow, Pause

Db = Database[dict[str, Any]]
UNTIL = datetime(2026, 2, 21, 10, tzinfo=UTC)
KEY = "ids:0..10"
SOME = Checkpoint(2, 17, Counts(1, 2, 3, 4, 5, 6, 7, 8))


@pytest.fixture
def db(mongo_db: Db) -> Db:
    set_up(mongo_db, "pois")
    return mongo_db


@pytest.fixture
def ledger(db: Db) -> MongoLedger:
    return MongoLedger(db, "si")


def lease_on(row: LedgerRow) -> Lease:
    return Lease("a", "1-1", "w:1", 1, row.shard_key, row.job, row.run)


def held(ledger: MongoLedger, row: LedgerRow) -> Lease:
    """A shard that a worker has started."""
    ledger.start([lease_on(row)], UNTIL)
    return lease_on(row)


def test_a_row_has_the_fields_of_the_contract(db: Db, ledger: MongoLedger) -> None:
    row = ledger.plan("a", [KEY], "run1")[0][KEY]
    ledger.checkpoint(held(ledger, row), SOME, UNTIL)
    (stored,) = db["import_windows"].find({}, {"_id": 0})
    assert abs((stored.pop("createdAt") - datetime.now(UTC)).total_seconds()) < 60
    counts = {"seen": 15, "inserted": 1, "updated": 2, "unchanged": 3, "stale": 4, "rejected": 5}
    none = ("lastErrorCode", "lastError", "lastErrorAt", "countedAs", "finishedAt")
    assert stored == {
        "jobId": row.job, "namespace": "si", "import": "a", "shardKey": KEY, "run": "run1", "status": "leased", "attempts": 0,
        "crashes": 0, "leaseOwner": "w:1", "leaseUntil": UNTIL, "page": 2, "cursor": 17, "v": 1, **dict.fromkeys(none),
        "counts": {**counts, "requests": {"total": 21, "ok": 6, "rate_limited": 7, "failed": 8}},
    }  # fmt: skip
    ledger.finish([(lease_on(row), SOME, "failed", 5, Failure("boom", "x\ny" * 1000, 500))])
    (stored,) = db["import_windows"].find()
    assert (stored["status"], stored["leaseOwner"], stored["leaseUntil"], stored["attempts"]) == ("failed", None, None, 5)
    assert (stored["lastErrorCode"], len(stored["lastError"]), stored["lastErrorStatus"]) == ("boom", 500, 500)
    assert stored["lastErrorAt"] is not None
    assert stored["finishedAt"] is not None


def test_namespaces_do_not_see_each_other(db: Db, ledger: MongoLedger) -> None:
    ledger.plan("a", [KEY], "run1")
    other = MongoLedger(db, "other")
    assert other.look("a", [KEY]) == {}
    assert not other.has_pending("a")
    assert other.plan("a", [KEY], "run1")[1] == 1


def test_when_many_plan_the_same_shards_at_once_each_is_recorded_once(ledger: MongoLedger) -> None:
    keys = [f"ids:{n}..{n + 1}" for n in range(500)]
    start = threading.Barrier(6)

    def plan(worker: int) -> tuple[dict[str, LedgerRow], int]:
        start.wait()
        return ledger.plan("a", keys, f"run{worker}")

    with ThreadPoolExecutor(6) as pool:
        planned = list(pool.map(plan, range(6)))
    assert sum(new for _, new in planned) == 500
    assert all(rows == planned[0][0] for rows, _ in planned)
    assert set(planned[0][0]) == set(keys)


def test_when_many_reopen_a_shard_at_once_there_is_one_new_round(ledger: MongoLedger) -> None:
    row = ledger.plan("a", [KEY], "run1")[0][KEY]
    ledger.finish([(held(ledger, row), SOME, "done", 0, None)])
    start = threading.Barrier(6)

    def reopen(worker: int) -> str:
        start.wait()
        return ledger.reopen("a", [KEY], "done", f"run{worker}")[KEY].job

    with ThreadPoolExecutor(6) as pool:
        assert len(set(pool.map(reopen, range(6)))) == 1


def test_when_many_finish_a_shard_differently_at_once_one_wins_and_the_others_are_told(ledger: MongoLedger) -> None:
    row = ledger.plan("a", [KEY], "run1")[0][KEY]
    lease = held(ledger, row)
    start = threading.Barrier(6)

    def finish(attempts: int) -> dict[tuple[str, str], LedgerRow]:
        start.wait()
        return ledger.finish([(lease, SOME, "done", attempts, None)])

    with ThreadPoolExecutor(6) as pool:
        told = list(pool.map(finish, range(6)))
    final = ledger.look("a", [KEY])[KEY]
    assert told.count({}) == 1
    assert told[final.attempts] == {}
    assert told.count({("a", KEY): final}) == 5


BROKEN: dict[str, list[Any]] = {
    "page": ["x", -1, 1.5, None, True, 2**60],
    "cursor": [[1], {"a": 1}, 1.5, True, "x" * 5000],
    "counts": [None, 7, {}, {"inserted": "x"}, {"inserted": -1}],
    "attempts": ["x", None, -5],
    "crashes": ["x", None, -5, 1.5],
    "status": [None, 7, "nonsense", {"a": 1}],
    "run": [None, 7],
    "jobId": [None, 7, ["x"]],
    "countedAs": [7, "x", ["done"]],
    "lastErrorCode": [7, ["x"]],
    "v": [None, "x", [1]],
}


@pytest.mark.parametrize("field", BROKEN)
def test_a_row_that_others_broke_stops_nobody(db: Db, ledger: MongoLedger, field: str) -> None:
    for value in BROKEN[field]:
        db["import_windows"].delete_many({})
        good = ledger.plan("a", [KEY, "country:DE"], "run1")[0][KEY]
        ledger.checkpoint(held(ledger, good), SOME, UNTIL)
        db["import_windows"].update_one({"shardKey": KEY}, {"$set": {field: value}})
        row = ledger.look("a", [KEY])[KEY]
        if field in ("page", "cursor", "counts"):
            assert row.checkpoint == Checkpoint(), "all or nothing: half a checkpoint would count pages twice"
        assert row.status in ("pending", "leased")
        assert {each.shard_key for each in ledger.pending("a")} == {KEY, "country:DE"}
        if field != "jobId":
            assert ledger.finish([(lease_on(row), SOME, "done", 1, None)]) == {}
            assert ledger.look("a", [KEY])[KEY].status == "done"


def test_a_row_whose_shard_cannot_be_told_is_left_out(db: Db, ledger: MongoLedger) -> None:
    ledger.plan("a", [KEY], "run1")
    db["import_windows"].update_one({}, {"$set": {"shardKey": ["x"]}})
    assert list(ledger.pending("a")) == []


def test_every_query_is_served_by_an_index(db: Db, ledger: MongoLedger) -> None:
    ledger.plan("a", [f"ids:{n}..{n + 1}" for n in range(50)], "run1")
    lease = Lease("a", "1-1", "w", 1, KEY, "job", "run1")
    some = {**ledger._shard("a", KEY), "shardKey": {"$in": [KEY, "x"]}}
    for query in (ledger._held(lease), ledger._unfinished("a"), some):
        plan = db["import_windows"].find(query).explain()["queryPlanner"]["winningPlan"]
        assert "IXSCAN" in str(plan)
        assert "COLLSCAN" not in str(plan)


@pytest.mark.slow
def test_a_killed_mongod_is_an_outage_for_ledger_and_catalogue(own_servers: EmbeddedServers) -> None:
    db = connect(own_servers.mongodb_uri, serverSelectionTimeoutMS=100)
    ledger, catalogue = MongoLedger(db, "si"), MongoCatalogue(db, "si")
    set_up(db, "pois")
    row = ledger.plan("a", [KEY], "run1")[0][KEY]
    own_servers.kill_mongod()
    for call in (
        lambda: ledger.plan("a", [KEY], "run1"),
        lambda: ledger.reopen("a", [KEY], "done", "run1"),
        lambda: ledger.look("a", [KEY]),
        lambda: list(ledger.pending("a")),
        lambda: ledger.has_pending("a"),
        lambda: ledger.start([lease_on(row)], UNTIL),
        lambda: ledger.checkpoint(lease_on(row), SOME, UNTIL),
        lambda: ledger.put_back([(lease_on(row), SOME, 0, None)]),
        lambda: ledger.finish([(lease_on(row), SOME, "done", 0, None)]),
        lambda: catalogue.save(Definition("a"), "run1"),
        lambda: catalogue.get("a"),
        lambda: catalogue.names(),
        lambda: catalogue.pause("a", None),
        lambda: catalogue.paused(),
        lambda: set_up(db, "pois"),
    ):
        with pytest.raises(Unavailable):
            call()
    own_servers.start_mongod()
    assert ledger.look("a", [KEY]) == {KEY: row}
    db.client.close()


def test_an_import_has_the_fields_of_the_contract_and_its_pause_survives_rubbish(db: Db) -> None:
    catalogue = MongoCatalogue(db, "si")
    catalogue.save(Definition("a", rate="2/s"), "run1")
    (stored,) = db["imports"].find({}, {"_id": 0})
    definition = Definition("a", rate="2/s").stored()
    assert stored == {
        "namespace": "si", "name": "a", "definition": definition, "paused": None, "rate": "2/s", "run": "run1", "v": 1,
    }  # fmt: skip
    for rubbish in (True, 7, "x", [1], {"reason": 5}):
        db["imports"].update_one({}, {"$set": {"paused": rubbish}})
        assert catalogue.paused() == {"a": Pause("", "", "")}, "somebody wanted it paused"
    for no_definition in (None, 7, [1]):
        db["imports"].update_one({}, {"$set": {"definition": no_definition}})
        with pytest.raises(BadSetting, match="import a: its stored definition"):
            catalogue.get("a")
    db["imports"].insert_many([{"namespace": "si", "name": 7}, {"namespace": "si", "name": "Bad\nName"}, {"namespace": "si"}])
    assert catalogue.names() == ["a"]


def test_when_many_save_the_same_import_at_once_it_is_there_once(db: Db) -> None:
    start = threading.Barrier(8)

    def save(worker: int) -> None:
        start.wait()
        MongoCatalogue(db, "si").save(Definition("a"), f"run{worker}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(save, range(8)))
    assert db["imports"].count_documents({}) == 1
