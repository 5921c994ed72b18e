"""`doctor` on real servers: damaged on purpose, named, fixed, and examined again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest
import redis
from pymongo.database import Database
from pymongo.errors import OperationFailure

from streams_importer.adapters.redis_keys import GROUP
from streams_importer.adapters.redis_queue import RedisQueue
from streams_importer.adapters.redis_scans import BATCH
from streams_importer.application.checkup import OK, UNKNOWN, WRONG, Finding
from streams_importer.application.doctor import Doctor
from streams_importer.application.repairs import Done, Repairs
from streams_importer.domain.definition import Definition
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Counts, Failure, Lease
from streams_importer.embedded.servers import EmbeddedServers
from streams_importer.ports import Pause, QueuedShard
from streams_importer.settings import Servers, Upstreams
from streams_importer.wiring import Wiring
from tests.fakes.recorded import Events
from tests.unit.command_line import clean_environment

RUN = "20260221T100000Z-3f"
KEYS = [f"ids:{low}..{low + 10}" for low in range(0, 60, 10)]
QUEUED, LEASED, DELAYED, DONE, DEAD, NEXT = KEYS
SOME = Checkpoint(1, 7, Counts(inserted=3, requests_ok=1))
WHY = Failure("http_500", "answered 500", 500)
HOSTILE = b"[/]\x1b[2J\xff\nfake"
EXPECTED = {"fleet: heartbeats", "a: dead letters"}
PAUSE = Pause("a new key", "me", "2026-02-21T10:00:00Z")


class Clinic:
    """An import `a` with a shard in every state and a live worker `w:1`, and ways to damage it."""

    def __init__(self, redis_url: str, mongodb_uri: str) -> None:
        self.wiring = Wiring(Servers(redis_url, mongodb_uri), Upstreams(), "si", Events())
        self.environment = clean_environment(REDIS_URL=redis_url, MONGODB_URI=mongodb_uri)
        self.redis: Any = self.wiring.redis
        self.keys = self.wiring.keys
        self.a = self.keys.of("a")
        self.worker = RedisQueue(self.wiring.redis, self.keys, "w:1")

    def close(self) -> None:
        self.wiring.close()

    def prepare(self) -> None:
        wiring, definition = self.wiring, Definition("a")
        wiring.set_up(definition)
        wiring.imports.save(definition, RUN)
        rows, _ = wiring.ledger.plan("a", KEYS, RUN)
        wiring.recount.rebuild("a")
        self.worker.enqueue("a", [QueuedShard(key, rows[key].job) for key in KEYS], RUN, begins=True)
        leases = {lease.shard_key: lease for lease in self.worker.claim(["a"], len(KEYS)).leases}
        wiring.ledger.start(list(leases.values()), datetime.now(UTC))
        self.worker.start([leases[LEASED]])
        self.finish(leases[DONE])
        wiring.ledger.put_back([(leases[DELAYED], SOME, 1, WHY)])
        assert self.worker.retry(leases[DELAYED], SOME, 3600, 1)
        wiring.ledger.finish([(leases[DEAD], SOME, "failed", 5, WHY)])
        assert self.worker.dead_letter(leases[DEAD], SOME, WHY, 5)
        wiring.ledger.counted([(leases[DEAD], "failed")])
        for key in (QUEUED, NEXT):
            wiring.ledger.put_back([(leases[key], Checkpoint(), 0, None)])
            assert self.worker.release([leases[key]]) == [True]
        self.leased = leases[LEASED]
        self.beat("w:1")

    def beat(self, name: str) -> None:
        self.wiring.workers.beat(name, ["a"], 1, 15.0, 0.0)

    def finish(self, lease: Lease) -> None:
        self.wiring.ledger.finish([(lease, SOME, "done", 0, None)])
        assert self.worker.complete([(lease, SOME)]) == [True]
        self.wiring.ledger.counted([(lease, "done")])

    def finish_all(self) -> None:
        """Whatever is in flight ends well, by hand of one worker."""
        self.redis.zadd(self.a.delayed, {DELAYED: 1}, xx=True)
        self.worker.promote("a", 100)
        leases = [self.leased, *self.worker.claim(["a"], 100).leases]
        self.wiring.ledger.start(leases, datetime.now(UTC))
        for lease in leases:
            self.finish(lease)

    def place(self, key: str) -> str:
        return str(self.redis.hget(self.a.places, key).decode())

    def examine(self) -> dict[str, Finding]:
        return {finding.subject: finding for finding in Doctor(self.wiring.examined).examine()}

    def wrong(self) -> dict[str, Finding]:
        """But for what is wrong with it anyhow."""
        found = self.examine()
        return {subject: one for subject, one in found.items() if one.verdict.state == WRONG and subject not in EXPECTED}

    def fix(self) -> Done:
        return Repairs(self.wiring.examined).fix(list(self.examine().values()))

    def command(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "streams_importer", "doctor", *arguments]
        settings = {**self.environment, **environment}
        return subprocess.run(command, env=settings, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def empty(redis_client: redis.Redis, redis_url: str, mongo_uri: str) -> Iterator[Clinic]:
    made = Clinic(redis_url, mongo_uri)
    yield made
    made.close()


@pytest.fixture
def clinic(empty: Clinic) -> Clinic:
    empty.prepare()
    return empty


def test_a_healthy_import_with_shards_in_every_state_has_nothing_wrong_but_its_dead_letter(clinic: Clinic) -> None:
    assert clinic.wrong() == {}
    found = clinic.examine()
    assert found["a: dead letters"].verdict.state == WRONG
    assert found["a: counters"].verdict.state == UNKNOWN
    assert found["Redis: version"].verdict.state == OK
    clinic.finish_all()
    assert clinic.wrong() == {}
    assert clinic.examine()["a: counters"].verdict.state == OK


# Each kind of damage: what is done, where it is noticed, and what --fix says it did there.

Damage = Callable[[Clinic], object]


def lose_the_group(clinic: Clinic) -> None:
    clinic.redis.xgroup_destroy(clinic.a.shards, GROUP)


def lose_everything_of_it(clinic: Clinic) -> None:
    clinic.redis.delete(*[getattr(clinic.a, name) for name in ("shards", "places", "progress", "delayed", "counters", "dead")])


def forget_a_place(clinic: Clinic) -> None:
    clinic.redis.hdel(clinic.a.places, QUEUED)


def delete_an_entry(clinic: Clinic) -> None:
    clinic.redis.xdel(clinic.a.shards, clinic.place(QUEUED)[1:])


def delete_an_entry_in_hand(clinic: Clinic) -> None:
    clinic.redis.xdel(clinic.a.shards, clinic.leased.entry)


def duplicate_an_entry(clinic: Clinic) -> None:
    (_, fields), *_ = clinic.redis.xrange(clinic.a.shards)
    clinic.redis.xadd(clinic.a.shards, fields)


def leave_a_place_behind(clinic: Clinic) -> None:
    clinic.redis.hset(clinic.a.places, DONE, "s1-1")


def leave_a_hostile_place_behind(clinic: Clinic) -> None:
    clinic.redis.hset(clinic.a.places, HOSTILE, "s1-1")


def point_to_anothers_entry(clinic: Clinic) -> None:
    clinic.redis.hset(clinic.a.places, QUEUED, clinic.place(NEXT))


def remove_a_letter(clinic: Clinic) -> None:
    clinic.redis.delete(clinic.a.dead)


def lose_the_progress_of_a_delayed_shard(clinic: Clinic) -> None:
    clinic.redis.hdel(clinic.a.progress, DELAYED)


def break_the_progress_of_a_delayed_shard(clinic: Clinic) -> None:
    clinic.redis.hset(clinic.a.progress, DELAYED, '{"v":1,"page":0,"counts":[0,0,0,0,0,0,0,0]}')


def delay_a_shard_that_is_elsewhere(clinic: Clinic) -> None:
    clinic.redis.zadd(clinic.a.delayed, {DONE: 1, QUEUED: 1e15})


def take_a_delayed_shard_out(clinic: Clinic) -> None:
    clinic.redis.zrem(clinic.a.delayed, DELAYED)


def leave_progress_behind(clinic: Clinic) -> None:
    clinic.redis.hset(clinic.a.progress, HOSTILE, "{}")


def lose_the_copy(clinic: Clinic) -> None:
    clinic.redis.hdel(clinic.keys.imports, "a")


def break_the_copy(clinic: Clinic) -> None:
    clinic.redis.hset(clinic.keys.imports, "a", "not JSON")


def change_the_copy(clinic: Clinic) -> None:
    clinic.redis.hset(clinic.keys.imports, "a", json.dumps(Definition("a", rate="99/s").stored()))


def pause_in_one_store(clinic: Clinic) -> None:
    clinic.wiring.examined.original.pause("a", PAUSE)


def pause_in_the_other_store(clinic: Clinic) -> None:
    clinic.wiring.examined.copy.pause("a", PAUSE)


def leave_a_consumer_behind(clinic: Clinic) -> None:
    clinic.redis.xgroup_createconsumer(clinic.a.shards, GROUP, "dead:1")


def leave_a_heartbeat_behind(clinic: Clinic) -> None:
    clinic.redis.hset(clinic.keys.workers, "dead:1", '{"imports":["a"],"leases":0,"lease_s":1,"records_per_s":0,"seen_ms":1}')


def leave_an_unbelievable_heartbeat_behind(clinic: Clinic) -> None:
    clinic.redis.hset(clinic.keys.workers, "[/]\x1b[2J", "nonsense")


@pytest.mark.parametrize(
    ("damage", "noticed", "done"),
    [
        (lose_the_group, "a: group", "made"),
        (lose_everything_of_it, "a: lost shards", "4 queued"),
        (lose_everything_of_it, "a: counters", "rebuilt from the ledger, with 1 dead letter"),
        (forget_a_place, "a: entries", "1 put in their place or dropped"),
        (delete_an_entry, "a: lost shards", "1 queued"),
        (delete_an_entry, "a: places", ""),
        (delete_an_entry, "a: deleted entries", "1 acknowledged"),
        (delete_an_entry_in_hand, "a: deleted entries", "1 acknowledged"),
        (duplicate_an_entry, "a: entries", "1 put in their place or dropped"),
        (leave_a_place_behind, "a: places", "1 swept"),
        (leave_a_hostile_place_behind, "a: places", "1 swept"),
        (point_to_anothers_entry, "a: places", ""),
        (remove_a_letter, "a: places", "1 swept"),
        (lose_the_progress_of_a_delayed_shard, "a: delayed shards", "1 swept"),
        (break_the_progress_of_a_delayed_shard, "a: delayed shards", "1 swept"),
        (delay_a_shard_that_is_elsewhere, "a: delayed shards", "2 swept"),
        (take_a_delayed_shard_out, "a: lost shards", "1 queued"),
        (leave_progress_behind, "a: progress", "1 swept"),
        (lose_the_copy, "a: definition", "copied from MongoDB"),
        (break_the_copy, "a: definition", "copied from MongoDB"),
        (change_the_copy, "a: definition", "copied from MongoDB"),
        (pause_in_one_store, "a: pause", "pause copied from MongoDB"),
        (pause_in_the_other_store, "a: pause", "pause ended, as in MongoDB"),
        (leave_a_consumer_behind, "fleet: consumers", "1 forgotten"),
        (leave_a_heartbeat_behind, "fleet: heartbeats", "1 forgotten"),
        (leave_an_unbelievable_heartbeat_behind, "fleet: heartbeats", "1 forgotten"),
    ],
)
def test_damage_is_named_and_fixed_and_not_there_any_more(clinic: Clinic, damage: Damage, noticed: str, done: str) -> None:
    damage(clinic)
    assert clinic.examine()[noticed].verdict.state == WRONG
    fixed = clinic.fix()
    area, _, check = noticed.partition(": ")
    assert fixed.get((None if area == "fleet" else area, check), "") == done
    after = clinic.examine()
    told_still = {"a: dead letters", "a: failed shards", "a: pause"}  # a person decides about these
    assert {subject for subject, one in after.items() if one.verdict.state == WRONG} <= told_still
    clinic.beat("w:1")
    assert clinic.fix() == {}


@pytest.mark.parametrize(
    "damage",
    [
        lose_everything_of_it,
        lose_the_group,
        forget_a_place,
        delete_an_entry,
        delete_an_entry_in_hand,
        duplicate_an_entry,
        point_to_anothers_entry,
        lose_the_progress_of_a_delayed_shard,
        break_the_progress_of_a_delayed_shard,
        delay_a_shard_that_is_elsewhere,
        take_a_delayed_shard_out,
    ],
)
def test_after_a_fix_every_shard_is_claimed_once_and_the_counters_come_out_right(clinic: Clinic, damage: Damage) -> None:
    damage(clinic)
    clinic.fix()
    clinic.redis.zadd(clinic.a.delayed, {DELAYED: 1}, xx=True)
    clinic.worker.promote("a", 100)
    others = RedisQueue(clinic.wiring.redis, clinic.keys, "w:2")
    leases = others.claim(["a"], 100).leases
    still_held = clinic.worker.renew([clinic.leased]) == [True]
    got = [lease.shard_key for lease in leases] + [LEASED] * still_held
    assert sorted(got) == sorted([QUEUED, LEASED, DELAYED, NEXT])
    clinic.wiring.ledger.start(leases, datetime.now(UTC))
    clinic.worker = others
    for lease in leases:
        clinic.finish(lease)
    if still_held:
        clinic.worker = RedisQueue(clinic.wiring.redis, clinic.keys, "w:1")
        clinic.finish(clinic.leased)
    clinic.fix()
    assert clinic.examine()["a: counters"].verdict.state == OK
    status = clinic.wiring.board.read(["a"])["a"]
    assert (status.in_flight, status.done, status.failed) == (0, 5, 1)
    assert status.run is not None
    assert (status.run.total, status.run.done) == (6, 5)
    assert clinic.redis.hlen(clinic.a.progress) == 0


def test_after_a_flush_everything_is_put_back(clinic: Clinic) -> None:
    clinic.wiring.imports.pause("a", PAUSE)
    clinic.redis.flushall()
    assert {"a: definition", "a: pause", "a: group", "a: lost shards", "a: counters", "a: failed shards"} <= set(clinic.wrong())
    done = clinic.fix()
    assert done["a", "counters"] == "rebuilt from the ledger, with 1 dead letter"
    assert done["a", "lost shards"] == "4 queued"
    clinic.wiring.imports.pause("a", None)
    clinic.beat("w:1")
    assert clinic.wrong() == {}
    assert clinic.wiring.letters.find("a", [DEAD])


def test_counters_are_judged_and_put_right_when_nothing_is_in_flight(clinic: Clinic) -> None:
    clinic.redis.hincrby(clinic.a.counters, "done", 7)
    clinic.redis.hset(clinic.a.counters, "inserted", "[/]\x1b[2J")
    assert clinic.examine()["a: counters"].verdict.state == UNKNOWN
    clinic.finish_all()
    verdict = clinic.examine()["a: counters"].verdict
    assert (verdict.state, "done is 12, not 5" in verdict.examples) == (WRONG, True)
    assert clinic.fix() == {("a", "counters"): "put right"}
    assert clinic.examine()["a: counters"].verdict.state == OK


def test_leases_that_ran_out_are_wrong_when_no_worker_is_left(clinic: Clinic) -> None:
    clinic.redis.xclaim(clinic.a.shards, GROUP, "w:1", 0, [clinic.leased.entry], idle=60_000, justid=True)
    assert clinic.wrong() == {}
    assert "1 lease ran out" in clinic.examine()["a: leases"].verdict.found
    clinic.redis.delete(clinic.keys.workers)
    assert {"a: leases", "a: workers"} <= set(clinic.wrong())
    assert clinic.fix() == {}, "that is for a worker to do"
    assert clinic.worker.renew([clinic.leased]) == [True]


def test_garbage_and_what_a_newer_version_wrote_are_told_and_left_alone(clinic: Clinic) -> None:
    newer = RedisQueue(clinic.wiring.redis, clinic.keys, "new:1", version=STORED_VERSION + 1)
    newer.enqueue("a", [QueuedShard("ids:90..99", "job")], RUN)
    clinic.redis.xadd(clinic.a.shards, {HOSTILE: HOSTILE})
    clinic.redis.hset(clinic.a.progress, "ids:91..99", '{"v":2,"of":"the future"}')
    clinic.redis.zadd(clinic.a.delayed, {"ids:91..99": 1})
    clinic.redis.hset(clinic.a.places, "ids:91..99", "d")
    length = clinic.redis.xlen(clinic.a.shards)
    assert set(clinic.wrong()) == {"a: garbage", "a: newer version"}
    assert clinic.fix() == {}
    assert clinic.redis.xlen(clinic.a.shards) == length
    assert clinic.redis.hexists(clinic.a.progress, "ids:91..99")


def test_odd_places_are_told_and_never_removed(clinic: Clinic) -> None:
    clinic.redis.hset(clinic.a.places, "ids:90..99", "q\x1b[2J")
    assert set(clinic.wrong()) == {"a: places"}
    clinic.fix()
    assert clinic.redis.hget(clinic.a.places, "ids:90..99") == b"q\x1b[2J"


def test_definitions_of_a_newer_version_or_only_in_redis_are_left_alone(clinic: Clinic) -> None:
    newer = json.dumps({"v": STORED_VERSION + 1})
    clinic.redis.hset(clinic.keys.imports, "a", newer)
    assert "newer version" in clinic.examine()["a: definition"].verdict.found
    clinic.fix()
    assert clinic.redis.hget(clinic.keys.imports, "a") == newer.encode()
    clinic.redis.hset(clinic.keys.imports, "b", json.dumps(Definition("b").stored()))
    assert "produce b" in clinic.examine()["b: definition"].verdict.to_do
    clinic.fix()
    assert clinic.wiring.examined.original.get("b") is None


@pytest.mark.parametrize("name", ["shards", "dead", "delayed", "places", "progress", "counters"])
def test_a_key_of_a_wrong_type_is_named_and_what_needs_it_is_unknown(clinic: Clinic, name: str) -> None:
    key = getattr(clinic.a, name)
    clinic.redis.delete(key)
    clinic.redis.set(key, "somebody else's")
    found = clinic.examine()
    verdict = found["fleet: types of keys"].verdict
    assert (verdict.state, key in verdict.examples[0]) == (WRONG, True)
    assert f"redis-cli RENAME '{key}'" in verdict.to_do
    assert any(one.verdict.state == UNKNOWN and "WRONGTYPE" in one.verdict.found for one in found.values())
    clinic.fix()
    assert clinic.redis.get(key) == b"somebody else's"


@pytest.mark.parametrize("name", ["imports", "paused", "workers"])
def test_a_key_of_the_fleet_of_a_wrong_type_is_named_too(clinic: Clinic, name: str) -> None:
    key = getattr(clinic.keys, name)
    clinic.redis.delete(key)
    clinic.redis.set(key, "somebody else's")
    assert clinic.examine()["fleet: types of keys"].verdict.state == WRONG
    clinic.fix()
    assert clinic.redis.get(key) == b"somebody else's"


def test_foreign_keys_are_named_and_never_deleted(clinic: Clinic) -> None:
    mine = [b"{si}:" + HOSTILE, b"{si}:b:shards", b"{si}:imports\n", b"{si}:budget:0123456789abcdef"]
    others = [b"{si2}:x", b"si:x"]
    for key in (mine[0], mine[2], *others):
        clinic.redis.set(key, 1)
    clinic.redis.xadd(mine[1], {"v": 1})
    clinic.redis.hset(mine[3], "last", 1)
    verdict = clinic.examine()["fleet: foreign keys"].verdict
    assert (verdict.state, verdict.found[:6]) == (WRONG, "2 keys")
    clinic.fix()
    assert all(clinic.redis.exists(key) for key in (*mine, *others))
    ended = clinic.command()
    assert ended.returncode == 1
    assert ended.stdout.replace("\n", "").isprintable()
    assert "Traceback" not in ended.stderr


def test_missing_indexes_are_named_with_the_command(clinic: Clinic) -> None:
    clinic.wiring.database["pois"].drop_indexes()
    verdict = clinic.wrong()["MongoDB: indexes"].verdict
    assert (verdict.to_do, len(verdict.examples)) == ("streams-importer setup", 3)
    clinic.fix()
    assert "MongoDB: indexes" in clinic.wrong(), "indexes are not ours to make here"
    clinic.wiring.set_up(Definition("a"))
    assert clinic.wrong() == {}


def test_before_anything_was_set_up_only_that_is_wrong(empty: Clinic) -> None:
    assert set(empty.wrong()) == {"MongoDB: indexes"}
    ended = empty.command("nowhere")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "there is no import 'nowhere'" in ended.stderr


ALL = {"version", "eviction", "memory", "persistence", "role", "clients"}


@pytest.mark.parametrize(
    ("forbidden", "unknown"),
    [(["-config", "-info"], ALL), (["-info"], ALL - {"eviction", "persistence"}), (["-config"], {"memory"})],
)
def test_what_a_redis_user_may_not_ask_for_is_unknown_with_the_reason(
    clinic: Clinic, redis_url: str, forbidden: list[str], unknown: set[str]
) -> None:
    user: Any = {"enabled": True, "passwords": ["+pw"], "keys": ["*"], "channels": ["*"]}
    clinic.redis.acl_setuser("modest", **user, categories=["+@all"], commands=forbidden)
    try:
        url = redis_url.replace("unix://", "unix://modest@") + "?password=pw"
        ended = clinic.command("--fix", "--json", REDIS_URL=url)
    finally:
        clinic.redis.acl_deluser("modest")
    assert (ended.returncode, ended.stderr) == (1, ""), "there is a dead letter"
    found = json.loads(ended.stdout)["checks"]
    of_redis = {one["check"]: one for one in found if one["area"] == "Redis"}
    assert {check for check, one in of_redis.items() if one["state"] == UNKNOWN} == unknown
    assert all("permission" in of_redis[check]["found"] for check in unknown - {"memory"})
    assert {one["check"] for one in found if one["state"] == WRONG} == {"dead letters"}


def test_what_a_mongodb_user_may_not_ask_for_is_unknown_with_the_reason(clinic: Clinic, monkeypatch: pytest.MonkeyPatch) -> None:
    command = Database.command

    def refused(self: Database[Any], name: str, *arguments: Any, **options: Any) -> Any:
        if name in ("serverStatus", "dbStats"):
            raise OperationFailure(f"not authorized on test to execute {name}", 13)
        if name == "buildInfo":
            raise OperationFailure("no such command", 59)
        return command(self, name, *arguments, **options)

    monkeypatch.setattr(Database, "command", refused)
    found = clinic.examine()
    for check in ("version", "connections", "storage"):
        assert found[f"MongoDB: {check}"].verdict.state == UNKNOWN
        assert "not authorized" in found[f"MongoDB: {check}"].verdict.found
    assert found["MongoDB: replica set"].verdict.state == OK


def test_a_wrong_password_is_a_wrong_row(clinic: Clinic, redis_url: str) -> None:
    ended = clinic.command("a", REDIS_URL=redis_url.replace("unix://", "unix://nobody@") + "?password=" + quote("Kanari7+x"))
    assert ended.returncode == 1
    assert "refuses the log-in" in " ".join(ended.stdout.split())
    assert "Kanari7" not in ended.stdout + ended.stderr


def test_servers_that_are_down_are_wrong_rows(own_servers: EmbeddedServers) -> None:
    clinic = Clinic(own_servers.redis_url, own_servers.mongodb_uri_of("test") + "&serverSelectionTimeoutMS=200")
    try:
        clinic.prepare()
        own_servers.kill_redis()
        found = clinic.examine()
        assert [subject for subject, one in found.items() if one.verdict.state == WRONG] == ["Redis: reachable"]
        assert found["MongoDB: indexes"].verdict.state == OK
        own_servers.kill_mongod()
        ended = clinic.command("a", "--fix", "--json")
        assert ended.returncode == 1
        shown = json.loads(ended.stdout)
        assert (shown["wrong"], shown["ok"]) == (2, 0)
        own_servers.start_redis()
        found = clinic.examine()
        assert set(clinic.wrong()) == {"MongoDB: reachable"}
        assert found["a: places"].verdict.state == OK
    finally:
        clinic.close()


def test_what_is_wrong_with_the_settings_of_a_server_is_told(own_servers: EmbeddedServers) -> None:
    clinic = Clinic(own_servers.redis_url, own_servers.mongodb_uri_of("test"))
    try:
        clinic.prepare()
        used = clinic.redis.info("memory")["used_memory"]
        settings = {"maxmemory-policy": "allkeys-lru", "maxmemory": int(used * 1.04), "appendonly": "no"}
        for name, value in settings.items():
            clinic.redis.config_set(name, value)
        assert {"Redis: eviction", "Redis: persistence", "Redis: memory"} <= set(clinic.wrong())
        clinic.redis.config_set("maxmemory", 0)
        clinic.redis.replicaof("127.0.0.1", "1")
        assert "takes no writes" in clinic.wrong()["Redis: role"].verdict.found
        clinic.redis.replicaof("no", "one")
    finally:
        clinic.close()


def test_a_full_redis_is_swept_all_the_same(own_servers: EmbeddedServers) -> None:
    clinic = Clinic(own_servers.redis_url, own_servers.mongodb_uri_of("test"))
    try:
        clinic.prepare()
        leave_a_place_behind(clinic)
        leave_progress_behind(clinic)
        forget_a_place(clinic)
        delete_an_entry_in_hand(clinic)
        assert {"a: places", "a: progress", "a: entries", "a: deleted entries"} <= set(clinic.wrong())
        clinic.redis.config_set("maxmemory", 1)
        clinic.fix()
        assert set(clinic.wrong()) == {"a: lost shards", "a: places", "Redis: memory"}
        clinic.redis.config_set("maxmemory", 0)
        clinic.fix()
        assert clinic.wrong() == {}
    finally:
        clinic.close()


def test_of_many_findings_a_few_are_named_and_all_are_fixed(clinic: Clinic) -> None:
    number = 3 * BATCH + 7
    clinic.redis.hset(clinic.a.places, mapping={f"ids:{low}..{low + 1}": "s1-1" for low in range(100, 100 + number)})
    clinic.redis.hset(clinic.a.progress, mapping={f"x{low}": "{}" for low in range(number)})
    found = clinic.wrong()
    assert f"{number:,} places" in found["a: places"].verdict.found
    assert len(found["a: places"].verdict.examples) == 5
    fixed = clinic.fix()
    assert fixed == {("a", "places"): f"{number:,} swept", ("a", "progress"): f"{number:,} swept"}
    assert clinic.wrong() == {}


def test_a_repair_leaves_alone_what_is_right_by_the_time_it_acts(clinic: Clinic) -> None:
    before = {key: clinic.redis.dump(key) for key in sorted(clinic.redis.keys("{si}:a:*"))}
    mending = clinic.wiring.examined.mending
    entries = [entry.decode() for entry, _ in clinic.redis.xrange(clinic.a.shards)]
    assert mending.acknowledge_deleted("a", entries) == 0
    assert mending.put_in_place("a", entries) == 0
    assert mending.sweep("a", [(key, is_over) for key in KEYS for is_over in (True, False)]) == 0
    assert {key: clinic.redis.dump(key) for key in sorted(clinic.redis.keys("{si}:a:*"))} == before


def test_a_place_where_there_is_nothing_stays_while_there_is_work(clinic: Clinic) -> None:
    clinic.redis.hset(clinic.a.places, QUEUED, "s1-1")
    assert clinic.wiring.examined.mending.sweep("a", [(QUEUED, False)]) == 0
    assert clinic.place(QUEUED) == "s1-1"


def test_a_failed_shard_without_its_letter_is_told(clinic: Clinic) -> None:
    (letter,) = (letter.entry for batch in clinic.wiring.letters.newest_first("a") for letter in batch)
    assert clinic.wiring.letters.purge("a", [letter]) == [True]
    verdict = clinic.wrong()["a: failed shards"].verdict
    assert list(verdict.examples) == [DEAD]
    assert "dlq replay" in verdict.to_do


def test_the_command_fixes_and_shows_what_it_did(clinic: Clinic) -> None:
    lose_the_group(clinic)
    leave_a_hostile_place_behind(clinic)
    ended = clinic.command("a", "--fix", "--json")
    shown = json.loads(ended.stdout)
    fixed = {one["check"]: one["fixed"] for one in shown["checks"] if one["fixed"]}
    assert fixed == {"group": "made", "places": "1 swept"}
    assert ended.returncode == 1, "there is a dead letter"
    assert {one["check"] for one in shown["checks"] if one["state"] == "wrong"} == {"dead letters"}
