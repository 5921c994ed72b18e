"""Small stories that end in an assertion. Each holds as the program is, and fails when the mechanism it is about is taken out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from pymongo.database import Database
from redis import Redis

from streams_importer.adapters import mongo_setup, mongo_sink
from streams_importer.adapters.http import HttpClient
from streams_importer.adapters.lua_scripts import read_part
from streams_importer.adapters.mongo_catalogue import MongoCatalogue
from streams_importer.adapters.mongo_ledger import MongoLedger
from streams_importer.adapters.mongo_sink import MongoSink
from streams_importer.adapters.redis_board import RedisBoard
from streams_importer.adapters.redis_budget import RedisBudget
from streams_importer.adapters.redis_cache import RedisCache
from streams_importer.adapters.redis_counters import RedisCounters
from streams_importer.adapters.redis_keys import GROUP, Keys
from streams_importer.adapters.redis_places import RedisPlaces
from streams_importer.adapters.redis_queue import RedisQueue
from streams_importer.adapters.upstream import HttpUpstream
from streams_importer.application.cancellation import CancelToken
from streams_importer.application.settlement import Attempt, Settlement
from streams_importer.domain.axes import Box, IdRange, Window
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import TooNew, Transient
from streams_importer.domain.hosts import HostRule
from streams_importer.domain.model import Checkpoint, Completed, Counts, Lease, Page, Record, Reject
from streams_importer.domain.rates import parse_limit
from streams_importer.domain.shard_key import Scope
from streams_importer.embedded.stand_in import StandIn
from streams_importer.ports import LedgerRow, QueuedShard
from streams_importer.sources.openchargemap import OpenChargeMap

IMPORT = "openchargemap"
DEFINITION = Definition(IMPORT)
KEYS = Keys()
STREAM = KEYS.of(IMPORT).shards
NOON = datetime(2026, 2, 21, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000


@dataclass
class World:
    """Real servers, and the Lua parts as the mutant has them."""

    redis: Redis
    db: Database[dict[str, Any]]
    stand_in: Callable[..., StandIn]
    read: Callable[[str], str] = read_part

    def queue(self, consumer: str, version: int = 1) -> RedisQueue:
        return RedisQueue(self.redis, KEYS, consumer, version=version, read=self.read)

    def places(self) -> RedisPlaces:
        return RedisPlaces(self.redis, KEYS, read=self.read)

    def counters(self) -> RedisCounters:
        return RedisCounters(self.redis, KEYS, read=self.read)

    def count(self) -> None:
        """Nothing is queued before there are counters."""
        self.counters().replace(IMPORT, {}, {"done": ""})

    def queued(self, *shards: str) -> None:
        self.count()
        self.queue("p").enqueue(IMPORT, [QueuedShard(shard, "job-1") for shard in shards], "run-1", begins=True)

    def expire_lease(self, lease: Lease) -> None:
        """As if the lease had run out: idle time is moved, not waited for."""
        self.redis.xclaim(STREAM, GROUP, lease.consumer, 0, [lease.entry], idle=60_000, justid=True)

    def sink(self) -> MongoSink:
        mongo_setup.set_up(self.db, DEFINITION.collection)
        return MongoSink(self.db)


def record(number: int, content: str, updated_at: datetime | None = NOON) -> Record:
    return Record(f"{IMPORT}:{number}", number, updated_at, None, {"ID": number, "text": content}, f"hash of {content}")


def page(*records: Record, order: int = NOON_US, rejects: tuple[Reject, ...] = ()) -> Page:
    return Page(list(records), list(rejects), None, order)


# Promise 3: no record is duplicated, none regresses, none is silently dropped.


def an_older_version_never_replaces_a_newer_one(world: World) -> None:
    sink = world.sink()
    sink.store(DEFINITION, "ids:0..10", page(record(1, "new"), order=NOON_US + 5))
    sink.store(DEFINITION, "ids:0..10", page(record(1, "old"), order=NOON_US))
    sink.store(DEFINITION, "ids:0..10", page(record(1, "oldest", NOON.replace(hour=11)), order=NOON_US + 9))
    [document] = world.db["pois"].find({})
    assert document["data"]["text"] == "new"


def an_update_that_comes_late_finds_the_newer_version_there(world: World) -> None:
    """Two workers decided on the same stored version; the one with the older page writes last."""
    sink = world.sink()
    sink.store(DEFINITION, "ids:0..10", page(record(1, "first")))
    with world.db.client.start_session() as session:
        late = mongo_sink._PageWork(world.db, DEFINITION, page(record(1, "late"), order=NOON_US + 1), session)
        _, changed = late._compare(late._newest_of_each())
        sink.store(DEFINITION, "ids:0..10", page(record(1, "newest"), order=NOON_US + 2))
        late._update(changed)
    [document] = world.db["pois"].find({})
    assert document["data"]["text"] == "newest"


def of_two_that_insert_at_once_the_newest_stays_and_there_is_one(world: World) -> None:
    sink = world.sink()
    for number in range(60):
        start = threading.Barrier(2)

        def store(content: str, order: int, start: threading.Barrier = start, number: int = number) -> None:
            start.wait()
            sink.store(DEFINITION, "ids:0..10", page(record(number, content), order=order))

        threads = [
            threading.Thread(target=store, args=("old", NOON_US)),
            threading.Thread(target=store, args=("new", NOON_US + 1)),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found = [document["data"]["text"] for document in world.db["pois"].find({"sourceId": number})]
        assert found == ["new"]


def a_record_that_cannot_be_stored_is_among_the_rejects(world: World) -> None:
    bad = replace(record(2, "bad"), data={"ID": 2, "number": 2**70})
    sink = world.sink()
    counts = sink.store(
        DEFINITION, "ids:0..10", page(record(1, "good"), bad, record(3, "good"), rejects=(Reject("no_id", "{}"),))
    )
    assert sorted(document["sourceId"] for document in world.db["pois"].find({})) == [1, 3]
    assert world.db["import_rejects"].count_documents({}) == 2
    assert counts == Counts(inserted=2, rejected=2)


def a_cold_cache_upstream_loses_no_row(world: World) -> None:
    upstream = world.stand_in(points=3000, seed=5)
    upstream.control.add_fault("creation_order", times=4)
    assert read_all(world, upstream, Scope(ids=IdRange(0, upstream.control.ids()[-1]))) == upstream.control.ids()


def an_ignored_filter_brings_no_foreign_row(world: World) -> None:
    upstream = world.stand_in(points=1000, seed=5)
    upstream.control.add_fault("filter_ignored", ["countryid"], times=2)
    wanted = sorted(point.id for point in upstream.points.by_country[87])
    assert read_all(world, upstream, Scope(country="DE")) == wanted


def a_box_brings_exactly_its_own_rows(world: World) -> None:
    """At these latitudes the server's great circles leave the middle of the southern edge out, and bring more in the north."""
    upstream = world.stand_in(points=2000, seed=5, odd_rate=0.0)
    box = Box(45.0, -10.0, 55.0, 30.0)
    places = [(point.id, point.latitude, point.longitude) for point in upstream.points.rows]
    wanted = [number for number, north, east in places if north is not None and east is not None and box.contains(north, east)]
    assert read_all(world, upstream, Scope(box=box)) == wanted


def a_window_brings_exactly_its_own_rows(world: World) -> None:
    upstream = world.stand_in(points=1000, seed=5, odd_rate=0.0)
    times = sorted(point.updated for point in upstream.points.rows if point.updated is not None)
    start, end = (datetime.fromtimestamp(int(times[len(times) * n // 3]), UTC) for n in (1, 2))
    wanted = [point.id for point in upstream.points.rows if start.timestamp() <= (point.updated or 0) < end.timestamp()]
    assert read_all(world, upstream, Scope(window=Window(start, end))) == wanted


def read_all(world: World, upstream: StandIn, scope: Scope) -> list[int]:
    budget = RedisBudget(world.redis, KEYS, "test", parse_limit("1000/s"))
    http = HttpClient(hosts=HostRule.of("", [upstream.base_url]))
    source = OpenChargeMap(HttpUpstream(http, upstream.base_url, budget), RedisCache(world.redis, KEYS, "test"), 200)
    ids: list[int] = []
    cursor: int | str | None = None
    for _ in range(100):
        try:
            answer = source.fetch(scope, cursor, CancelToken())
        except Transient:
            continue
        ids += [one.source_id for one in answer.records]
        cursor = answer.next_cursor
        if cursor is None:
            break
    http.close()
    return ids


# Promise 9: two versions of us side by side.


def a_message_of_a_newer_version_is_left_to_it(world: World) -> None:
    world.queued("ids:0..10")
    world.queue("newer-producer", version=2).enqueue(IMPORT, [QueuedShard("ids:10..20", "job-2")], "run-2")
    old = world.queue("old")
    claimed = old.claim([IMPORT], 10)
    assert [lease.shard_key for lease in claimed.leases] == ["ids:0..10"]
    assert claimed.too_new == 1
    assert old.claim([IMPORT], 10).leases == []
    assert [lease.shard_key for lease in world.queue("new", version=2).claim([IMPORT], 10).leases] == ["ids:10..20"]


def a_ledger_row_of_a_newer_version_is_not_touched(world: World) -> None:
    mongo_setup.set_up(world.db, DEFINITION.collection)
    ledger = MongoLedger(world.db, "si")
    row = ledger.plan(IMPORT, ["ids:0..10"], "run-1")[0]["ids:0..10"]
    world.db["import_windows"].update_one({}, {"$set": {"v": 2}})
    lease = Lease(IMPORT, "1-1", "w:1", 1, row.shard_key, row.job, row.run)
    ledger.start([lease], NOON)
    ledger.checkpoint(lease, Checkpoint(3, 30), NOON)
    ledger.put_back([(lease, Checkpoint(), 1, None)])
    ledger.finish([(lease, Checkpoint(), "done", 0, None)])
    [stored] = world.db["import_windows"].find({})
    assert (stored["status"], stored["attempts"], stored["page"], stored["v"]) == ("pending", 0, 0, 2)


def a_shard_whose_ledger_row_is_newer_is_left_to_that_version(world: World) -> None:
    mongo_setup.set_up(world.db, DEFINITION.collection)
    ledger = MongoLedger(world.db, "si")
    row = ledger.plan(IMPORT, ["ids:0..10"], "run-1")[0]["ids:0..10"]
    queue = world.queue("w:1")
    world.count()
    queue.enqueue(IMPORT, [QueuedShard(row.shard_key, row.job)], "run-1")
    [lease] = queue.claim([IMPORT], 1).leases
    world.db["import_windows"].update_one({}, {"$set": {"v": 2}})
    Settlement(queue, ledger, lambda *_, **__: None).settle([(Attempt(lease, DEFINITION), Completed(Checkpoint(1)))])
    assert queue.claim([IMPORT], 1).leases == []
    assert [lease.shard_key for lease in world.queue("new", version=2).claim([IMPORT], 1).leases] == ["ids:0..10"]


def a_definition_of_a_newer_version_is_not_used_and_not_overwritten(world: World) -> None:
    mongo_setup.set_up(world.db, DEFINITION.collection)
    catalogue = MongoCatalogue(world.db, "si")
    catalogue.save(DEFINITION, "run-1")
    world.db["imports"].update_one({}, {"$set": {"v": 2, "definition.v": 2, "definition.page_size": 7}})
    assert raises_too_new(lambda: catalogue.get(IMPORT))
    assert raises_too_new(lambda: catalogue.save(DEFINITION, "run-2"))
    [stored] = world.db["imports"].find({})
    assert stored["definition"]["page_size"] == 7


def raises_too_new(action: Callable[[], object]) -> bool:
    try:
        action()
    except TooNew:
        return True
    return False


# The mechanisms of the queue that the other promises stand on.


def a_lost_lease_settles_nothing(world: World) -> None:
    world.queued("ids:0..10")
    zombie, heir = world.queue("zombie"), world.queue("heir")
    [lost] = zombie.claim([IMPORT], 1).leases
    world.expire_lease(lost)
    [taken] = heir.reclaim(IMPORT, 1, 15, [], 1e6).leases
    assert zombie.renew([lost]) == [False]
    assert zombie.complete([(lost, Checkpoint(1))]) == [False]
    assert zombie.retry(lost, Checkpoint(), 1, 1) is False
    assert heir.renew([taken]) == [True]
    assert RedisBoard(world.redis, KEYS).read([IMPORT])[IMPORT].done == 0


def a_shard_in_flight_is_not_queued_again(world: World) -> None:
    world.queued("ids:0..10")
    [lease] = world.queue("w:1").claim([IMPORT], 1).leases
    world.queued("ids:0..10")
    world.queue("w:1").retry(lease, Checkpoint(), 60, 1)
    world.queued("ids:0..10")
    status = RedisBoard(world.redis, KEYS).read([IMPORT])[IMPORT]
    assert (status.queued, status.leased, status.delayed) == (0, 0, 1)


def a_repeated_checkpoint_counts_once(world: World) -> None:
    world.queued("ids:0..10")
    queue = world.queue("w:1")
    [lease] = queue.claim([IMPORT], 1).leases
    for checkpoint in (
        Checkpoint(1, 5, Counts(inserted=10)),
        Checkpoint(2, 9, Counts(inserted=20)),
        Checkpoint(1, 5, Counts(inserted=10)),
    ):
        assert queue.checkpoint(lease, checkpoint)
        assert queue.checkpoint(lease, checkpoint)
    queue.complete([(lease, Checkpoint(3, None, Counts(inserted=25)))])
    assert RedisBoard(world.redis, KEYS).read([IMPORT])[IMPORT].records["inserted"] == 25


def a_shard_cancelled_twice_is_counted_once(world: World) -> None:
    world.queued("ids:0..10")
    cancelled = cancelled_row("ids:0..10", Counts(inserted=10))
    assert world.places().cancel(IMPORT, [cancelled, cancelled]) == [True, False]
    assert world.places().cancel(IMPORT, [cancelled]) == [False]
    status = RedisBoard(world.redis, KEYS).read([IMPORT])[IMPORT]
    assert (status.cancelled, status.total, status.records["inserted"]) == (1, 1, 10)


def a_late_cancellation_leaves_the_next_round_alone(world: World) -> None:
    world.queued("ids:0..10")
    world.places().cancel(IMPORT, [cancelled_row("ids:0..10")])
    world.queue("p").enqueue(IMPORT, [QueuedShard("ids:0..10", "job-2", "cancelled")], "run-2", begins=True)
    assert world.places().cancel(IMPORT, [cancelled_row("ids:0..10")]) == [False]
    assert [lease.job for lease in world.queue("w:1").claim([IMPORT], 1).leases] == ["job-2"]


def records_of_a_cancelled_shard_are_those_of_its_ledger_row(world: World) -> None:
    """Its worker has told the ledger of the second page and Redis only of the first."""
    world.queued("ids:0..10")
    queue = world.queue("w:1")
    [lease] = queue.claim([IMPORT], 1).leases
    queue.checkpoint(lease, Checkpoint(1, 5, Counts(inserted=10)))
    world.places().cancel(IMPORT, [cancelled_row("ids:0..10", Counts(inserted=20))])
    assert queue.checkpoint(lease, Checkpoint(2, 9, Counts(inserted=20))) is False
    assert RedisBoard(world.redis, KEYS).read([IMPORT])[IMPORT].records["inserted"] == 20


def cancelled_row(shard: str, counts: Counts | None = None) -> LedgerRow:
    return LedgerRow(shard, "job-1", "run-1", "cancelled", 0, Checkpoint(2, 9, counts or Counts()), None, None, 1)


def nobody_reclaims_its_own_lease(world: World) -> None:
    world.queued("ids:0..10")
    queue = world.queue("w:1")
    [lease] = queue.claim([IMPORT], 1).leases
    world.expire_lease(lease)
    assert queue.reclaim(IMPORT, 5, 15, [lease], 1e6).leases == []
    assert queue.renew([lease]) == [True]


def slots_taken_during_a_hold_are_spread_after_it(world: World) -> None:
    budget = RedisBudget(world.redis, KEYS, "test", parse_limit("50/s"), read=world.read)
    budget.hold(0.2)
    slots: list[int] = []
    threads = [threading.Thread(target=lambda: slots.append(budget.take(CancelToken()))) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    slots.sort()
    assert all(later - earlier >= 20_000 for earlier, later in pairwise(slots))
