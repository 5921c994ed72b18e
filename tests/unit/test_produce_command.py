"""`produce`: which part of a source, what it would cost, how it waits, and what it prints."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from streams_importer.cli.produce_report import in_two_units
from streams_importer.domain.model import Checkpoint, Failure
from streams_importer.ports import Pause
from tests.fakes.source import ScriptedSource
from tests.unit.command_line import CommandLine, FakeBoard, FakeWiring

BOTH = {"REDIS_URL": "redis://environment", "MONGODB_URI": "mongodb://environment", "OCM_API_KEY": "key"}
UNTIL = datetime(2026, 2, 21, 10, tzinfo=UTC)
DAY = ["--from", "2026-02-21", "--to", "2026-02-22"]
IDS = ["--id-range", "0..30", "--shard-size", "10"]


def keys(wiring: FakeWiring) -> list[str]:
    return [key for _, key in wiring.ledger.rows]


def refused(command: CommandLine, *arguments: str) -> str:
    ended = command("produce", *arguments, **BOTH)
    assert ended.code == 2, ended
    assert ended.out == ""
    return ended.message


# Which part of the source.


@pytest.mark.parametrize(
    ("arguments", "planned"),
    [
        (["--bbox", "50,-10,60,0"], ["bbox:50.0,-10.0,60.0,0.0"]),
        (["--bbox=-20,175,-10,-175"], ["bbox:-20.0,175.0,-10.0,180.0", "bbox:-20.0,-180.0,-10.0,-175.0"]),
        (
            ["--bbox", "50, 0, 51, 1", "--grid", "0.5"],
            ["bbox:50.0,0.0,50.5,0.5", "bbox:50.0,0.5,50.5,1.0", "bbox:50.5,0.0,51.0,0.5", "bbox:50.5,0.5,51.0,1.0"],
        ),
        (DAY, ["window:2026-02-21T00:00:00Z..2026-02-22T00:00:00Z"]),
        (
            [*DAY, "--window", "12h"],
            ["window:2026-02-21T00:00:00Z..2026-02-21T12:00:00Z", "window:2026-02-21T12:00:00Z..2026-02-22T00:00:00Z"],
        ),
        (["--country", "DE", *DAY], ["country:DE|window:2026-02-21T00:00:00Z..2026-02-22T00:00:00Z"]),
        (["--bbox", "50,0,51,1", *DAY], ["bbox:50.0,0.0,51.0,1.0|window:2026-02-21T00:00:00Z..2026-02-22T00:00:00Z"]),
        (["--country", "FR", "--id-range", "0..20", "--shard-size", "10"], ["country:FR|ids:0..10", "country:FR|ids:10..20"]),
        (
            ["--country", "DE", "--bbox", "50,0,51,1", "--id-range", "0..5", *DAY],
            ["country:DE|bbox:50.0,0.0,51.0,1.0|ids:0..5|window:2026-02-21T00:00:00Z..2026-02-22T00:00:00Z"],
        ),
    ],
)
def test_every_axis_and_every_product_is_planned(command: CommandLine, wiring: FakeWiring, arguments: Any, planned: Any) -> None:
    assert command("produce", *arguments, **BOTH).code == 0
    assert keys(wiring) == planned
    assert {entry.shard_key for entry in wiring.fake_queue.store.entries.values()} == set(planned)


def test_a_box_is_echoed_in_words(command: CommandLine, wiring: FakeWiring) -> None:
    assert command("produce", "--bbox", "50,-10,60,0", **BOTH).err == "the box from 50.0°N 10.0°W to 60.0°N 0.0°E\n"
    over = command("produce", "--bbox=-20.5,175,-10,-175", "--grid", "2.5", **BOTH).err
    assert over == "the box from 20.5°S 175.0°E to 10.0°S 175.0°W over 180°, cut into 20 boxes\n"


def test_many_windows_of_an_upstream_without_an_end_of_time_are_told_what_they_cost(
    command: CommandLine, wiring: FakeWiring
) -> None:
    said = command("produce", *DAY, "--window", "1h", **BOTH).err
    assert "24 windows: this upstream cannot be asked for an end of time" in said
    assert "--id-range" in said
    assert "end of time" not in command("produce", *DAY, **BOTH).err


def test_an_upstream_with_an_end_of_time_has_no_such_cost(
    command: CommandLine, wiring: FakeWiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ScriptedSource, "has_upper_time_bound", True)
    assert "end of time" not in command("produce", *DAY, "--window", "1h", **BOTH).err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--bbox", "1,2,3"], "--bbox '1,2,3': is S,W,N,E in degrees"),
        (["--bbox", "a,b,c,d"], "--bbox 'a': is S,W,N,E"),
        (["--bbox", "60,0,50,10"], "the south edge must be below the north edge"),
        (["--bbox=-90,-180,90,180"], "cut it: --grid 10"),
        (["--bbox", "50,0,60,10", "--grid", "0"], "--grid 0: must be degrees above 0"),
        (["--bbox", "50,0,60,10", "--grid", "one"], "--grid 'one': is degrees"),
        (["--grid", "1"], "--grid cuts a box: give --bbox too"),
        (["--from", "2026-02-21"], "--from and --to go together"),
        (["--to", "2026-02-21"], "--from and --to go together"),
        (["--window", "1h"], "--window cuts a time into parts: give --from and --to"),
        (["--bbox", "47,5,55,1e999999999"], "--bbox '1e999999999': is S,W,N,E"),
        (["--bbox", "٤٧,5,55,15"], "is S,W,N,E"),
        (["--bbox", "50,180,60,-180"], "west and east must differ"),
        (["--from", "yesterday", "--to", "2026-02-21"], "--from 'yesterday': write a time"),
        (["--from", "2026-02-21", "--to", "2026-02-21"], "--to must be later than --from"),
        ([*DAY, "--window", "500ms"], "--window: must be whole seconds"),
        ([*DAY, "--window", "0s"], "--window: must be whole seconds"),
        (["--missing", *DAY], "--missing goes alone"),
        (["--missing", "--dry-run"], "--missing goes alone"),
        (["--dry-run", "--wait"], "--dry-run queues nothing that --wait could wait for"),
        (["--max-backlog", "0"], "--max-backlog 0: must be 1 or more"),
        (["--id-range", "0..1000001", "--shard-size", "1"], "that would be 1,000,001 shards"),
    ],
)
def test_what_cannot_be_is_one_line_and_queues_nothing(
    command: CommandLine, wiring: FakeWiring, arguments: list[str], why: str
) -> None:
    assert why in refused(command, *arguments)
    assert keys(wiring) == []


# What it would cost.


def test_a_dry_run_says_how_many_what_and_how_long_and_writes_nothing(command: CommandLine, wiring: FakeWiring) -> None:
    ended = command("produce", "--dry-run", "--id-range", "0..50000", "--rate", "10/m", **BOTH)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "openchargemap: 5 shards, nothing queued (--dry-run)",
        "- ids:0..10000",
        "- ids:10000..20000",
        "- ids:20000..30000",
        "- …",
        "at least 5 requests, 30 s at 10/m; each further page of 1,000 records is one more",
    ]
    assert wiring.ledger.rows == {}
    assert wiring.fake_queue.calls == []
    assert wiring.original.stored == wiring.copy.stored == {}
    assert wiring.ready == []


def test_a_dry_run_as_json(command: CommandLine, wiring: FakeWiring) -> None:
    ended = command("produce", "--dry-run", "--json", "--country", "DE,FR", **BOTH)
    assert json.loads(ended.out) == {
        "import": "openchargemap",
        "dry_run": True,
        "shards": 2,
        "least_requests": 2,
        "least_seconds": 2.0,
        "rate": "1/s",
        "samples": ["country:DE", "country:FR"],
    }


def test_ten_million_shards_can_be_asked_about_and_only_then_need_a_yes(command: CommandLine, wiring: FakeWiring) -> None:
    ten_million = ["--id-range", "0..10000000", "--shard-size", "1"]
    assert "10,000,000 shards" in command("produce", "--dry-run", *ten_million, **BOTH).out
    assert "add --yes" in refused(command, *ten_million)
    assert "115 d" in command("produce", "--dry-run", *ten_million, **BOTH).out


def test_yes_means_it(command: CommandLine, wiring: FakeWiring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams_importer.cli.produce.MANY_SHARDS", 2)
    assert "add --yes" in refused(command, *IDS)
    assert command("produce", "--yes", *IDS, **BOTH).code == 0
    assert len(keys(wiring)) == 3


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (0.4, "0 s"), (59, "59 s"), (60, "1 min"), (3725, "1 h 2 min"), (1e7, "115 d 17 h")]
)
def test_a_duration_is_said_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert in_two_units(seconds) == text


# What it prints.


def test_a_run_as_json(command: CommandLine, wiring: FakeWiring) -> None:
    command("produce", "--id-range", "0..10", "--shard-size", "10", **BOTH)
    printed = json.loads(command("produce", "--json", *IDS, **BOTH).out)
    assert printed == {
        "import": "openchargemap",
        "run": wiring.original.runs["openchargemap"],
        "planned": 3,
        "queued": 2,
        "in_flight": 1,
        "done": 0,
        "failed": 0,
        "cancelled": 0,
        "other": 0,
    }


# How it waits.


class Workers:
    """Complete one shard whenever somebody looks, from a certain look on."""

    def __init__(self, wiring: FakeWiring, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wiring = wiring
        self.most_in_flight = 0
        self.slept: list[float] = []
        self.act = self.complete_one
        monkeypatch.setattr("streams_importer.cli.produce.time.sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        assert len(self.slept) < 1000, "waits for ever"
        self.most_in_flight = max(self.most_in_flight, len(self.wiring.fake_queue.store.entries))
        self.act()

    def complete_one(self) -> None:
        for lease in self.wiring.fake_queue.claim(["openchargemap"], 1).leases:
            self.wiring.ledger.start([lease], UNTIL)
            self.wiring.ledger.finish([(lease, lease.checkpoint, "done", 0, None)])
            self.wiring.fake_queue.complete([(lease, lease.checkpoint)])

    def bury_one(self) -> None:
        for lease in self.wiring.fake_queue.claim(["openchargemap"], 1).leases:
            failure = Failure("http_400", "answered 400", 400)
            self.wiring.ledger.start([lease], UNTIL)
            self.wiring.ledger.finish([(lease, lease.checkpoint, "failed", 1, failure)])
            self.wiring.fake_queue.dead_letter(lease, Checkpoint(), failure, 1)


@pytest.fixture
def workers(wiring: FakeWiring, monkeypatch: pytest.MonkeyPatch) -> Workers:
    return Workers(wiring, monkeypatch)


def test_a_full_backlog_is_waited_for_and_shown_and_nothing_is_dropped(
    command: CommandLine, wiring: FakeWiring, workers: Workers
) -> None:
    ended = command("produce", "--id-range", "0..50", "--shard-size", "1", "--max-backlog", "10", **BOTH)
    assert "50 shards queued of 50" in ended.out
    assert "waiting for workers: 10 shards are in flight (--max-backlog)" in ended.err
    assert workers.most_in_flight == 10
    assert len(wiring.fake_queue.store.entries) + wiring.fake_queue.store.counters["done"] == 50


def test_the_last_shard_is_not_followed_by_a_wait_for_room(command: CommandLine, wiring: FakeWiring, workers: Workers) -> None:
    assert command("produce", *IDS, "--max-backlog", "3", **BOTH).code == 0
    assert workers.slept == []


def test_the_backlog_is_a_setting(command: CommandLine, wiring: FakeWiring, workers: Workers) -> None:
    command.write_file("max_backlog = 1\n")
    command("produce", *IDS, **BOTH)
    assert workers.most_in_flight == 1
    workers.slept.clear()
    command("produce", "--id-range", "30..60", "--shard-size", "10", **BOTH, STREAMS_IMPORTER_MAX_BACKLOG="100")
    assert workers.slept == []


def test_wait_ends_when_the_workers_are_done(command: CommandLine, wiring: FakeWiring, workers: Workers) -> None:
    ended = command("produce", "--wait", *IDS, **BOTH)
    assert ended.code == 0
    assert wiring.fake_queue.store.entries == {}
    assert ended.out.splitlines()[1].startswith("openchargemap: 30 inserted after ")
    printed = json.loads(command("produce", "--wait", "--again", "--json", *IDS, **BOTH).out)
    assert printed["problem"] is None
    assert printed["queued"] == 3


def test_wait_is_1_when_a_shard_was_dead_lettered_meanwhile(command: CommandLine, wiring: FakeWiring, workers: Workers) -> None:
    workers.act = workers.bury_one
    ended = command("produce", "--wait", *IDS, **BOTH)
    assert ended.code == 1
    assert "3 shards were dead-lettered; see: streams-importer dlq list" in ended.err
    workers.act = workers.complete_one
    assert command("produce", "--wait", "--id-range", "30..40", **BOTH).code == 0  # those from before do not count


def test_wait_does_not_wait_for_what_is_paused(command: CommandLine, wiring: FakeWiring, workers: Workers) -> None:
    def pause() -> None:
        wiring.imports.pause("openchargemap", Pause("the key was refused", "w:1", "2026-02-21T10:00:00Z"))

    workers.act = pause
    ended = command("produce", "--wait", *IDS, **BOTH)
    assert ended.code == 1
    assert "openchargemap is paused: the key was refused" in ended.err


def test_a_wait_that_is_interrupted_says_that_nothing_is_lost(command: CommandLine, wiring: FakeWiring, workers: Workers) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    workers.act = interrupt
    ended = command("produce", "--wait", *IDS, **BOTH)
    assert ended.code == 130
    assert "stays queued" in ended.err
    assert len(wiring.fake_queue.store.entries) == 3


def test_a_full_backlog_of_a_paused_import_says_why_nothing_moves(
    command: CommandLine, wiring: FakeWiring, workers: Workers
) -> None:
    def pause_then_resume() -> None:
        is_paused = "openchargemap" in wiring.imports.paused()
        wiring.imports.pause("openchargemap", None if is_paused else Pause("for lunch", "ops", "2026-02-21T12:00:00Z"))
        workers.complete_one()

    workers.act = pause_then_resume
    ended = command("produce", *IDS, "--max-backlog", "1", **BOTH)
    assert ended.code == 0
    command("produce", "--id-range", "30..40", **BOTH)
    workers.slept.clear()
    wiring.imports.pause("openchargemap", Pause("for lunch", "ops", "2026-02-21T12:00:00Z"))
    said = command("produce", "--id-range", "40..50", "--max-backlog", "1", **BOTH).err
    assert "openchargemap is paused (for lunch); go on with: streams-importer resume openchargemap" in said


def test_a_produce_that_is_interrupted_while_it_waits_for_room_says_how_to_go_on(
    command: CommandLine, wiring: FakeWiring, workers: Workers
) -> None:
    def interrupt() -> None:
        assert wiring.fake_queue.store.produced == {"openchargemap"}
        raise KeyboardInterrupt

    workers.act = interrupt
    ended = command("produce", *IDS, "--max-backlog", "1", **BOTH)
    assert ended.code == 130
    assert "the same command queues the rest" in ended.err
    assert wiring.fake_queue.store.produced == set()


def test_wait_says_what_was_cancelled_meanwhile(
    command: CommandLine, wiring: FakeWiring, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, cancelled = FakeBoard.read, [0]
    monkeypatch.setattr(
        FakeBoard, "read", lambda self, names: {k: replace(v, cancelled=cancelled[0]) for k, v in read(self, names).items()}
    )

    def cancel_one() -> None:
        workers.complete_one()
        cancelled[0] += 1

    workers.act = cancel_one
    assert "; 3 shards were cancelled meanwhile" in command("produce", "--wait", *IDS, **BOTH).out


def test_wait_without_a_worker_says_how_to_start_one(
    command: CommandLine, wiring: FakeWiring, workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "live_leases", dict)
    monkeypatch.setattr("streams_importer.cli.produce_progress.WAITING_LINE_EVERY_S", 0.0)
    assert "start one: streams-importer consume" in command("produce", "--wait", *IDS, **BOTH).err


def test_wait_does_not_wait_for_a_ledger_row_that_nobody_can_run(
    command: CommandLine, wiring: FakeWiring, workers: Workers
) -> None:
    wiring.ledger.plan("openchargemap", ["no shard at all"], "run0")
    assert command("produce", "--wait", *IDS, **BOTH).code == 0
    assert "1 left alone" in command("produce", "--missing", **BOTH).out
