"""Cancelling: the ledger first, then the queue; each shard once, and what is cut short is finished by whoever comes next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from streams_importer.application.canceller import Canceller, CancelReport
from streams_importer.application.intake import Intake
from streams_importer.application.recount import Recount
from streams_importer.application.settlement import Settlement
from streams_importer.application.shards import LIVE_STATES, Shards, shard_filter
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import Unavailable
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Counts, Failure
from streams_importer.ports import LedgerRow, Place, Places, QueuedShard, ShardQueue, ShardRecords
from tests.fakes.counters import FakeCounters
from tests.fakes.ledger import FakeLedger
from tests.fakes.places import FakePlaces
from tests.fakes.queue import FakeQueue
from tests.fakes.recorded import Events, Recorded
from tests.fakes.records import FakeRecords

OCM = Definition("ocm")
KEYS = ["ids:0..10", "ids:10..20", "ids:20..30", "ids:30..40"]
LEASED, DELAYED, QUEUED, NOWHERE = KEYS
BAD = Failure("http_502", "answered 502", 502)
UNTIL = datetime(2026, 2, 21, 10, tzinfo=UTC)
SOME = Checkpoint(1, 7, Counts(inserted=3))


class Scene:
    """Four shards: leased, delayed, queued, and not in Redis."""

    def __init__(self) -> None:
        self.queue, self.ledger, self.events = FakeQueue("w:1"), FakeLedger(), Events()
        self.records, self.places = FakeRecords(self.ledger), FakePlaces(self.queue.store)
        self.calls: list[str] = []
        shards = Shards(
            cast(ShardRecords, Recorded("records", self.records, self.calls)),
            cast(Places, Recorded("places", self.places, self.calls)),
        )
        recount = Recount(self.ledger, FakeCounters())
        self.canceller = Canceller(cast(ShardQueue, Recorded("queue", self.queue, self.calls)), recount, shards)
        rows, _ = self.ledger.plan("ocm", KEYS, "run")
        self.queue.enqueue("ocm", [QueuedShard(key, rows[key].job) for key in KEYS[:3]], "run")
        self.leases = self.queue.claim(["ocm"], 2).leases
        self.ledger.start(self.leases, UNTIL)
        self.ledger.put_back([(self.leases[1], SOME, 2, BAD)])
        self.queue.retry(self.leases[1], SOME, 60, 2)

    def cancel(self, *states: str, filters: tuple[str, ...] = (), dry_run: bool = False) -> CancelReport:
        chosen = [shard_filter(one) for one in filters]
        return self.canceller.cancel_found(OCM, states or LIVE_STATES, chosen, dry_run=dry_run)

    def named(self, *keys: str, dry_run: bool = False) -> CancelReport:
        return self.canceller.cancel_named(OCM, keys, dry_run=dry_run)

    def change_row(self, key: str, **changes: Any) -> None:
        self.ledger.rows["ocm", key] = replace(self.ledger.rows["ocm", key], **changes)

    def row(self, key: str) -> LedgerRow:
        return self.ledger.rows["ocm", key]

    @property
    def cancelled(self) -> list[str]:
        return [key for key in KEYS if self.row(key).status == "cancelled"]

    @property
    def writes(self) -> list[str]:
        return [call for call in self.calls if call.split(".")[1] in ("cancel", "counted", "enqueue")]

    def claim(self) -> list[str]:
        """A worker claims all there is and looks in the ledger first; what is to run."""
        settlement = Settlement(self.queue, self.ledger, self.events)
        ready = Intake(self.ledger, settlement, lambda _: OCM).sort("ocm", self.queue.claim(["ocm"], 10).leases)
        return [lease.shard_key for lease, *_ in ready]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_ledger_comes_first_then_the_queue_and_what_is_nowhere_last(scene: Scene) -> None:
    report = scene.cancel()
    assert report == CancelReport(Counter(leased=1, delayed=1, queued=2), Counter(), [])
    one_batch = ["records.cancel", "places.cancel", "records.counted"]
    assert scene.writes == [*one_batch, "queue.enqueue", *one_batch]
    assert scene.cancelled == KEYS
    assert {scene.row(key).counted_as for key in KEYS} == {"cancelled"}
    store = scene.queue.store
    assert (store.entries, store.places, store.delayed, store.progress) == ({}, {}, {}, {})
    assert store.counters == {"cancelled": 4}
    assert scene.queue.renew(scene.leases[:1]) == [False]


@pytest.mark.parametrize(
    ("states", "filters", "expected"),
    [
        (["leased"], (), [LEASED]),
        (["delayed"], (), [DELAYED]),
        (["queued"], (), [QUEUED, NOWHERE]),
        (["leased", "delayed"], (), [LEASED, DELAYED]),
        ([], ("shard=ids:2*",), [QUEUED]),
        ([], ("error=http_*",), [DELAYED]),
        ([], ("worker=w:1",), [LEASED]),
    ],
)
def test_only_what_was_chosen_is_cancelled(
    scene: Scene, states: list[str], filters: tuple[str, ...], expected: list[str]
) -> None:
    assert scene.cancel(*states, filters=filters).cancelled.total() == len(expected)
    assert scene.cancelled == expected
    assert scene.queue.store.counters["cancelled"] == len(expected)


def test_a_dry_run_says_the_same_and_changes_nothing(scene: Scene) -> None:
    before = dict(scene.ledger.rows), dict(scene.queue.store.places), Counter(scene.queue.store.counters)
    assert scene.cancel(dry_run=True).cancelled == Counter(leased=1, delayed=1, queued=2)
    assert scene.named(LEASED, NOWHERE, "country:XX", dry_run=True) == CancelReport(
        Counter(leased=1, queued=1), Counter(), ["country:XX"]
    )
    assert (dict(scene.ledger.rows), dict(scene.queue.store.places), scene.queue.store.counters) == before
    assert scene.writes == []


def test_named_shards_are_cancelled_and_the_others_are_told(scene: Scene) -> None:
    scene.change_row(QUEUED, status="done")
    report = scene.named(LEASED, NOWHERE, QUEUED, "country:XX", LEASED, "\x1b")
    assert report == CancelReport(Counter(leased=1, queued=1), Counter(done=1), ["country:XX", "\x1b"])
    assert scene.cancelled == [LEASED, NOWHERE]


def test_cancelling_twice_finds_nothing_the_second_time(scene: Scene) -> None:
    scene.cancel()
    assert scene.cancel() == CancelReport()
    assert scene.named(LEASED).left == Counter(cancelled=1)
    assert scene.queue.store.counters == {"cancelled": 4}


def test_a_shard_that_is_done_before_the_ledger_hears_of_it_stays_done(scene: Scene) -> None:
    original = scene.records.cancel

    def done_meanwhile(import_name: str, rows: Sequence[LedgerRow]) -> list[LedgerRow]:
        scene.ledger.finish([(scene.leases[0], SOME, "done", 0, None)])
        return original(import_name, rows)

    scene.records.cancel = done_meanwhile  # type: ignore[method-assign]
    report = scene.cancel("leased")
    assert (report.cancelled, report.left) == (Counter(), Counter({"finished meanwhile": 1}))
    assert scene.row(LEASED).status == "done"
    assert scene.queue.renew(scene.leases[:1]) == [True]


def test_a_shard_of_a_newer_version_is_left_to_it_and_told_once(scene: Scene) -> None:
    scene.change_row(QUEUED, v=STORED_VERSION + 1)
    report = scene.cancel()
    assert report.left == Counter({"of a newer version": 1})
    assert report.cancelled.total() == 3
    assert ("ocm", QUEUED) in scene.queue.store.places


def test_a_shard_of_a_newer_version_that_is_nowhere_is_not_queued(scene: Scene) -> None:
    scene.change_row(NOWHERE, v=STORED_VERSION + 1)
    assert scene.named(NOWHERE).left == Counter({"of a newer version": 1})
    assert ("ocm", NOWHERE) not in scene.queue.store.places


def test_a_shard_among_the_dead_letters_has_a_way_back_of_its_own(scene: Scene) -> None:
    lease = scene.queue.claim(["ocm"], 1).leases[0]
    scene.queue.dead_letter(lease, SOME, BAD, 5)  # and the ledger's row is open again: a replay that was cut short
    assert scene.named(QUEUED).left == Counter(failed=1)
    scene.cancel()
    assert scene.row(QUEUED).status == "pending"
    assert len(scene.queue.store.letters) == 1


@pytest.mark.parametrize("key", [LEASED, DELAYED, QUEUED])
def test_a_round_is_not_cancelled_before_the_one_before_it_is_settled(scene: Scene, key: str) -> None:
    """The round before was cancelled in the ledger only, and opened again: Redis has not counted it yet."""
    scene.records.cancel("ocm", [scene.row(key)])
    opened = scene.ledger.reopen("ocm", [key], "cancelled", "run2")[key]
    for dry_run in (True, False):
        report = scene.named(key, dry_run=dry_run)
        assert report == CancelReport(Counter(), Counter({"whose last round is not settled yet": 1}), [])
    assert scene.row(key) == opened
    scene.queue.release(scene.leases[:1])
    scene.queue.store.now += 100
    scene.queue.promote("ocm", 10)
    assert key not in scene.claim()
    assert scene.queue.store.counters["cancelled"] == 1, "the round before"
    assert scene.named(key).cancelled.total() == 1
    assert scene.queue.store.counters["cancelled"] == 1, "the same shard in its new round"


def test_a_round_that_another_keeps_out_of_the_queue_is_left_alone(scene: Scene) -> None:
    original = scene.queue.enqueue

    def late(import_name: str, shards: Sequence[QueuedShard], run: str, *, begins: bool = False) -> list[bool]:
        """Somebody who read the row long ago is faster."""
        original(import_name, [replace(shard, job="an earlier round") for shard in shards], run)
        return original(import_name, shards, run, begins=begins)

    scene.queue.enqueue = late  # type: ignore[method-assign]
    assert scene.named(NOWHERE).left == Counter({"whose last round is not settled yet": 1})
    assert scene.row(NOWHERE).status == "pending"


def test_what_is_claimed_while_the_first_look_goes_on_is_met_by_the_second(scene: Scene) -> None:
    original, looks = scene.places.look, 0

    def moving(import_name: str, keys: Sequence[str]) -> dict[str, Place]:
        nonlocal looks
        looks += 1
        return {} if looks == 1 else original(import_name, keys)  # as if they had just gone from one place to the next

    scene.places.look = moving  # type: ignore[method-assign]
    assert scene.cancel().cancelled.total() == 4
    assert scene.cancelled == KEYS
    assert scene.queue.store.counters == {"cancelled": 4}


# Cut short.


def away() -> None:
    raise Unavailable("Redis", "away")


@pytest.mark.parametrize("key", [LEASED, DELAYED, QUEUED, NOWHERE])
def test_a_crash_between_ledger_and_queue_is_healed_by_the_next_claim(scene: Scene, key: str) -> None:
    scene.places.on_cancel = away
    with pytest.raises(Unavailable):
        scene.named(key)
    assert scene.row(key).status == "cancelled"
    assert scene.queue.store.counters["cancelled"] == 0
    scene.queue.release(scene.leases[:1])
    scene.queue.store.now += 100
    scene.queue.promote("ocm", 10)
    assert key not in scene.claim()
    assert scene.queue.store.counters["cancelled"] == 1
    assert scene.row(key).counted_as == "cancelled"
    assert ("ocm", key) not in scene.queue.store.places
    assert [details["shard"] for details in scene.events.details("shard cancelled")] == [key]


@pytest.mark.parametrize("again", [lambda scene: scene.cancel(), lambda scene: scene.named(LEASED)], ids=["all", "named"])
def test_a_crash_between_ledger_and_queue_is_healed_by_cancelling_again(
    scene: Scene, again: Callable[[Scene], CancelReport]
) -> None:
    scene.places.on_cancel = away
    with pytest.raises(Unavailable):
        scene.named(LEASED)
    scene.places.on_cancel = lambda: None
    again(scene)
    assert scene.row(LEASED).counted_as == "cancelled"
    assert ("ocm", LEASED) not in scene.queue.store.places
    assert scene.queue.store.counters["cancelled"] == len(scene.cancelled)


def test_many_shards_go_in_batches(scene: Scene) -> None:
    keys = [f"ids:{low}..{low + 1}" for low in range(1000, 2200)]
    rows, _ = scene.ledger.plan("ocm", keys, "run")
    scene.queue.enqueue("ocm", [QueuedShard(key, rows[key].job) for key in keys], "run")
    assert scene.cancel("queued").cancelled.total() == 1202
    assert scene.writes.count("places.cancel") == 4
    assert scene.queue.store.counters["cancelled"] == 1202
