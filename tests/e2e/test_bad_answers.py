"""An upstream that misbehaves, and people who put things right again."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable
from typing import Any

from .fleet import Fleet, wait_until

MakeFleet = Callable[..., Fleet]
PRODUCE = ("produce", "--shard-size", "500", "--page-size", "100", "--rate", "100/s", "--retry-delay", "100ms")


FAULTS: list[tuple[str, Any]] = [
    *((name, None) for name in ("empty_body", "null", "html", "error_body", "cut_json", "cut_body", "creation_order", "reset")),
    *(("status", code) for code in (500, 502, 520)),
    ("status", {"code": 429, "retry_after": "1"}),
    ("status", {"code": 503, "retry_after_date_s": 1}),
]


def test_bad_answers_now_and_then_change_nothing_in_the_end_and_cost_no_attempt(fleet: MakeFleet) -> None:
    one = fleet(points=1000, seed=21, odd_rate=0.0)
    one.run("produce", "--shard-size", "100", "--page-size", "20", "--rate", "100/s")
    for number, (fault, value) in enumerate(FAULTS):  # each at the first page of a shard of its own
        one.upstream.control.add_fault(fault, value, times=2, params={"greaterthanid": str(100 * number)})
    one.work(1)
    met = Counter(asked.fault for asked in one.asked() if asked.fault)
    assert met == Counter(fault for fault, _ in FAULTS for _ in range(2))
    one.expect_everything_once()
    assert all(row["attempts"] == 0 for row in one.db["import_windows"].find({}))
    requests = one.status()["requests"]
    assert (requests["failed"], requests["rate_limited"]) == (11 * 2, 2 * 2)


def test_rows_of_another_country_are_never_progress(fleet: MakeFleet) -> None:
    one = fleet(points=1000, seed=22)
    one.run("produce", "--country", "ES", "--page-size", "50", "--rate", "100/s")
    one.upstream.control.add_fault("filter_ignored", ["countryid"], times=2)
    one.work(1)
    assert one.stored_ids() == sorted(point.id for point in one.upstream.points.by_country[210])
    assert one.status()["requests"]["failed"] == 2


def test_a_shard_that_keeps_failing_is_tried_again_then_dead_lettered_and_can_be_replayed(fleet: MakeFleet) -> None:
    one = fleet(points=1000, seed=23)
    one.run(*PRODUCE, "--max-attempts", "2")
    broken = {"greaterthanid": "500"}
    one.upstream.control.add_fault("status", 500, times=None, params=broken)
    output = one.run("consume", "--until-empty", code=1)
    assert "1 shards were dead-lettered" in output
    asked = [asked for asked in one.asked() if asked.params["greaterthanid"] == "500"]
    assert len(asked) == 2 * 3  # two attempts of three tries
    status = one.status()
    assert (status["dead"], status["failed"], status["run"]["failed"]) == (1, 1, 1)
    letters = [json.loads(line) for line in one.run("dlq", "list", "--json").splitlines()]
    assert [(letter["shard"], letter["error"], letter["status"], letter["attempts"]) for letter in letters] == [
        ("ids:500..1000", "http_500", 500, 2)
    ]
    row = one.db["import_windows"].find_one({"shardKey": "ids:500..1000"})
    assert row is not None
    assert (row["status"], row["attempts"], row["lastErrorCode"]) == ("failed", 2, "http_500")
    assert "ids:500..1000" in one.run("dlq", "list")
    assert "1 failed" in one.run(*PRODUCE)  # produce leaves it alone

    one.upstream.control.clear_faults()
    assert "1 shards replayed" in one.run("dlq", "replay", "openchargemap", "ids:500..1000")
    assert "0 shards replayed" in one.run("dlq", "replay", "openchargemap", "--all")
    one.work(1)
    one.expect_everything_once()


def test_a_replayed_shard_goes_on_from_its_checkpoint(fleet: MakeFleet) -> None:
    one = fleet(points=1000, seed=24)
    one.run("produce", "--shard-size", "100000", "--page-size", "100", "--rate", "100/s", "--max-attempts", "1")
    stuck_at = str(one.upstream.control.ids()[299])
    one.upstream.control.add_fault("status", 404, times=1, params={"greaterthanid": stuck_at})
    one.run("consume", "--until-empty", code=1)
    assert one.status()["records"]["seen"] == 300
    one.run("dlq", "replay", "openchargemap", "--all")
    one.work(1)
    one.expect_everything_once()
    assert one.repeated() == 0


def test_a_refused_key_pauses_the_import_with_its_reason_and_resume_goes_on(fleet: MakeFleet) -> None:
    one = fleet(points=2000, seed=25)
    one.run(*PRODUCE)
    worker = one.start("consume", OCM_API_KEY="wrong-secret")
    worker.wait_for_line("import paused")
    wait_until(lambda: one.status()["leased"] == 0, "the shards to be given back")
    status = one.status()
    assert "403" in status["paused"]["reason"]
    assert status["dead"] == 0
    assert len(one.asked()) <= 4 * 2  # nobody goes on asking
    assert all(row["attempts"] == 0 for row in one.db["import_windows"].find({}))
    output = one.run("consume", "--until-empty", code=1)
    assert "paused" in output
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert "wrong-secret" not in worker.output

    one.run("resume", "openchargemap")
    one.work(1)
    one.expect_everything_once()


def test_pause_stops_the_fleet_at_once_and_resume_lets_it_go_on(fleet: MakeFleet) -> None:
    one = fleet(points=10_000, seed=26)
    one.run("produce", "--shard-size", "500", "--page-size", "100", "--rate", "30/s")
    worker = one.start("consume")
    wait_until(lambda: len(one.asked()) >= 5, "requests")
    one.run("pause", "--reason", "a look around")
    wait_until(lambda: one.status()["leased"] == 0, "the shards to be given back")
    asked = len(one.asked())
    status = one.status()
    assert status["paused"]["reason"] == "a look around"
    assert status["queued"] > 0
    assert len(one.asked()) == asked
    one.run("resume")
    wait_until(lambda: len(one.asked()) > asked, "requests after the resume")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_garbage_in_the_stream_is_dead_lettered_with_a_reason_and_the_rest_goes_on(fleet: MakeFleet) -> None:
    one = fleet(points=500, seed=27)
    one.run(*PRODUCE)
    stream = "{si}:openchargemap:shards"
    one.redis.xadd(stream, {"nonsense": "\x1b[2J"})
    one.redis.xadd(stream, {"v": "1", "shard": "{not json", "job": "x"})
    one.redis.xadd(stream, {"v": "one", "shard": "ids:0..10", "job": "x"})
    one.redis.xadd(stream, {"v": "1", "shard": "ids:7000000..7000010", "job": "x"})
    one.redis.xadd(stream, {b"\xff\xfe": b"\x00" * 20_000})
    one.run("consume", "--until-empty", code=1)
    letters = [json.loads(line) for line in one.run("dlq", "export", "--payload").splitlines()]
    assert sorted(letter["error"] for letter in letters) == ["garbage"] * 4 + ["unknown_shard"]
    assert all(letter["message"] and letter["shard"] == "" and len(letter["payload"]) <= 8192 for letter in letters)
    assert "\x1b" not in one.run("dlq", "list")
    assert "this is garbage" in one.run("dlq", "show", letters[0]["entry"], "--payload")
    assert "4 letters purged" in one.run("dlq", "purge", "openchargemap", "--filter", "error=garbage")
    assert "1 letters purged" in one.run("dlq", "purge", "openchargemap", "--all")
    assert one.run("dlq", "list").strip() == "openchargemap: no dead letters"
    assert one.stored_ids() == one.upstream.control.ids()
    assert one.redis.hlen("{si}:openchargemap:places") == 0


def test_messages_of_an_unknown_import_are_dead_lettered(fleet: MakeFleet) -> None:
    one = fleet(points=10)
    one.redis.xadd("{si}:nobody:shards", {"v": "1", "shard": "ids:0..10", "job": "x"})
    worker = one.start("consume", "nobody")
    worker.wait_for_line("garbage dead-lettered")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    letters: Any = one.redis.xrange("{si}:nobody:dead")
    assert [fields[b"error"] for _, fields in letters] == [b"unknown_import"]


def test_a_newer_message_is_given_back_and_told_of_once(fleet: MakeFleet) -> None:
    one = fleet(points=10)
    one.run("produce", "--rate", "100/s")
    for number in range(3):
        one.redis.xadd("{si}:openchargemap:shards", {"v": "2", "shard": f"new:{number}", "job": "x"})
    worker = one.start("consume")
    worker.wait_for_line("newer version")
    wait_until(lambda: one.status()["done"] == 1, "the shard of this version")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert sum("newer version" in line for line in worker.lines) == 1
    assert one.redis.xlen("{si}:openchargemap:shards") == 3
    assert one.status()["queued"] == 3
    assert one.status()["dead"] == 0


def test_records_that_cannot_be_stored_go_to_the_rejects_and_their_neighbours_go_on(fleet: MakeFleet) -> None:
    one = fleet(points=200, seed=28, odd_rate=0.0)
    ids = one.upstream.control.ids()
    kinds = ("nan", "infinity", "surrogate", "no_id", "huge", "nul_key", "big_int", "deep", "not_an_object")
    bad = {ids[10 * number + 5]: kind for number, kind in enumerate(kinds)}
    one.upstream.control.spoil(bad)
    one.run(*PRODUCE)
    one.work(1, seconds=120)
    assert one.stored_ids() == [identifier for identifier in ids if identifier not in bad]
    rejects = list(one.db["import_rejects"].find({}))
    assert len(rejects) == len(kinds)
    assert all(reject["reason"] and reject["shardKey"] and len(reject["record"]) <= 64 * 1024 for reject in rejects)
    records = one.status()["records"]
    assert (records["rejected"], records["inserted"], records["seen"]) == (len(kinds), 200 - len(kinds), 200)

    one.run("produce", "--again")
    one.work(1, seconds=120)
    assert one.db["import_rejects"].count_documents({}) == len(kinds)  # a repeated page adds none
