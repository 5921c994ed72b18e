"""Who is charged with a crash, and who never is: the fake queue, the server in memory and a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import fakeredis
import pytest
import redis

from streams_importer.adapters.redis_counters import RedisCounters
from streams_importer.adapters.redis_keys import GROUP, Keys
from streams_importer.adapters.redis_queue import RedisQueue
from streams_importer.adapters.redis_workers import RedisWorkers
from streams_importer.domain.model import Checkpoint, Counts, Lease
from streams_importer.ports import QueuedShard, ShardQueue
from tests.fakes.queue import FakeQueue, Store

LEASE_S = 15.0
LONG_S = 1e9
KEYS = ["ids:0..10", "ids:10..20", "ids:20..30"]
PAGE = Checkpoint(1, 7, Counts(inserted=5))


@dataclass
class Fleet:
    """Workers that share one store. Nobody has a heartbeat until it beats."""

    queue: Callable[[str], ShardQueue]
    beat: Callable[[str], object]
    age: Callable[[Lease, float], object]
    make_due: Callable[[Lease], object]

    def claimed(self, *keys: str, by: str = "w:1") -> list[Lease]:
        shards = [QueuedShard(key, f"job of {key}") for key in keys or KEYS[:1]]
        assert all(self.queue("p").enqueue("a", shards, "run1", begins=True))
        return self.queue(by).claim(["a"], len(shards)).leases

    def started(self, *keys: str, by: str = "w:1") -> list[Lease]:
        leases = self.claimed(*keys, by=by)
        assert all(self.queue(by).start(leases))
        return leases

    def run_out(self, *leases: Lease, by: str = "w:9", idle_s: float = LEASE_S + 1, there_s: float = LONG_S) -> list[Lease]:
        """Their leases run out, and another worker takes them over."""
        for lease in leases:
            self.age(lease, idle_s)
        return self.queue(by).reclaim("a", 10, LEASE_S, [], there_s).leases


@pytest.fixture(params=["fake", "fakeredis", "real"])
def fleet(request: pytest.FixtureRequest) -> Iterator[Fleet]:
    if request.param == "fake":
        store = Store()

        def age(lease: Lease, seconds: float) -> None:
            store.entries[lease.entry].seen = store.now - seconds

        def make_due_now(lease: Lease) -> None:
            _, entry = store.delayed[lease.import_name, lease.shard_key]
            store.delayed[lease.import_name, lease.shard_key] = (0.0, entry)

        yield Fleet(lambda name: FakeQueue(name, store), store.alive.add, age, make_due_now)
        return
    client: redis.Redis
    if request.param == "real":
        client = request.getfixturevalue("redis_client")
    else:
        client = fakeredis.FakeRedis(version=(6, 2), protocol=2)
    keys = Keys()
    RedisQueue(client, keys, "setup").set_up("a")
    RedisCounters(client, keys).replace("a", {}, {})

    def idle(lease: Lease, seconds: float) -> None:
        idle_ms = round(seconds * 1000)
        client.xclaim(keys.of("a").shards, GROUP, lease.consumer, 0, [lease.entry], idle=idle_ms, justid=True)

    yield Fleet(
        lambda name: RedisQueue(client, keys, name),
        lambda name: RedisWorkers(client, keys).beat(name, ["a"], 1, LEASE_S, 0.0),
        idle,
        lambda lease: client.zadd(keys.of("a").delayed, {lease.shard_key: 1}, xx=True),
    )


# Charged.


def test_a_shard_that_was_running_when_its_worker_ended_is_charged_with_a_crash_and_with_no_attempt(fleet: Fleet) -> None:
    [taken] = fleet.run_out(*fleet.started())
    assert (taken.crashes, taken.attempts, taken.checkpoint) == (1, 0, Checkpoint())


def test_a_crash_is_counted_once_however_often_the_shard_changes_hands_before_it_runs_again(fleet: Fleet) -> None:
    [taken] = fleet.run_out(*fleet.started())
    [again] = fleet.run_out(taken, by="w:8")
    assert again.crashes == 1
    fleet.queue("w:8").release([again])
    assert [lease.crashes for lease in fleet.queue("w:7").claim(["a"], 1).leases] == [1]


def test_every_crash_counts(fleet: Fleet) -> None:
    [lease] = fleet.started()
    for number, worker in enumerate(["w:2", "w:3", "w:4"], start=1):
        [lease] = fleet.run_out(lease, by=worker)
        assert lease.crashes == number
        assert fleet.queue(worker).start([lease]) == [True]


def test_crashes_and_attempts_are_two_budgets_that_go_with_the_shard(fleet: Fleet) -> None:
    [taken] = fleet.run_out(*fleet.started())
    queue = fleet.queue("w:9")
    assert queue.retry(replace(taken, crashes=2), PAGE, 60, 3)
    fleet.make_due(taken)
    assert queue.promote("a", 5) == 1
    [back] = queue.claim(["a"], 1).leases
    assert (back.crashes, back.attempts, back.checkpoint) == (2, 3, PAGE)


def test_a_shard_is_queued_with_the_budgets_that_its_ledger_row_has_spent(fleet: Fleet) -> None:
    shards = [QueuedShard(KEYS[0], "job", None, Checkpoint(), 2, 1), QueuedShard(KEYS[1], "job", None, PAGE, 4)]
    shards += [QueuedShard(KEYS[2], "job", crashes=3)]
    assert all(fleet.queue("p").enqueue("a", shards, "run1"))
    leases = fleet.queue("w:1").claim(["a"], 3).leases
    assert [(lease.attempts, lease.crashes, lease.checkpoint) for lease in leases] == [
        (2, 1, Checkpoint()),
        (4, 0, PAGE),
        (0, 3, Checkpoint()),
    ]


# Never charged.


def test_a_shard_that_was_claimed_but_not_started_is_not_charged(fleet: Fleet) -> None:
    leases = fleet.claimed(*KEYS)
    assert fleet.queue("w:1").start(leases[1:2]) == [True]
    assert {lease.shard_key: lease.crashes for lease in fleet.run_out(*leases)} == {KEYS[0]: 0, KEYS[1]: 1, KEYS[2]: 0}


def test_the_lost_lease_of_a_worker_that_lives_is_not_charged(fleet: Fleet) -> None:
    leases = fleet.started()
    fleet.beat("w:1")
    [taken] = fleet.run_out(*leases)
    assert taken.crashes == 0
    assert [lease.crashes for lease in fleet.run_out(taken, by="w:8")] == [0], "nor later, when it is gone"


@pytest.mark.parametrize(("there_s", "crashes"), [(60.5, 1), (59.0, 0)])
def test_who_was_silent_for_longer_than_redis_has_been_there_is_not_charged(fleet: Fleet, there_s: float, crashes: int) -> None:
    [taken] = fleet.run_out(*fleet.started(), idle_s=60, there_s=there_s)
    assert taken.crashes == crashes


def test_a_page_that_is_stored_clears_a_suspect(fleet: Fleet) -> None:
    [taken] = fleet.run_out(*fleet.started())
    queue = fleet.queue("w:9")
    assert queue.start([taken]) == [True]
    assert queue.checkpoint(taken, PAGE)
    [again] = fleet.run_out(taken, by="w:8")
    assert (again.crashes, again.checkpoint) == (1, PAGE), "the one after the page, and no earlier one"


def test_a_shard_that_a_stop_gave_back_is_not_charged_by_whoever_takes_it(fleet: Fleet) -> None:
    [lease] = fleet.started()
    fleet.queue("w:1").release([lease], LEASE_S)
    [taken] = fleet.queue("w:2").reclaim("a", 5, LEASE_S, [], LONG_S).leases
    assert taken.crashes == 0


def test_who_dies_before_it_starts_a_shard_is_not_taken_for_who_started_it_before(fleet: Fleet) -> None:
    [lease] = fleet.started()
    fleet.queue("w:1").release([lease])
    [claimed] = fleet.queue("w:2").claim(["a"], 1).leases
    assert [lease.crashes for lease in fleet.run_out(claimed)] == [0]


def test_own_leases_are_not_charged_when_they_are_renewed_by_reclaiming(fleet: Fleet) -> None:
    [lease] = fleet.started()
    fleet.age(lease, LEASE_S + 1)
    assert fleet.queue("w:1").reclaim("a", 5, LEASE_S, [lease], LONG_S).leases == []
    [taken] = fleet.run_out(lease)
    assert taken.crashes == 1, "it is still the shard that w:1 started"


# Starting.


def test_a_lost_lease_cannot_be_started(fleet: Fleet) -> None:
    first, second = fleet.claimed(*KEYS[:2])
    [taken] = fleet.run_out(first)
    assert fleet.queue("w:1").start([first, second]) == [False, True]
    assert [lease.crashes for lease in fleet.run_out(taken, by="w:8")] == [0], "it was never noted as started"


def test_starting_renews_the_lease(fleet: Fleet) -> None:
    [lease] = fleet.claimed()
    fleet.age(lease, LEASE_S + 1)
    assert fleet.queue("w:1").start([lease]) == [True]
    assert fleet.queue("w:9").reclaim("a", 5, LEASE_S, [], LONG_S).leases == []


def test_starting_nothing_is_nothing(fleet: Fleet) -> None:
    assert fleet.queue("w:1").start([]) == []


def test_starting_twice_is_starting_once_and_keeps_what_the_shard_has_behind_it(fleet: Fleet) -> None:
    fleet.queue("p").enqueue("a", [QueuedShard(KEYS[0], "job", None, PAGE, 2, 1)], "run1")
    leases = fleet.queue("w:1").claim(["a"], 1).leases
    assert fleet.queue("w:1").start(leases) == fleet.queue("w:1").start(leases) == [True]
    [taken] = fleet.run_out(*leases)
    assert (taken.crashes, taken.attempts, taken.checkpoint) == (2, 2, PAGE)
