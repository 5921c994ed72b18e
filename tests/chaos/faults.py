"""Everything that goes wrong, one function a fault. Each returns when its cause is over; whether the fleet gets over it, and
with nothing lost or doubled, is for the end to show.

`disturbed` says whose slots may repeat requests, at most two each (promise 4). A fault that does not call it repeats none:
workers wait an outage out with their pages in hand.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from tests.e2e.fleet import Process

from .crew import POISON_FOLDER, Member, Start
from .driver import Driver
from .observer import LEDGER
from .previous import PREVIOUS
from .proxy import Proxy
from .replica_set import ReplicaSet

Fault = Callable[[Driver], None]
"""Called with a driver whose import runs."""
LATE_PIECES = 20


# Processes.


def sigkill(chaos: Driver) -> None:
    victim = chaos.busy_member()
    chaos.disturbed(victim)
    chaos.crew.kill(victim)


def sigstop(chaos: Driver) -> None:
    """Stands still until others have all its shards, and then goes on as if nothing had been."""
    victim = chaos.busy_member()
    chaos.disturbed(victim)
    victim.process.signal(signal.SIGSTOP)
    try:
        chaos.crew.wait_until(lambda: not chaos.held_by(victim), "others to take the shards of a worker that stands still")
    finally:
        victim.process.signal(signal.SIGCONT)


def sigterm_storm(chaos: Driver) -> None:
    """All at once, and as platforms do it, more than once each. A stop keeps the page that is being stored."""
    chaos.disturbed(*chaos.crew.members)
    chaos.crew.terminate(list(chaos.crew.members), times=chaos.dice.randint(2, 4))


def same_name(chaos: Driver) -> None:
    """A platform starts the new one before the old one is gone: two with one label, of which one is killed."""
    old = chaos.busy_member()
    chaos.disturbed(old)
    chaos.crew.starts[len(chaos.crew.members)] = Start(name=old.name)
    new = chaos.crew.add()
    chaos.crew.wait_until(lambda: "worker started" in new.process.output, "the second of the same name")
    chaos.crew.kill(old)


def previous_version(chaos: Driver) -> None:
    """Takes one place in the crew, by an orderly stop of who had it, and keeps it."""
    place = chaos.some_member()
    previous = chaos.previous()
    path = os.pathsep.join((previous.environment["PYTHONPATH"], str(POISON_FOLDER)))
    chaos.crew.starts[place.number] = Start(previous.command, {"PYTHONPATH": path}, prefix=PREVIOUS)
    chaos.disturbed(place)
    chaos.crew.terminate([place])


# Redis.


def redis_killed(chaos: Driver) -> None:
    """Killed, and started again with its append-only file. Nobody loses a lease by it: holders renew first."""
    chaos.servers.kill_redis()
    try:
        chaos.crew.wait_until(lambda: all(map(_is_waiting, chaos.crew.members)), "all workers to notice that Redis is away")
    finally:
        chaos.servers.start_redis()


def flushall(chaos: Driver) -> None:
    """Every lease is gone, so every slot may lose what it has in hand."""
    chaos.disturbed(*chaos.crew.members)
    chaos.fleet.redis.flushall()


def script_flush(chaos: Driver) -> None:
    chaos.fleet.redis.script_flush()


def redis_full(chaos: Driver) -> None:
    """Half the memory that is used is allowed: workers go on, a second `produce` waits, says so, and ends when there is room."""
    redis = chaos.fleet.redis
    redis.config_set("maxmemory", int(redis.info("memory")["used_memory"]) // 2)
    try:
        produce = chaos.fleet.start("produce", *chaos.plan_beyond(2))
        chaos.wait_for_movements(4)
        chaos.crew.wait_until(lambda: _says_full(produce), "produce to say that Redis is full")
        assert produce.running(), produce.output
    finally:
        redis.config_set("maxmemory", 0)
    assert produce.wait() == 0, produce.output


# The network between workers and Redis: of one worker, or of all.


def dropped(chaos: Driver) -> None:
    """Silence. A worker that hears nothing for longer than its lease may lose its shards to others. When the way is back, the
    connections of before are refused, or stay silent for good: then each of them has to be given up on its own."""
    cut_off = chaos.some_proxies()
    is_refused = chaos.dice.choice((True, False))
    chaos.disturbed(*cut_off)
    for proxy in _proxies(cut_off):
        proxy.drop()
    try:
        chaos.crew.wait_until(lambda: any(map(_is_waiting, cut_off)), "a worker to notice that nobody answers")
    finally:
        for proxy in _proxies(cut_off):
            proxy.forward()
            if is_refused:
                proxy.cut()


def delayed(chaos: Driver) -> None:
    """Up to half a lease for a call and its reply, for long enough that every thread of a worker has met it."""
    slow = chaos.some_proxies()
    chaos.disturbed(*slow)
    wanted = {proxy: proxy.late + LATE_PIECES for proxy in _proxies(slow)}
    for proxy in wanted:
        proxy.delay(chaos.dice.uniform(0.05, 0.25))
    try:
        chaos.crew.wait_until(lambda: all(proxy.late >= late for proxy, late in wanted.items()), "calls that come late")
    finally:
        for proxy in wanted:
            proxy.forward()


def half_closed(chaos: Driver) -> None:
    for proxy in _proxies(chaos.some_proxies()):
        proxy.half_close()


def cut(chaos: Driver) -> None:
    for proxy in _proxies(chaos.some_proxies()):
        proxy.cut()


def cut_after_command(chaos: Driver) -> None:
    """Scripts that ran and were never answered, several in a row: claims, checkpoints, settlements, tokens."""
    proxies = _proxies(chaos.some_proxies())
    wanted = {proxy: proxy.cuts + chaos.dice.randint(3, 6) for proxy in proxies}
    for proxy in proxies:
        proxy.cut_after_command(wanted[proxy] - proxy.cuts, b"EVALSHA")
    try:
        chaos.crew.wait_until(lambda: all(proxy.cuts >= wanted[proxy] for proxy in proxies), "replies that are cut off")
    finally:
        for proxy in proxies:
            proxy.forward()


# MongoDB.


def mongod_killed(chaos: Driver) -> None:
    """All of it. Pages wait in hand until it is back; those whose writing was not confirmed are written again."""
    chaos.in_doubt(*chaos.crew.members)
    chaos.mongo.kill_mongod()
    try:
        chaos.crew.wait_until(lambda: any(map(_is_waiting, chaos.crew.members)), "a worker to notice that MongoDB is away")
    finally:
        chaos.mongo.start_mongod()


def stepped_down(chaos: Driver) -> None:
    """The primary hands over to another member."""
    assert isinstance(chaos.mongo, ReplicaSet)
    chaos.in_doubt(*chaos.crew.members)
    chaos.mongo.step_down()


# The upstream.


def poison(chaos: Driver) -> None:
    """One of the shards that nobody has in hand kills whoever fetches it, until it is dead-lettered. Its first death takes the
    other shards of its worker along; from then on it runs apart."""
    ledger = chaos.fleet.db[LEDGER]
    shards = sorted(row["shardKey"] for row in ledger.find({"status": "pending"}))
    for shard in chaos.dice.sample(shards, len(shards)):
        poison_shard(chaos, shard)
        if ledger.find_one({"shardKey": shard, "status": "pending"}) is not None:
            chaos.disturbed(*chaos.crew.members)
            return
        heal(chaos)  # somebody may have fetched it before it was poison


def poison_shard(chaos: Driver, shard: str) -> None:
    chaos.crew.is_poisoned = True
    chaos.poisoned.add(shard)
    chaos.poison_file.write_text(shard)


def heal(chaos: Driver) -> None:
    chaos.poison_file.write_text("")
    chaos.poisoned.clear()


def _proxies(members: list[Member]) -> list[Proxy]:
    return [member.proxy for member in members if member.proxy is not None]


def _is_waiting(member: Member) -> bool:
    """Whether its last word on a server is that it is away."""
    outages = [line for line in list(member.process.lines) if '"event":"outage' in line]
    return bool(outages) and '"event":"outage"' in outages[-1]


def _says_full(produce: Process) -> bool:
    return "full" in produce.output or "memory" in produce.output
