"""Progress that somebody else wrote: it stops no worker, hides no crash, and the ledger knows the shard, too."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis import Redis

from streams_importer.adapters.redis_counters import RedisCounters
from streams_importer.adapters.redis_keys import GROUP, Keys
from streams_importer.adapters.redis_queue import RedisQueue
from streams_importer.domain.model import Checkpoint, Lease
from streams_importer.ports import QueuedShard

OF = Keys().of("a")
KEY = "ids:0..10"
GOOD: dict[str, Any] = {"v": 1, "job": "job-1", "run": "run-1", "attempts": 1, "crashes": 1, "page": 2, "cursor": "20",
                        "counts": [1, 0, 0, 0, 0, 2, 0, 0]}  # fmt: skip
BROKEN = [
    json.dumps({**GOOD, "crashes": 0}).replace('"crashes": 0', '"crashes": 1e999'),
    json.dumps({**GOOD, "page": 0}).replace('"page": 0', '"page": 1e999'),
    json.dumps({**GOOD, "attempts": 10**25}),
    json.dumps({**GOOD, "crashes": 10**25}),
    json.dumps({**GOOD, "crashes": 0.5}),
    json.dumps({**GOOD, "crashes": -1_000_000}),
    json.dumps({**GOOD, "crashes": "many"}),
    json.dumps({**GOOD, "started": {"deep": [1]}}),
    json.dumps({**GOOD, "counts": [1, 2, -3, 0, 0, 0, 0, 0]}),
    json.dumps({**GOOD, "cursor": {"a": 1}}),
    json.dumps({**GOOD, "more": 0}).replace('"more": 0', '"more": 1e999'),
    json.dumps({name: value for name, value in GOOD.items() if name != "job"}),
    json.dumps({**GOOD, "run": [1]}),
    "[1, 2",
    "7",
]


@pytest.fixture
def queue(redis_client: Redis) -> RedisQueue:
    queue = RedisQueue(redis_client, Keys(), "w:1")
    RedisCounters(redis_client, Keys()).replace("a", {}, {})
    queue.enqueue("a", [QueuedShard(KEY, "job-1")], "run-1", begins=True)
    return queue


def lose(client: Redis, lease: Lease) -> None:
    client.xclaim(OF.shards, GROUP, lease.consumer, 0, [lease.entry], idle=60_000, justid=True)


@pytest.mark.parametrize("stored", BROKEN)
def test_a_worker_claims_starts_and_loses_it_and_every_crash_is_counted(
    redis_client: Redis, queue: RedisQueue, stored: str
) -> None:
    redis_client.hset(OF.progress, KEY, stored)
    [lease] = queue.claim(["a"], 1).leases
    seen = []
    for _ in range(3):
        assert queue.start([lease]) == [True]
        lose(redis_client, lease)
        [lease] = queue.reclaim("a", 1, 15, [], 1e6).leases
        seen.append(lease.crashes)
    assert seen in ([1, 2, 3], [2, 3, 4])
    assert queue.checkpoint(lease, Checkpoint(3, 30))
    assert queue.complete([(lease, Checkpoint(4))]) == [True]


@pytest.mark.parametrize("stored", BROKEN)
def test_what_is_delayed_with_it_stops_nothing_that_is_due(redis_client: Redis, queue: RedisQueue, stored: str) -> None:
    queue.enqueue("a", [QueuedShard("ids:10..20", "job-2")], "run-1")
    for lease in queue.claim(["a"], 2).leases:
        assert queue.retry(lease, Checkpoint(), 0, 1)
    redis_client.hset(OF.progress, KEY, stored)
    queue.promote("a", 10)
    assert "ids:10..20" in [lease.shard_key for lease in queue.claim(["a"], 2).leases]
    assert redis_client.zcard(OF.delayed) == 0
    queue.enqueue("a", [QueuedShard(KEY, "job-1")], "run-1")  # as the healer does, from the ledger
    places = redis_client.hgetall(OF.places)
    assert set(places) == {KEY.encode(), b"ids:10..20"}
