"""Dead letters on real servers: the limit, hostile letters, a full Redis, a flush, and replays that meet each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from pymongo import MongoClient
from pymongo.database import Database

from streams_importer.adapters.mongo_ledger import MongoLedger
from streams_importer.adapters.mongo_setup import set_up
from streams_importer.adapters.mongo_shards import MongoShards
from streams_importer.adapters.redis_client import connect
from streams_importer.adapters.redis_counters import RedisCounters
from streams_importer.adapters.redis_letters import BATCH, RedisLetters
from streams_importer.adapters.redis_places import RedisPlaces
from streams_importer.adapters.redis_queue import RedisQueue
from streams_importer.application.healer import queue_up, queued_shard
from streams_importer.application.letters import Purger, PurgeReport, as_json, matching
from streams_importer.application.recount import Recount
from streams_importer.application.replayer import Replayer, ReplayReport
from streams_importer.application.shards import Shards
from streams_importer.cli import output
from streams_importer.console.letter_view import render_letter, render_letters
from streams_importer.domain.errors import BadSetting, Unavailable
from streams_importer.domain.model import Checkpoint, Counts
from streams_importer.embedded.servers import EmbeddedServers
from streams_importer.ports import QueuedShard
from tests.contract.test_queue import FIRST, PAGE_1, PAGE_2, SECOND, WHY, Bench, records
from tests.unit.test_view import assert_harmless, shown

RUN = "20260221T100000Z-3f"
NOON = datetime(2026, 2, 21, 12, tzinfo=UTC)


@dataclass
class Office:
    """A bench and a ledger: everything that a replay needs, as often as it is needed."""

    bench: Bench
    db: Database[dict[str, Any]]

    @property
    def ledger(self) -> MongoLedger:
        return MongoLedger(self.db, "si")

    @property
    def recount(self) -> Recount:
        return Recount(self.ledger, RedisCounters(self.bench.client, self.bench.keys))

    def replayer(self, letters: RedisLetters | None = None) -> Replayer:
        places = RedisPlaces(self.bench.client, self.bench.keys)
        return Replayer(letters or self.bench.letters(), self.ledger, Shards(MongoShards(self.db, "si"), places), self.recount)

    def all(self) -> ReplayReport:
        return self.replayer().replay_all("a", dry_run=False)

    def bury(self, keys: Sequence[str], queue: RedisQueue | None = None) -> None:
        """As a worker does it: ledger, script, ledger."""
        queue = queue or self.bench.worker()
        rows, _ = self.ledger.plan("a", keys, RUN)
        queue_up(queue, self.recount, "a", [queued_shard(rows[key]) for key in keys], RUN, begins=True)
        leases = queue.claim(["a"], len(keys)).leases
        self.ledger.start(leases, NOON)
        assert self.ledger.finish([(lease, PAGE_2, "failed", 5, WHY) for lease in leases]) == {}
        assert all(queue.dead_letter(lease, PAGE_2, WHY, 5) for lease in leases)
        self.ledger.counted([(lease, "failed") for lease in leases])

    def statuses(self) -> dict[str, int]:
        found = self.db["import_windows"].aggregate([{"$group": {"_id": "$status", "n": {"$sum": 1}}}])
        return {one["_id"]: one["n"] for one in found}

    def queued(self) -> list[str]:
        return [fields[b"shard"].decode() for _, fields in self.bench.client.xrange(self.bench.a.shards)]

    def numbers(self) -> tuple[int, int, int, int, int]:
        """Queued, dead, failed; total and failed of the run."""
        status = self.bench.board()
        assert status.run is not None
        return status.queued, status.dead, status.failed, status.run.total, status.run.failed


def office_on(url: str, db: Database[dict[str, Any]]) -> Iterator[Office]:
    set_up(db, "pois")
    client = connect(url, max_connections=8)
    made = Bench(client)
    made.worker().set_up("a")
    yield Office(made, db)
    client.close()
    client.connection_pool.disconnect()


@pytest.fixture
def office(redis_client: redis.Redis, redis_url: str, mongo_db: Database[dict[str, Any]]) -> Iterator[Office]:
    yield from office_on(redis_url, mongo_db)


@pytest.fixture
def own_office(own_servers: EmbeddedServers) -> Iterator[Office]:
    """On a server whose settings may be changed."""
    with MongoClient[dict[str, Any]](own_servers.mongodb_uri_of("own"), tz_aware=True) as client:
        yield from office_on(own_servers.redis_url, client["own"])


@pytest.fixture
def bench(office: Office) -> Bench:
    office.bench.count("a")
    return office.bench


def shards(number: int) -> list[str]:
    return [f"ids:{low}..{low + 1}" for low in range(number)]


# The limit.


def test_a_stream_that_grew_before_there_was_a_limit_is_cut_down_over_several_calls(bench: Bench) -> None:
    pipe = bench.client.pipeline(transaction=False)
    for number in range(2500):
        pipe.xadd(bench.a.dead, {"shard": f"ids:{number}..{number + 1}"}, id=f"1-{number + 1}")
        pipe.hset(bench.a.places, f"ids:{number}..{number + 1}", f"x1-{number + 1}")
    pipe.execute()
    queue = RedisQueue(bench.client, bench.keys, "w:1", max_letters=10)
    bench.put(*(f"country:{code}" for code in ("DE", "ES", "FR")))
    dropped = [queue.dead_letter(lease, PAGE_1, WHY, 5).dropped for lease in queue.claim(["a"], 3).leases]
    assert dropped == [1000, 1000, 493]
    assert bench.client.xlen(bench.a.dead) == 10
    assert bench.client.hlen(bench.a.places) == 10
    assert bench.letters().dropped("a") == 2493


def test_dropped_shards_are_failed_as_before_and_come_back_with_all_the_others(office: Office) -> None:
    office.bury(shards(30), RedisQueue(office.bench.client, office.bench.keys, "w:1", max_letters=10))
    assert office.numbers() == (0, 10, 30, 30, 30)
    assert office.bench.letters().dropped("a") == 20
    foreseen = office.replayer().replay_all("a", dry_run=True)
    assert (foreseen.replayed, foreseen.without_letter) == (30, 20)
    assert office.numbers() == (0, 10, 30, 30, 30)
    assert office.all() == foreseen
    assert office.numbers() == (30, 0, 0, 30, 0)
    assert records(office.bench.board()) == sum([PAGE_2.counts] * 30, Counts())
    assert sorted(office.queued()) == sorted(shards(30))
    lease = office.bench.claim()
    assert (lease.checkpoint, lease.attempts, lease.crashes, lease.run) == (PAGE_2, 0, 0, RUN)


# What anybody may have written there.

HOSTILE: dict[str, dict[str | bytes, str | bytes]] = {
    "nothing of ours": {"hello": "world"},
    "escapes and markup": dict.fromkeys(
        ("shard", "error", "message", "status", "attempts", "worker", "job"), "[/]\x1b[2J\n[bold]"
    ),
    "binary": dict.fromkeys((b"shard", b"error", b"message", b"cursor", b"payload", b"died_at"), b"\xff\x00\x9b\x1b]0;x\x07"),
    "huge": dict.fromkeys(("shard", "error", "message", "payload", "cursor"), "x" * 1_000_000),
    "only a shard": {"shard": FIRST},
    "two shards": {b"shard": b"ids:0..10", b"job": b"j"},
}


@pytest.mark.parametrize("fields", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_letters_are_shown_exported_left_alone_and_purged(
    office: Office, bench: Bench, fields: dict[str | bytes, str | bytes]
) -> None:
    office.bury([SECOND])
    bench.client.xadd(bench.a.dead, fields)
    letters = bench.dead_letters()
    assert len(letters) == 2
    assert_harmless(shown(render_letters(letters)))
    for letter in letters:
        assert_harmless(shown(render_letter("a", letter, None, None, with_payload=True)))
        line = output.json_text(as_json("a", letter, with_payload=True))
        assert line.isascii()
        assert line.isprintable()
        assert len(line) < 700_000
    report = office.all()
    assert (report.replayed, report.left.total()) == (1, 1)
    assert office.queued() == [SECOND]
    assert Purger(bench.letters()).purge_found("a", [], dry_run=False).purged == 1
    assert office.queued() == [SECOND]
    assert bench.dead_letters() == []


def test_a_letter_that_names_a_shard_in_flight_takes_nothing_from_it(office: Office, bench: Bench) -> None:
    lease = bench.claimed(FIRST)
    forged = bench.client.xadd(bench.a.dead, {"shard": FIRST, "job": "forged"}).decode()
    place = bench.places()
    assert bench.letters().purge("a", [forged]) == [True]
    assert bench.places() == place
    assert bench.worker().renew([lease]) == [True]


def test_places_that_somebody_broke_do_not_break_the_commands(office: Office, bench: Bench) -> None:
    office.bury(shards(3))
    for key, place in zip(shards(3), ("x", "xnonsense", "x99999999999999999999-1"), strict=True):
        bench.client.hset(bench.a.places, key, place)
    assert set(bench.letters().find("a", shards(3))) == set(shards(3)), "found by looking through all letters"
    assert Purger(bench.letters()).purge_named("a", shards(3), dry_run=False).shards == 3


def test_a_key_that_is_no_stream_is_one_line(bench: Bench) -> None:
    bench.client.set(bench.a.dead, "not a stream")
    with pytest.raises(BadSetting):
        bench.dead_letters()


@pytest.mark.parametrize("number", ["many", "-3", "9" * 40, "\x1b"])
def test_a_broken_count_of_dropped_letters_is_none(bench: Bench, number: str) -> None:
    bench.client.hset(bench.a.counters, "letters_dropped", number)
    assert bench.letters().dropped("a") == 0


def test_more_than_one_batch_is_met_once_each(office: Office, bench: Bench) -> None:
    keys = shards(2 * BATCH + 3)
    office.bury(keys)
    assert [letter.shard_key for letter in matching(bench.letters().newest_first("a"), [])] == keys[::-1]
    assert [len(batch) for batch in bench.letters().newest_first("a")] == [BATCH, BATCH, 3]


# A full Redis.


def test_a_full_redis_takes_dead_letters_and_purges_and_refuses_replays(own_office: Office) -> None:
    office, bench = own_office, own_office.bench
    office.bury(shards(3))
    bench.count("a")
    bench.put(FIRST, "country:DE")
    last, garbage = bench.worker().claim(["a"], 2).leases
    bench.client.config_set("maxmemory", 1)
    assert bench.worker().dead_letter(last, PAGE_1, WHY, 5)
    assert bench.board().dead == 4
    before = bench.dump()
    with pytest.raises(Unavailable) as refusal:
        office.replayer().replay_named("a", shards(2), dry_run=False)
    assert "full" in str(refusal.value)
    assert bench.dump() == before
    assert Purger(bench.letters()).purge_named("a", [shards(3)[2], FIRST], dry_run=False) == PurgeReport(shards=2)
    bench.client.config_set("maxmemory", 0)
    assert office.replayer().replay_named("a", shards(3), dry_run=False).replayed == 3
    assert sorted(office.queued()) == sorted([*shards(3), garbage.shard_key])


# A flush.


def test_after_a_flush_everything_that_failed_is_replayed_from_the_ledger(office: Office) -> None:
    office.bury(shards(20))
    office.bench.client.flushall()
    report = office.all()
    assert (report.replayed, report.without_letter) == (20, 20)
    assert office.numbers() == (20, 0, 0, 20, 0)
    assert office.bench.claim().checkpoint == PAGE_2


# Replays that meet each other, or somebody else.


def at_once(*actions: Callable[[], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(actions)) as threads:
        return [future.result() for future in [threads.submit(action) for action in actions]]


def test_replays_at_the_same_time_bring_each_shard_once(office: Office) -> None:
    keys = shards(600)
    office.bury(keys, RedisQueue(office.bench.client, office.bench.keys, "w:1", max_letters=400))
    reports = at_once(office.all, office.all, lambda: office.replayer().replay_named("a", keys, dry_run=False))
    assert sum(report.replayed for report in reports) == 600
    assert sorted(office.queued()) == sorted(keys)
    assert office.numbers() == (600, 0, 0, 600, 0)
    jobs = {row["shardKey"]: row["jobId"] for row in office.db["import_windows"].find({})}
    assert {lease.shard_key: lease.job for lease in office.bench.worker().claim(["a"], 600).leases} == jobs
    assert office.statuses() == {"pending": 600}


def test_a_letter_is_replayed_or_purged_and_no_shard_is_lost_between(office: Office) -> None:
    keys = shards(600)
    office.bury(keys)
    purger = Purger(office.bench.letters())
    replayed, purged = at_once(office.all, lambda: purger.purge_found("a", [], dry_run=False))
    assert office.bench.dead_letters() == []
    # A letter that was purged under the hands of the replay is replayed without it.
    assert replayed.replayed + office.all().replayed == 600
    assert purged.purged <= 600
    assert sorted(office.queued()) == sorted(keys)
    assert office.numbers() == (600, 0, 0, 600, 0)


class Killed(RuntimeError):
    """The process ends here."""


@pytest.mark.parametrize("moment", ["before the script", "after the script"])
def test_a_replay_killed_between_ledger_and_script_is_finished_by_the_next_one(office: Office, moment: str) -> None:
    class Dying(RedisLetters):
        def replay(self, import_name: str, letters: Sequence[tuple[str, QueuedShard]], run: str) -> list[bool]:
            if moment == "after the script":
                super().replay(import_name, letters, run)
            raise Killed

    office.bury(shards(5))
    with pytest.raises(Killed):
        office.replayer(Dying(office.bench.client, office.bench.keys)).replay_named("a", shards(3), dry_run=False)
    assert office.statuses() == {"pending": 3, "failed": 2}
    opened = {row["shardKey"]: row["jobId"] for row in office.db["import_windows"].find({"status": "pending"})}
    report = office.all()
    assert report.replayed == (2 if moment == "after the script" else 5)
    assert office.numbers() == (5, 0, 0, 5, 0)
    leases = {lease.shard_key: lease.job for lease in office.bench.worker().claim(["a"], 10).leases}
    assert {key: leases[key] for key in opened} == opened


def test_what_a_killed_replay_left_is_queued_by_a_worker_too(office: Office) -> None:
    class Dying(RedisLetters):
        def replay(self, import_name: str, letters: Sequence[tuple[str, QueuedShard]], run: str) -> list[bool]:
            raise Killed

    office.bury(shards(3))
    with pytest.raises(Killed):
        office.replayer(Dying(office.bench.client, office.bench.keys)).replay_named("a", shards(2), dry_run=False)
    rows = [queued_shard(row) for row in office.ledger.pending("a")]
    assert queue_up(office.bench.worker(), office.recount, "a", rows, RUN) == [True, True]
    assert office.numbers() == (2, 1, 1, 3, 1)
    assert sorted(office.queued()) == shards(2)
    assert {lease.checkpoint for lease in office.bench.worker().claim(["a"], 5).leases} == {PAGE_2}


def test_a_round_that_died_again_meanwhile_keeps_its_letter(office: Office) -> None:
    """The ledger was read before the shard ran and failed: what is queued then is of a round that has its letter already."""
    office.bury(shards(1))
    office.all()
    stale = [queued_shard(row) for row in office.ledger.pending("a")]
    [lease] = office.bench.worker().claim(["a"], 1).leases
    assert office.bench.worker().dead_letter(lease, PAGE_2, WHY, 5)
    assert office.bench.worker().enqueue("a", stale, RUN) == [False]
    assert [letter.job for letter in office.bench.dead_letters()] == [stale[0].job]


def test_a_replayed_shard_can_die_again_and_be_replayed_again(office: Office) -> None:
    office.bury(shards(1))
    for _ in range(3):
        assert office.all().replayed == 1
        [lease] = office.bench.worker().claim(["a"], 1).leases
        office.ledger.start([lease], NOON)
        office.ledger.finish([(lease, PAGE_2, "failed", 5, WHY)])
        assert office.bench.worker().dead_letter(lease, PAGE_2, WHY, 5)
        office.ledger.counted([(lease, "failed")])
    assert office.numbers() == (0, 1, 1, 1, 1)
    assert len(office.bench.dead_letters()) == 1


def test_garbage_leaves_no_place_when_it_is_purged(bench: Bench) -> None:
    garbage = bench.garbage({"v": "1", "shard": "ids:9..3", "job": "j"})
    assert bench.worker().dead_letter(garbage, Checkpoint(), WHY, 0)
    assert Purger(bench.letters()).purge_found("a", [], dry_run=False) == PurgeReport(garbage=1)
    assert not bench.client.exists(bench.a.places, bench.a.dead) or bench.client.xlen(bench.a.dead) == 0
