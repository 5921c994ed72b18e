"""What any worker does for all: promote, reclaim, reap, and queue what is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams_importer.application.housekeeper import REQUEUE_BATCH, Housekeeper
from streams_importer.application.outages import Outages
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import Unavailable
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Counts, Lease
from streams_importer.ports import QueuedShard
from tests.fakes.ledger import FakeLedger
from tests.fakes.queue import Entry, FakeQueue
from tests.fakes.recorded import Events

KEYS = ["ids:0..10", "ids:10..20", "ids:20..30"]
DEFINITIONS = {"a": Definition("a", lease_s=10.0), "b": Definition("b", lease_s=10.0)}
SOME = Checkpoint(2, 7, Counts(inserted=3))


class Scene:
    """`queue` is ours, `dead` the one of a worker that is no more."""

    def __init__(self) -> None:
        self.queue, self.ledger = FakeQueue("w:1"), FakeLedger()
        self.dead = FakeQueue("dead:1", self.queue.store)
        self.live: dict[str, float] = {"w:1": 10.0}
        self.forgotten = 0
        self.uptime = 1e9
        self.now = 0.0
        self.outages = Outages(Events(), lambda: self.now)
        self.housekeeper = Housekeeper(
            self.queue, self.ledger, self.outages, lambda: self.live, self._forget, lambda: self.uptime
        )

    def _forget(self) -> None:
        self.forgotten += 1

    def plan(self, name: str = "a", keys: list[str] = KEYS, run: str = "run1") -> None:
        rows, _ = self.ledger.plan(name, keys, run)
        self.queue.enqueue(name, [QueuedShard(key, rows[key].job) for key in keys], run)

    def abandoned(self, name: str = "a", number: int = 3) -> list[Lease]:
        """Shards that the dead worker claimed, and whose leases have run out."""
        self.plan(name)
        leases = self.dead.claim([name], number).leases
        self.queue.store.now += 10.0
        return leases

    def reclaim(self, free: int = 10, held: list[Lease] | None = None) -> list[Lease]:
        return self.housekeeper.reclaim(DEFINITIONS, free, held or []).leases


@pytest.fixture
def scene() -> Scene:
    return Scene()


# Promote.


def test_delayed_shards_come_back_when_their_time_has_come(scene: Scene) -> None:
    scene.plan()
    for lease, delay in zip(scene.queue.claim(["a"], 3).leases, (5, 10, 60), strict=True):
        scene.queue.retry(lease, SOME, delay, 1)
    assert scene.housekeeper.promote(["a", "b"]) == 0
    scene.queue.store.now += 10
    assert scene.housekeeper.promote(["a", "b"]) == 2
    assert scene.housekeeper.promote(["a", "b"]) == 0
    leases = scene.queue.claim(["a"], 3).leases
    assert [(lease.shard_key, lease.attempts, lease.checkpoint) for lease in leases] == [(key, 1, SOME) for key in KEYS[:2]]


# Reclaim.


def test_shards_whose_lease_ran_out_are_taken_over(scene: Scene) -> None:
    scene.abandoned()
    leases = scene.reclaim()
    assert [lease.shard_key for lease in leases] == KEYS
    assert {(lease.consumer, lease.count) for lease in leases} == {("w:1", 2)}


def test_nobody_reclaims_within_one_lease_of_redis_coming_up(scene: Scene) -> None:
    scene.abandoned()
    scene.uptime = 3.0
    assert scene.reclaim() == []
    scene.uptime = 60.0
    assert len(scene.reclaim()) == len(KEYS)


def test_a_lease_that_has_not_run_out_is_left_to_its_owner(scene: Scene) -> None:
    scene.abandoned()
    scene.queue.store.now -= 0.1
    assert scene.reclaim() == []


def test_no_more_shards_are_reclaimed_than_there_are_free_slots_over_all_imports(scene: Scene) -> None:
    scene.abandoned("a")
    scene.abandoned("b")
    assert len(scene.reclaim(free=4)) == 4
    assert scene.reclaim(free=0) == []
    assert len(scene.reclaim(free=10)) == 2


def test_the_longest_lease_that_a_live_worker_announced_counts_for_all(scene: Scene) -> None:
    scene.abandoned()
    scene.live["patient:1"] = 60.0
    assert scene.reclaim() == []
    scene.queue.store.now += 50.0
    assert len(scene.reclaim()) == 3


def test_our_own_leases_are_renewed_and_never_reclaimed(scene: Scene) -> None:
    scene.plan()
    mine = scene.queue.claim(["a"], 1).leases
    scene.dead.claim(["a"], 2)
    scene.queue.store.now += 10.0
    assert [lease.shard_key for lease in scene.reclaim(held=mine)] == KEYS[1:]
    assert scene.queue.renew(mine) == [True]


def test_nobody_reclaims_within_one_lease_of_redis_coming_back(scene: Scene) -> None:
    scene.abandoned()
    scene.outages.away(Unavailable("Redis", "away"))
    assert scene.reclaim() == []
    scene.outages.back("Redis")
    scene.now += 9.9
    assert scene.reclaim() == []
    scene.now += 0.2
    assert len(scene.reclaim()) == 3


def test_an_outage_of_mongodb_does_not_hold_up_reclaiming(scene: Scene) -> None:
    scene.abandoned()
    scene.outages.away(Unavailable("MongoDB", "away"))
    assert len(scene.reclaim()) == 3


def test_garbage_and_newer_entries_of_a_dead_worker_are_handed_on(scene: Scene) -> None:
    scene.queue.put(Entry("a", "", "", "", problem="no shard"))
    scene.dead.claim(["a"], 1)
    scene.queue.put(Entry("a", "ids:0..1", "job", "run", v=STORED_VERSION + 1, owner="dead:1"))
    scene.queue.store.now += 10.0
    claimed = scene.housekeeper.reclaim(DEFINITIONS, 10, [])
    assert (len(claimed.garbage), claimed.too_new, claimed.leases) == (1, 1, [])


# Reap.


def test_consumers_that_are_gone_and_have_nothing_pending_are_forgotten(scene: Scene) -> None:
    scene.plan()
    lease = scene.dead.claim(["a"], 1).leases[0]
    scene.dead.complete([(lease, SOME)])
    scene.queue.claim(["a"], 1)
    assert scene.housekeeper.reap(["a", "b"]) == 1
    assert scene.queue.consumers("a") == {"w:1": 1}
    assert scene.forgotten == 1


def test_a_consumer_with_pending_shards_is_kept_though_it_is_gone(scene: Scene) -> None:
    scene.plan()
    scene.dead.claim(["a"], 1)
    assert scene.housekeeper.reap(["a"]) == 0
    assert scene.queue.consumers("a") == {"dead:1": 1}


def test_live_consumers_without_work_and_those_that_hold_what_was_given_back_are_kept(scene: Scene) -> None:
    scene.queue.store.known_consumers |= {("a", name) for name in ("w:1", "released", "newer", "dead:1")}
    assert scene.housekeeper.reap(["a"]) == 1
    assert set(scene.queue.consumers("a")) == {"w:1", "released", "newer"}


# Requeue.


def test_what_is_pending_and_has_no_place_is_queued_under_its_own_run(scene: Scene) -> None:
    scene.plan(keys=KEYS[:1], run="run1")
    scene.plan(keys=KEYS[1:], run="run2")
    scene.queue.store.entries.clear()
    scene.queue.store.places.clear()
    scene.ledger.rows["a", KEYS[1]] = replace(scene.ledger.rows["a", KEYS[1]], status="leased", checkpoint=SOME)
    assert scene.housekeeper.requeue_missing("a") == 3
    leases = {lease.shard_key: lease for lease in scene.queue.claim(["a"], 10).leases}
    assert {key: lease.run for key, lease in leases.items()} == dict(zip(KEYS, ("run1", "run2", "run2"), strict=True))
    assert leases[KEYS[1]].checkpoint == SOME
    assert {key: lease.job for key, lease in leases.items()} == {key: scene.ledger.rows["a", key].job for key in KEYS}


def test_what_has_a_place_is_not_queued_twice(scene: Scene) -> None:
    scene.plan()
    scene.queue.retry(scene.queue.claim(["a"], 1).leases[0], SOME, 60, 1)
    assert scene.housekeeper.requeue_missing("a") == 0
    assert len(scene.queue.store.entries) == 2


@pytest.mark.parametrize("changes", [{"status": "done"}, {"status": "failed"}, {"v": STORED_VERSION + 1}])
def test_finished_shards_and_those_of_a_newer_version_are_not_queued(scene: Scene, changes: dict[str, object]) -> None:
    scene.ledger.plan("a", KEYS[:1], "run1")
    scene.ledger.rows["a", KEYS[0]] = replace(scene.ledger.rows["a", KEYS[0]], **changes)  # type: ignore[arg-type]
    assert scene.housekeeper.requeue_missing("a") == 0
    assert scene.queue.store.entries == {}


def test_many_missing_shards_go_in_batches(scene: Scene) -> None:
    scene.ledger.plan("a", [f"ids:{number}..{number + 1}" for number in range(REQUEUE_BATCH + 1)], "run1")
    assert scene.housekeeper.requeue_missing("a") == REQUEUE_BATCH + 1
    assert scene.queue.calls == ["enqueue", "enqueue"]


def test_a_row_that_nobody_can_run_is_not_queued_again_and_again(scene: Scene) -> None:
    scene.ledger.plan("a", ["no shard at all", "ids:0..1"], "run1")
    assert scene.housekeeper.requeue_missing("a") == 1
    assert scene.housekeeper.requeue_missing("a") == 0
