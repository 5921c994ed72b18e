"""Storing pages into a real MongoDB: races, refusals, the order guard, outages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64
from pymongo.database import Database
from pymongo.monitoring import CommandListener, CommandStartedEvent

from streams_importer.adapters import mongo_sink
from streams_importer.adapters.mongo_client import connect
from streams_importer.adapters.mongo_setup import refuse_foreign_collection, set_up
from streams_importer.adapters.mongo_sink import MongoSink
from streams_importer.adapters.order_guard import (
    Version,
    is_newer,
    newer_at_first_sight,
    newer_than_stored,
    stored_version,
    version,
)
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import BadSetting, Unavailable
from streams_importer.domain.model import Counts, Page, Record, Reject
from streams_importer.embedded.servers import EmbeddedServers

Db = Database[dict[str, Any]]
DEFINITION = Definition("openchargemap")
T = datetime(2026, 2, 21, 10, tzinfo=UTC)
NOW = int(T.timestamp() * 1_000_000) + 3_600_000_000
DAY_US = 86_400_000_000


@pytest.fixture
def db(mongo_db: Db) -> Db:
    set_up(mongo_db, "pois")
    return mongo_db


def poi(number: int, content: str = "one", at: datetime | None = T, lon: float | None = 13.4, **data: Any) -> Record:
    location = None if lon is None else {"type": "Point", "coordinates": [lon, 52.5]}
    return Record(f"openchargemap:{number}", number, at, location, {"ID": number, "content": content, **data}, content)


def put(db: Db, *records: Record, order: int = NOW, rejects: tuple[Reject, ...] = ()) -> Counts:
    return MongoSink(db).store(DEFINITION, "ids:0..10", Page(list(records), list(rejects), None, order))


def together(*actions: Callable[[], Counts]) -> list[Counts]:
    """All at once, from a common start. Raises what any of them raised."""
    start = threading.Barrier(len(actions))

    def run(action: Callable[[], Counts]) -> Counts:
        start.wait()
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(run, actions))


# What a document looks like.


def test_a_stored_document_has_the_fields_of_the_contract(db: Db) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    put(db, poi(7))
    (stored,) = db["pois"].find({}, {"_id": 0})
    assert before <= stored["firstImportedAt"] == stored["changedAt"] <= datetime.now(UTC)
    del stored["firstImportedAt"], stored["changedAt"]
    assert stored == {
        "externalId": "openchargemap:7",
        "source": "openchargemap",
        "sourceId": 7,
        "sourceUpdatedAt": T,
        "location": {"type": "Point", "coordinates": [13.4, 52.5]},
        "data": {"ID": 7, "content": "one"},
        "contentHash": "one",
        "order": NOW,
    }
    assert isinstance(stored["order"], Int64)


def test_an_update_keeps_the_first_import_and_removes_what_the_new_version_does_not_have(db: Db) -> None:
    put(db, poi(7), poi(8))
    db["pois"].update_many({}, {"$set": {"missingSince": T, "firstImportedAt": T, "changedAt": T, "mine": 1}})
    later = T + timedelta(seconds=1)
    assert put(db, poi(7, "two", later, lon=None), poi(8, "two", later, lon=14)) == Counts(updated=2)
    gone, moved = db["pois"].find().sort("externalId")
    assert "location" not in gone
    assert moved["location"]["coordinates"] == [14, 52.5]
    for stored in (gone, moved):
        assert "missingSince" not in stored
        assert stored["firstImportedAt"] == T < stored["changedAt"]
        assert stored["mine"] == 1, "what others added stays"


def test_unchanged_records_are_not_written(db: Db) -> None:
    put(db, poi(7))
    before = list(db["pois"].find())
    assert put(db, poi(7), order=NOW + 5) == Counts(unchanged=1)
    assert list(db["pois"].find()) == before


class Commands(CommandListener):
    def __init__(self) -> None:
        self.names: list[str] = []

    def started(self, event: CommandStartedEvent) -> None:
        self.names.append(event.command_name)

    def succeeded(self, event: Any) -> None: ...
    def failed(self, event: Any) -> None: ...


def test_a_page_takes_one_find_and_one_write(db: Db, mongo_uri: str) -> None:
    seen = Commands()
    own = connect(mongo_uri, event_listeners=[seen])
    page = [poi(n) for n in range(1000)]
    try:
        put(own, *page)
        put(own, *page)
        put(own, *(poi(n, "two", T + timedelta(seconds=1)) for n in range(1000)), order=NOW + 1)
    finally:
        own.client.close()
    assert [name for name in seen.names if name != "endSessions"] == ["find", "insert", "find", "find", "update"]


# Races.


def test_when_two_insert_the_same_ids_at_once_the_newest_version_always_wins(db: Db) -> None:
    later = T + timedelta(seconds=1)
    for start in range(0, 12_000, 100):
        ids = range(start, start + 100)
        old, new = together(
            lambda ids=ids: put(db, *(poi(n, "old") for n in ids), order=NOW + 1),  # type: ignore[misc]
            lambda ids=ids: put(db, *(poi(n, "new", later) for n in reversed(ids)), order=NOW),  # type: ignore[misc]
        )
        assert old.seen == new.seen == 100
        assert new.inserted + new.updated == 100
        assert old.inserted + old.stale == 100
        assert old.inserted == new.updated
    assert db["pois"].count_documents({}) == 12_000
    assert db["pois"].count_documents({"contentHash": "new"}) == 12_000


def test_when_many_update_the_same_ids_at_once_the_newest_version_wins(db: Db) -> None:
    put(db, *(poi(n, "base") for n in range(50)))
    for run in range(1, 40):
        at = T + timedelta(seconds=run)
        pages = [[poi(n, f"{run}-{worker}", at + timedelta(milliseconds=worker)) for n in range(50)] for worker in range(4)]
        counts = together(*(lambda page=page, order=NOW - w: put(db, *page, order=order) for w, page in enumerate(pages)))
        assert [each.seen for each in counts] == [50] * 4
        assert counts[3].updated == 50
        assert db["pois"].distinct("contentHash") == [f"{run}-3"]


def test_an_update_that_meets_a_version_that_became_newer_is_stale(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others write between our find and our update, under a higher order: of one record an earlier version, of one a later."""
    put(db, poi(1, "base", T), poi(2, "base", T))
    compare = mongo_sink._PageWork._compare

    def compare_then_others_write(work: Any, records: Any) -> Any:
        decided = compare(work, records)
        monkeypatch.setattr(mongo_sink._PageWork, "_compare", compare)
        put(db, poi(1, "earlier", T + timedelta(seconds=1)), poi(2, "later", T + timedelta(seconds=9)), order=NOW + 9)
        return decided

    monkeypatch.setattr(mongo_sink._PageWork, "_compare", compare_then_others_write)
    at = T + timedelta(seconds=5)
    assert put(db, poi(1, "ours", at), poi(2, "ours", at), order=NOW + 5) == Counts(updated=1, stale=1)
    assert {each["sourceId"]: each["contentHash"] for each in db["pois"].find()} == {1: "ours", 2: "later"}


def test_ids_that_others_keep_inserting_and_deleting_end_as_an_outage_not_as_a_loop(
    db: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(db, poi(1, "theirs"))
    monkeypatch.setattr(mongo_sink._PageWork, "_find", lambda work, ids: iter(()))
    with pytest.raises(Unavailable, match="others keep inserting"):
        put(db, poi(1, "ours"), poi(2, "ours"))
    assert db["pois"].count_documents({"contentHash": "ours"}) == 1


# The order guard: Python and MongoDB agree.

MINUTE = timedelta(minutes=1)
TIMES: list[Any] = [
    None,
    T - MINUTE,
    T,
    T + MINUTE,
    T + timedelta(days=1, hours=1),
    T + timedelta(days=1, hours=2),
    T + timedelta(days=3),
]
ORDERS = [NOW - 3 * DAY_US, NOW - 1, NOW, NOW + 1, NOW + 3 * DAY_US]
BROKEN: list[dict[str, Any]] = [
    {},
    {"sourceUpdatedAt": "2026", "order": NOW - 1},
    {"sourceUpdatedAt": T, "order": "x"},
    {"sourceUpdatedAt": T, "order": None},
    {"sourceUpdatedAt": T, "order": float(NOW - 1)},
    {"sourceUpdatedAt": T, "order": float("nan")},
    {"sourceUpdatedAt": T, "order": True},
    {"sourceUpdatedAt": 17, "order": [1]},
    {"sourceUpdatedAt": DatetimeMS(2**62), "order": NOW - 1},
    {"sourceUpdatedAt": DatetimeMS(-(2**62)), "order": NOW + 1},
]


def table() -> Iterator[dict[str, Any]]:
    for at, order in product(TIMES, ORDERS):
        yield {"sourceUpdatedAt": at, "order": Int64(order)}
    yield from BROKEN


def test_the_guard_says_the_same_in_python_and_in_mongodb(db: Db) -> None:
    documents = [{"_id": n, **fields} for n, fields in enumerate(table())]
    db["guard"].insert_many(documents)
    newer_somewhere = 0
    for at, order in product(TIMES, ORDERS):
        new = version(at, order)
        in_python = {each["_id"] for each in documents if is_newer(new, stored_version(each))}
        in_mongodb = {each["_id"] for each in db["guard"].find(newer_than_stored(new), {"_id": 1})}
        at_first_sight = {each["_id"] for each in db["guard"].find(newer_at_first_sight(new), {"_id": 1})}
        assert in_python == in_mongodb, new
        assert at_first_sight <= in_mongodb, new
        newer_somewhere += len(in_mongodb)
    assert newer_somewhere > len(documents)


def test_of_two_versions_never_both_are_newer_and_one_is_unless_they_are_equal() -> None:
    versions = [version(at, order) for at, order in product(TIMES, ORDERS)]
    for one, other in product(versions, versions):
        undecided = one.order == other.order and (one.updated_ms == other.updated_ms or not (one.believable and other.believable))
        assert is_newer(one, other) + is_newer(other, one) == (0 if undecided else 1)


@pytest.mark.parametrize(
    ("new", "stored", "newer"),
    [
        (Version(2, DAY_US), Version(1, DAY_US + 5), True),
        (Version(1, DAY_US + 5), Version(2, DAY_US), False),
        (Version(1, 6), Version(1, 5), True),
        (Version(1, 5), Version(1, 5), False),
        (Version(None, 6), Version(9, 5), True),
        (Version(None, 5), Version(9, 6), False),
        (Version(9, 6), Version(None, 5), True),
        (Version(9, 5), Version(None, 6), False),
        (Version(5, DAY_US), Version(2 * 86_400_000 + 1, DAY_US - 1), True),  # a day and a bit ahead of its own grant
        (Version(5, DAY_US), Version(2 * 86_400_000 - 1, DAY_US - 1000), False),  # a day, to the microsecond
    ],
)
def test_the_rule_by_example(new: Version, stored: Version, newer: bool) -> None:
    assert is_newer(new, stored) is newer


def test_times_are_compared_as_mongodb_keeps_them(db: Db) -> None:
    put(db, poi(1, "one", T + timedelta(microseconds=100)))
    assert put(db, poi(1, "two", T + timedelta(microseconds=900)), order=NOW - 1) == Counts(stale=1)


# Refusals.


@pytest.mark.parametrize("known", [False, True])
def test_a_location_that_mongodb_refuses_takes_no_neighbour_along(db: Db, known: bool) -> None:
    if known:
        put(db, *(poi(n) for n in range(5)))
    at = T + timedelta(seconds=1)
    page = [poi(n, "two", at, lon=500 if n == 2 else 13) for n in range(5)]
    counts = put(db, *page)
    assert counts == (Counts(updated=4, rejected=1) if known else Counts(inserted=4, rejected=1))
    for _ in range(2):
        assert put(db, *page) == Counts(unchanged=4, rejected=1)
    (reject,) = db["import_rejects"].find({}, {"_id": 0, "at": 0})
    assert reject.pop("reason").startswith("MongoDB refused it: its location is not valid: longitude/latitude is out of bounds")
    assert reject == {"import": "openchargemap", "shardKey": "ids:0..10", "record": '{"ID": 2, "content": "two"}'}
    assert db["pois"].count_documents({"contentHash": "two"}) == 4


def test_a_record_that_the_collections_validator_refuses_takes_no_neighbour_along(db: Db) -> None:
    db.command("collMod", "pois", validator={"data.content": {"$ne": "bad"}})
    assert put(db, poi(1), poi(2, "bad"), poi(3)) == Counts(inserted=2, rejected=1)
    at = T + timedelta(seconds=1)
    assert put(db, poi(1, "bad", at), poi(3, "two", at)) == Counts(updated=1, rejected=1)


def test_a_record_that_breaks_somebody_elses_unique_index_is_a_reject_not_a_race(db: Db) -> None:
    db["pois"].create_index("data.serial", unique=True, sparse=True)
    assert put(db, poi(1, serial=5), poi(2, serial=6), poi(3, serial=5)) == Counts(inserted=2, rejected=1)
    (reject,) = db["import_rejects"].find()
    assert "duplicate key" in reject["reason"]


def test_a_refusal_of_the_whole_command_is_traced_to_its_record(db: Db, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams_importer.adapters.bson_record.MAX_DEPTH", 1000)
    nested: dict[str, Any] = {}
    for _ in range(250):
        nested = {"a": nested}
    page = [poi(n, deep=nested if n == 6 else None) for n in range(9)]
    assert put(db, *page) == Counts(inserted=8, rejected=1)
    at = T + timedelta(seconds=1)
    page = [poi(n, "two", at, deep=nested if n == 5 else None) for n in range(6)]
    assert put(db, *page) == Counts(updated=5, rejected=1)


def test_a_record_of_17_mb_is_a_reject_with_its_beginning_and_one_just_below_the_limit_is_stored(db: Db) -> None:
    counts = put(db, poi(1), poi(2, big="é" * 9_000_000), poi(3, big="x" * 16_770_000), poi(4))
    assert counts == Counts(inserted=3, rejected=1)
    (reject,) = db["import_rejects"].find()
    assert reject["reason"] == "it is larger than 16 MB"
    assert len(reject["record"].encode()) == 65536
    at = T + timedelta(seconds=1)
    assert put(db, poi(3, "two", at, big="y" * 16_770_000), poi(4, "two", at)) == Counts(updated=2)


def test_a_rejects_text_is_cut_between_characters_and_has_no_lone_surrogates(db: Db) -> None:
    put(db, rejects=(Reject("a\nb", "x" + "é" * 40_000), Reject("c", "\ud800")))
    first, second = db["import_rejects"].find().sort("reason")
    assert first["reason"] == "a b"
    assert first["record"] == "x" + "é" * 32767
    assert second["record"] == "\\ud800"


def test_rejects_are_forgotten_after_30_days(db: Db) -> None:
    assert db["import_rejects"].index_information()["at_1"]["expireAfterSeconds"] == 30 * 86400


def test_an_unknown_refusal_is_not_taken_for_a_bad_record(db: Db) -> None:
    db.create_collection("seen", viewOn="pois", pipeline=[])
    with pytest.raises(Exception, match="view") as caught:
        MongoSink(db).store(Definition("a", collection="seen"), "k", Page([poi(1)], [], None, NOW))
    assert not isinstance(caught.value, Unavailable)
    assert db["import_rejects"].count_documents({}) == 0


# Setting up.


def test_many_processes_may_set_up_at_the_same_time_and_again(mongo_db: Db) -> None:
    start = threading.Barrier(8)

    def act(_: int) -> None:
        start.wait()
        set_up(mongo_db, "pois")

    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            list(pool.map(act, range(8)))
    pois = mongo_db["pois"].index_information()
    assert pois["externalId_1"]["unique"] is True
    assert {"location_2dsphere", "source_1_changedAt_1"} < set(pois)
    assert mongo_db["import_windows"].index_information()["namespace_1_import_1_shardKey_1"]["unique"] is True
    assert mongo_db["imports"].index_information()["namespace_1_name_1"]["unique"] is True


def test_a_collection_that_holds_something_else_is_refused_and_left_alone(mongo_db: Db) -> None:
    mongo_db["users"].insert_many([{"externalId": "a:1"}, {"name": "somebody"}])
    with pytest.raises(BadSetting, match=r"^collection users: holds documents without externalId.*name another"):
        set_up(mongo_db, "users")
    assert list(mongo_db["users"].index_information()) == ["_id_"]
    mongo_db["users"].delete_one({"name": "somebody"})
    set_up(mongo_db, "users")


def test_a_reserved_name_and_a_view_are_refused(mongo_db: Db) -> None:
    mongo_db.create_collection("seen", viewOn="pois", pipeline=[])
    for name, why in (("imports", "streams-importer itself"), ("seen", "is a view")):
        with pytest.raises(BadSetting, match=why):
            refuse_foreign_collection(mongo_db, name)


@pytest.mark.parametrize(
    ("keys", "options"),
    [
        ("externalId", {}),
        ("externalId", {"unique": True, "sparse": True, "name": "theirs"}),
        ("data.x", {"name": "externalId_1"}),
    ],
)
def test_an_index_in_the_way_of_ours_is_refused_by_name(mongo_db: Db, keys: str, options: dict[str, Any]) -> None:
    name = mongo_db["pois"].create_index(keys, **options)
    with pytest.raises(BadSetting, match=f"its index {name} is in the way"):
        set_up(mongo_db, "pois")


def test_an_equal_index_under_another_name_will_do(mongo_db: Db) -> None:
    mongo_db["pois"].create_index("externalId", unique=True, name="theirs")
    set_up(mongo_db, "pois")
    assert "externalId_1" not in mongo_db["pois"].index_information()


def test_duplicate_ids_without_an_index_are_refused(mongo_db: Db) -> None:
    mongo_db["pois"].insert_many([{"externalId": "a:1"}, {"externalId": "a:1"}])
    with pytest.raises(BadSetting, match=r"^collection pois: cannot make its indexes.*duplicate key"):
        set_up(mongo_db, "pois")


# Outages.


def test_a_killed_mongod_is_an_outage_and_the_page_is_stored_once_it_is_back(own_servers: EmbeddedServers) -> None:
    db = connect(own_servers.mongodb_uri, serverSelectionTimeoutMS=300)
    set_up(db, "pois")
    under_way = threading.Event()

    def keep_storing() -> int:
        for n in range(0, 10_000_000, 200):
            put(db, *(poi(number) for number in range(n, n + 200)))
            under_way.set()
        raise AssertionError("the outage was not noticed")

    with ThreadPoolExecutor(1) as pool:
        storing = pool.submit(keep_storing)
        assert under_way.wait(30)
        own_servers.kill_mongod()
        with pytest.raises(Unavailable, match="MongoDB: ") as caught:
            storing.result(60)
    assert "\n" not in str(caught.value)
    assert len(caught.value.reason) <= 200
    with pytest.raises(Unavailable):
        put(db, poi(1))
    own_servers.start_mongod()
    stored = db["pois"].count_documents({})
    assert stored > 0
    counts = put(db, *(poi(number) for number in range(stored + 300)))
    assert counts.seen == counts.inserted + counts.unchanged == stored + 300
    assert db["pois"].count_documents({}) == stored + 300
    db.client.close()
