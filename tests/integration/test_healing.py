"""Healing on real servers: after a flush the counters are what they were, and every shard is queued once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import redis
from pymongo.database import Database

from streams_importer.adapters.mongo_ledger import MongoLedger
from streams_importer.adapters.mongo_setup import set_up
from streams_importer.adapters.mongo_shards import MongoShards
from streams_importer.adapters.redis_client import connect
from streams_importer.adapters.redis_counters import RedisCounters
from streams_importer.adapters.redis_keys import Keys
from streams_importer.adapters.redis_places import RedisPlaces
from streams_importer.adapters.redis_queue import RedisQueue
from streams_importer.application.healer import Healer
from streams_importer.application.intake import Intake, lease_until
from streams_importer.application.producer import Producer
from streams_importer.application.recount import Recount
from streams_importer.application.settlement import Attempt, Settlement
from streams_importer.domain.definition import Definition
from streams_importer.domain.model import (
    FINAL_STATES,
    RECORD_COUNTS,
    Checkpoint,
    Completed,
    Counts,
    Dead,
    Failure,
    Lease,
    Outcome,
    Retry,
)
from streams_importer.domain.planner import IdRanges, Plan
from tests.fakes.recorded import Events

OCM = Definition("ocm", retry_delay_s=3600.0)
RUN, LATER = "20260221T100000Z-ab12", "20260222T100000Z-cd34"
REBUILT = {*FINAL_STATES, *RECORD_COUNTS, "dead_lettered", "run", "run_total", "run_left"} | {f"run_{s}" for s in FINAL_STATES}
BAD = Failure("http_502", "answered 502", 502)


class Scene:
    """An import on real servers, worked on by hand."""

    def __init__(self, client: redis.Redis, db: Database[dict[str, Any]]) -> None:
        self.client: Any = client
        self.events = Events()
        self.queue = RedisQueue(client, Keys(), "w:1")
        self.ledger, self.counters = MongoLedger(db, "si"), RedisCounters(client, Keys())
        self.records, self.places = MongoShards(db, "si"), RedisPlaces(client, Keys())
        self.recount = Recount(self.ledger, self.counters)
        self.settlement = Settlement(self.queue, self.ledger, self.events)
        self.queue.set_up("ocm")

    def healer(self, server: str = "server") -> Healer:
        return Healer(self.queue, self.ledger, self.counters, self.events, lambda: server)

    def produce(self, run: str = RUN, *, high: int = 80, again: bool = False) -> int:
        producer = Producer(self.queue, self.ledger, self.recount)
        plan = Plan(ids=IdRanges(0, high, 10))
        return producer.produce("ocm", plan, run, again=again, progress=lambda _: None).queued

    def claim(self, number: int) -> list[Lease]:
        intake = Intake(self.ledger, self.settlement, lambda _: OCM)
        return [lease for _, lease, _ in intake.sort("ocm", self.queue.claim(["ocm"], number).leases)]

    def settle(self, *ended: tuple[Lease, Outcome]) -> None:
        self.settlement.settle([(Attempt(lease, OCM), outcome) for lease, outcome in ended])

    def complete(self, number: int) -> None:
        self.settle(*((lease, Completed(further(lease))) for lease in self.claim(number)))

    def rebuilt(self) -> dict[str, str]:
        """The counters that a flush must not change; none at all may be written or not."""
        return {name: value for name, value in self.counters.read("ocm").items() if name in REBUILT and value != "0"}

    def in_every_state(self) -> None:
        """Three shards done, one failed, one cancelled, one delayed, one leased with a page, one queued."""
        self.produce()
        *done, failed, delayed, leased = self.claim(6)
        self.settle(*((lease, Completed(further(lease))) for lease in done))
        self.settle((failed, Dead(further(failed), BAD)), (delayed, Retry(further(delayed), BAD)))
        assert self.ledger.checkpoint(leased, further(leased), lease_until(OCM))
        assert self.queue.checkpoint(leased, further(leased))
        cancelled = self.records.cancel("ocm", list(self.ledger.look("ocm", ["ids:70..80"]).values()))
        assert self.places.cancel("ocm", cancelled) == [True]


def further(lease: Lease) -> Checkpoint:
    before = lease.checkpoint
    return Checkpoint(before.page + 1, 7, before.counts + Counts(3, 1, 2, 1, 1, requests_ok=1))


@pytest.fixture
def scene(redis_client: redis.Redis, redis_url: str, mongo_db: Database[dict[str, Any]]) -> Iterator[Scene]:
    set_up(mongo_db, "pois")
    client = connect(redis_url, max_connections=4)
    yield Scene(client, mongo_db)
    client.connection_pool.disconnect()


def test_after_a_flush_the_counters_are_what_they_were_and_all_that_has_not_ended_is_queued(scene: Scene) -> None:
    scene.in_every_state()
    before = scene.rebuilt()
    assert (before["done"], before["failed"], before["cancelled"], before["run_left"]) == ("3", "1", "1", "3")
    scene.client.flushall()
    assert scene.healer().heal(["ocm"]) == ["ocm"]
    assert scene.rebuilt() == before
    leases = {lease.shard_key: lease for lease in scene.claim(10)}
    assert sorted(leases) == ["ids:40..50", "ids:50..60", "ids:60..70"]
    assert [leases[key].checkpoint.page for key in sorted(leases)] == [1, 1, 0]
    assert leases["ids:40..50"].attempts == 1
    scene.settle(*((lease, Completed(further(lease))) for lease in leases.values()))
    after = scene.counters.read("ocm")
    assert {name: after[name] for name in RECORD_COUNTS} == {
        name: str(number) for name, number in scene.ledger.totals("ocm").records.items()
    }
    assert (after["done"], after["run_done"], after["run_left"]) == ("6", "6", "0")
    assert "run_finished" in after
    assert not scene.recount.audit("ocm"), "both stores agree"


def test_of_many_who_heal_at_once_one_rebuilds_and_each_shard_is_queued_once(scene: Scene) -> None:
    scene.in_every_state()
    before = scene.rebuilt()
    scene.client.flushall()
    start = threading.Barrier(6)

    def heal(_: int) -> None:
        healer = scene.healer()
        start.wait()
        healer.heal(["ocm"])

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(heal, range(6)))
    assert scene.rebuilt() == before
    assert sum(details["queued"] for details in scene.events.details("healed what Redis had lost")) == 3
    assert len(scene.claim(10)) == 3


def test_a_producer_that_meets_a_flushed_redis_counts_what_there_was_before_it_queues(scene: Scene) -> None:
    scene.in_every_state()
    before = scene.rebuilt()
    scene.client.flushall()
    assert scene.produce() == 3
    assert scene.rebuilt() == before


def test_a_second_flush_in_the_middle_of_healing_is_healed_too(scene: Scene) -> None:
    scene.in_every_state()
    before = scene.rebuilt()
    healer = scene.healer()
    pending = scene.ledger.pending

    def flushed(import_name: str) -> Any:
        scene.client.flushall()
        return pending(import_name)

    scene.ledger.pending = flushed  # type: ignore[method-assign]
    scene.client.flushall()
    healer.heal(["ocm"])
    assert scene.rebuilt() == before


def test_a_round_that_was_opened_again_but_not_queued_leaves_its_state_when_it_is(scene: Scene) -> None:
    scene.produce(high=30)
    scene.complete(3)
    before = scene.rebuilt()
    scene.ledger.reopen("ocm", ["ids:0..10"], "done", LATER)
    scene.client.flushall()
    scene.recount.rebuild("ocm")
    assert scene.rebuilt()["done"] == before["done"] == "3"
    assert scene.healer().requeue_missing("ocm") == 1
    counters = scene.counters.read("ocm")
    assert (counters["done"], counters["run"], counters["run_total"], counters["run_left"]) == ("2", LATER, "1", "1")
    scene.complete(1)
    counters = scene.counters.read("ocm")
    assert (counters["done"], counters["run_done"], counters["run_left"]) == ("3", "1", "0")
    assert not scene.recount.audit("ocm")


def test_an_audit_puts_right_what_a_fault_left_and_leaves_alone_what_is_in_flight(scene: Scene) -> None:
    scene.produce(high=30)
    scene.complete(2)
    key = Keys().of("ocm").counters
    scene.client.hincrby(key, "done", 5)
    assert not scene.recount.audit("ocm"), "one of its shards has not ended"
    scene.complete(1)
    assert scene.counters.read("ocm")["done"] == "8"
    assert scene.recount.audit("ocm")
    assert scene.counters.read("ocm")["done"] == "3"


def test_shards_of_a_new_run_that_are_queued_before_its_producer_comes_to_it_are_counted_in_it(scene: Scene) -> None:
    scene.produce(high=20)
    scene.complete(2)
    scene.ledger.plan("ocm", ["ids:20..30", "ids:30..40"], LATER)
    assert scene.healer().requeue_missing("ocm") == 2
    assert scene.produce(LATER, high=40) == 0
    counters = scene.counters.read("ocm")
    assert (counters["run"], counters["run_total"], counters["run_left"]) == (LATER, "2", "2")
    scene.complete(2)
    assert not scene.recount.audit("ocm")


def test_a_suspect_stays_one_over_a_flush(scene: Scene) -> None:
    scene.produce(high=10)
    [lease] = scene.claim(1)
    scene.ledger.put_back([(replace(lease, crashes=2), lease.checkpoint, 1, BAD)])
    scene.client.flushall()
    scene.healer().heal(["ocm"])
    assert [(lease.attempts, lease.crashes) for lease in scene.claim(1)] == [(1, 2)]
