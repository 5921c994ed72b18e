"""Workers that are killed, stopped or cut off: nothing lost, nothing doubled, little repeated."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable

import pytest

from streams_importer.embedded.servers import EmbeddedServers

from .fleet import Fleet, Process, wait_until

MakeFleet = Callable[..., Fleet]
SLOTS = 2


def slow_import(one: Fleet, rate: str = "40/s", lease: str = "1s") -> None:
    """About 110 requests in 20 shards: long enough to be disturbed."""
    one.run("produce", "--shard-size", "1000", "--page-size", "100", "--rate", rate, "--lease", lease)


def wait_for_requests(one: Fleet, more: int) -> None:
    wanted = len(one.asked()) + more
    wait_until(lambda: len(one.asked()) >= wanted, f"{wanted} requests")


@pytest.mark.slow
def test_five_sigkills_lose_and_double_nothing_and_repeat_at_most_two_requests_a_slot(fleet: MakeFleet) -> None:
    one = fleet(points=10_000, seed=11)
    one.upstream.control.add_fault("slow", 0.1, times=None)  # so that a kill finds requests under way
    slow_import(one)
    workers = [one.start("consume", "-c", str(SLOTS)) for _ in range(2)]
    for kill in range(5):
        wait_for_requests(one, 12)
        victim = workers.pop(0)
        victim.signal(signal.SIGKILL)
        assert victim.wait() == -signal.SIGKILL
        workers.append(one.start("consume", "-c", str(SLOTS), "--name", f"after-{kill}"))
    one.work(1)
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
    one.expect_everything_once()
    assert 0 < one.repeated() <= 5 * SLOTS * 2


def test_sigterm_gives_shards_to_others_at_once_and_repeats_only_the_page_in_hand(fleet: MakeFleet) -> None:
    one = fleet(points=10_000, seed=12)
    slow_import(one, lease="1h")  # nobody could wait for this lease: only a release lets the shards go on
    first = one.start("consume", "-c", str(SLOTS))
    wait_for_requests(one, 12)
    second = one.start("consume", "-c", str(SLOTS), "--until-empty")
    wait_for_requests(one, 12)
    asked = time.monotonic()
    first.signal(signal.SIGTERM)
    first.signal(signal.SIGTERM)  # platforms repeat themselves; within two seconds that is one signal
    assert first.wait() == 0
    assert time.monotonic() - asked < 25
    assert second.wait() == 0
    one.expect_everything_once()
    assert one.repeated() <= SLOTS
    assert all(row["attempts"] == 0 for row in one.db["import_windows"].find({}))


def test_a_stopped_worker_leaves_no_consumer_and_no_heartbeat(fleet: MakeFleet) -> None:
    one = fleet(points=100)
    one.run("produce", "--rate", "100/s")
    one.work(3)
    assert one.redis.xinfo_consumers("{si}:openchargemap:shards", "workers") == []
    assert one.redis.hgetall("{si}:workers") == {}


def test_a_worker_has_at_most_four_redis_connections_whatever_its_concurrency(fleet: MakeFleet) -> None:
    one = fleet(points=4000, seed=18)
    slow_import(one)
    before = len(one.redis.client_list())
    worker = one.start("consume", "-c", "16")
    wait_for_requests(one, 20)
    assert 1 <= len(one.redis.client_list()) - before <= 4
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


@pytest.mark.slow
def test_a_worker_that_stood_still_past_its_lease_changes_nothing_when_it_wakes(fleet: MakeFleet) -> None:
    one = fleet(points=4000, seed=13)
    slow_import(one)
    sleeper = one.start("consume", "-c", str(SLOTS))
    wait_for_requests(one, 10)
    sleeper.signal(signal.SIGSTOP)
    one.work(1)
    sleeper.signal(signal.SIGCONT)
    sleeper.wait_for_line("lease lost")
    sleeper.signal(signal.SIGTERM)
    assert sleeper.wait() == 0
    one.expect_everything_once()


def test_a_redis_outage_is_two_log_lines_and_is_waited_out(own_servers: EmbeddedServers, fleet_on: MakeFleet) -> None:
    one = fleet_on(own_servers, points=5000, seed=14)
    slow_import(one)
    worker = one.start("consume", "-c", "4", "--until-empty")
    wait_for_requests(one, 20)
    own_servers.kill_redis()
    worker.wait_for_line("outage")
    own_servers.start_redis()
    assert worker.wait() == 0
    lines = [line for line in worker.lines if "outage" in line]
    assert len(lines) == 2, worker.output
    assert "server=Redis" in lines[0]
    assert re.search(r"outage over.*seconds=\d", lines[1])
    one.expect_everything_once()
    assert all(row["attempts"] == 0 for row in one.db["import_windows"].find({}))


@pytest.mark.slow
def test_a_mongodb_outage_is_two_log_lines_and_is_waited_out(own_servers: EmbeddedServers, fleet_on: MakeFleet) -> None:
    one = fleet_on(own_servers, points=5000, seed=15)
    slow_import(one)
    worker = one.start("consume", "-c", "4", "--until-empty")
    wait_for_requests(one, 20)
    own_servers.kill_mongod()
    worker.wait_for_line("outage")
    own_servers.start_mongod()
    assert worker.wait() == 0
    lines = [line for line in worker.lines if "outage" in line]
    assert len(lines) == 2, worker.output
    assert "server=MongoDB" in lines[0]
    one.expect_everything_once()
    assert all(row["attempts"] == 0 for row in one.db["import_windows"].find({}))


def test_a_stop_during_an_outage_ends_within_its_timeout(own_servers: EmbeddedServers, fleet_on: MakeFleet) -> None:
    one = fleet_on(own_servers, points=5000, seed=16)
    slow_import(one)
    worker = one.start("consume", "--shutdown-timeout", "3s")
    wait_for_requests(one, 10)
    own_servers.kill_redis()
    own_servers.kill_mongod()
    worker.wait_for_line("outage")
    asked = time.monotonic()
    worker.signal(signal.SIGTERM)
    worker.wait()
    assert time.monotonic() - asked < 3 + 2  # room for a busy machine


def caught_in_the_act(one: Fleet, victim: Process) -> bool:
    """Stopped while it holds a shard; between two of them it goes on."""
    victim.signal(signal.SIGSTOP)
    consumers = one.redis.xinfo_consumers("{si}:openchargemap:shards", "workers")
    if any(found["pending"] and found["name"].startswith(b"victim:") for found in consumers):
        return True
    victim.signal(signal.SIGCONT)
    return False


def test_a_dead_workers_shards_are_taken_over_within_the_lease_plus_two_seconds(fleet: MakeFleet) -> None:
    one = fleet(points=4000, seed=17)
    slow_import(one, rate="20/s", lease="2s")
    victim = one.start("consume", "-c", "1", "--name", "victim")
    wait_for_requests(one, 3)
    heir = one.start("consume", "-c", "8", "--name", "heir")
    heir.wait_for_line("worker started")
    wait_until(lambda: caught_in_the_act(one, victim), "the victim to hold a shard")
    victim.signal(signal.SIGKILL)
    killed = time.monotonic()
    heir.wait_for_line("shard reclaimed")
    assert time.monotonic() - killed < 2 + 2 + 1  # room for a busy machine
