"""What any worker does for all: promote, reclaim, and reap."""

from __future__ import annotations

import pytest

from streams_importer.application.housekeeper import Housekeeper
from streams_importer.application.outages import Outages
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import Unavailable
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Counts, Lease
from streams_importer.ports import Claimed, QueuedShard
from tests.fakes.queue import Entry, FakeQueue
from tests.fakes.recorded import Events

KEYS = ["ids:0..10", "ids:10..20", "ids:20..30"]
DEFINITIONS = {"a": Definition("a", lease_s=10.0), "b": Definition("b", lease_s=10.0)}
SOME = Checkpoint(2, 7, Counts(inserted=3))


class Scene:
    """`queue` is ours, `dead` the one of a worker that is no more."""

    def __init__(self) -> None:
        self.queue = FakeQueue("w:1")
        self.dead = FakeQueue("dead:1", self.queue.store)
        self.live: dict[str, float] = {"w:1": 10.0}
        self.forgotten = 0
        self.uptime = 1e9
        self.now = 0.0
        self.outages = Outages(Events(), lambda: self.now)
        self.housekeeper = Housekeeper(self.queue, self.outages, lambda: self.live, self._forget, lambda: self.uptime)

    def _forget(self) -> None:
        self.forgotten += 1

    def plan(self, name: str = "a") -> None:
        self.queue.enqueue(name, [QueuedShard(key, f"job of {key}") for key in KEYS], "run1")

    def abandoned(self, name: str = "a", number: int = 3) -> list[Lease]:
        """Shards that the dead worker claimed, and whose leases have run out."""
        self.plan(name)
        leases = self.dead.claim([name], number).leases
        self.dead.start(leases)
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


@pytest.mark.parametrize(("uptime", "since_outage", "crashes"), [(40.0, 40.0, 1), (12.0, 40.0, 0), (40.0, 12.0, 0)])
def test_who_was_silent_for_longer_than_redis_has_been_there_is_charged_with_nothing(
    scene: Scene, uptime: float, since_outage: float, crashes: int
) -> None:
    scene.abandoned()
    scene.queue.store.now += 20.0
    scene.uptime = uptime
    scene.outages.away(Unavailable("Redis", "away"))
    scene.outages.back("Redis")
    scene.now += since_outage
    assert [lease.crashes for lease in scene.reclaim()] == [crashes] * 3


def test_entries_that_were_deleted_are_counted_over_all_imports(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scene.queue, "reclaim", lambda name, *_: Claimed([], [], deleted={"a": 2, "b": 1}[name]))
    assert scene.housekeeper.reclaim(DEFINITIONS, 10, []).deleted == 3


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


def test_live_consumers_without_work_are_kept_and_those_under_which_nothing_waits_any_more_are_not(scene: Scene) -> None:
    scene.queue.store.known_consumers |= {("a", name) for name in ("w:1", "released", "newer", "dead:1")}
    scene.plan()
    scene.dead.release(scene.dead.claim(["a"], 1).leases)
    assert scene.housekeeper.reap(["a"]) == 2
    assert set(scene.queue.consumers("a")) == {"w:1", "released"}, "what was given back waits under a name that is nobody's"
