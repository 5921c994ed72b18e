"""What `doctor` thinks of an import, its workers and its keys: judged on plain data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from streams_importer.application import checkup_ports as kinds
from streams_importer.application import import_checkup as judge
from streams_importer.application.checkup import OK, UNKNOWN, WRONG, Hidden, Sample, Verdict
from streams_importer.application.checkup_ports import Fleet
from streams_importer.application.import_checkup import CounterState, StoredDefinition
from streams_importer.application.snapshot import ImportStatus
from streams_importer.domain.definition import Definition
from streams_importer.ports import Pause

FIX = "streams-importer doctor a --fix"
IDLE = ImportStatus(*(0,) * 9, run=None, records={}, requests={}, since=None, dead_lettered=0)
BUSY = replace(IDLE, queued=3, leased=1)
ALONE = Fleet()
SERVED = Fleet({"w:1": ["a"], "w:2": ["b"]}, longest_lease_s=15.0)
GOOD = StoredDefinition(Definition("a"))
PAUSE = Pause("a new key", "me", "2026-02-21T10:00:00Z")


def found(kind: str, *names: str) -> dict[str, Sample]:
    sample = Sample()
    sample.add(names or ["ids:0..10"])
    return {kind: sample}


@pytest.mark.parametrize(
    ("original", "copy", "state", "said", "to_do"),
    [
        (GOOD, GOOD, OK, "the same", ""),
        (GOOD, StoredDefinition(), WRONG, "no copy", FIX),
        (GOOD, StoredDefinition(problem="broken"), WRONG, "copy in Redis is broken", FIX),
        (GOOD, StoredDefinition(Definition("a", rate="5/s", lease_s=3)), WRONG, "another rate, lease_s than", FIX),
        (StoredDefinition(), GOOD, WRONG, "MongoDB, which has the originals, does not", "streams-importer produce a … stores it"),
        (StoredDefinition(), StoredDefinition(), WRONG, "nowhere", "streams-importer produce a … stores it"),
        (StoredDefinition(problem="bad rate"), GOOD, WRONG, "bad rate", "streams-importer produce a … stores a good one"),
        (StoredDefinition(is_newer=True), GOOD, WRONG, "newer version", "update this one"),
        (GOOD, StoredDefinition(is_newer=True), WRONG, "newer version", "update this one"),
    ],
)
def test_a_definition_is_the_same_in_both_stores(
    original: StoredDefinition, copy: StoredDefinition, state: str, said: str, to_do: str
) -> None:
    verdict = judge.definition("a", original, copy)
    assert (verdict.state, verdict.to_do) == (state, to_do)
    assert said in verdict.found


@pytest.mark.parametrize(
    ("original", "copy", "status", "state", "to_do"),
    [
        (None, None, BUSY, OK, ""),
        (PAUSE, PAUSE, IDLE, OK, ""),
        (PAUSE, PAUSE, Hidden("away"), OK, ""),
        (PAUSE, PAUSE, BUSY, WRONG, "streams-importer resume a"),
        (PAUSE, None, IDLE, WRONG, FIX),
        (None, PAUSE, IDLE, WRONG, FIX),
        (PAUSE, Pause("another", "me", PAUSE.since), IDLE, WRONG, FIX),
        (PAUSE, Pause(PAUSE.reason, "cut", PAUSE.since), IDLE, OK, ""),
    ],
)
def test_a_pause_is_the_same_in_both_stores_and_told_when_work_waits(
    original: Pause | None, copy: Pause | None, status: ImportStatus | Hidden, state: str, to_do: str
) -> None:
    verdict = judge.pause("a", original, copy, status)
    assert (verdict.state, verdict.to_do) == (state, to_do)


@pytest.mark.parametrize(
    ("check", "kind", "to_do"),
    [
        (judge.places, kinds.DANGLING, FIX),
        (judge.places, kinds.ODD, "HSCAN"),
        (judge.entries, kinds.UNPLACED, FIX),
        (judge.entries, kinds.DUPLICATE, FIX),
        (judge.garbage, kinds.GARBAGE, "dlq list a"),
        (judge.deleted, kinds.DELETED, FIX),
        (judge.delayed, kinds.STUCK, FIX),
        (judge.delayed, kinds.STRAY, FIX),
        (judge.progress, kinds.ORPHAN, FIX),
        (judge.failed, judge.LETTERLESS, "shards list a --status failed"),
    ],
)
def test_what_a_scan_finds_is_wrong_and_named(check: Callable[[str, judge.Tally], Verdict], kind: str, to_do: str) -> None:
    verdict = check("a", found(kind, "ids:0..10", "ids:10..20"))
    assert verdict.state == WRONG
    assert to_do in verdict.to_do
    assert "2" in verdict.found
    assert list(verdict.examples) == ["ids:0..10", "ids:10..20"]
    assert check("a", {}).state == OK
    assert check("a", {kind: Sample()}).state == OK


def test_shards_nowhere_in_redis_are_lost_unless_somebody_is_producing() -> None:
    assert judge.lost("a", {}, is_being_produced=True).state == OK
    assert judge.lost("a", found(judge.MISSING), is_being_produced=False).state == WRONG
    assert judge.lost("a", found(judge.MISSING), is_being_produced=True).state == UNKNOWN
    verdict = judge.lost("a", found(judge.UNREADABLE, "[/]\x1b[2J"), is_being_produced=False)
    assert (verdict.state, list(verdict.examples)) == (WRONG, ["[/] [2J"])
    assert "import_windows" in verdict.to_do


def test_a_missing_group_is_wrong() -> None:
    assert judge.group("a", True).state == OK
    assert (judge.group("a", False).state, judge.group("a", False).to_do) == (WRONG, FIX)


def test_leases_that_ran_out_are_wrong_only_when_nobody_takes_over() -> None:
    ran_out = found(kinds.RAN_OUT)
    assert judge.leases("a", {}, ALONE, is_paused=False).state == OK
    assert judge.leases("a", ran_out, SERVED, is_paused=False).state == OK
    assert judge.leases("a", ran_out, ALONE, is_paused=True).state == OK
    assert judge.leases("a", ran_out, ALONE, is_paused=False).to_do == "streams-importer consume a"
    assert judge.leases("c", ran_out, SERVED, is_paused=False).state == WRONG


def test_work_without_a_worker_is_wrong() -> None:
    assert judge.work("a", BUSY, SERVED).state == OK
    assert judge.work("a", IDLE, ALONE).state == OK
    assert judge.work("a", BUSY, ALONE).to_do == "streams-importer consume a"


@pytest.mark.parametrize(
    ("state", "is_"),
    [
        (CounterState(True, True), OK),
        (CounterState(True, True, None), UNKNOWN),
        (CounterState(True, True, ["done is 3, not 4"]), WRONG),
        (CounterState(False, True), WRONG),
        (CounterState(False, False), OK),
    ],
)
def test_counters_are_judged_only_when_nothing_is_in_flight(state: CounterState, is_: str) -> None:
    assert judge.counters("a", state).state == is_


def test_dead_letters_are_wrong_and_say_where_to_look() -> None:
    assert judge.letters("a", 0).state == OK
    assert "dlq list a" in judge.letters("a", 2).to_do


def test_what_only_a_newer_version_understands_is_counted_once() -> None:
    both = found(kinds.NEWER, "1-1", "2-1"), found(kinds.NEWER, "ids:0..10")
    assert judge.newer({}, {}).state == OK
    assert judge.newer(*both).found.startswith("2 shards")
    assert judge.newer({}, both[1]).state == WRONG


def test_heartbeats_and_consumers_of_workers_that_are_gone_are_wrong() -> None:
    assert judge.heartbeats(SERVED).found == "2 workers alive"
    verdict = judge.heartbeats(Fleet(gone=["[/]\x1b[2J"]))
    assert (verdict.state, list(verdict.examples)) == (WRONG, ["[/] [2J"])
    assert judge.consumers(Sample()).state == OK
    assert judge.consumers(found("")[""]).state == WRONG


@pytest.mark.parametrize(
    ("check", "kind", "name", "command"),
    [
        (
            judge.key_types,
            kinds.WRONG_TYPE,
            "{si}:a:shards is a string, not a stream",
            "RENAME '{si}:a:shards' 'moved:{si}:a:shards'",
        ),
        (judge.strangers, kinds.STRANGER, "{si}:x", "RENAME '{si}:x' 'moved:{si}:x'"),
        (judge.strangers, kinds.UNDEFINED, "{si}:b:shards", "RENAME '{si}:b:shards'"),
        # Made fit to be shown, these would name a key of ours.
        (judge.strangers, kinds.STRANGER, "{si}:imports\n", "must be quoted"),
        (judge.strangers, kinds.STRANGER, "{si}:imports x", "must be quoted"),
        (judge.strangers, kinds.STRANGER, "{si}:'; rm -rf", "must be quoted"),
        (judge.strangers, kinds.STRANGER, "{si}:" + "x" * 500, "must be quoted"),
    ],
)
def test_keys_that_are_not_ours_are_named_with_a_command_that_harms_nothing(
    check: Any, kind: str, name: str, command: str
) -> None:
    verdict = check(found(kind, name))
    assert verdict.state == WRONG
    assert command in verdict.to_do
    assert check({}).state == OK
