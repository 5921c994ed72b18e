"""Producing: the ledger first, each shard once, and what is in flight or finished left as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from streams_importer.application.producer import BATCH, Produced, Producer, new_run
from streams_importer.application.recount import Recount
from streams_importer.domain.axes import IdRange
from streams_importer.domain.errors import Unavailable
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Counts
from streams_importer.domain.planner import Countries, IdRanges, Plan
from streams_importer.domain.shard_key import Scope
from streams_importer.ports import Ledger, ShardQueue
from tests.fakes.counters import FakeCounters
from tests.fakes.ledger import FakeLedger
from tests.fakes.queue import FakeQueue
from tests.fakes.recorded import Recorded

KEYS = ["ids:0..10", "ids:10..20", "ids:20..30"]
SOME = Checkpoint(2, 7, Counts(inserted=3))


class Scene:
    def __init__(self) -> None:
        self.queue, self.ledger, self.counters = FakeQueue(), FakeLedger(), FakeCounters()
        self.calls: list[str] = []
        self.told: list[Produced] = []
        self.producer = Producer(
            cast(ShardQueue, Recorded("queue", self.queue, self.calls)),
            cast(Ledger, Recorded("ledger", self.ledger, self.calls)),
            Recount(self.ledger, self.counters),
        )

    def produce(self, run: str = "run1", *, again: bool = False, high: int = 30) -> Produced:
        scopes = Plan(ids=IdRanges(0, high, 10))
        return self.producer.produce("ocm", scopes, run, again=again, progress=lambda now: self.told.append(replace(now)))

    def missing(self, run: str = "run2") -> Produced:
        return self.producer.produce_missing("ocm", run, lambda now: self.told.append(replace(now)))

    def change_row(self, key: str, **changes: object) -> None:
        self.ledger.rows["ocm", key] = replace(self.ledger.rows["ocm", key], **changes)  # type: ignore[arg-type]

    def queued(self) -> dict[str, str]:
        """Shards on the stream and the round that each message names."""
        return {entry.shard_key: entry.job for entry in self.queue.store.entries.values()}

    def forget_queue(self) -> None:
        self.queue.store.entries.clear()
        self.queue.store.places.clear()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_shards_are_recorded_as_pending_first_and_queued_then(scene: Scene) -> None:
    assert scene.produce() == Produced("run1", planned=3, queued=3)
    assert scene.calls == ["ledger.plan", "queue.enqueue"]
    assert scene.queued() == {key: scene.ledger.rows["ocm", key].job for key in KEYS}
    assert {row.status for row in scene.ledger.rows.values()} == {"pending"}
    assert scene.queue.store.newest_run == {"ocm": "run1"}


def test_producing_twice_queues_nothing_again(scene: Scene) -> None:
    scene.produce()
    assert scene.produce("run2") == Produced("run2", planned=3, in_flight=3)
    assert len(scene.queue.store.entries) == 3


@pytest.mark.parametrize(
    ("status", "field"), [("done", "done"), ("failed", "failed"), ("split", "other"), ("cancelled", "cancelled")]
)
@pytest.mark.parametrize("again", [False, True])
def test_finished_shards_are_left_alone_and_counted(scene: Scene, status: str, field: str, again: bool) -> None:
    scene.produce()
    scene.forget_queue()
    scene.change_row(KEYS[0], status=status)
    produced = scene.produce("run2", again=again)
    if status in ("done", "cancelled") and again:
        assert produced == Produced("run2", planned=3, queued=3)
    else:
        assert produced == Produced("run2", planned=3, queued=2, **{field: 1})
        assert KEYS[0] not in scene.queued()
        assert scene.ledger.rows["ocm", KEYS[0]].status == status


def test_leased_and_delayed_shards_are_in_flight(scene: Scene) -> None:
    scene.produce()
    leases = scene.queue.claim(["ocm"], 2).leases
    scene.queue.retry(leases[0], Checkpoint(), 60, 1)
    scene.change_row(leases[1].shard_key, status="leased")
    assert scene.produce("run2") == Produced("run2", planned=3, in_flight=3)
    assert scene.produce("run3", again=True) == Produced("run3", planned=3, in_flight=3)


def test_again_opens_a_new_round_of_what_is_done_from_its_first_page(scene: Scene) -> None:
    scene.produce()
    scene.forget_queue()
    jobs = {key: scene.ledger.rows["ocm", key].job for key in KEYS}
    for key in KEYS:
        scene.change_row(key, status="done", checkpoint=SOME)
    scene.calls.clear()
    assert scene.produce("run2", again=True) == Produced("run2", planned=3, queued=3)
    assert scene.calls == ["ledger.plan", "ledger.reopen", "queue.enqueue"]
    for key in KEYS:
        row = scene.ledger.rows["ocm", key]
        assert (row.status, row.run, row.checkpoint, row.counted_as) == (
            "pending",
            "run2",
            Checkpoint(counts=SOME.counts),
            "done",
        )
        assert row.job != jobs[key]
        assert scene.queued()[key] == row.job
    assert {(lease.checkpoint.page, lease.checkpoint.cursor) for lease in scene.queue.claim(["ocm"], 3).leases} == {(0, None)}
    assert scene.queue.store.counters["done"] == -3


def test_a_shard_planned_before_but_not_in_redis_is_queued_with_its_checkpoint(scene: Scene) -> None:
    scene.produce()
    scene.forget_queue()
    scene.change_row(KEYS[1], checkpoint=SOME)
    assert scene.produce("run2").queued == 3
    assert scene.queue.store.progress["ocm", KEYS[1]].checkpoint == SOME


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("status", ["pending", "done"])
def test_a_row_of_a_newer_version_is_left_alone(scene: Scene, status: str, again: bool) -> None:
    scene.produce()
    scene.forget_queue()
    scene.change_row(KEYS[0], v=STORED_VERSION + 1, status=status)
    before = scene.ledger.rows["ocm", KEYS[0]]
    assert scene.produce("run2", again=again) == Produced("run2", planned=3, queued=2, other=1)
    assert scene.ledger.rows["ocm", KEYS[0]] == before


def test_missing_queues_what_the_ledger_has_as_pending_and_redis_does_not_have(scene: Scene) -> None:
    scene.produce()
    scene.forget_queue()
    scene.produce("run1", high=10)
    scene.change_row(KEYS[1], status="leased", checkpoint=SOME)
    assert scene.missing() == Produced("run2", planned=3, queued=2, in_flight=1)
    assert sorted(scene.queued()) == KEYS
    assert scene.queue.store.progress["ocm", KEYS[1]].checkpoint == SOME


def test_missing_leaves_finished_shards_and_newer_ones(scene: Scene) -> None:
    scene.produce()
    scene.forget_queue()
    scene.change_row(KEYS[0], status="done")
    scene.change_row(KEYS[1], v=STORED_VERSION + 1)
    assert scene.missing() == Produced("run2", planned=2, queued=1, other=1)
    assert list(scene.queued()) == [KEYS[2]]


def test_missing_with_nothing_planned_does_nothing(scene: Scene) -> None:
    assert scene.missing() == Produced("run2")
    assert scene.queue.calls == []


def test_the_same_shard_planned_twice_is_queued_once(scene: Scene) -> None:
    scopes = [Scope(country="DE"), *Plan(Countries(("DE", "FR")))]
    produced = scene.producer.produce("ocm", scopes, "run1", again=False, progress=lambda now: None)
    assert (produced.planned, produced.queued) == (2, 2)


def test_shards_go_in_batches_and_the_plan_is_never_read_ahead_of_them(scene: Scene) -> None:
    read = 0

    def plan() -> Iterator[Scope]:
        nonlocal read
        for number in range(2 * BATCH + 1):
            read += 1
            yield Scope(ids=IdRange(number, number + 1))

    reads: list[int] = []
    produced = scene.producer.produce("ocm", plan(), "run1", again=False, progress=lambda now: reads.append(read))
    assert produced.queued == 2 * BATCH + 1
    assert reads == [BATCH, 2 * BATCH, 2 * BATCH + 1]
    assert scene.calls == ["ledger.plan", "queue.enqueue"] * 3


def test_progress_is_told_after_every_batch(scene: Scene) -> None:
    scene.produce()
    assert scene.told == [Produced("run1", planned=3, queued=3)]


def test_a_produce_cut_short_between_the_two_stores_is_finished_by_the_next(scene: Scene) -> None:
    scene.queue.faults["enqueue"] = ["away"]
    with pytest.raises(Unavailable):
        scene.produce()
    assert scene.produce("run2") == Produced("run2", planned=3, queued=3)


def test_a_redis_without_counters_gets_them_from_the_ledger_before_anything_is_queued(scene: Scene) -> None:
    scene.produce(high=10)
    scene.change_row(KEYS[0], status="done", checkpoint=SOME, counted_as="done")
    scene.forget_queue()
    scene.queue.store.uncounted = {"ocm"}
    replaced = scene.counters.replace

    def rebuild(*arguments: Any) -> bool:
        scene.queue.store.uncounted.clear()
        return replaced(*arguments)

    scene.counters.replace = rebuild  # type: ignore[method-assign, assignment]
    assert scene.produce("run2") == Produced("run2", planned=3, queued=2, done=1)
    assert scene.counters.read("ocm")["done"] == "1"
    assert scene.queue.store.newest_run == {"ocm": "run2"}


def test_once_it_has_begun_every_step_waits_for_servers_that_are_away_or_full(scene: Scene) -> None:
    tries: list[str] = []

    def patiently(action: Callable[[], Any]) -> Any:
        while True:
            try:
                return action()
            except Unavailable as error:
                tries.append(error.reason)
                scene.ledger.away = False

    scene.producer = replace(scene.producer, patiently=patiently)
    scene.ledger.away = True
    scene.queue.faults["enqueue"] = ["away", "reply lost"]
    assert scene.produce() == Produced("run1", planned=3, in_flight=3), "they were queued; only the reply was lost"
    assert tries == ["away", "away", "reply lost"]
    assert sorted(scene.queued()) == KEYS


def test_shards_are_queued_with_the_budgets_they_have_spent(scene: Scene) -> None:
    scene.produce(high=10)
    scene.forget_queue()
    scene.change_row(KEYS[0], attempts=2, crashes=1)
    assert scene.missing().queued == 1
    [lease] = scene.queue.claim(["ocm"], 1).leases
    assert (lease.attempts, lease.crashes) == (2, 1)


def test_a_run_is_named_by_its_time_and_never_twice() -> None:
    now = datetime(2026, 2, 21, 10, 0, 0, tzinfo=UTC)
    names = {new_run(now) for _ in range(20)}
    assert all(name.startswith("20260221T100000Z-") for name in names)
    assert len(names) > 1
