"""What `status --check` raises an alarm about, and what it does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from streams_importer.application.health import problems
from streams_importer.application.snapshot import ImportStatus, Snapshot
from streams_importer.ports import Pause
from tests.unit.test_snapshot import BUSY

NOW = 1_700_000_000_000
WELL = replace(BUSY, dead=0, moved_ms=NOW - 1000, paused=None, lease_s=15.0)
PAUSE = Pause("key is being renewed", "ops", "2026-02-21T10:00:00Z")


def found(status: ImportStatus, held: float = 0.0, max_dead: int = 0) -> list[str]:
    return problems(Snapshot({"ocm": status}, [], {"ocm": held}, NOW), max_dead)


def test_a_fleet_at_work_has_no_problem() -> None:
    assert found(WELL) == []


@pytest.mark.parametrize(
    ("status", "held", "words"),
    [
        (replace(WELL, paused=PAUSE), 0.0, "ocm: paused by ops: key is being renewed; go on with: streams-importer resume ocm"),
        (WELL, 301.0, "the upstream asks to wait for 301 s more"),
        (replace(WELL, dead=1), 0.0, "1 dead letters; see: streams-importer dlq list ocm"),
        (replace(WELL, moved_ms=NOW - 301_000), 0.0, "stalled: 1 shards queued, and nothing claimed or stored for 301 s"),
    ],
)
def test_each_live_problem_is_told_with_what_to_do(status: ImportStatus, held: float, words: str) -> None:
    [problem] = found(status, held)
    assert words in problem


@pytest.mark.parametrize(
    ("status", "held"),
    [
        (WELL, 299.0),  # a short hold is weather
        (replace(WELL, moved_ms=NOW - 299_000), 0.0),
        (replace(WELL, moved_ms=NOW - 400_000, lease_s=300.0), 0.0),  # two leases are longer than five minutes
        (replace(WELL, moved_ms=NOW - 400_000, queued=0), 0.0),  # nothing to do
        (replace(WELL, moved_ms=NOW - 400_000), 1.0),  # held: nobody may move
        (replace(WELL, moved_ms=None), 0.0),  # queued by a version that did not write it
    ],
)
def test_what_is_no_problem(status: ImportStatus, held: float) -> None:
    assert found(status, held) == []


def test_a_paused_import_is_not_stalled_as_well() -> None:
    [problem] = found(replace(WELL, moved_ms=NOW - 400_000, paused=PAUSE))
    assert "paused" in problem


def test_so_many_dead_letters_may_be_allowed() -> None:
    assert found(replace(WELL, dead=3), max_dead=3) == []
    assert len(found(replace(WELL, dead=4), max_dead=3)) == 1
