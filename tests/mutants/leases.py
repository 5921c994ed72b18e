"""Stories of leases: promises 1, 2, 6, 7 and 8. Each holds as the program is, and fails when its mechanism is taken out."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from streams_importer.adapters import mongo_setup
from streams_importer.adapters.http import HttpClient
from streams_importer.adapters.mongo_ledger import MongoLedger
from streams_importer.adapters.mongo_shards import MongoShards
from streams_importer.adapters.redis_board import RedisBoard
from streams_importer.adapters.redis_budget import RedisBudget
from streams_importer.adapters.redis_keys import GROUP
from streams_importer.adapters.redis_letters import RedisLetters
from streams_importer.adapters.redis_workers import RedisWorkers
from streams_importer.adapters.upstream import HttpUpstream
from streams_importer.application.cancellation import CancelToken
from streams_importer.application.every import Every
from streams_importer.application.healer import Healer
from streams_importer.application.housekeeper import Housekeeper
from streams_importer.application.intake import Intake
from streams_importer.application.letters import restore_letters
from streams_importer.application.outages import Outages
from streams_importer.application.recount import Recount
from streams_importer.application.settlement import Attempt, Settlement
from streams_importer.application.shutdown import Shutdown
from streams_importer.domain.errors import Cancelled, Unavailable
from streams_importer.domain.hosts import HostRule
from streams_importer.domain.model import Checkpoint, Counts, Crashed, Failure, Lease
from streams_importer.domain.rates import parse_limit
from streams_importer.ports import LedgerRow, QueuedShard

from .scenarios import DEFINITION, IMPORT, KEYS, STREAM, World

LEASE_S = 15.0
EVER_S = 1e6
KEY = "ids:0..10"


def planned(world: World, *keys: str) -> MongoLedger:
    """Shards in the ledger and on the stream."""
    mongo_setup.set_up(world.db, DEFINITION.collection)
    ledger = MongoLedger(world.db, "si")
    rows, _ = ledger.plan(IMPORT, keys, "run-1")
    world.count()
    world.queue("p").enqueue(IMPORT, [QueuedShard(key, rows[key].job) for key in keys], "run-1", begins=True)
    return ledger


def settlement(world: World, consumer: str, ledger: MongoLedger) -> Settlement:
    return Settlement(world.queue(consumer), ledger, lambda *_, **__: None)


def healer(world: World, consumer: str, ledger: MongoLedger) -> Healer:
    letters, records = RedisLetters(world.redis, KEYS, read=world.read), MongoShards(world.db, "si")
    restore = partial(restore_letters, letters, records)
    return Healer(world.queue(consumer), ledger, world.counters(), lambda *_, **__: None, lambda: "one server", restore)


def started(world: World, consumer: str) -> Lease:
    queue = world.queue(consumer)
    [lease] = queue.claim([IMPORT], 1).leases
    assert queue.start([lease]) == [True]
    return lease


# Promise 1: no shard is lost.


def a_stale_entry_behind_many_renewed_ones_is_reached(world: World) -> None:
    world.queued(*(f"ids:{start}..{start + 1}" for start in range(60)))
    leases = world.queue("w:1").claim([IMPORT], 60).leases
    world.expire_lease(leases[-1])
    heir = world.queue("heir")
    found = [lease for _ in range(10) for lease in heir.reclaim(IMPORT, 1, LEASE_S, [], EVER_S).leases]
    assert [lease.shard_key for lease in found] == [leases[-1].shard_key]


def what_the_ledger_has_as_done_is_not_run_again(world: World) -> None:
    """A worker ended between the ledger and the script."""
    ledger = planned(world, KEY)
    lost = started(world, "w:1")
    ledger.start([lost], datetime.now(UTC))
    ledger.finish([(lost, Checkpoint(1, None, Counts(inserted=3)), "done", 0, None)])
    world.expire_lease(lost)
    leases = world.queue("w:2").reclaim(IMPORT, 1, LEASE_S, [], EVER_S).leases
    intake = Intake(ledger, settlement(world, "w:2", ledger), lambda _: DEFINITION)
    assert intake.sort(IMPORT, leases) == []
    assert RedisBoard(world.redis, KEYS).read([IMPORT])[IMPORT].done == 1


def a_flushed_redis_is_filled_again_from_the_ledger(world: World) -> None:
    ledger = planned(world, KEY, "ids:10..20")
    [lease, _] = world.queue("w:1").claim([IMPORT], 2).leases
    ledger.start([lease], datetime.now(UTC))
    ledger.finish([(lease, Checkpoint(1, None, Counts(inserted=3)), "done", 0, None)])
    world.queue("w:1").complete([(lease, Checkpoint(1, None, Counts(inserted=3)))])
    world.redis.flushall()
    healer(world, "w:1", ledger).heal([IMPORT])
    status = RedisBoard(world.redis, KEYS).read([IMPORT])[IMPORT]
    assert (status.done, status.queued, status.records["inserted"]) == (1, 1, 3)
    assert status.run is not None
    assert (status.run.total, status.run.done, status.run.finished) == (2, 1, None)


def a_page_in_hand_when_redis_is_flushed_is_counted_once(world: World) -> None:
    """Its worker tells the ledger of it after the counters were rebuilt, and before the shard is queued again."""
    ledger = planned(world, KEY)
    zombie = started(world, "zombie")
    ledger.start([zombie], datetime.now(UTC))
    world.redis.flushall()
    Recount(ledger, world.counters()).rebuild(IMPORT)
    in_hand = Checkpoint(1, 5, Counts(inserted=10))
    ledger.checkpoint(zombie, in_hand, datetime.now(UTC))
    healer(world, "w:1", ledger).requeue_missing(IMPORT)
    [lease] = world.queue("w:1").claim([IMPORT], 1).leases
    world.queue("w:1").complete([(lease, Checkpoint(2, None, Counts(unchanged=10, inserted=5)))])
    assert sum(RedisBoard(world.redis, KEYS).read([IMPORT])[IMPORT].records.values()) == 15


def dead_letters_come_back_after_a_flush(world: World) -> None:
    ledger = planned(world, KEY)
    lease = started(world, "w:1")
    ledger.start([lease], datetime.now(UTC))
    far, why = Checkpoint(3, 30, Counts(inserted=9)), Failure("http_500", "it answered 500", 500)
    ledger.finish([(lease, far, "failed", 5, why)])
    world.queue("w:1").dead_letter(lease, far, why, 5)
    letters = RedisLetters(world.redis, KEYS)
    before = letters.find(IMPORT, [KEY])[KEY]
    world.redis.flushall()
    healer(world, "w:1", ledger).heal([IMPORT])
    healer(world, "w:2", ledger).heal([IMPORT])
    status = RedisBoard(world.redis, KEYS).read([IMPORT])[IMPORT]
    assert (status.failed, status.dead) == (1, 1)
    after = letters.find(IMPORT, [KEY])[KEY]
    told = ("error", "message", "status", "attempts", "crashes", "cursor", "payload")
    assert [getattr(after, name) for name in told] == [getattr(before, name) for name in told]


def nobody_queues_before_the_counters_are_rebuilt(world: World) -> None:
    ledger = planned(world, KEY)
    lease = started(world, "w:1")
    ledger.start([lease], datetime.now(UTC))
    ledger.finish([(lease, Checkpoint(1), "done", 0, None)])
    world.queue("w:1").complete([(lease, Checkpoint(1))])
    ledger.plan(IMPORT, ["ids:10..20"], "run-2")
    world.redis.flushall()
    healer(world, "p", ledger).requeue_missing(IMPORT)
    status = RedisBoard(world.redis, KEYS).read([IMPORT])[IMPORT]
    assert (status.done, status.queued) == (1, 1)


def a_consumer_with_pending_entries_is_not_forgotten(world: World) -> None:
    world.queued(KEY)
    lost = started(world, "w:1")
    world.queue("w:2").reap(IMPORT, ["w:1"])
    world.expire_lease(lost)
    assert [lease.shard_key for lease in world.queue("w:2").reclaim(IMPORT, 1, LEASE_S, [], EVER_S).leases] == [KEY]


def who_has_work_in_hand_goes_on_in_a_full_redis(world: World) -> None:
    world.queued(KEY, "ids:10..20")
    queue = world.queue("w:1")
    [one, other] = queue.claim([IMPORT], 2).leases
    world.redis.config_set("maxmemory", 1)
    try:
        assert queue.checkpoint(one, Checkpoint(1, 5, Counts(inserted=3)))
        assert queue.retry(one, Checkpoint(1, 5, Counts(inserted=3)), 0, 1)
        assert queue.complete([(other, Checkpoint(1))]) == [True]
        assert queue.promote(IMPORT, 10) == 1
    finally:
        world.redis.config_set("maxmemory", 0)


# Promise 2: one owner.


def a_zombie_changes_nothing_in_the_ledger(world: World) -> None:
    ledger = planned(world, KEY)
    zombie = started(world, "zombie")
    ledger.start([zombie], datetime.now(UTC))
    world.expire_lease(zombie)
    [heirs] = world.queue("heir").reclaim(IMPORT, 1, LEASE_S, [], EVER_S).leases
    ledger.start([heirs], datetime.now(UTC))
    assert not ledger.checkpoint(zombie, Checkpoint(7, 70), datetime.now(UTC))
    ledger.put_back([(zombie, Checkpoint(7, 70), 4, None)])
    ledger.finish([(zombie, Checkpoint(7, 70), "failed", 5, Failure("zombie", "it failed"))])
    [row] = world.db["import_windows"].find({})
    assert (row["status"], row["leaseOwner"], row["page"], row["attempts"]) == ("leased", "heir", 0, 0)


def a_former_holder_that_wakes_up_during_a_claim_stores_no_page_behind_its_back(world: World) -> None:
    ledger = planned(world, KEY)
    zombie = started(world, "zombie")
    ledger.start([zombie], datetime.now(UTC))
    world.expire_lease(zombie)
    leases = world.queue("heir").reclaim(IMPORT, 1, LEASE_S, [], EVER_S).leases

    class Disturbed(MongoLedger):
        def look(self, import_name: str, keys: Sequence[str]) -> dict[str, LedgerRow]:
            found = super().look(import_name, keys)
            self.checkpoint(zombie, Checkpoint(1, 5, Counts(inserted=3)), datetime.now(UTC))
            return found

    disturbed = Disturbed(world.db, "si")
    [(_, going, _)] = Intake(disturbed, settlement(world, "heir", disturbed), lambda _: DEFINITION).sort(IMPORT, leases)
    assert going.checkpoint.page == ledger.look(IMPORT, [KEY])[KEY].checkpoint.page


def who_cannot_know_whether_the_shard_is_still_its_own_asks_for_nothing(world: World) -> None:
    upstream = world.stand_in(points=10)
    budget = RedisBudget(world.redis, KEYS, "test", parse_limit("1000/s"))
    http = HttpClient(hosts=HostRule.of("", [upstream.base_url]))
    cancel = CancelToken()
    cancel.unsure_while(lambda: True)
    threading.Timer(0.1, lambda: cancel.cancel("lease lost")).start()
    try:
        HttpUpstream(http, upstream.base_url, budget).get("poi", {}, cancel)
    except Cancelled:
        pass
    finally:
        http.close()
    assert upstream.log == []


def workers_that_start_together_do_not_keep_house_together(_: World) -> None:
    now = 0.0
    chores = [Every(1.0, clock=lambda: now) for _ in range(20)]
    due = []
    while now < 3.0:
        now += 0.05
        due.append(sum(chore.is_due() for chore in chores))
    assert sum(due) >= 40
    assert max(due) <= 10


# Promise 6: a stop costs nothing, and the next worker goes on at once.


def what_was_given_back_is_taken_at_once_from_its_checkpoint_and_at_no_cost(world: World) -> None:
    world.queued(KEY)
    lease = started(world, "w:1")
    queue = world.queue("w:1")
    queue.checkpoint(lease, Checkpoint(2, 20, Counts(inserted=9)))
    queue.release([lease], 3600)
    [taken] = world.queue("w:2").claim([IMPORT], 1).leases
    assert taken.checkpoint == Checkpoint(2, 20, Counts(inserted=9))
    assert (taken.attempts, taken.crashes) == (0, 0)


def signals_that_come_together_are_one(__: World) -> None:
    times, left = iter((0.0, 0.5, 1.9)), list[int]()
    shutdown = Shutdown(CancelToken(), clock=lambda: next(times), leave=left.append)
    for _ in range(3):
        shutdown.received(15, None)
    assert left == []


# Promise 7: who kills its workers ends among the dead letters, and nobody else does.


def lost(world: World, lease: Lease, there_s: float = EVER_S) -> Lease:
    """Its worker is gone; the next one takes it."""
    world.expire_lease(lease)
    [taken] = world.queue("heir").reclaim(IMPORT, 1, LEASE_S, [], there_s).leases
    return taken


def only_who_was_running_is_a_suspect(world: World) -> None:
    """The one who started it gave it back; the next one ended before it came to it."""
    world.queued(KEY)
    world.queue("w:1").release([started(world, "w:1")], LEASE_S)
    [waiting] = world.queue("w:2").claim([IMPORT], 1).leases
    assert lost(world, waiting).crashes == 0


def who_was_running_is_a_suspect(world: World) -> None:
    world.queued(KEY)
    assert lost(world, started(world, "w:1")).crashes == 1


def a_live_worker_that_lost_a_lease_did_not_crash(world: World) -> None:
    world.queued(KEY)
    lease = started(world, "w:1")
    RedisWorkers(world.redis, KEYS).beat("w:1", [IMPORT], 1, LEASE_S, 0.0)
    assert lost(world, lease).crashes == 0


def silence_through_an_outage_is_no_crash(world: World) -> None:
    world.queued(KEY)
    assert lost(world, started(world, "w:1"), there_s=30).crashes == 0


def a_page_that_is_stored_clears_a_suspect(world: World) -> None:
    world.queued(KEY)
    suspect = lost(world, started(world, "w:1"))
    queue = world.queue("heir")
    queue.checkpoint(suspect, Checkpoint(1, 5))
    queue.release([suspect], LEASE_S)
    assert [lease.crashes for lease in world.queue("w:2").claim([IMPORT], 1).leases] == [0]


def enough_crashes_are_a_dead_letter_and_not_before(world: World) -> None:
    ledger = planned(world, KEY)
    states = []
    for crashes in (1, 2, 3):
        queue = world.queue("w:1")
        [lease] = queue.claim([IMPORT], 1).leases
        ledger.start([lease], datetime.now(UTC))
        crashed = Crashed(lease.checkpoint, Failure("crashed", "ended by SIGKILL"), lease.crashes + 1)
        definition = replace(DEFINITION, retry_delay_s=0.0)
        settlement(world, "w:1", ledger).settle([(Attempt(lease, definition), crashed)])
        status = RedisBoard(world.redis, KEYS).read([IMPORT])[IMPORT]
        states.append((status.delayed, status.dead))
        assert lease.crashes == crashes - 1
        queue.promote(IMPORT, 1)
    assert states == [(1, 0), (1, 0), (0, 1)]


def after_an_outage_holders_renew_before_anyone_reclaims(world: World) -> None:
    world.queued(KEY)
    lease = started(world, "w:1")
    world.expire_lease(lease)  # idle time ran on while Redis was away
    outages = Outages(lambda *_, **__: None)
    outages.away(Unavailable("Redis", "gone"))
    outages.back("Redis")
    house = Housekeeper(world.queue("w:2"), outages, dict, lambda: None, lambda: EVER_S)
    assert house.reclaim({IMPORT: DEFINITION}, 4, []).leases == []
    assert world.queue("w:1").renew([lease]) == [True]


# Promise 8: memory follows what is in flight.


def with_nothing_in_flight_the_fixed_keys_are_left(world: World) -> None:
    world.queued(KEY, "ids:10..20")
    for _ in range(2):
        lease = started(world, "w:1")
        queue = world.queue("w:1")
        queue.checkpoint(lease, Checkpoint(1, 5, Counts(inserted=3)))
        queue.complete([(lease, Checkpoint(2, None, Counts(inserted=4)))])
    assert {key.decode() for key in world.redis.scan_iter()} == {STREAM, KEYS.of(IMPORT).counters}
    assert world.redis.xlen(STREAM) == 0


def consumers_of_workers_that_are_gone_are_forgotten(world: World) -> None:
    world.queued(KEY)
    lease = started(world, "w:1")
    world.queue("w:1").release([lease], LEASE_S)
    [taken] = world.queue("w:2").claim([IMPORT], 1).leases
    world.queue("w:2").complete([(taken, Checkpoint(1))])
    house = Housekeeper(
        world.queue("w:2"), Outages(lambda *_, **__: None), lambda: {"w:2": LEASE_S}, lambda: None, lambda: EVER_S
    )
    house.reap([IMPORT])
    assert [found["name"] for found in world.redis.xinfo_consumers(STREAM, GROUP)] == [b"w:2"]
