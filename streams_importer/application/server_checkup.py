"""What is right and wrong with the two servers. Pure: judged on what they tell of themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .checkup import Facts, Sample, Verdict, many, ok, unknown, wrong

ALMOST = 0.9
"""A server that has used this much of what it may use stops soon."""
FULL_DISK = 0.95
"""Disks are large, and shared."""
OLDEST_REDIS = (6, 2)
OLDEST_MONGODB = (4, 2)


# Redis.


def redis_version(facts: Facts) -> Verdict:
    return _version(facts, "redis_version", OLDEST_REDIS)


def eviction(facts: Facts) -> Verdict:
    policy = facts.text("maxmemory_policy")
    if policy is None:
        return facts.untold("its maxmemory-policy")
    if policy == "noeviction":
        return ok(policy)
    if policy.startswith("volatile-"):
        return ok(f"{policy}: of ours it can drop only cached look-ups, since nothing else of ours expires")
    return wrong(
        f"{policy}: a full Redis drops queued work without a word",
        "redis-cli CONFIG SET maxmemory-policy noeviction (and in its configuration file, or in the provider's console)",
    )


def memory(facts: Facts) -> Verdict:
    used, limit = facts.number("used_memory"), facts.number("maxmemory")
    if used is None:
        return facts.untold("how much memory it uses")
    if not limit:
        return unknown(f"{_megabytes(used)} used; the server tells no limit (maxmemory), so nobody knows how much is left")
    share = f"{_megabytes(used)} of {_megabytes(limit)} used"
    if used <= ALMOST * limit:
        return ok(share)
    return wrong(f"{share}: soon nothing more can be queued", "give it more memory: redis-cli CONFIG SET maxmemory …")


def persistence(facts: Facts) -> Verdict:
    """INFO does not tell whether snapshots are on; CONFIG does, where it is permitted."""
    has_log, snapshots = facts.text("aof_enabled"), facts.text("save")
    if has_log == "1":
        if facts.text("aof_last_write_status") in (None, "ok"):
            return ok("append-only file")
        return wrong("the append-only file cannot be written: is the disk full?", "look into the log of Redis")
    if snapshots or facts.text("rdb_last_bgsave_status") == "err":
        if facts.text("rdb_last_bgsave_status") in (None, "ok"):
            return ok("snapshots: a crash takes the last minutes; workers heal that from the ledger")
        return wrong("the last snapshot failed: is the disk full?", "look into the log of Redis")
    if has_log is None or snapshots is None:
        return facts.untold("whether it writes to disk")
    return wrong(
        "neither append-only file nor snapshots: a restart forgets what is queued, until workers heal it from the ledger",
        "redis-cli CONFIG SET appendonly yes (and in its configuration file)",
    )


def role(facts: Facts) -> Verdict:
    told = facts.text("role")
    if told is None:
        return facts.untold("its role")
    if told == "master":
        return ok("primary")
    return wrong(f"{told} of {facts.text('master_host') or 'another server'}: takes no writes", "name the primary in --redis-url")


def clients(facts: Facts) -> Verdict:
    return _connections(facts, facts.number("connected_clients"), facts.number("maxclients"))


# MongoDB.


def mongodb_version(facts: Facts) -> Verdict:
    return _version(facts, "version", OLDEST_MONGODB)


def replica_set(facts: Facts) -> Verdict:
    if facts.text("msg") == "isdbgrid":
        return ok("a sharded cluster")
    name, members = facts.text("setName"), facts.number("members") or 0
    if name is not None:
        return ok(f"{name}, {many(int(members), 'member')}")
    if "hello" in facts.hidden:
        return facts.untold("whether it is a replica set")
    return wrong(
        "a single server: what was confirmed may be lost when it fails",
        "start it as a replica set (mongod --replSet rs0), then: mongosh --eval 'rs.initiate()'",
    )


def mongodb_connections(facts: Facts) -> Verdict:
    current, free = facts.number("connections_current"), facts.number("connections_available")
    return _connections(facts, current, None if current is None or free is None else current + free)


def storage(facts: Facts) -> Verdict:
    used, total = facts.number("fsUsedSize"), facts.number("fsTotalSize")
    if not total or used is None:
        return facts.untold("how full its disk is")
    share = f"{used / 1e9:,.1f} GB of {total / 1e9:,.1f} GB used"
    if used <= FULL_DISK * total:
        return ok(share)
    return wrong(f"{share}: soon nothing more can be stored", "give MongoDB more disk")


def indexes(missing: Sequence[str]) -> Verdict:
    sample = Sample()
    sample.add(missing)
    if not missing:
        return ok("all there")
    return wrong(f"{many(sample.number, 'index', 'indexes')} missing", "streams-importer setup", sample)


# Both.


def _version(facts: Facts, name: str, oldest: tuple[int, int]) -> Verdict:
    told = facts.text(name)
    if told is None:
        return facts.untold("its version")
    found = re.match(r"(\d{1,4})\.(\d{1,4})", told)
    if not found:
        return unknown(f"{told}: not a version that we can read")
    wanted = ".".join(map(str, oldest))
    return ok(told) if (int(found[1]), int(found[2])) >= oldest else wrong(f"{told} is too old", f"install {wanted} or newer")


def _connections(facts: Facts, current: float | None, most: float | None) -> Verdict:
    if current is None or not most:
        return facts.untold("how many connections it takes")
    share = f"{current:,.0f} of {most:,.0f} connections used"
    if current <= ALMOST * most:
        return ok(share)
    return wrong(f"{share}: soon no worker can connect", "allow more connections, or run fewer and larger workers (consume -c)")


def _megabytes(number: float) -> str:
    return f"{number / 1e6:,.1f} MB"
