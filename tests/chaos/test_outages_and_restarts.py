"""Who holds a shard keeps it through an outage, who dies is followed soon, and restarts leave nothing behind."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable

import pytest

from streams_importer.adapters.redis_keys import GROUP

from .conftest import MakeDriver
from .crew import Member
from .driver import LEASE_S, Driver, Size
from .verdict import judge

REAPED_S = 30.0
"""Dead consumers go within about ten seconds; the rest is room for a busy machine."""


def test_redis_down_three_times_leaves_shards_with_who_held_them(driver: MakeDriver) -> None:
    chaos = driver(1, Size(points=4000, slots=4, rate="60/s"))
    chaos.start()
    held: list[tuple[str, str]] = []
    for _ in range(3):
        assert chaos.wait_for_requests(12), "the import was over before the outage"
        held += chaos.owners().items()
        chaos.servers.kill_redis()
        threading.Event().wait(1.5 * LEASE_S)  # how long it is away is what this is about
        chaos.servers.start_redis()
    chaos.finish()
    assert judge(chaos).problems == {}
    assert len(held) >= 3 * chaos.size.slots
    finished = settled_by(chaos.crew.lines)
    kept = [shard for shard, owner in held if finished[shard] == owner]
    assert len(kept) >= 0.9 * len(held), (held, finished)


def test_a_slow_way_to_redis_slows_the_fleet_and_does_not_stop_it(driver: MakeDriver) -> None:
    """Longer than a slot of the budget is good for: a slot that comes late is thrown away, but not every one for ever."""
    chaos = driver(1)
    chaos.start()
    assert chaos.wait_for_requests(6)
    for proxy in chaos.crew.proxies:
        proxy.delay(0.08)
    wanted = len(chaos.fleet.asked()) + 2 * chaos.size.workers * chaos.size.slots
    chaos.crew.wait_until(lambda: len(chaos.fleet.asked()) >= wanted, "requests although Redis is slow", 20)


def test_a_dead_workers_shards_do_not_wait_until_the_backlog_is_done(driver: MakeDriver) -> None:
    chaos = driver(1, Size(points=12_000, rate="20/s"))
    chaos.start()
    assert chaos.wait_for_requests(8)
    victim = chaos.busy_member()
    dead = f"{victim.name}:"
    chaos.crew.kill(victim)
    chaos.crew.wait_until(lambda: not any(owner.startswith(dead) for owner in chaos.owners().values()), "others to take over")
    left = chaos.fleet.redis.xlen(chaos.keys.shards) - len(chaos.owners())
    assert left > 0, "its shards were taken over after all others"


def settled_by(lines: Iterable[str]) -> dict[str, str]:
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return {event["shard"]: event["worker"] for event in events if event["event"] == "shard done"}


@pytest.mark.parametrize("restarts", [6, pytest.param(50, marks=pytest.mark.slow)])
def test_restarts_leave_no_more_consumers_than_workers(restarts: int, driver: MakeDriver) -> None:
    chaos = driver(restarts)
    chaos.start()
    for _ in range(restarts):
        if chaos.is_over():  # who finds nothing to do does not join the group
            chaos.upstream.control.clear_log()  # what is asked for again now was asked to be
            chaos.produce("--again")
            chaos.is_first_round = False
        member = chaos.some_member()
        chaos.crew.wait_until(lambda member=member: is_there(chaos, member), "the worker in the group")  # type: ignore[misc]
        chaos.disturbed(member)
        if chaos.dice.random() < 0.5:
            chaos.crew.kill(member)
        else:
            chaos.crew.terminate([member])
    chaos.crew.wait_until(chaos.is_over, "the import's end")
    chaos.crew.wait_until(lambda: has_only_members(chaos), "dead consumers to be forgotten", REAPED_S)
    chaos.crew.stop()
    assert judge(chaos).problems == {}


def consumers(chaos: Driver) -> list[str]:
    return [found["name"].decode() for found in chaos.fleet.redis.xinfo_consumers(chaos.keys.shards, GROUP)]


def is_there(chaos: Driver, member: Member) -> bool:
    """At work, or too late for it."""
    has_joined = any(name.startswith(f"{member.name}:") for name in consumers(chaos))
    return has_joined or ("worker started" in member.process.output and chaos.is_over())


def has_only_members(chaos: Driver) -> bool:
    found = consumers(chaos)
    living = {member.name for member in chaos.crew.members}
    return len(found) <= len(living) and all(name.partition(":")[0] in living for name in found)
