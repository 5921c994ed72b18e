"""Single shards: the ledger's row and the live lease in one, found by state and by filter without reading everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from streams_importer.application.shards import STATES, Shards, ShardState, as_json, shard_filter
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import BadSetting
from streams_importer.domain.model import Checkpoint, Counts, Failure
from streams_importer.ports import Place, QueuedShard, ShardRecord
from tests.fakes.ledger import FakeLedger
from tests.fakes.places import FakePlaces
from tests.fakes.queue import FakeQueue
from tests.fakes.records import FakeRecords

OCM = Definition("ocm", lease_s=15.0)
KEYS = ["ids:0..10", "ids:10..20", "ids:20..30", "ids:30..40"]
UNTIL = datetime(2026, 2, 21, 10, tzinfo=UTC)
SOME = Checkpoint(3, 17, Counts(1, 2, 3, 4, 5, 6, 7, 8))
BAD = Failure("http_502", "answered 502", 502)


class Scene:
    """Four shards: leased (with a page stored), delayed, queued, and not in Redis."""

    def __init__(self) -> None:
        self.queue, self.ledger = FakeQueue("w:1"), FakeLedger()
        self.records, self.places = FakeRecords(self.ledger), FakePlaces(self.queue.store)
        self.shards = Shards(self.records, self.places)
        self.plan(*KEYS)
        first, second = self.queue.claim(["ocm"], 2).leases
        self.ledger.start([first, second], UNTIL)
        self.ledger.checkpoint(first, SOME, UNTIL)
        self.queue.checkpoint(first, SOME)
        self.ledger.put_back([(second, SOME, 2, BAD)])
        self.queue.retry(second, SOME, 60, 2)
        self.lose(KEYS[3])

    def plan(self, *keys: str) -> None:
        rows, _ = self.ledger.plan("ocm", keys, "run")
        self.queue.enqueue("ocm", [QueuedShard(key, rows[key].job) for key in keys], "run")

    def lose(self, key: str) -> None:
        del self.queue.store.entries[self.queue.store.places.pop(("ocm", key))]

    def finish(self, key: str, state: str) -> None:
        self.ledger.rows["ocm", key] = replace(self.ledger.rows["ocm", key], status=state)

    def listed(self, *states: str, filters: Sequence[str] = ()) -> list[ShardState]:
        return list(self.shards.listed(OCM, states or STATES, [shard_filter(one) for one in filters]))

    def keys(self, *states: str, filters: Sequence[str] = ()) -> list[str]:
        return [shard.key for shard in self.listed(*states, filters=filters)]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_redis_says_who_has_a_shard_and_when_it_comes_back(scene: Scene) -> None:
    scene.queue.store.now += 5
    shards = scene.shards.named(OCM, [*KEYS, "ids:77..78"])
    assert [
        (shard.status, shard.worker, shard.lease_left_s, shard.comes_back_s, shard.is_nowhere) for shard in shards.values()
    ] == [
        ("leased", "w:1", 10.0, None, False),
        ("delayed", None, None, 55.0, False),
        ("queued", None, None, None, False),
        ("queued", None, None, None, True),
    ]
    scene.queue.store.now += 60
    assert scene.shards.named(OCM, KEYS[:1])[KEYS[0]].lease_left_s == 0.0


def test_a_finished_shard_is_what_the_ledger_says(scene: Scene) -> None:
    for state in ("done", "failed", "split", "cancelled"):
        scene.finish(KEYS[0], state)
        assert scene.shards.named(OCM, KEYS)[KEYS[0]] == ShardState("ocm", ShardRecord(scene.ledger.rows["ocm", KEYS[0]]), state)


def test_an_unfinished_row_among_the_dead_letters_has_failed_until_it_is_replayed(scene: Scene) -> None:
    scene.queue.dead_letter(scene.queue.claim(["ocm"], 1).leases[0], SOME, BAD, 5)
    assert scene.shards.named(OCM, KEYS)[KEYS[2]].status == "failed"


def test_a_shard_that_is_finished_while_it_is_looked_at_is_not_taken_for_a_lost_one(scene: Scene) -> None:
    original = scene.places.look

    def finished_meanwhile(import_name: str, keys: Sequence[str]) -> dict[str, Place]:
        scene.finish(KEYS[3], "done")
        return original(import_name, keys)

    scene.places.look = finished_meanwhile  # type: ignore[method-assign]
    assert scene.shards.named(OCM, KEYS)[KEYS[3]].status == "done"


def test_what_is_worked_on_is_listed_first_and_every_shard_once(scene: Scene) -> None:
    scene.plan("country:DE", "country:FR")
    scene.finish("country:DE", "done")
    scene.finish("country:FR", "failed")
    assert [(shard.key, shard.status) for shard in scene.listed()] == [
        (KEYS[0], "leased"),
        (KEYS[1], "delayed"),
        (KEYS[2], "queued"),
        (KEYS[3], "queued"),
        ("country:FR", "failed"),
        ("country:DE", "done"),
    ]


@pytest.mark.parametrize(
    ("states", "filters", "found"),
    [
        (["leased"], [], KEYS[:1]),
        (["delayed"], [], KEYS[1:2]),
        (["queued"], [], KEYS[2:]),
        (["leased", "delayed"], [], KEYS[:2]),
        (["done"], [], []),
        ([], ["shard=ids:1*"], KEYS[1:2]),
        ([], ["error=http_*"], KEYS[1:2]),
        ([], ["attempts=0"], [KEYS[0], *KEYS[2:]]),
        ([], ["worker=w:*"], KEYS[:1]),
        ([], ["worker=other:*"], []),
        (["queued", "delayed"], ["worker=*"], []),
        (["leased"], ["shard=ids:1*"], []),
    ],
)
def test_a_list_holds_what_was_asked_for(scene: Scene, states: list[str], filters: list[str], found: list[str]) -> None:
    assert scene.keys(*states, filters=filters) == found


def test_no_more_rows_are_read_than_are_shown(scene: Scene) -> None:
    scene.plan(*(f"country:{first}{second}" for first in "ABCDEFGHIJ" for second in "ABCDEFGHIJ"))
    found = scene.shards.listed(OCM, ["queued"], [])
    assert [next(found).key for _ in range(5)] == [f"country:A{letter}" for letter in "ABCDE"]
    assert scene.records.read == 5
    scene.records.read = 0
    assert scene.keys("leased", "delayed") == KEYS[:2]
    assert scene.records.read == 0, "Redis knows which these are"


@pytest.mark.parametrize("key", ["", "x" * 257, "ids:\x1b", "ids:\udcff", "länder:DE"])
def test_what_no_shard_can_be_called_is_not_even_asked_for(scene: Scene, key: str) -> None:
    scene.ledger.away = True
    assert scene.shards.named(OCM, [key]) == {}
    assert scene.shards.near(OCM, key, 3) == []


def test_near_shards_are_of_the_same_kind(scene: Scene) -> None:
    scene.plan("country:DE")
    assert scene.shards.near(OCM, "ids:0..1", 3) == KEYS[:3]
    assert scene.shards.near(OCM, "country:FR", 3) == ["country:DE"]


@pytest.mark.parametrize("text", ["attempts=many", "attempts=*", "attempts=-1", "attempts=²", "attempts=" + "9" * 30])
def test_attempts_are_a_number(text: str) -> None:
    with pytest.raises(BadSetting, match="attempts is a number"):
        shard_filter(text)


def test_a_filter_on_an_unknown_field_names_the_fields() -> None:
    with pytest.raises(BadSetting, match="the fields are: shard, run, worker, error, attempts"):
        shard_filter("owner=x")


def test_as_json_a_shard_says_everything(scene: Scene) -> None:
    time = datetime(2026, 2, 21, 10, 0, 0, tzinfo=UTC)
    shard = scene.shards.named(OCM, KEYS)[KEYS[1]]
    record = ShardRecord(shard.record.row, time, time, time)
    assert as_json(replace(shard, record=record)) == {
        "import": "ocm",
        "shard": "ids:10..20",
        "status": "delayed",
        "nowhere": False,
        "run": "run",
        "attempts": 2,
        "crashes": None,
        "worker": None,
        "lease_left_s": None,
        "comes_back_s": 60.0,
        "page": 3,
        "cursor": 17,
        "counts": {
            "seen": 15,
            "inserted": 1,
            "updated": 2,
            "unchanged": 3,
            "stale": 4,
            "rejected": 5,
            "requests": {"total": 21, "ok": 6, "rate_limited": 7, "failed": 8},
        },
        "error": {"code": "http_502", "message": "answered 502", "status": 502, "at": "2026-02-21T10:00:00Z"},
        "created": "2026-02-21T10:00:00Z",
        "finished": "2026-02-21T10:00:00Z",
        "job": record.row.job,
    }
    assert as_json(scene.shards.named(OCM, KEYS)[KEYS[0]])["error"] is None
