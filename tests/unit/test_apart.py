"""Suspects run apart: one process a shard, a few at a time, and whoever ends without a word is named."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from streams_importer.application import apart as apart_module
from streams_importer.application import outages as outages_module
from streams_importer.application.apart import MOST_CHILDREN, ApartImporter
from streams_importer.application.cancellation import CancelToken
from streams_importer.application.outages import Outages
from streams_importer.application.shard_importer import LOST
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import BadSetting
from streams_importer.domain.model import (
    Abandoned,
    Checkpoint,
    Completed,
    Counts,
    Crashed,
    Dead,
    Failure,
    Lease,
    Outcome,
    Released,
    Retry,
)
from streams_importer.ports import QueuedShard
from tests.fakes.children import FakeChild
from tests.fakes.ledger import FakeLedger
from tests.fakes.queue import FakeQueue
from tests.fakes.recorded import Events
from tests.fakes.source import PATIENCE_S, ScriptedSource

OCM = Definition("ocm", max_crashes=3)
UNTIL = datetime(2026, 2, 21, 10, tzinfo=UTC)
KEYS = [f"ids:{low}..{low + 10}" for low in range(0, 80, 10)]
PAGE = Checkpoint(1, 7, Counts(inserted=3))
FURTHER = Checkpoint(2, 9, Counts(inserted=6))
LONG_ENOUGH_S = 0.05
"""Ten times as long as one waits before it looks again: what has not happened by then is not going to."""
BAD = Failure("http_502", "answered 502", 502)


class Scene:
    """Claimed suspects, each with one crash and one page behind it, and the children that will run them, in that order."""

    def __init__(self) -> None:
        self.queue, self.ledger, self.events = FakeQueue(), FakeLedger(), Events()
        self.children: list[FakeChild | OSError] = []
        self.launched = threading.Semaphore(0)
        self.lock = threading.Lock()
        self.order: list[str] = []
        self.rates = {"ocm": "10/s"}
        self.apart = ApartImporter(self.queue, self.ledger, Outages(self.events), self._launch, lambda: self.rates)
        rows, _ = self.ledger.plan("ocm", KEYS, "run")
        self.queue.enqueue("ocm", [QueuedShard(key, row.job, None, PAGE, 0, 1) for key, row in rows.items()], "run")
        self.leases: list[Lease] = self.queue.claim(["ocm"], len(KEYS)).leases
        self.ledger.start(self.leases, UNTIL)
        self.cancels = [CancelToken() for _ in self.leases]

    def _launch(self, lease: Lease, definition: Definition) -> FakeChild:
        with self.lock:
            assert self.is_started(lease), "a crash must be charged to it from now on"
            self.order.append(lease.shard_key)
            child = self.children.pop(0)
        self.launched.release()
        if isinstance(child, OSError):
            raise child
        return child

    def is_started(self, lease: Lease) -> bool:
        return self.queue.store.progress[lease.import_name, lease.shard_key].started == lease.consumer

    def run(self, number: int = 0, **changes: int) -> Outcome:
        lease = replace(self.leases[number], **changes)  # type: ignore[arg-type]
        return self.apart.run(lease, OCM, ScriptedSource(), self.cancels[number])

    def running(self, number: int = 0, **changes: int) -> Callable[[], Outcome]:
        """Runs one in a thread; the function returned waits for its outcome."""
        outcomes: list[Outcome] = []
        thread = threading.Thread(target=lambda: outcomes.append(self.run(number, **changes)), daemon=True)
        thread.start()

        def outcome() -> Outcome:
            thread.join(PATIENCE_S)
            assert outcomes, "it did not end"
            return outcomes[0]

        return outcome

    def launches(self, number: int) -> None:
        for _ in range(number):
            assert self.launched.acquire(timeout=PATIENCE_S), "no child was launched"


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(apart_module, "TURN_S", 0.005)
    monkeypatch.setattr(outages_module, "FIRST_WAIT_S", 0.001)
    return Scene()


# How it ends.


@pytest.mark.parametrize("outcome", [Completed(FURTHER), Retry(PAGE, BAD, 5.0), Dead(PAGE, BAD), Released(PAGE), Abandoned()])
def test_what_the_child_says_is_what_became_of_the_shard(scene: Scene, outcome: Outcome) -> None:
    child = FakeChild(outcome)
    scene.children = [child]
    assert scene.run() == outcome
    assert child.is_closed


def test_a_child_that_ends_without_a_word_is_a_crash_that_was_seen(scene: Scene) -> None:
    scene.children = [FakeChild(how="by SIGSEGV")]
    ended = scene.run()
    assert isinstance(ended, Crashed)
    assert (ended.checkpoint, ended.crashes, ended.failure.code) == (PAGE, 2, "crashed")
    assert "by SIGSEGV" in ended.failure.message


def test_a_crash_after_a_further_page_is_the_first_one_since_then(scene: Scene) -> None:
    def store_a_page() -> None:
        assert scene.ledger.checkpoint(scene.leases[0], FURTHER, UNTIL)

    scene.children = [FakeChild(on_run=store_a_page)]
    ended = scene.run()
    assert isinstance(ended, Crashed)
    assert (ended.checkpoint, ended.crashes) == (FURTHER, 1)


def test_a_crash_while_the_ledger_is_away_waits_for_it_to_know_how_far_the_shard_came(scene: Scene) -> None:
    def go_away() -> None:
        scene.ledger.checkpoint(scene.leases[0], FURTHER, UNTIL)
        scene.ledger.away = True

    scene.children = [FakeChild(on_run=go_away)]
    scene.events.on_told = lambda: setattr(scene.ledger, "away", False)
    ended = scene.run()
    assert isinstance(ended, Crashed)
    assert ended.checkpoint == FURTHER
    assert scene.events.names == ["outage", "outage over"]


def test_a_process_that_cannot_be_started_is_the_machines_trouble_and_costs_nothing(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apart_module, "NO_PROCESS_S", 0.01)
    scene.children = [OSError(12, "Cannot allocate memory")]
    assert scene.run() == Released(PAGE)
    scene.children = [FakeChild(Completed(FURTHER))]
    assert scene.run(1) == Completed(FURTHER), "its turn was given back"


def test_a_lease_that_was_lost_before_it_starts_launches_nothing(scene: Scene) -> None:
    scene.queue.take_over(scene.leases[0])
    assert scene.run() == Abandoned()
    assert scene.order == []


def test_an_outage_before_it_starts_is_waited_out(scene: Scene) -> None:
    scene.queue.faults["start"] = ["away", "reply lost"]
    scene.children = [FakeChild(Completed(FURTHER))]
    assert scene.run() == Completed(FURTHER)


# Cancelled.


@pytest.mark.parametrize(
    ("reason", "said", "outcome"),
    [
        ("stop", Released(FURTHER), Released(FURTHER)),
        ("paused", Released(PAGE), Released(PAGE)),
        ("stop", None, Released(PAGE)),
        (LOST, Abandoned(), Abandoned()),
        (LOST, None, Abandoned()),
    ],
)
def test_a_child_is_told_why_it_is_cancelled_and_its_end_then_is_no_crash(
    scene: Scene, reason: str, said: Outcome | None, outcome: Outcome
) -> None:
    child = FakeChild(waits=True, on_cancel=said)
    scene.children = [child]
    ended = scene.running()
    assert child.ran.wait(PATIENCE_S)
    scene.cancels[0].cancel(reason)
    assert ended() == outcome
    assert child.told == [f"cancel {reason}"]
    assert child.is_closed


def test_a_stop_while_the_ledger_is_away_gives_the_shard_back_as_it_came(scene: Scene) -> None:
    child = FakeChild(waits=True)
    scene.children = [child]
    ended = scene.running()
    assert child.ran.wait(PATIENCE_S)
    scene.ledger.away = True
    scene.cancels[0].cancel("stop")
    assert ended() == Released(PAGE)


def test_a_child_that_ended_is_told_nothing_more(scene: Scene) -> None:
    child = FakeChild(Completed(FURTHER))
    scene.children = [child]
    scene.run()
    scene.cancels[0].cancel("stop")
    scene.apart.heard("hold:x")
    assert child.told == []


def test_what_the_control_channel_says_reaches_every_child_that_runs(scene: Scene) -> None:
    children = [FakeChild(Completed(FURTHER), waits=True) for _ in range(2)]
    scene.children = [*children]
    ended = [scene.running(number) for number in range(2)]
    for child in children:
        assert child.ran.wait(PATIENCE_S)
    scene.apart.heard("hold:x")
    assert [child.told for child in children] == [["hold:x"], ["hold:x"]]
    for child in children:
        child.end()
    assert [outcome() for outcome in ended] == [Completed(FURTHER)] * 2


# Turns.


def test_no_more_than_a_few_run_at_a_time_and_who_waits_is_not_started(scene: Scene) -> None:
    children = [FakeChild(Completed(FURTHER), waits=True) for _ in range(MOST_CHILDREN + 1)]
    scene.children = [*children]
    ended = [scene.running(number) for number in range(MOST_CHILDREN)]
    scene.launches(MOST_CHILDREN)
    last = scene.running(MOST_CHILDREN)
    assert not scene.launched.acquire(timeout=LONG_ENOUGH_S)
    assert not scene.is_started(scene.leases[MOST_CHILDREN]), "a crash now could not be its own"
    children[0].end()
    scene.launches(1)
    for child in children:
        child.end()
    assert [outcome() for outcome in (*ended, last)] == [Completed(FURTHER)] * (MOST_CHILDREN + 1)


def test_one_that_is_to_run_alone_waits_for_all_and_nobody_starts_beside_or_before_it(scene: Scene) -> None:
    first, alone, later = (FakeChild(Completed(FURTHER), waits=True) for _ in range(3))
    scene.children = [first, alone, later]
    ended = [scene.running(0)]
    scene.launches(1)
    ended.append(scene.running(1, crashes=OCM.max_crashes))
    assert not scene.launched.acquire(timeout=LONG_ENOUGH_S), "there is another suspect beside it"
    ended.append(scene.running(2))
    assert not scene.launched.acquire(timeout=LONG_ENOUGH_S), "who waits for all of them is not overtaken"
    first.end()
    scene.launches(1)
    assert scene.order == [KEYS[0], KEYS[1]]
    assert not scene.launched.acquire(timeout=LONG_ENOUGH_S)
    alone.end()
    scene.launches(1)
    later.end()
    assert [outcome() for outcome in ended] == [Completed(FURTHER)] * 3


@pytest.mark.parametrize("place", ["next in turn", "behind another"])
@pytest.mark.parametrize(("reason", "outcome"), [("stop", Released(PAGE)), (LOST, Abandoned())])
def test_who_waits_for_its_turn_can_be_cancelled_and_costs_nothing(
    scene: Scene, place: str, reason: str, outcome: Outcome
) -> None:
    children = [FakeChild(Completed(FURTHER), waits=True) for _ in range(MOST_CHILDREN + 1)]
    scene.children = [*children]
    busy = [scene.running(number) for number in range(MOST_CHILDREN)]
    scene.launches(MOST_CHILDREN)
    ahead = scene.running(MOST_CHILDREN) if place == "behind another" else None
    waiting = scene.running(MOST_CHILDREN + 1)
    scene.cancels[MOST_CHILDREN + 1].cancel(reason)
    assert waiting() == outcome
    assert not scene.is_started(scene.leases[MOST_CHILDREN + 1])
    for child in children:
        child.end()
    assert all(end() == Completed(FURTHER) for end in [*busy, *([ahead] if ahead else [])])


def test_an_error_that_nobody_foresaw_costs_an_attempt_and_neither_the_slot_nor_the_worker(scene: Scene) -> None:
    def break_down() -> None:
        raise KeyError("outcome")

    child = FakeChild(on_run=break_down)
    scene.children = [child]
    ended = scene.run()
    assert isinstance(ended, Retry)
    assert (ended.checkpoint, ended.failure.code) == (PAGE, "internal_error")
    assert child.is_closed


def test_a_child_gives_its_shard_back_when_a_rate_has_changed(scene: Scene) -> None:
    """It has the rates it began with, and the fleet's budget is everybody's."""
    child = FakeChild(waits=True, on_cancel=Released(PAGE))
    scene.children = [child]
    outcome = scene.running()
    assert child.ran.wait(PATIENCE_S)
    scene.apart.refreshed()
    assert not scene.cancels[0].cancelled
    scene.rates = {"ocm": "1/s"}
    scene.apart.refreshed()
    assert outcome() == Released(PAGE)


@pytest.mark.parametrize("how", ["by SIGTERM", "by SIGINT", "by SIGHUP"])
def test_a_child_that_a_platform_ended_did_not_crash(scene: Scene, how: str) -> None:
    scene.children = [FakeChild(how=how)]
    assert scene.run() == Released(PAGE)


def test_a_setting_that_is_wrong_is_nobodys_fault(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> list[bool]:
        raise BadSetting("Redis refuses the log-in")

    monkeypatch.setattr(scene.queue, "start", refuse)
    assert scene.run() == Released(PAGE, Failure("setting", "Redis refuses the log-in"))
