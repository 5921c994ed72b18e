"""Counters from the ledger: rebuilt when they are gone, put right when all has ended, never while it could be wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from streams_importer.application.recount import Recount
from streams_importer.domain.model import Checkpoint, Counts, Lease
from streams_importer.ports import LedgerTotals
from tests.fakes.counters import FakeCounters
from tests.fakes.ledger import FakeLedger

RUN = "20260221T100000Z-ab12"
KEYS = ["ids:0..10", "ids:10..20", "ids:20..30", "ids:30..40"]
SOME = Checkpoint(2, 7, Counts(1, 2, 3, 4, 5, 6, 7, 8))
SINCE = {"since": "2026-02-21T12:00:00Z"}
UNTIL = datetime(2026, 2, 21, 10, tzinfo=UTC)


class SetLedger(FakeLedger):
    """Adds up to whatever a test says, if it says so."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted: LedgerTotals | None = None

    def totals(self, import_name: str) -> LedgerTotals:
        return self.wanted or super().totals(import_name)


class Scene:
    def __init__(self) -> None:
        self.ledger, self.counters = SetLedger(), FakeCounters()
        self.recount = Recount(self.ledger, self.counters)

    def plan(self, *states: str, run: str = RUN) -> None:
        """Shards in these states, settled and counted if they are final ones."""
        rows, _ = self.ledger.plan("a", KEYS[: len(states)], run)
        for row, state in zip(rows.values(), states, strict=True):
            lease = Lease("a", "1-1", "w:1", 1, row.shard_key, row.job, run)
            if state != "pending":
                self.ledger.start([lease], UNTIL)
                self.ledger.finish([(lease, SOME, state, 0, None)])
                self.ledger.counted([(lease, state)])

    def fields(self, *names: str) -> list[str | None]:
        return [self.counters.read("a").get(name) for name in names]


@pytest.fixture
def scene() -> Scene:
    return Scene()


# After Redis lost its memory.


def test_all_that_has_ended_is_counted_again_with_its_records_and_what_has_not_is_left_to_be_queued(scene: Scene) -> None:
    scene.plan("done", "done", "failed", "pending")
    assert scene.recount.rebuild("a")
    assert scene.fields("done", "failed", "split", "cancelled", "dead_lettered") == ["2", "1", None, None, "1"]
    assert scene.fields("inserted", "updated", "unchanged", "stale", "rejected") == ["3", "6", "9", "12", "15"]
    assert scene.fields("requests_ok", "requests_failed") == [None, None], "requests begin anew, and say since when"
    assert scene.counters.forgotten(["a"]) == []


def test_the_newest_run_is_known_again_without_what_has_not_ended(scene: Scene) -> None:
    scene.plan("done", "done", "failed", "pending")
    scene.recount.rebuild("a")
    assert scene.fields("run", "run_started", "run_finished") == [RUN, "2026-02-21T10:00:00Z", None]
    assert scene.fields("run_total", "run_left", "run_done", "run_failed", "run_split") == ["3", None, "2", "1", None]


def test_a_run_that_was_over_is_over_still(scene: Scene) -> None:
    states = {"done": 2, "failed": 0, "split": 0, "cancelled": 0}
    finished = datetime(2026, 2, 21, 11, 30, 5, 999, tzinfo=UTC)
    scene.ledger.wanted = LedgerTotals(0, states, {"inserted": 4}, RUN, states, finished)
    scene.recount.rebuild("a")
    assert scene.fields("run_total", "run_left", "run_done", "run_finished") == ["2", None, "2", "2026-02-21T11:30:05Z"]


@pytest.mark.parametrize("run", ["run1", "x-y", "2026-02-21"])
def test_a_run_whose_name_tells_no_time_has_no_beginning(scene: Scene, run: str) -> None:
    scene.plan("done", run=run)
    scene.recount.rebuild("a")
    assert scene.fields("run", "run_started") == [run, None]


def test_an_import_without_shards_gets_counters_too(scene: Scene) -> None:
    assert scene.recount.rebuild("a")
    assert set(scene.counters.read("a")) <= {"since", "dead_lettered"}
    assert scene.counters.forgotten(["a"]) == []


def test_a_shard_that_was_opened_again_is_counted_under_what_it_was_until_it_is_queued(scene: Scene) -> None:
    scene.plan("done", "done")
    scene.ledger.reopen("a", KEYS[:1], "done", "20260222T100000Z-cd34")
    scene.recount.rebuild("a")
    assert scene.fields("done", "inserted", "run", "run_total") == ["2", "2", "20260222T100000Z-cd34", None]


def test_who_comes_second_changes_nothing(scene: Scene) -> None:
    scene.plan("done")

    class Raced(FakeCounters):
        def replace(self, import_name: str, seen: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
            self.fields["a"] = {**SINCE, "done": "1", "moved": "5"}  # another rebuilt, and a worker went on
            return super().replace(import_name, seen, wanted)

    counters = Raced()
    assert not Recount(scene.ledger, counters).rebuild("a")
    assert counters.read("a") == {**SINCE, "done": "1", "moved": "5"}


# When all has ended.


def audited(scene: Scene, **wrong: str) -> bool:
    """Rebuilds, breaks some of it, and audits."""
    scene.recount.rebuild("a")
    scene.counters.fields["a"].update(wrong)
    return scene.recount.audit("a")


def test_counters_that_agree_with_the_ledger_are_left_alone(scene: Scene) -> None:
    scene.plan("done", "failed")
    assert not audited(scene)
    assert not audited(scene, split="0"), "none at all may be written or not"


@pytest.mark.parametrize(
    "wrong", [{"done": "1"}, {"done": ""}, {"inserted": "7"}, {"run_done": "9"}, {"run_left": "1"}, {"cancelled": "2"}]
)
def test_counters_that_do_not_agree_are_put_right(scene: Scene, wrong: dict[str, str]) -> None:
    scene.plan("done", "done", "failed")
    scene.recount.rebuild("a")
    right = scene.counters.read("a")
    assert audited(scene, **wrong)
    assert scene.counters.read("a") == right
    assert not scene.recount.audit("a")


def test_when_the_run_began_and_ended_is_not_touched(scene: Scene) -> None:
    scene.plan("done")
    assert audited(scene, done="5", run_started="2020-01-01T00:00:00Z", run_finished="2020-01-02T00:00:00Z")
    assert scene.fields("run_started", "run_finished") == ["2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z"]


def test_the_fields_of_a_run_that_the_ledger_does_not_have_are_not_touched(scene: Scene) -> None:
    scene.plan("done")
    assert audited(scene, done="5", run="20990101T000000Z-ff", run_total="7")
    assert scene.fields("done", "run", "run_total") == ["1", "20990101T000000Z-ff", "7"]


def test_while_something_has_not_ended_nothing_is_judged(scene: Scene) -> None:
    scene.plan("done", "pending")
    assert not audited(scene, done="9")
    assert scene.fields("done") == ["9"]


def test_without_counters_there_is_nothing_to_audit(scene: Scene) -> None:
    scene.plan("done")
    assert not scene.recount.audit("a")
    assert scene.counters.forgotten(["a"]) == ["a"]


def test_what_is_in_flight_in_redis_alone_holds_an_audit_back(scene: Scene) -> None:
    scene.plan("done")
    scene.counters.in_flight.add("a")
    assert not audited(scene, done="9")
    assert scene.fields("done") == ["9"]


def test_letters_and_requests_are_no_business_of_an_audit(scene: Scene) -> None:
    scene.plan("done")
    assert not audited(scene, dead_lettered="7", requests_ok="12", letters_dropped="3", moved="1")


def test_a_shard_that_was_put_into_the_ledger_meanwhile_is_another_state_of_things(scene: Scene) -> None:
    scene.plan("done", "done")
    row = scene.ledger.rows["a", KEYS[1]]
    scene.ledger.rows["a", KEYS[1]] = replace(row, status="cancelled")
    assert audited(scene, done="2", cancelled="")
    assert scene.fields("done", "cancelled") == ["1", "1"]
