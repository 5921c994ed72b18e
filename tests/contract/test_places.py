"""Where shards are and how they are taken from there: on the fake, on the server in memory and on a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import fakeredis
import pytest
import redis

from streams_importer.adapters.redis_counters import RedisCounters
from streams_importer.adapters.redis_keys import Keys
from streams_importer.adapters.redis_places import RedisPlaces
from streams_importer.adapters.redis_queue import RedisQueue
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Counts, Failure
from streams_importer.ports import LedgerRow, Place, Places, QueuedShard, ShardQueue
from tests.fakes.places import FakePlaces
from tests.fakes.queue import FakeQueue, Store

Both = tuple[Callable[[str], ShardQueue], Places]
KEYS = ["ids:0..10", "ids:10..20", "ids:20..30", "country:DE"]
PAGE = Checkpoint(1, 7, Counts(inserted=5, requests_ok=1))
WHY = Failure("http_500", "api.example: answered 500", 500)


@pytest.fixture(params=["fake", "fakeredis", "real"])
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    """Queues for consumers that share one store, and the places in it."""
    if request.param == "fake":
        store = Store()
        yield lambda consumer: FakeQueue(consumer, store), FakePlaces(store)
        return
    client: redis.Redis
    if request.param == "real":
        client = request.getfixturevalue("redis_client")
    else:
        client = fakeredis.FakeRedis(version=(6, 2), protocol=2)
    RedisQueue(client, Keys(), "setup").set_up("a")
    RedisCounters(client, Keys()).replace("a", {}, {})
    yield lambda consumer: RedisQueue(client, Keys(), consumer), RedisPlaces(client, Keys())


def put(queue: ShardQueue, *keys: str, job: str = "job") -> None:
    assert all(queue.enqueue("a", [QueuedShard(key, f"{job} of {key}") for key in keys], "run1", begins=True))


def row(key: str, checkpoint: Checkpoint = PAGE, job: str = "job") -> LedgerRow:
    return LedgerRow(key, f"{job} of {key}", "run1", "cancelled", 0, checkpoint, None, None, STORED_VERSION)


def in_every_state(queue_of: Callable[[str], ShardQueue]) -> None:
    """KEYS, one each: leased, delayed, dead, queued."""
    queue = queue_of("w:1")
    put(queue, *KEYS)
    _, second, third = queue.claim(["a"], 3).leases
    assert queue.retry(second, PAGE, 60, 1)
    assert queue.dead_letter(third, PAGE, WHY, 5)


def test_every_shard_is_found_where_it_is(both: Both) -> None:
    queue_of, places = both
    in_every_state(queue_of)
    found = places.look("a", [*KEYS, "ids:77..78", KEYS[0]])
    assert {key: place.state for key, place in found.items()} == dict(
        zip(KEYS, ["leased", "delayed", "failed", "queued"], strict=True)
    )
    leased, delayed = found[KEYS[0]], found[KEYS[1]]
    assert leased.worker == "w:1"
    assert leased.idle_s is not None
    assert 0 <= leased.idle_s < 30
    assert delayed.comes_back_s is not None
    assert 30 < delayed.comes_back_s <= 60
    assert found[KEYS[3]] == Place("queued", job=f"job of {KEYS[3]}")
    assert (leased.job, delayed.job) == (f"job of {KEYS[0]}", f"job of {KEYS[1]}")
    assert places.look("b", KEYS) == {}
    assert places.look("a", []) == {}


def test_a_released_shard_is_queued(both: Both) -> None:
    queue_of, places = both
    put(queue_of("w:1"), KEYS[0])
    queue_of("w:1").release(queue_of("w:1").claim(["a"], 1).leases)
    assert places.look("a", KEYS) == {KEYS[0]: Place("queued", job=f"job of {KEYS[0]}")}
    assert [key for batch in places.leased("a") for key in batch] == []


def test_the_leased_and_the_delayed_are_listed(both: Both) -> None:
    queue_of, places = both
    queue = queue_of("w:1")
    put(queue, *KEYS)
    leases = queue.claim(["a"], 3).leases
    queue.retry(leases[0], PAGE, 90, 1)
    queue.retry(leases[1], PAGE, 60, 1)
    assert [key for batch in places.leased("a") for key in batch] == [KEYS[2]]
    assert [key for batch in places.delayed("a") for key in batch] == [KEYS[1], KEYS[0]]
    assert [key for batch in places.leased("b") for key in batch] == []
    assert [key for batch in places.delayed("b") for key in batch] == []


def test_a_cancelled_shard_is_nowhere_and_can_be_queued_again(both: Both) -> None:
    queue_of, places = both
    in_every_state(queue_of)
    rows = [row(key) for key in KEYS]
    assert places.cancel("a", rows) == [True, True, False, True]
    assert {key: place.state for key, place in places.look("a", KEYS).items()} == {KEYS[2]: "failed"}
    assert places.cancel("a", rows) == [False] * 4, "the second time changes nothing"
    assert queue_of("w:2").claim(["a"], 9).leases == []
    put(queue_of("w:1"), KEYS[0])
    assert len(queue_of("w:2").claim(["a"], 9).leases) == 1


def test_whoever_held_a_cancelled_shard_has_lost_it(both: Both) -> None:
    queue_of, places = both
    put(queue_of("w:1"), KEYS[0])
    [lease] = queue_of("w:1").claim(["a"], 1).leases
    assert places.cancel("a", [row(KEYS[0])]) == [True]
    queue = queue_of("w:1")
    assert queue.renew([lease]) == [False]
    assert queue.checkpoint(lease, PAGE) is False
    assert queue.complete([(lease, PAGE)]) == [False]
    assert queue.retry(lease, PAGE, 1, 1) is False


def test_another_round_of_the_shard_is_left_alone(both: Both) -> None:
    queue_of, places = both
    queue = queue_of("w:1")
    put(queue, KEYS[0], KEYS[1], job="later job")
    [lease] = queue.claim(["a"], 1).leases
    queue.retry(lease, PAGE, 60, 1)
    assert places.cancel("a", [row(KEYS[0]), row(KEYS[1])]) == [False, False]
    assert places.cancel("a", [row(KEYS[0], job="later job"), row(KEYS[1], job="later job")]) == [True, True]


def test_a_shard_left_to_a_newer_version_is_left_to_it(both: Both) -> None:
    queue_of, places = both
    queue = queue_of("w:1")
    put(queue, KEYS[0])
    [lease] = queue.claim(["a"], 1).leases
    assert queue.hand_over(lease, STORED_VERSION + 1)
    assert places.cancel("a", [row(KEYS[0])]) == [False]
    assert places.look("a", KEYS)[KEYS[0]].state == "queued"


def test_cancelling_nothing_and_what_is_nowhere_changes_nothing(both: Both) -> None:
    _, places = both
    assert places.cancel("a", []) == []
    assert places.cancel("b", [row(KEYS[0])]) == [False]
