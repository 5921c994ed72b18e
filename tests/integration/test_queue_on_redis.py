"""What only a real server shows of the queue: scan bounds, lost groups, many threads."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from streams_importer.adapters.lua_scripts import read_part
from streams_importer.adapters.redis_client import connect
from streams_importer.adapters.redis_keys import GROUP, Keys
from streams_importer.adapters.redis_queue import RedisQueue
from streams_importer.domain.errors import Unavailable
from streams_importer.domain.model import Lease
from streams_importer.ports import QueuedShard
from tests.contract.test_queue import FIRST, LEASE_S, PAGE_1, PAGE_2, SECOND, THERE_S, THIRD, Bench


def shards(number: int) -> list[str]:
    return [f"ids:{low}..{low + 1}" for low in range(number)]


# A group that is gone.


def test_after_a_flush_a_claim_makes_the_group_again_at_0(bench: Bench) -> None:
    bench.client.flushall()
    assert bench.worker().claim(["a"], 5).leases == []
    bench.client.flushall()
    bench.put(FIRST, SECOND)
    assert [lease.shard_key for lease in bench.worker().claim(["a"], 5).leases] == [FIRST, SECOND]


def test_when_only_the_group_was_lost_all_that_is_on_the_stream_is_claimed_again(bench: Bench) -> None:
    bench.put(FIRST, SECOND, THIRD)
    lost = bench.worker().claim(["a"], 2).leases
    bench.client.xgroup_destroy(bench.a.shards, GROUP)
    again = bench.worker("w:2").claim(["a"], 5).leases
    assert [(lease.shard_key, lease.consumer, lease.count) for lease in again] == [
        (FIRST, "w:2", 1),
        (SECOND, "w:2", 1),
        (THIRD, "w:2", 1),
    ]
    assert bench.worker().renew(lost) == [False, False]


# The bounded scan of reclaim.


def test_a_stale_shard_behind_many_renewed_ones_is_reached_because_the_cursor_is_kept(bench: Bench) -> None:
    bench.put(*shards(50))
    assert len(bench.worker("w:1").claim(["a"], 49).leases) == 49
    (stale,) = bench.worker("w:dead").claim(["a"], 1).leases
    bench.age(stale)
    queue = bench.worker("w:2")
    found = [queue.reclaim("a", 1, LEASE_S, [], THERE_S).leases for _ in range(5)]
    assert found[0] == [], "one scan looks at ten entries only"
    assert [lease.entry for leases in found for lease in leases] == [stale.entry]


def test_a_scan_begins_anew_when_it_has_come_to_the_end(bench: Bench) -> None:
    bench.put(*shards(30))
    leases = bench.worker("w:1").claim(["a"], 30).leases
    queue = bench.worker("w:2")
    for _ in range(3):
        assert queue.reclaim("a", 1, LEASE_S, [], THERE_S).leases == []
    bench.age(leases[0])
    found = [lease for _ in range(4) for lease in queue.reclaim("a", 1, LEASE_S, [], THERE_S).leases]
    assert [lease.entry for lease in found] == [leases[0].entry]


# Many at a time, and servers in trouble.


def test_no_shard_is_claimed_twice_by_threads_that_share_two_connections(bench: Bench) -> None:
    bench.put(*shards(400))
    queue = bench.worker()

    def work(_: int) -> list[Lease]:
        mine: list[Lease] = []
        while leases := queue.claim(["a"], 7).leases:
            assert all(queue.renew(leases))
            assert all(queue.complete([(lease, PAGE_1) for lease in leases]))
            mine += leases
        return mine

    with ThreadPoolExecutor(8) as threads:
        done = [lease.shard_key for leases in threads.map(work, range(8)) for lease in leases]
    assert sorted(done) == sorted(shards(400))
    assert bench.run() == ("run1", 400, 0, 400, 0, True)
    assert bench.board().records["inserted"] == 400 * PAGE_1.counts.inserted


def test_two_producers_of_the_same_shards_queue_each_once(bench: Bench) -> None:
    def produce(job: int) -> list[bool]:
        return bench.worker().enqueue("a", [QueuedShard(shard, f"job{job}") for shard in shards(200)], "run1", begins=True)

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(produce, range(4)))
    assert [sum(each) for each in zip(*answers, strict=True)] == [1] * 200
    assert bench.states() == (200, 0, 0, 0)
    assert bench.run()[:3] == ("run1", 200, 200)


def test_scripts_survive_a_flushed_script_cache(bench: Bench) -> None:
    lease = bench.claimed()
    bench.client.script_flush()
    assert bench.worker().renew([lease]) == [True]
    queue = bench.worker()
    assert queue.checkpoint(lease, PAGE_1)
    bench.client.script_flush()
    assert queue.checkpoint(lease, PAGE_2)


def test_a_server_that_is_not_there_is_unavailable_not_an_error_of_ours() -> None:
    client = connect("unix:///nonexistent/redis.sock", max_connections=1)
    queue = RedisQueue(client, Keys("si"), "w:1")
    with pytest.raises(Unavailable):
        queue.claim(["a"], 1)
    client.close()


def test_what_is_left_when_all_is_settled_is_under_64_kb_whatever_was_imported(bench: Bench) -> None:
    queue = bench.worker()
    for turn in range(5):
        bench.put(*shards(1000), run=f"run{turn}")
        leases = queue.claim(["a"], 1000).leases
        for lease in leases[:20]:
            queue.checkpoint(lease, PAGE_1)
        queue.retry(leases[20], PAGE_1, 0, 1)
        bench.make_due(leases[20].shard_key)
        assert queue.promote("a", 5) == 1
        leases[20] = bench.claim()
        assert all(queue.complete([(lease, PAGE_2) for lease in leases]))
    left = bench.client.keys("*")
    assert set(left) == {bench.a.shards.encode(), bench.a.counters.encode()}
    assert sum(bench.client.memory_usage(key, samples=0) for key in left) < 64 * 1024


# Time as scripts write it.


def test_scripts_write_the_same_times_as_python(bench: Bench) -> None:
    script = bench.client.register_script(read_part("_now") + "\nreturn iso(tonumber(ARGV[1]))")
    start = datetime(1970, 1, 1, tzinfo=UTC)
    edges = [
        datetime(y, m, d, 23, 59, 59, tzinfo=UTC) for y in (1999, 2000, 2024, 2026, 2100) for m, d in ((2, 28), (3, 1), (12, 31))
    ]
    dice = random.Random(1)
    times = [*edges, datetime(2024, 2, 29, tzinfo=UTC), *(start + timedelta(seconds=dice.randrange(2**33)) for _ in range(300))]
    for time in times:
        micros = round((time - start).total_seconds()) * 1_000_000 + dice.randrange(1_000_000)
        assert script(args=[micros]).decode() == f"{time:%Y-%m-%dT%H:%M:%SZ}"
