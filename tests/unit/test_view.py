"""What a person sees: every number, in eighty columns, and nothing that data could do to the terminal."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

from streams_importer.application.snapshot import ImportStatus, RunStatus, Snapshot, WorkerStatus
from streams_importer.console.view import render
from streams_importer.ports import Pause

HOSTILE = "[/]\x1b[2J\nfake\x07\u202e[bold]"
NO_RECORDS = {"inserted": 0, "updated": 0, "unchanged": 0, "stale": 0, "rejected": 0}
NO_REQUESTS = {"ok": 0, "rate_limited": 0, "failed": 0}
IDLE = ImportStatus(0, 0, 0, 0, 0, 0, 0, 0, 0, None, NO_RECORDS, NO_REQUESTS, None, 0, limit="1/s")
BUSY = ImportStatus(
    queued=1201,
    leased=42,
    delayed=33,
    dead=24,
    done=4125,
    failed=25,
    split=0,
    cancelled=0,
    total=5426,
    run=RunStatus("20260221T100000Z-3f", "2026-02-21T10:00:00Z", None, 5426, 4125, 25),
    records={"inserted": 11_001, "updated": 12_002, "unchanged": 13_003, "stale": 1_404, "rejected": 155},
    requests={"ok": 6001, "rate_limited": 702, "failed": 83},
    since="2026-02-21T10:00:00Z",
    dead_lettered=24,
    limit="10/s",
)
BUSY_NUMBERS = ["1,201", "42", "33", "24", "4,125", "25", "4,125/5,426", "37,565", "11,001", "12,002", "13,003", "1,404", "155",
                "6,786", "10/s"]  # fmt: skip
WORKER = WorkerStatus("worker.1:ab12cd34", ["openchargemap"], 4, 0.4, 1234.5)


def shown(what: RenderableType, width: int = 80, *, colours: bool = False) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width, force_terminal=colours, color_system="standard" if colours else None).print(what)
    return stream.getvalue()


def words(what: RenderableType, width: int = 80) -> str:
    """All on one line, blanks collapsed: what is said, wherever it wraps."""
    return " ".join(shown(what, width).split())


def snapshot(status: ImportStatus, *workers: WorkerStatus, held: float = 0.0, name: str = "openchargemap") -> Snapshot:
    return Snapshot({name: status}, list(workers), {name: held})


def test_with_nothing_there_it_says_how_to_start() -> None:
    assert "streams-importer produce" in words(render(Snapshot()))


def test_an_import_without_a_run_or_workers_says_so() -> None:
    text = words(render(snapshot(IDLE)))
    assert "no run yet" in text
    assert "No workers. Start one with: streams-importer consume" in text


@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_busy_import_shows_every_number(width: int) -> None:
    text = words(render(snapshot(BUSY, WORKER)), width)
    for number in [*BUSY_NUMBERS, "1,234", "0.4 s ago", "worker.1:ab12cd34", "openchargemap"]:
        assert number in text, number
    assert "…" not in text


def test_the_words_for_the_states_are_those_of_the_contract() -> None:
    text = words(render(snapshot(BUSY, WORKER)))
    for word in (
        "queued",
        "leased",
        "delayed",
        "dead",
        "done",
        "failed",
        "seen",
        "inserted",
        "updated",
        "unchanged",
        "stale",
        "rejected",
    ):
        assert word in text, word


def test_no_line_is_wider_than_the_terminal() -> None:
    for line in shown(render(snapshot(BUSY, WORKER))).splitlines():
        assert len(line) <= 80


@pytest.mark.parametrize("width", [80, 120])
def test_an_import_of_hundreds_of_millions_still_shows_every_number(width: int) -> None:
    huge = replace(
        BUSY,
        done=9_876_543,
        records={"inserted": 123_456_789, "updated": 234_567_891, "unchanged": 345_678_912, "stale": 456, "rejected": 567},
        requests={"ok": 12_345_678, "rate_limited": 0, "failed": 0},
    )
    text = words(render(snapshot(huge)), width)
    for number in ("9,876,543", "123,456,789", "234,567,891", "345,678,912", "703,704,615", "456", "567", "12,345,678"):
        assert number in text, number


def test_numbers_without_end_break_nothing() -> None:
    absurd = replace(BUSY, queued=10**30, done=10**40, records=dict.fromkeys(NO_RECORDS, 10**30))
    assert shown(render(snapshot(absurd, replace(WORKER, records_per_s=1e300, seen_s_ago=1e12))))


def test_a_pause_says_since_when_by_whom_and_why() -> None:
    paused = replace(BUSY, paused=Pause("the key is refused", "worker.1", "2026-02-21T11:00:00Z"))
    text = words(render(snapshot(paused)))
    assert "openchargemap is PAUSED since 2026-02-21T11:00:00Z by worker.1: the key is refused" in text


def test_a_held_budget_says_how_long() -> None:
    assert "the upstream asks to wait, 42 s left" in words(render(snapshot(BUSY, held=41.7)))
    assert "asks to wait" not in words(render(snapshot(BUSY)))


def test_a_worker_that_fell_silent_is_shown_as_such() -> None:
    text = words(render(snapshot(BUSY, WORKER, replace(WORKER, name="worker.2", seen_s_ago=61.0))))
    assert "61.0 s ago (silent)" in text
    assert text.count("(silent)") == 1


def test_several_imports_are_all_there() -> None:
    both = Snapshot({"openchargemap": BUSY, "stations": IDLE}, [WORKER], {})
    text = words(render(both))
    assert text.count("openchargemap") >= 1
    assert text.count("stations") >= 1


def assert_harmless(text: str) -> None:
    """Only what rich itself writes: colours and text attributes."""
    assert re.sub(r"\x1b\[[0-9;]*m", "", text).replace("\n", "").isprintable()
    assert "\x1b[2J" not in text


@pytest.mark.parametrize("colours", [False, True])
def test_a_hostile_import_name_reaches_the_terminal_as_text(colours: bool) -> None:
    status = replace(BUSY, paused=Pause("why", "who", "when"))
    text = shown(render(snapshot(status, held=5.0, name=HOSTILE)), colours=colours)
    assert_harmless(text)
    assert "[/]" in text


@pytest.mark.parametrize("colours", [False, True])
def test_hostile_pauses_runs_and_limits_reach_the_terminal_as_text(colours: bool) -> None:
    run = RunStatus(HOSTILE, HOSTILE, HOSTILE, 1, 1, 0)
    status = replace(BUSY, run=run, since=HOSTILE, limit=HOSTILE, paused=Pause(HOSTILE, HOSTILE, HOSTILE))
    assert_harmless(shown(render(snapshot(status)), colours=colours))


@pytest.mark.parametrize("colours", [False, True])
def test_a_hostile_worker_name_reaches_the_terminal_as_text(colours: bool) -> None:
    text = shown(render(snapshot(BUSY, replace(WORKER, name=HOSTILE, imports=[HOSTILE]))), colours=colours)
    assert_harmless(text)
    assert "[/] [2J fake" in text
