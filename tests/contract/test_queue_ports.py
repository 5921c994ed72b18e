"""What every ShardQueue does, the fake one that the unit tests stand on included; test_queue.py has what only Redis can show."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import fakeredis
import pytest
import redis

from streams_importer.adapters.redis_counters import RedisCounters
from streams_importer.adapters.redis_keys import Keys
from streams_importer.adapters.redis_queue import RedisQueue
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Counts, Failure
from streams_importer.ports import QueuedShard, ShardQueue
from tests.fakes.queue import FakeQueue, Store

MakeQueue = Callable[[str], ShardQueue]
KEYS = ["ids:0..10", "ids:10..20", "ids:20..30"]
PAGE = Checkpoint(1, 7, Counts(inserted=5))
WHY = Failure("http_500", "api.example: answered 500", 500)


@pytest.fixture(params=["fake", "fakeredis", "real"])
def queue_of(request: pytest.FixtureRequest) -> Iterator[MakeQueue]:
    """Makes queues for consumers that share one store."""
    if request.param == "fake":
        store = Store()
        yield lambda consumer: FakeQueue(consumer, store)
        return
    client: redis.Redis
    if request.param == "real":
        client = request.getfixturevalue("redis_client")
    else:
        client = fakeredis.FakeRedis(version=(6, 2), protocol=2)
    made = RedisQueue(client, Keys(), "setup")
    made.set_up("a")
    RedisCounters(client, Keys()).replace("a", {}, {})
    yield lambda consumer: RedisQueue(client, Keys(), consumer)


def put(queue: ShardQueue, *keys: str) -> list[bool]:
    return queue.enqueue("a", [QueuedShard(key, f"job of {key}") for key in keys], "run1", begins=True)


def test_a_shard_is_queued_once_until_it_is_settled(queue_of: MakeQueue) -> None:
    queue = queue_of("w:1")
    assert put(queue, *KEYS[:2]) == [True, True]
    assert put(queue, *KEYS) == [False, False, True]
    [lease] = queue.claim(["a"], 1).leases
    assert put(queue, lease.shard_key) == [False]
    assert queue.complete([(lease, PAGE)]) == [True]
    assert put(queue, lease.shard_key) == [True]


def test_shards_are_claimed_in_order_up_to_the_limit_and_by_one_only(queue_of: MakeQueue) -> None:
    put(queue_of("p"), *KEYS)
    first, second = queue_of("w:1").claim(["a"], 2).leases, queue_of("w:2").claim(["a"], 5).leases
    assert [lease.shard_key for lease in first + second] == KEYS
    assert {lease.consumer for lease in first} == {"w:1"}
    assert queue_of("w:3").claim(["a"], 5).leases == []


def test_who_does_not_hold_a_lease_changes_nothing(queue_of: MakeQueue) -> None:
    put(queue_of("p"), KEYS[0])
    holder, other = queue_of("w:1"), queue_of("w:2")
    [lease] = holder.claim(["a"], 1).leases
    assert holder.release([lease]) == [True]
    [taken] = other.claim(["a"], 1).leases
    assert (taken.entry, taken.count) == (lease.entry, lease.count + 1)
    assert holder.renew([lease]) == [False]
    assert holder.checkpoint(lease, PAGE) is False
    assert holder.complete([(lease, PAGE)]) == [False]
    assert holder.discard([lease]) == [False]
    assert holder.retry(lease, PAGE, 1, 1) is False
    assert holder.release([lease]) == [False]
    assert not holder.dead_letter(lease, PAGE, WHY, 1)
    assert holder.hand_over(lease, STORED_VERSION + 1) is False
    assert other.renew([taken]) == [True]


def test_progress_goes_with_the_shard(queue_of: MakeQueue) -> None:
    put(queue_of("p"), KEYS[0])
    first, second = queue_of("w:1"), queue_of("w:2")
    [lease] = first.claim(["a"], 1).leases
    assert first.checkpoint(lease, PAGE)
    first.release([lease])
    [taken] = second.claim(["a"], 1).leases
    assert (taken.checkpoint, taken.attempts, taken.job) == (PAGE, 0, lease.job)
    assert second.retry(taken, PAGE, 3600, 2)
    assert second.claim(["a"], 1).leases == []
    assert second.promote("a", 10) == 0
    assert put(second, KEYS[0]) == [False]


def test_what_a_lost_reply_gave_us_is_adopted(queue_of: MakeQueue) -> None:
    queue = queue_of("w:1")
    put(queue, *KEYS)
    [known] = queue.claim(["a"], 1).leases
    unseen = queue.claim(["a"], 1).leases
    assert queue.adopt(["a"], [known.entry]).leases == unseen
    assert queue_of("w:2").adopt(["a"], []).leases == []


def test_a_shard_handed_over_is_left_to_a_newer_version(queue_of: MakeQueue) -> None:
    queue = queue_of("w:1")
    put(queue, KEYS[0])
    [lease] = queue.claim(["a"], 1).leases
    assert queue.hand_over(lease, STORED_VERSION + 1)
    claimed = queue.claim(["a"], 5)
    assert (claimed.leases, claimed.too_new) == ([], 1)
    assert queue.claim(["a"], 5).leases == []


def test_only_consumers_without_entries_are_reaped(queue_of: MakeQueue) -> None:
    put(queue_of("p"), *KEYS)
    busy, idle = queue_of("busy:1"), queue_of("idle:1")
    busy.claim(["a"], 1)
    idle.complete([(lease, PAGE) for lease in idle.claim(["a"], 1).leases])
    assert busy.consumers("a") == {"busy:1": 1, "idle:1": 0}
    assert busy.reap("a", ["busy:1", "idle:1"]) == 1
    assert busy.consumers("a") == {"busy:1": 1}
