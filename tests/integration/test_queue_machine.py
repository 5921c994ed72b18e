"""Several workers, the scripts on a real server, and a model that says what must be: any order of calls, late ones too.

Time is moved, not waited for: idle times by XCLAIM … IDLE, the scores of what is delayed, the times of heartbeats.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test
from redis import Redis

from streams_importer.adapters.lua_scripts import read_part
from streams_importer.adapters.redis_board import RedisBoard
from streams_importer.adapters.redis_counters import RedisCounters
from streams_importer.adapters.redis_keys import GROUP, Keys
from streams_importer.adapters.redis_letters import RedisLetters
from streams_importer.adapters.redis_places import RedisPlaces
from streams_importer.adapters.redis_queue import RedisQueue
from streams_importer.adapters.redis_workers import RedisWorkers
from streams_importer.domain.model import Checkpoint, Counts, Failure, Lease
from streams_importer.ports import LedgerRow, QueuedShard

IMPORT = "openchargemap"
RUN = "20260221T100000Z-aa"
KEYS = Keys()
OF = KEYS.of(IMPORT)
WORKERS = ("a:1", "b:2", "c:3")
SHARDS = tuple(f"ids:{start}..{start + 10}" for start in range(0, 50, 10))
LEASE_S = 15.0
LONG_S = 60.0

workers, shards = st.sampled_from(WORKERS), st.sampled_from(SHARDS)


@dataclass
class Shard:
    """What must be true of a shard. `place`: none, queued, leased, released, delayed, dead, done or cancelled."""

    place: str = "none"
    job: str = ""
    owner: str = ""
    started_by: str = ""
    has_run_out: bool = False
    attempts: int = 0
    crashes: int = 0
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    counted: int = 0
    """Records that the counters have of it."""
    letter: str = ""

    @property
    def is_on_stream(self) -> bool:
        return self.place in ("queued", "leased", "released")


class QueueMachine(RuleBasedStateMachine):
    def __init__(self, client: Redis, read: Callable[[str], str] = read_part) -> None:
        super().__init__()
        client.flushall()
        self.client: Any = client  # stream replies are not typed in redis-py
        self.queues = {name: RedisQueue(client, KEYS, name, read=read) for name in WORKERS}
        self.queues[WORKERS[0]].set_up(IMPORT)
        RedisCounters(client, KEYS).replace(IMPORT, {}, {"done": ""})
        self.beats = RedisWorkers(client, KEYS)
        self.board = RedisBoard(client, KEYS)
        self.model = {key: Shard() for key in SHARDS}
        self.alive: set[str] = set()
        self.held: dict[str, Lease] = {}
        self.late: list[Lease] = []
        """Leases that somebody had once: whatever is done with them must change nothing."""
        self.rounds = 0

    # Work comes in.

    @initialize(taken=st.lists(workers, min_size=2, max_size=4))
    def there_is_work(self, taken: list[str]) -> None:
        for key in SHARDS:
            self.enqueue(key)
        for name in taken:
            self.claim(name, 1)

    @rule(key=shards)
    def enqueue(self, key: str) -> None:
        shard = self.model[key]
        is_free = shard.place in ("none", "done", "cancelled")
        counted_as = shard.place if shard.place in ("done", "cancelled") else None
        if is_free:
            self.rounds += 1
        job = f"job-{self.rounds}" if is_free else shard.job
        seed = Checkpoint(counts=shard.checkpoint.counts)
        queued = self.queues[WORKERS[0]].enqueue(IMPORT, [QueuedShard(key, job, counted_as, seed)], RUN)
        assert queued == [is_free]
        if is_free:
            self.model[key] = Shard("queued", job, checkpoint=seed, counted=shard.counted)

    @rule(name=workers, most=st.integers(1, 3))
    def claim(self, name: str, most: int) -> None:
        waiting = [key for key, shard in self.model.items() if shard.place in ("queued", "released")]
        claimed = self.queues[name].claim([IMPORT], most)
        assert len(claimed.leases) == min(most, len(waiting))
        self._took(name, claimed.leases, set(waiting))

    @rule(name=workers, most=st.integers(1, 5), there_s=st.sampled_from((LONG_S / 2, LONG_S * 2)))
    def reclaim(self, name: str, most: int, there_s: float) -> None:
        own = [lease for lease in self.held.values() if lease.consumer == name]
        for lease in own:
            self.model[lease.shard_key].has_run_out = False
        stale = {key for key, shard in self.model.items() if shard.has_run_out or shard.place == "released"}
        claimed = self.queues[name].reclaim(IMPORT, most, LEASE_S, own, there_s)
        taken = {lease.shard_key for lease in claimed.leases}
        # Its cursor may stand behind some of them; it goes on from the start the next time.
        assert taken <= stale
        for key in taken:
            shard = self.model[key]
            is_crash = shard.started_by == shard.owner != "" and shard.owner not in self.alive and there_s >= LONG_S
            shard.crashes += is_crash
            shard.started_by = ""
        self._took(name, claimed.leases, stale)

    def _took(self, name: str, leases: list[Lease], allowed: set[str]) -> None:
        for lease in leases:
            assert lease.shard_key in allowed
            shard = self.model[lease.shard_key]
            if lease.shard_key in self.held:
                self.late.append(self.held.pop(lease.shard_key))
            shard.place, shard.owner, shard.has_run_out, shard.started_by = "leased", name, False, ""
            seen = (lease.job, lease.attempts, lease.crashes, lease.checkpoint)
            assert seen == (shard.job, shard.attempts, shard.crashes, shard.checkpoint)
            self.held[lease.shard_key] = lease

    # Work goes on.

    @precondition(lambda self: bool(self.held))
    @rule(data=st.data())
    def start(self, data: st.DataObject) -> None:
        self._start(self._any_held(data))

    def _start(self, lease: Lease) -> None:
        assert self.queues[lease.consumer].start([lease]) == [True]
        self.model[lease.shard_key].started_by = lease.consumer
        self.model[lease.shard_key].has_run_out = False

    @precondition(lambda self: bool(self.held))
    @rule(data=st.data(), records=st.integers(0, 9), is_repeated=st.booleans())
    def checkpoint(self, data: st.DataObject, records: int, is_repeated: bool) -> None:
        lease = self._any_held(data)
        shard = self.model[lease.shard_key]
        further = self._further(shard, records)
        for _ in range(1 + is_repeated):
            assert self.queues[lease.consumer].checkpoint(lease, further)
        shard.checkpoint, shard.counted, shard.crashes, shard.has_run_out = further, further.counts.seen, 0, False

    @precondition(lambda self: bool(self.held))
    @rule(data=st.data(), records=st.integers(0, 9))
    def complete(self, data: st.DataObject, records: int) -> None:
        lease = self._any_held(data)
        shard = self.model[lease.shard_key]
        last = replace(self._further(shard, records), cursor=None)
        queue = self.queues[lease.consumer]
        assert queue.complete([(lease, last)]) == [True]
        assert queue.complete([(lease, last)]) == [False]
        self._left(lease, Shard("done", shard.job, checkpoint=last, counted=last.counts.seen))

    @precondition(lambda self: bool(self.held))
    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        lease = self._any_held(data)
        shard = self.model[lease.shard_key]
        assert self.queues[lease.consumer].retry(lease, shard.checkpoint, 7200, shard.attempts + 1)
        assert self.queues[lease.consumer].promote(IMPORT, 100) == 0  # two hours, whatever the lease
        self._left(lease, replace(shard, place="delayed", attempts=shard.attempts + 1, crashes=lease.crashes, owner=""))

    @precondition(lambda self: bool(self.held))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease = self._any_held(data)
        assert self.queues[lease.consumer].release([lease], LEASE_S) == [True]
        self._left(lease, replace(self.model[lease.shard_key], place="released", owner="released", has_run_out=False))

    @precondition(lambda self: bool(self.held))
    @rule(data=st.data())
    def dead_letter(self, data: st.DataObject) -> None:
        lease = self._any_held(data)
        shard = self.model[lease.shard_key]
        assert self.queues[lease.consumer].dead_letter(lease, shard.checkpoint, Failure("test", "it failed"), 1)
        letter = self.client.xrevrange(OF.dead, count=1)[0][0].decode()
        self._left(lease, replace(shard, place="dead", letter=letter, owner="", started_by=""))

    # People.

    @precondition(lambda self: bool(any(shard.place == "dead" for shard in self.model.values())))
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from([key for key, shard in self.model.items() if shard.place == "dead"]))
        shard = self.model[key]
        self.rounds += 1
        again = [(shard.letter, QueuedShard(key, f"job-{self.rounds}", "failed", shard.checkpoint))]
        letters = RedisLetters(self.client, KEYS)
        assert letters.replay(IMPORT, again, RUN) == [True]
        assert letters.replay(IMPORT, again, RUN) == [False]
        fresh = Shard("queued", f"job-{self.rounds}", checkpoint=shard.checkpoint, counted=shard.counted)
        self.model[key] = fresh

    @rule(key=shards)
    def cancel(self, key: str) -> None:
        shard = self.model[key]
        row = LedgerRow(key, shard.job, RUN, "cancelled", 0, shard.checkpoint, None, None, 1)
        is_live = shard.is_on_stream or shard.place == "delayed"
        assert RedisPlaces(self.client, KEYS).cancel(IMPORT, [row]) == [is_live]
        if is_live:
            if key in self.held:
                self.late.append(self.held.pop(key))
            self.model[key] = Shard("cancelled", shard.job, checkpoint=shard.checkpoint, counted=shard.checkpoint.counts.seen)

    # Time, and what happens in it.

    @rule()
    def delays_end(self) -> None:
        for key in self.client.zrange(OF.delayed, 0, -1):
            self.client.zadd(OF.delayed, {key: 1})
        due = [key for key, shard in self.model.items() if shard.place == "delayed"]
        assert self.queues[WORKERS[0]].promote(IMPORT, 100) == len(due)
        for key in due:
            self.model[key].place = "queued"

    @rule(name=workers)
    def leases_run_out(self, name: str) -> None:
        for lease in self.held.values():
            if lease.consumer == name:
                self.client.xclaim(OF.shards, GROUP, name, 0, [lease.entry], idle=int(LONG_S * 1000), justid=True)
                self.model[lease.shard_key].has_run_out = True
        self._heartbeat_stops(name)

    @rule(name=workers, heir=workers, is_alive=st.booleans(), there_s=st.sampled_from((LONG_S / 2, LONG_S * 2)), data=st.data())
    def a_worker_loses_what_it_runs(self, name: str, heir: str, is_alive: bool, there_s: float, data: st.DataObject) -> None:
        for lease in [lease for lease in self.held.values() if lease.consumer == name]:
            if data.draw(st.booleans()):
                self._start(lease)
        self.leases_run_out(name)
        if is_alive:
            self.beat(name)
        self.reclaim(heir, 5, there_s)

    def _heartbeat_stops(self, name: str) -> None:
        stored = self.client.hget(KEYS.workers, name)
        if stored:
            beat = json.loads(stored)
            self.client.hset(KEYS.workers, name, json.dumps({**beat, "seen_ms": beat["seen_ms"] - int(LONG_S * 1000)}))
        self.alive.discard(name)

    @rule(name=workers)
    def beat(self, name: str) -> None:
        self.beats.beat(name, [IMPORT], 1, LEASE_S, 0.0)
        self.alive.add(name)

    @rule(name=workers)
    def renew(self, name: str) -> None:
        own = [lease for lease in self.held.values() if lease.consumer == name]
        assert self.queues[name].renew(own) == [True] * len(own)
        for lease in own:
            self.model[lease.shard_key].has_run_out = False

    @precondition(lambda self: bool(self.late))
    @rule(data=st.data())
    def a_zombie_wakes_up(self, data: st.DataObject) -> None:
        lease = data.draw(st.sampled_from(self.late))
        queue, far = self.queues[lease.consumer], Checkpoint(99, 99, Counts(inserted=999))
        assert queue.renew([lease]) == queue.start([lease]) == [False]
        assert not queue.checkpoint(lease, far)
        assert not queue.retry(lease, far, 1, 9)
        assert not queue.dead_letter(lease, far, Failure("zombie", ""), 9)
        assert not queue.hand_over(lease, 2)
        assert queue.release([lease], LEASE_S) == queue.complete([(lease, far)]) == queue.discard([lease]) == [False]

    @rule(names=st.sets(workers))
    def reap(self, names: set[str]) -> None:
        self.queues[WORKERS[0]].reap(IMPORT, sorted(names))

    # What always holds.

    @invariant()
    def counters_and_places_are_as_they_must_be(self) -> None:
        number = {place: sum(shard.place == place for shard in self.model.values()) for place in _PLACES}
        status = self.board.read([IMPORT])[IMPORT]
        assert status.queued == number["queued"] + number["released"]
        assert (status.leased, status.delayed, status.dead) == (number["leased"], number["delayed"], number["dead"])
        assert (status.done, status.failed, status.cancelled) == (number["done"], number["dead"], number["cancelled"])
        assert sum(status.records.values()) == sum(shard.counted for shard in self.model.values())

    @invariant()
    def a_shard_has_one_place_or_none(self) -> None:
        places = {key.decode(): place.decode() for key, place in self.client.hgetall(OF.places).items()}
        on_stream = [fields[b"shard"].decode() for _, fields in self.client.xrange(OF.shards)]
        delayed = [key.decode() for key in self.client.zrange(OF.delayed, 0, -1)]
        dead = [fields[b"shard"].decode() for _, fields in self.client.xrange(OF.dead)]
        everywhere = on_stream + delayed + dead
        assert sorted(everywhere) == sorted(set(everywhere)) == sorted(places)
        assert {key for key, place in places.items() if place[0] == "s"} == set(on_stream)

    def teardown(self) -> None:
        """Whatever happened, it can be brought to its end, and nothing is left but the fixed keys."""
        self.delays_end()
        for key, shard in self.model.items():
            if shard.is_on_stream:
                self.cancel(key)
        left = {key.decode() for key in self.client.scan_iter()}
        fixed = {OF.shards, OF.dead, OF.counters, KEYS.workers}
        assert left <= fixed | ({OF.places} if any(shard.place == "dead" for shard in self.model.values()) else set())

    def _any_held(self, data: st.DataObject) -> Lease:
        return data.draw(st.sampled_from(sorted(self.held.values(), key=lambda lease: lease.shard_key)))

    def _left(self, lease: Lease, shard: Shard) -> None:
        self.late.append(self.held.pop(lease.shard_key))
        self.model[lease.shard_key] = shard

    def _further(self, shard: Shard, records: int) -> Checkpoint:
        page, counts = shard.checkpoint.page + 1, shard.checkpoint.counts + Counts(inserted=records)
        return Checkpoint(page, page * 10, counts)


_PLACES = ("none", "queued", "leased", "released", "delayed", "dead", "done", "cancelled")


@pytest.mark.parametrize("examples", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_any_order_of_calls_keeps_queue_and_model_together(redis_client: Redis, examples: int) -> None:
    drive(redis_client, examples)


def drive(client: Redis, examples: int, read: Callable[[str], str] = read_part, *, shrinks: bool = True) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    phases = [Phase.generate, Phase.shrink] if shrinks else [Phase.generate]
    chosen = settings(max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=checks, phases=phases)

    class Machine(QueueMachine):
        def __init__(self) -> None:
            super().__init__(client, read)

    run_state_machine_as_test(Machine, settings=settings(chosen, database=None))
