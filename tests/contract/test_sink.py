"""What every Sink promises: the one in memory and the one on MongoDB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from streams_importer.adapters.mongo_setup import set_up
from streams_importer.adapters.mongo_sink import MongoSink
from streams_importer.domain.definition import Definition
from streams_importer.domain.model import Counts, Page, Record, Reject
from streams_importer.ports import Sink
from tests.fakes.sink import FakeSink

DEFINITION = Definition("openchargemap")
T = datetime(2026, 2, 21, 10, tzinfo=UTC)
NOW = int(T.timestamp() * 1_000_000) + 3_600_000_000
"""Grants happen an hour after T, in microseconds."""


@dataclass
class Store:
    sink: Sink
    hashes: Callable[[], dict[str, str]]
    """External id to content hash of all that is stored."""
    reasons: Callable[[], list[str]]

    def put(self, *records: Record, order: int = NOW, rejects: tuple[Reject, ...] = ()) -> Counts:
        return self.sink.store(DEFINITION, "ids:0..10", Page(list(records), list(rejects), None, order))


@pytest.fixture(params=["fake", "mongodb"])
def store(request: pytest.FixtureRequest) -> Store:
    if request.param == "fake":
        fake = FakeSink()
        return Store(
            fake,
            lambda: {key: record.content_hash for (_, key), (record, _) in fake.records.items()},
            lambda: [reject.reason for _, _, reject in fake.rejects],
        )
    db: Database[dict[str, Any]] = request.getfixturevalue("mongo_db")
    set_up(db, "pois")
    return Store(
        MongoSink(db),
        lambda: {each["externalId"]: each["contentHash"] for each in db["pois"].find()},
        lambda: [each["reason"] for each in db["import_rejects"].find()],
    )


def poi(number: int, content: str = "one", at: datetime | None = T, **data: Any) -> Record:
    location = {"type": "Point", "coordinates": [13.4, 52.5]}
    return Record(f"openchargemap:{number}", number, at, location, {"ID": number, "content": content, **data}, content)


def test_new_records_are_inserted_and_a_repeated_page_changes_nothing(store: Store) -> None:
    page = [poi(n) for n in range(1500)]
    assert store.put(*page) == Counts(inserted=1500)
    assert store.put(*page, order=NOW + 1) == Counts(unchanged=1500)
    assert len(store.hashes()) == 1500


def test_an_empty_page_counts_nothing(store: Store) -> None:
    assert store.put() == Counts()


def test_a_later_version_replaces_and_an_earlier_one_is_stale(store: Store) -> None:
    store.put(poi(1, "old", T))
    assert store.put(poi(1, "new", T + timedelta(seconds=1)), order=NOW - 1) == Counts(updated=1), (
        "the time decides, not the order"
    )
    assert store.put(poi(1, "old", T), order=NOW + 1) == Counts(stale=1)
    assert store.hashes() == {"openchargemap:1": "new"}


@pytest.mark.parametrize(("before", "after"), [(None, None), (None, T), (T, None), (T, T)])
def test_without_two_different_times_the_later_request_wins(
    store: Store, before: datetime | None, after: datetime | None
) -> None:
    store.put(poi(1, "first", before), order=NOW)
    assert store.put(poi(1, "earlier", after), order=NOW - 1) == Counts(stale=1)
    assert store.put(poi(1, "same", after), order=NOW) == Counts(stale=1)
    assert store.put(poi(1, "later", after), order=NOW + 1) == Counts(updated=1)
    assert store.hashes() == {"openchargemap:1": "later"}


def test_a_time_in_the_far_future_keeps_no_later_version_out(store: Store) -> None:
    store.put(poi(1, "bogus", T + timedelta(days=30)), order=NOW)
    after = NOW + 40 * 86_400_000_000
    assert store.put(poi(1, "mended", T + timedelta(days=5)), order=after) == Counts(updated=1)


def test_of_duplicates_in_a_page_the_newest_is_stored_and_every_row_is_counted_once(store: Store) -> None:
    counts = store.put(
        poi(1, "old", T),
        poi(1, "new", T + timedelta(minutes=1)),
        poi(1, "old", T),
        poi(1, "new", T + timedelta(minutes=1)),
        poi(2, "first", None),
        poi(2, "last", None),
        poi(3),
    )
    assert counts == Counts(inserted=3, unchanged=1, stale=3)
    assert store.hashes() == {"openchargemap:1": "new", "openchargemap:2": "last", "openchargemap:3": "one"}


def test_a_refused_duplicate_does_not_push_out_one_that_can_be_stored(store: Store) -> None:
    later = T + timedelta(minutes=1)
    assert store.put(poi(1, "good"), poi(1, "bad", later, big=2**64)) == Counts(inserted=1, rejected=1)
    assert store.put(poi(2, "bad", later, big=2**64), poi(2, "good")) == Counts(inserted=1, rejected=1)
    assert set(store.hashes().values()) == {"good"}


def deep(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(levels):
        value = {"a": value}
    return value


REFUSED: dict[str, dict[str, Any]] = {
    "more than 64 bits": {"x": 2**63},
    "lone surrogate": {"x": "\ud800"},
    "lone surrogate ": {"\udfff": 1},
    "NULL byte": {"a\0b": 1},
    "not finite": {"x": [{"y": float("nan")}]},
    "not finite ": {"x": float("-inf")},
    "nested deeper": {"x": deep(150)},
    "nested deeper ": {"x": deep(50_000)},
    "16 MB": {"x": "y" * 17_000_000},
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_record_that_cannot_be_stored_is_a_reject_and_its_neighbours_are_stored(store: Store, reason: str) -> None:
    page = [poi(1), poi(2, **REFUSED[reason]), poi(3)]
    assert store.put(*page) == Counts(inserted=2, rejected=1)
    assert set(store.hashes()) == {"openchargemap:1", "openchargemap:3"}
    (stored,) = store.reasons()
    assert reason.strip() in stored
    assert store.put(*page) == Counts(unchanged=2, rejected=1)
    assert len(store.reasons()) == 1, "a repeated page adds none"


def test_a_changed_record_that_cannot_be_stored_leaves_the_old_version(store: Store) -> None:
    store.put(poi(1), poi(2))
    after = T + timedelta(seconds=1)
    assert store.put(poi(1, "two", after, x=2**70), poi(2, "two", after)) == Counts(updated=1, rejected=1)
    assert store.hashes() == {"openchargemap:1": "one", "openchargemap:2": "two"}


def test_what_only_looks_like_a_refused_value_is_stored(store: Store) -> None:
    odd: dict[str, Any] = {"x": -1, "y": -(2**63), "z": 2**63 - 1, "u": "\u00ff\U0010ffff\0", "": {"$a.b": None}}
    assert store.put(poi(1, **odd, wide=[[{}] * 300], deep=deep(90))) == Counts(inserted=1)


@pytest.mark.parametrize("external_id", ["openchargemap:\ud800", "openchargemap:" + "x" * 2000])
def test_an_id_that_cannot_be_looked_up_is_a_reject(store: Store, external_id: str) -> None:
    bad = Record(external_id, "x", None, None, {}, "h")
    assert store.put(poi(1), bad, poi(2)) == Counts(inserted=2, rejected=1)


def test_rejects_of_the_page_are_kept_and_counted(store: Store) -> None:
    rejects = (Reject("no id", '{"a": "\ud800"}'), Reject("no id", "{}"), Reject("no id", "{}"))
    assert store.put(poi(1), rejects=rejects) == Counts(inserted=1, rejected=3)
    assert store.put(poi(1), rejects=rejects) == Counts(unchanged=1, rejected=3)
    assert store.reasons() == ["no id", "no id"], "equal ones are one"
