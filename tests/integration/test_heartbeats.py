"""Heartbeats on a real server: how they are written, whose silence is a crash, and what nobody can break by writing there."""

from __future__ import annotations

import json

import pytest

from streams_importer.adapters.redis_workers import Heartbeat, RedisWorkers
from tests.contract.test_queue import FIRST, LEASE_S, PAGE_1, THERE_S, Bench


def workers(bench: Bench) -> RedisWorkers:
    return RedisWorkers(bench.client, bench.keys)


def crashes_after(bench: Bench, heartbeat: str | bytes | None) -> int:
    """How many crashes a started shard has when its lease ran out, and its worker's heartbeat is this."""
    lease = bench.claimed()
    bench.worker().start([lease])
    if heartbeat is not None:
        bench.client.hset(bench.keys.workers, lease.consumer, heartbeat)
    bench.age(lease)
    [taken] = bench.worker("w:2").reclaim("a", 5, LEASE_S, [], THERE_S).leases
    return taken.crashes


def now_ms(bench: Bench) -> int:
    return workers(bench).now_ms()


def test_a_beat_says_what_the_worker_does_and_when_on_the_servers_clock(bench: Bench) -> None:
    before = now_ms(bench)
    workers(bench).beat("w:1", ["a", "b"], 3, 15.0, 12.34)
    [(name, beat)] = workers(bench).all().items()
    assert (name, beat) == ("w:1", Heartbeat(["a", "b"], 3, 15.0, 12.3, beat.seen_ms))
    assert before <= beat.seen_ms <= now_ms(bench)


def test_a_later_beat_takes_the_place_of_the_one_before(bench: Bench) -> None:
    workers(bench).beat("w:1", ["a"], 3, 15.0, 0.0)
    workers(bench).beat("w:1", [], 0, 15.0, 0.0)
    assert [(beat.imports, beat.leases) for beat in workers(bench).all().values()] == [([], 0)]


@pytest.mark.parametrize(("age_s", "crashes"), [(0.0, 0), (LEASE_S / 2 - 1, 0), (LEASE_S / 2 + 1, 1)])
def test_half_a_lease_without_a_beat_is_long(bench: Bench, age_s: float, crashes: int) -> None:
    assert crashes_after(bench, json.dumps({"seen_ms": now_ms(bench) - round(age_s * 1000)})) == crashes


@pytest.mark.parametrize(
    "rubbish", [None, "", "no JSON", "7", "[]", "{}", '{"seen_ms": "soon"}', '{"seen_ms": null}', b"\xff\xfe"]
)
def test_a_heartbeat_that_says_no_time_is_none(bench: Bench, rubbish: str | bytes | None) -> None:
    assert crashes_after(bench, rubbish) == 1


def test_the_heartbeat_of_an_older_version_is_one(bench: Bench) -> None:
    """It was written without a script, with the time among the other fields."""
    said = {"imports": ["a"], "leases": 1, "lease_s": 15.0, "records_per_s": 0.0, "seen_ms": now_ms(bench)}
    assert crashes_after(bench, json.dumps(said)) == 0


@pytest.mark.parametrize(("crashes", "then"), [("missing", 1), ("x", 1), (None, 1), ([1], 1), (-3, 1), (1.5, 1)])
def test_a_number_of_crashes_that_nobody_can_have_stops_nobody(bench: Bench, crashes: object, then: int) -> None:
    lease = bench.claimed()
    bench.worker().checkpoint(lease, PAGE_1)
    progress = json.loads(bench.client.hget(bench.a.progress, FIRST))
    progress["crashes"] = crashes
    if crashes == "missing":
        del progress["crashes"]
    bench.client.hset(bench.a.progress, FIRST, json.dumps(progress))
    assert bench.worker().start([lease]) == [True]
    bench.age(lease)
    [taken] = bench.worker("w:2").reclaim("a", 5, LEASE_S, [], THERE_S).leases
    assert taken.crashes == then
    assert bench.worker("w:2").complete([(taken, PAGE_1)]) == [True]
