"""A Redis at its memory limit: whoever works goes on, finishes, and so makes room; whoever adds is told to wait."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import redis

from streams_importer.adapters.redis_budget import RedisBudget
from streams_importer.adapters.redis_cache import RedisCache
from streams_importer.adapters.redis_catalogue import RedisCatalogue
from streams_importer.adapters.redis_client import connect
from streams_importer.adapters.redis_counters import RedisCounters
from streams_importer.adapters.redis_keys import GROUP
from streams_importer.adapters.redis_workers import RedisWorkers
from streams_importer.application.cancellation import CancelToken
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import Full
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Lease
from streams_importer.domain.rates import parse_limit
from streams_importer.embedded.servers import EmbeddedServers
from streams_importer.ports import Pause, QueuedShard
from tests.contract.test_queue import FIRST, LEASE_S, PAGE_1, PAGE_2, THERE_S, WHY, Bench

NEVER = CancelToken()
OTHER = "ids:900..910"


class Scene(Bench):
    """Shards in every place, and not a byte to spare from `fill` on."""

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(client)
        self.worker().set_up("a")
        self.catalogue = RedisCatalogue(self.client, self.keys)
        self.catalogue.save(Definition("a"), "run1")
        self.put(*(f"ids:{low}..{low + 1}" for low in range(10)))
        self.delayed = self.claim()
        self.worker().retry(self.delayed, PAGE_1, 60, 1)
        self.lease = self.claim()
        self.of_dead = self.claim("dead:1")
        self.worker("dead:1").start([self.of_dead])
        self.age(self.of_dead)

    def fill(self) -> None:
        self.client.config_set("maxmemory", 1)

    def make_due(self, *shards: str) -> None:
        """Time passes for what is delayed: nobody writes for that, so it must not need room."""
        [full] = self.client.config_get("maxmemory").values()
        self.client.config_set("maxmemory", 0)
        super().make_due(*shards)
        self.client.config_set("maxmemory", full)


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServers]:
    """A pair for this module alone: its settings are changed."""
    with EmbeddedServers() as pair:
        yield pair


@pytest.fixture
def scene(server: EmbeddedServers) -> Iterator[Scene]:
    client = connect(server.redis_url, max_connections=2)
    client.config_set("maxmemory", 0)
    client.flushall()
    yield Scene(client)
    client.connection_pool.disconnect()


WORK: dict[str, Callable[[Scene], object]] = {
    "claim": lambda scene: len(scene.worker().claim(["a"], 2).leases) == 2,
    "adopt": lambda scene: scene.worker().adopt(["a"], []).leases == [scene.lease],
    "reclaim": lambda scene: [lease.crashes for lease in scene.worker().reclaim("a", 5, LEASE_S, [], THERE_S).leases] == [1],
    "start": lambda scene: scene.worker().start([scene.lease]) == [True],
    "renew": lambda scene: scene.worker().renew([scene.lease]) == [True],
    "checkpoint": lambda scene: scene.worker().checkpoint(scene.lease, PAGE_1),
    "retry": lambda scene: scene.worker().retry(scene.lease, PAGE_1, 60, 1),
    "promote": lambda scene: scene.worker().promote("a", 5) == 1,
    "release": lambda scene: scene.worker().release([scene.lease], LEASE_S) == [True],
    "complete": lambda scene: scene.worker().complete([(scene.lease, PAGE_2)]) == [True],
    "discard": lambda scene: scene.worker().discard([scene.lease]) == [True],
    "dead letter": lambda scene: bool(scene.worker().dead_letter(scene.lease, PAGE_1, WHY, 5)),
    "hand over": lambda scene: scene.worker().hand_over(scene.lease, STORED_VERSION + 1),
    "beat": lambda scene: RedisWorkers(scene.client, scene.keys).beat("w:1", ["a"], 1, LEASE_S, 0.0),
    "token": lambda scene: RedisBudget(scene.client, scene.keys, "b", parse_limit("1000/s")).take(NEVER) > 0,
    "hold": lambda scene: RedisBudget(scene.client, scene.keys, "b", parse_limit("1000/s")).hold(60),
    "pause": lambda scene: scene.catalogue.pause("a", Pause("key refused", "w:1", "now")),
    "resume": lambda scene: scene.catalogue.pause("a", None),
    "define": lambda scene: scene.catalogue.save(Definition("a"), "run1"),
    "announce a producer": lambda scene: scene.worker().announce_producer("a", is_there=True),
    "recount": lambda scene: (
        scene.client.delete(scene.a.counters) and RedisCounters(scene.client, scene.keys).replace("a", {}, {"done": "1"})
    ),
    "remember an answer": lambda scene: RedisCache(scene.client, scene.keys, "b").put("x", b"y", 60),
}


@pytest.mark.parametrize("work", WORK.values(), ids=WORK.keys())
def test_a_worker_goes_on_though_redis_is_full(scene: Scene, work: Callable[[Scene], object]) -> None:
    scene.make_due(scene.delayed.shard_key)
    scene.fill()
    assert work(scene) in (None, True)


def test_whoever_queues_shards_is_told_and_nothing_has_changed(scene: Scene) -> None:
    scene.fill()
    before = scene.dump()
    for shard in (QueuedShard(OTHER, "job"), QueuedShard(OTHER, "job", "done", PAGE_1, 1, 1)):
        with pytest.raises(Full):
            scene.worker().enqueue("a", [shard], "run1")
        with pytest.raises(Full):
            scene.worker().enqueue("a", [shard], "run9", begins=True)
    assert scene.dump() == before


def test_whoever_sets_up_an_import_is_told_too(scene: Scene) -> None:
    scene.fill()
    for name in ("a", "b"):
        with pytest.raises(Full):
            scene.worker().set_up(name)


def test_a_lost_group_is_made_again_by_the_claim_that_misses_it(scene: Scene) -> None:
    scene.client.xgroup_destroy(scene.a.shards, GROUP)
    scene.fill()
    assert len(scene.worker().claim(["a"], 20).leases) == 9


def test_work_that_finishes_makes_room_and_queueing_goes_on(scene: Scene) -> None:
    """All of a shard's ways, one after the other, in a Redis that is full throughout; then there is room."""
    scene.fill()
    queue = scene.worker()

    def work(lease: Lease) -> None:
        assert queue.start([lease]) == [True]
        assert queue.checkpoint(lease, PAGE_1)
        assert queue.complete([(lease, PAGE_2)]) == [True]

    assert queue.retry(scene.lease, Checkpoint(), 60, 1)
    scene.make_due(scene.delayed.shard_key, scene.lease.shard_key)
    assert queue.promote("a", 5) == 2
    for lease in [*queue.claim(["a"], 20).leases, *queue.reclaim("a", 5, LEASE_S, [], THERE_S).leases]:
        work(lease)
    assert scene.states() == (0, 0, 0, 0)
    assert scene.run() == ("run1", 10, 0, 10, 0, True)
    with pytest.raises(Full):
        queue.enqueue("a", [QueuedShard(OTHER, "job")], "run1")
    scene.client.config_set("maxmemory", 0)
    assert queue.enqueue("a", [QueuedShard(FIRST, "job")], "run1") == [True]
