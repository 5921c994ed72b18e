"""Single shards of a live fleet: seen with their leases, taken back in every state, and brought back again."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

from .fleet import Fleet, Process, wait_until

MakeFleet = Callable[..., Fleet]
PRODUCE = ("produce", "--id-range", "0..2000", "--shard-size", "500", "--page-size", "20", "--rate", "1000/s")
RUNNING, FAILING, QUEUED = "ids:0..500", "ids:500..1000", "ids:1500..2000"


def row(one: Fleet, shard: str) -> dict[str, Any]:
    found = one.db["import_windows"].find_one({"shardKey": shard})
    assert found is not None
    return found


def listed(one: Fleet, *options: str) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in one.run("shards", "list", "--json", *options).splitlines()]
    return {row["shard"]: row for row in rows}


def busy_fleet(fleet: MakeFleet) -> tuple[Fleet, Process]:
    """A worker in the middle of one shard, with another one delayed and the rest waiting."""
    one = fleet(points=2000, seed=41, odd_rate=0.0)
    one.run(*PRODUCE, "--retry-delay", "1h")
    one.upstream.control.add_fault("status", 500, times=3, params={"greaterthanid": "500"})
    one.upstream.control.add_fault("slow", 1.0, times=None)
    worker = one.start("consume", "-c", "2", "--name", "tester")
    wait_until(lambda: row(one, FAILING)["attempts"] == 1, "the failing shard to be delayed")
    wait_until(lambda: row(one, RUNNING)["page"] >= 1, "a stored page")
    return one, worker


def expect_counters_of_the_ledger(one: Fleet) -> dict[str, Any]:
    status, rows = one.status(), list(one.db["import_windows"].find({}))
    assert status["total"] == len(rows)
    assert {state: status[state] for state in one.shard_states()} == one.shard_states()
    for name in ("seen", "inserted", "updated", "unchanged", "stale", "rejected"):
        assert status["records"][name] == sum(row["counts"][name] for row in rows), name
    return status


def test_shards_of_a_running_fleet_are_cancelled_in_every_state_and_brought_back_by_again(fleet: MakeFleet) -> None:
    one, worker = busy_fleet(fleet)
    shards = listed(one)
    assert {shards[key]["status"] for key in (RUNNING, FAILING, QUEUED)} == {"leased", "delayed", "queued"}
    assert shards[RUNNING]["worker"].startswith("tester:")
    assert 0 < shards[RUNNING]["lease_left_s"] <= 15
    assert 1000 < shards[FAILING]["comes_back_s"] <= 3600
    assert (shards[FAILING]["error"]["code"], shards[FAILING]["attempts"]) == ("http_500", 1)
    assert "tester:" in one.run("shards", "show", "openchargemap", RUNNING)

    before = {key: row(one, key)["status"] for key in (FAILING, QUEUED)}
    assert "would cancel 4 shards" in one.run("shards", "cancel", "openchargemap", "--all", "--dry-run")
    assert {key: row(one, key)["status"] for key in (FAILING, QUEUED)} == before

    said = one.run("shards", "cancel", "openchargemap", RUNNING, FAILING, QUEUED)
    assert "3 shards cancelled (1 queued, 1 leased, 1 delayed)" in said
    assert RUNNING in worker.wait_for_line("shard cancelled")
    page = row(one, RUNNING)["page"]
    one.upstream.control.clear_faults()
    wait_until(lambda: one.shard_states() == Counter(done=1, cancelled=3), "the worker to go on with the rest")
    wait_until(lambda: one.redis.hlen("{si}:openchargemap:places") == 0, "all to be settled")
    assert (row(one, RUNNING)["page"], row(one, RUNNING)["attempts"], row(one, FAILING)["attempts"]) == (page, 0, 1)
    assert not any("warning" in line.lower() or "lease lost" in line for line in worker.lines if RUNNING in line)
    status = expect_counters_of_the_ledger(one)
    assert (status["cancelled"], status["queued"], status["leased"], status["delayed"]) == (3, 0, 0, 0)
    assert status["run"]["finished"] is not None

    assert "3 cancelled" in one.run(*PRODUCE)
    assert one.shard_states() == Counter(done=1, cancelled=3)
    one.run(*PRODUCE, "--again")
    wait_until(lambda: one.shard_states() == Counter(done=4), "the new round")
    wait_until(lambda: one.redis.hlen("{si}:openchargemap:places") == 0, "all to be settled")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert one.stored_ids() == [identifier for identifier in one.upstream.control.ids() if identifier <= 2000]
    assert expect_counters_of_the_ledger(one)["cancelled"] == 0


def test_a_cancellation_cut_short_is_healed_by_the_next_claim_and_what_redis_lost_can_be_cancelled(fleet: MakeFleet) -> None:
    one = fleet(points=2000, seed=42)
    one.run(*PRODUCE)
    # The command was killed between its two writes: the ledger has heard of it and Redis has not.
    one.db["import_windows"].update_one({"shardKey": FAILING}, {"$set": {"status": "cancelled"}})
    place: Any = one.redis.hget("{si}:openchargemap:places", QUEUED)
    one.redis.xdel("{si}:openchargemap:shards", place[1:])
    assert one.redis.hdel("{si}:openchargemap:places", QUEUED) == 1
    assert [key for key, shard in listed(one, "--status", "queued").items() if shard["nowhere"]] == [QUEUED]
    worker = one.start("consume")
    wait_until(lambda: one.redis.hlen("{si}:openchargemap:places") == 0, "all to be settled")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert one.run("shards", "cancel", "openchargemap", QUEUED).startswith("openchargemap: 1 shards cancelled (1 queued)")
    assert one.shard_states() == Counter(done=2, cancelled=2)
    assert expect_counters_of_the_ledger(one)["total"] == 4
