"""`shards list`, `show` and `cancel` as they are typed, on stores in memory."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from streams_importer.domain.definition import Definition
from streams_importer.domain.model import Checkpoint, Counts, Failure
from streams_importer.ports import QueuedShard
from tests.unit.command_line import CommandLine, FakeWiring

BOTH = {"REDIS_URL": "redis://environment", "MONGODB_URI": "mongodb://environment"}
KEYS = ["ids:0..10", "ids:10..20", "ids:20..30"]
LEASED, DELAYED, QUEUED = KEYS


@pytest.fixture
def stations(wiring: FakeWiring) -> FakeWiring:
    """One import with a shard leased, one delayed and one queued."""
    wiring.original.save(Definition("stations"), "run")
    rows, _ = wiring.ledger.plan("stations", KEYS, "run")
    queue = wiring.fake_queue
    queue.enqueue("stations", [QueuedShard(key, rows[key].job) for key in KEYS], "run")
    _, second = leases = queue.claim(["stations"], 2).leases
    wiring.ledger.start(leases, datetime(2026, 2, 21, 10, tzinfo=UTC))
    somewhere = Checkpoint(2, 7, Counts(inserted=1234, requests_ok=2))
    wiring.ledger.put_back([(second, somewhere, 3, Failure("http_502", "answered\x1b[2J 502", 502))])
    queue.retry(second, somewhere, 60, 3)
    return wiring


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_list_is_a_table_or_one_json_object_a_line(command: CommandLine, stations: FakeWiring) -> None:
    ended = command("shards", "list", **BOTH)
    assert (ended.code, ended.err) == (0, "")
    words = " ".join(ended.out.split())
    assert f"{LEASED} leased 0 0 w:1, 15 s left {DELAYED} delayed 3 1,234 back in 60 s http_502 {QUEUED} queued" in words
    assert "\x1b" not in ended.out
    rows = rows_of(command("shards", "list", "stations", "--json", **BOTH).out)
    assert [(row["shard"], row["status"], row["worker"], row["comes_back_s"]) for row in rows] == [
        (LEASED, "leased", "w:1", None),
        (DELAYED, "delayed", None, 60.0),
        (QUEUED, "queued", None, None),
    ]


def test_a_list_is_narrowed_by_status_filter_and_limit(command: CommandLine, stations: FakeWiring) -> None:
    def keys(*options: str) -> list[str]:
        return [row["shard"] for row in rows_of(command("shards", "list", "--json", *options, **BOTH).out)]

    assert keys("--status", "queued", "--status", "delayed") == [DELAYED, QUEUED]
    assert keys("--filter", "shard=*0..20") == [DELAYED]
    assert keys("--filter", "error=http_*", "--filter", "attempts=3") == [DELAYED]
    assert keys("--limit", "1") == [LEASED]
    ended = command("shards", "list", "--limit", "1", **BOTH)
    assert "1 shown, there are more" in ended.err
    assert QUEUED not in ended.out
    assert command("shards", "list", "--status", "done", **BOTH).out == "stations: no such shards\n"


def test_an_import_without_shards_says_so(command: CommandLine, wiring: FakeWiring) -> None:
    wiring.original.save(Definition("stations"), "run")
    assert command("shards", "list", **BOTH).out == "stations: no shards\n"
    assert command("shards", "list", "--json", **BOTH).out == ""


def test_show_tells_everything_as_text_or_json(command: CommandLine, stations: FakeWiring) -> None:
    shown = " ".join(command("shards", "show", DELAYED, **BOTH).out.split())
    for part in (DELAYED, "delayed", "in 60.0 s", "http_502 (HTTP 502): answered", "seen 1,234", "made 2", "cursor 7", "run run"):
        assert part in shown, part
    assert "\x1b" not in shown
    ended = command("shards", "show", "stations", LEASED, "--json", **BOTH)
    assert json.loads(ended.out)["lease_left_s"] == 15.0


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("ids:0..1", "stations has no shard 'ids:0..1'; near it: ids:0..10, ids:10..20, ids:20..30"),
        ("country:DE", "stations has no shard 'country:DE'; shards list shows what is there"),
    ],
)
def test_an_unknown_shard_is_exit_2_with_what_is_near(command: CommandLine, stations: FakeWiring, key: str, told: str) -> None:
    ended = command("shards", "show", key, **BOTH)
    assert (ended.code, ended.message) == (2, told)


def test_cancel_says_what_it_did_and_what_it_left(command: CommandLine, stations: FakeWiring) -> None:
    ended = command("shards", "cancel", "stations", LEASED, QUEUED, **BOTH)
    assert (ended.code, ended.out) == (0, "stations: 2 shards cancelled (1 queued, 1 leased)\n")
    ended = command("shards", "cancel", "stations", LEASED, DELAYED, "ids:0..1", **BOTH)
    assert ended.out == "stations: 1 shards cancelled (1 delayed), 1 left alone (1 cancelled)\n"
    assert (ended.code, ended.message.split(";")[0]) == (2, "stations has no shard 'ids:0..1'")
    assert {row.status for row in stations.ledger.rows.values()} == {"cancelled"}
    assert command("shards", "cancel", "stations", "--all", **BOTH).out == "stations: 0 shards cancelled\n"
    assert "way back" in command("shards", "show", LEASED, **BOTH).out


def test_a_dry_run_says_what_would_be_cancelled_and_changes_nothing(command: CommandLine, stations: FakeWiring) -> None:
    before = dict(stations.ledger.rows)
    ended = command("shards", "cancel", "stations", "--all", "--dry-run", **BOTH)
    assert ended.out == "stations: would cancel 3 shards (1 queued, 1 leased, 1 delayed)\n"
    shown = json.loads(command("shards", "cancel", "stations", "--status", "leased", "--dry-run", "--json", **BOTH).out)
    assert shown == {
        "import": "stations",
        "dry_run": True,
        "cancelled": 1,
        "by_status": {"queued": 0, "leased": 1, "delayed": 0},
        "left": {},
        "unknown": [],
    }
    assert stations.ledger.rows == before
    assert len(stations.fake_queue.store.places) == 3
