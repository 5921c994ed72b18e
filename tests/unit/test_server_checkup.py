"""What `doctor` thinks of a server, from what that tells of itself; and what it does not tell is never taken for right."""

from __future__ import annotations

from typing import Any

import pytest

from streams_importer.application import server_checkup as judge
from streams_importer.application.checkup import MAX_EXAMPLES, OK, UNKNOWN, WRONG, Facts, Sample, Verdict
from streams_importer.application.doctor import MONGODB_CHECKS, REDIS_CHECKS


def judged(check: Any, **told: Any) -> tuple[str, str]:
    verdict: Verdict = check(Facts(told))
    return verdict.state, verdict.found


@pytest.mark.parametrize(("version", "state"), [("6.2.14", OK), ("7.0.15", OK), ("6.0.16", WRONG), ("10.1", OK), ("?", UNKNOWN)])
def test_a_redis_without_xautoclaim_is_too_old(version: str, state: str) -> None:
    assert judged(judge.redis_version, redis_version=version)[0] == state


@pytest.mark.parametrize(
    ("policy", "state"), [("noeviction", OK), ("allkeys-lru", WRONG), ("allkeys-random", WRONG), ("volatile-lru", OK)]
)
def test_a_redis_that_may_drop_our_keys_is_wrong(policy: str, state: str) -> None:
    verdict = judge.eviction(Facts({"maxmemory_policy": policy}))
    assert verdict.state == state
    assert ("CONFIG SET maxmemory-policy noeviction" in verdict.to_do) == (state == WRONG)


def test_memory_is_judged_against_the_limit_when_there_is_one() -> None:
    assert judged(judge.memory, used_memory=89, maxmemory=100)[0] == OK
    assert judged(judge.memory, used_memory=91, maxmemory=100)[0] == WRONG
    assert judged(judge.memory, used_memory=10, maxmemory=0)[0] == UNKNOWN
    assert judged(judge.memory, used_memory=10)[0] == UNKNOWN
    assert judged(judge.memory, maxmemory=10)[0] == UNKNOWN


@pytest.mark.parametrize(
    ("told", "state"),
    [
        ({"aof_enabled": 1, "aof_last_write_status": "ok", "save": ""}, OK),
        ({"aof_enabled": 1, "aof_last_write_status": "err"}, WRONG),
        ({"aof_enabled": 0, "save": "3600 1", "rdb_last_bgsave_status": "ok"}, OK),
        ({"aof_enabled": 0, "save": "3600 1", "rdb_last_bgsave_status": "err"}, WRONG),
        ({"aof_enabled": 0, "rdb_last_bgsave_status": "err"}, WRONG),
        ({"aof_enabled": 0, "save": ""}, WRONG),
        ({"aof_enabled": 0}, UNKNOWN),
        ({"save": ""}, UNKNOWN),
    ],
)
def test_a_redis_that_keeps_nothing_on_disk_is_wrong(told: dict[str, Any], state: str) -> None:
    assert judged(judge.persistence, **told)[0] == state


def test_a_replica_takes_no_writes() -> None:
    assert judged(judge.role, role="master")[0] == OK
    state, found = judged(judge.role, role="slave", master_host="10.0.0.1\x1b[2J")
    assert state == WRONG
    assert "10.0.0.1 [2J" in found


@pytest.mark.parametrize(("current", "most", "state"), [(9, 10, OK), (10, 10, WRONG), (1, 0, UNKNOWN), (1, None, UNKNOWN)])
def test_connections_must_be_left_for_workers(current: int, most: int | None, state: str) -> None:
    assert judged(judge.clients, connected_clients=current, maxclients=most)[0] == state
    free = None if most is None else most - current
    if most != 0:
        assert judged(judge.mongodb_connections, connections_current=current, connections_available=free)[0] == state


def test_a_mongodb_must_be_a_replica_set_or_a_cluster() -> None:
    assert judged(judge.replica_set, setName="rs0", members=3) == (OK, "rs0, 3 members")
    assert judged(judge.replica_set, msg="isdbgrid")[0] == OK
    assert judged(judge.replica_set)[0] == WRONG
    assert judge.replica_set(Facts({}, {"hello": "not permitted"})).state == UNKNOWN


def test_an_old_or_full_mongodb_is_wrong() -> None:
    assert judged(judge.mongodb_version, version="4.0.1")[0] == WRONG
    assert judged(judge.mongodb_version, version="6.0.5")[0] == OK
    assert judged(judge.storage, fsUsedSize=96, fsTotalSize=100)[0] == WRONG
    assert judged(judge.storage, fsUsedSize=90, fsTotalSize=100)[0] == OK
    assert judged(judge.storage, fsUsedSize=90)[0] == UNKNOWN


def test_missing_indexes_are_named() -> None:
    assert judge.indexes([]).state == OK
    verdict = judge.indexes(["pois.externalId_1"])
    assert (verdict.state, verdict.to_do, verdict.examples) == (WRONG, "streams-importer setup", ("pois.externalId_1",))


@pytest.mark.parametrize("check", [*REDIS_CHECKS.values(), *MONGODB_CHECKS.values()])
def test_what_a_hosted_server_does_not_tell_is_unknown_with_the_reason(check: Any) -> None:
    verdict = check(Facts({}, {"INFO": "NOPERM\x1b[2J", "hello": "no"}))
    assert verdict.state == UNKNOWN
    assert "INFO: NOPERM [2J" in verdict.found


@pytest.mark.parametrize("check", [*REDIS_CHECKS.values(), *MONGODB_CHECKS.values()])
@pytest.mark.parametrize("value", ["", "x", None, [], {}, True, float("nan"), "-1", -5])
def test_whatever_a_server_tells_is_judged_without_a_traceback(check: Any, value: Any) -> None:
    names = "redis_version maxmemory_policy used_memory maxmemory aof_enabled save role connected_clients maxclients version "
    names += "setName members fsUsedSize fsTotalSize connections_current connections_available"
    assert check(Facts(dict.fromkeys(names.split(), value))).state in (OK, WRONG, UNKNOWN)


def test_a_sample_keeps_a_few_of_many_and_only_what_may_be_shown() -> None:
    sample = Sample()
    sample.add(f"\x1b[2Jname{number % 1000}" for number in range(100_000))
    assert (sample.number, len(sample.examples)) == (100_000, MAX_EXAMPLES)
    assert sample.examples[0] == "[2Jname0"
