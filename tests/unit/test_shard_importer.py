"""One shard, page by page: overlap, order of writes, and exactly one outcome however it goes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import pytest

from streams_importer.application import outages as outages_module
from streams_importer.application import shard_importer
from streams_importer.application.cancellation import CancelToken
from streams_importer.application.outages import Outages
from streams_importer.application.shard_importer import LOST, PAGE_TRIES, ShardImporter
from streams_importer.domain.axes import IdRange
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import Cancelled, ImportRefused, ShardRefused, Transient, Unavailable, Weather
from streams_importer.domain.model import (
    Abandoned,
    Checkpoint,
    Completed,
    Counts,
    Dead,
    Failure,
    Lease,
    Outcome,
    Page,
    Released,
    Retry,
)
from streams_importer.domain.shard_key import Scope
from streams_importer.ports import Cancel, Ledger, QueuedShard, ShardQueue
from tests.fakes.ledger import FakeLedger
from tests.fakes.queue import FakeQueue
from tests.fakes.recorded import Events, Recorded
from tests.fakes.sink import FakeSink
from tests.fakes.source import PATIENCE_S, Gate, ScriptedSource, page

KEY = "ids:0..100"
UNTIL = datetime(2026, 2, 21, 10, tzinfo=UTC)
OCM = Definition("ocm")
FAILED = Transient("http_502", "api.example: answered 502", 502)
HOLD = Weather("http_429", "api.example: answered 429", 429, 1.0)
THREE_PAGES = (page(1, 2, then=2), page(3, 4, then=4), page(5))


class HookedSink(FakeSink):
    """Calls `before` with the number of each page about to be stored, from 1."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[int], None] = lambda number: None

    def store(self, definition: Definition, shard_key: str, page: Page) -> Counts:
        self.before(self.pages + 1)
        return super().store(definition, shard_key, page)


class Scene:
    """A claimed shard and all that it takes to import it, in memory."""

    def __init__(self, ahead: ThreadPoolExecutor) -> None:
        self.queue, self.ledger, self.sink, self.events = FakeQueue(), FakeLedger(), HookedSink(), Events()
        self.calls: list[str] = []
        self.cancel = CancelToken()
        self.now = 0.0
        self.clock_read = threading.Semaphore(0)
        self.importer = ShardImporter(
            cast(ShardQueue, Recorded("queue", self.queue, self.calls)),
            cast(Ledger, Recorded("ledger", self.ledger, self.calls)),
            self.sink,
            Outages(self.events),
            ahead,
            lambda definition: UNTIL,
            self._clock,
        )
        row = self.ledger.plan("ocm", [KEY], "run")[0][KEY]
        self.queue.enqueue("ocm", [QueuedShard(KEY, row.job)], "run")
        self.lease: Lease = self.queue.claim(["ocm"], 1).leases[0]
        self.ledger.start([self.lease], UNTIL)

    def _clock(self) -> float:
        now = self.now
        self.clock_read.release()
        return now

    def run(self, source: ScriptedSource) -> Outcome:
        return self.importer.run(self.lease, OCM, source, self.cancel)

    def stored(self) -> list[int]:
        return sorted(record.source_id for record, _ in self.sink.records.values())

    @property
    def ledger_checkpoint(self) -> Checkpoint:
        return self.ledger.rows["ocm", KEY].checkpoint


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(shard_importer, "PAGE_RETRY_S", 0.0)
    monkeypatch.setattr(outages_module, "FIRST_WAIT_S", 0.001)
    with ThreadPoolExecutor(2) as ahead:
        yield Scene(ahead)


def started(scene: Scene, source: ScriptedSource) -> Callable[[], Outcome]:
    """Runs the attempt in a thread; the function returned waits for its outcome."""
    outcomes: list[Outcome] = []
    thread = threading.Thread(target=lambda: outcomes.append(scene.run(source)))
    thread.start()

    def outcome() -> Outcome:
        thread.join(PATIENCE_S)
        assert outcomes, "the attempt did not end"
        return outcomes[0]

    return outcome


# All goes well.


def test_a_shard_is_imported_page_by_page_to_its_end(scene: Scene) -> None:
    source = ScriptedSource(*THREE_PAGES)
    assert scene.run(source) == Completed(Checkpoint(3, None, Counts(inserted=5, requests_ok=3)))
    assert source.asked == [None, 2, 4]
    assert set(source.scopes) == {Scope(ids=IdRange(0, 100))}
    assert scene.stored() == [1, 2, 3, 4, 5]
    assert scene.calls == ["ledger.checkpoint", "queue.checkpoint"] * 2


def test_an_empty_shard_is_one_request_and_done(scene: Scene) -> None:
    assert scene.run(ScriptedSource(page())) == Completed(Checkpoint(1, None, Counts(requests_ok=1)))
    assert scene.calls == []


def test_the_next_page_is_fetched_while_the_last_one_is_stored(scene: Scene) -> None:
    second = Gate(page(2))

    def meet(number: int) -> None:
        if number == 1:
            # The store waits until the next page is asked for, and its answer waits until the store has begun.
            assert second.asked.wait(PATIENCE_S), "the next page is asked for only after the store"
            second.open()
            assert second.left.wait(PATIENCE_S)

    scene.sink.before = meet
    assert isinstance(scene.run(ScriptedSource(page(1, then=1), second)), Completed)
    assert scene.stored() == [1, 2]


def test_no_more_than_one_page_is_fetched_ahead(scene: Scene) -> None:
    source = ScriptedSource(*THREE_PAGES)
    asked: list[int] = []
    scene.sink.before = lambda number: asked.append(len(source.asked))
    scene.run(source)
    assert all(number <= stored + 2 for stored, number in enumerate(asked))


def test_a_checkpoint_is_written_to_the_ledger_first_and_then_to_the_queue(scene: Scene) -> None:
    second = Gate(page(2))
    outcome = started(scene, ScriptedSource(page(1, then=1), second))
    assert second.asked.wait(PATIENCE_S)
    second.open()
    outcome()
    assert scene.calls == ["ledger.checkpoint", "queue.checkpoint"]
    assert (scene.ledger_checkpoint.page, scene.ledger_checkpoint.cursor) == (1, 1)
    assert scene.queue.store.progress["ocm", KEY].checkpoint == scene.ledger_checkpoint


def test_a_page_is_checkpointed_only_once_it_is_stored(scene: Scene) -> None:
    at_store: list[list[str]] = []
    scene.sink.before = lambda number: at_store.append(list(scene.calls))
    scene.run(ScriptedSource(*THREE_PAGES))
    assert [len(calls) for calls in at_store] == [0, 2, 4]


def test_an_attempt_goes_on_from_the_checkpoint_of_the_last_one(scene: Scene) -> None:
    before = Counts(inserted=7, unchanged=3, requests_ok=2, requests_failed=1)
    scene.lease = replace(scene.lease, checkpoint=Checkpoint(2, 50, before))
    source = ScriptedSource(page(51, then=51), page(52))
    assert scene.run(source) == Completed(Checkpoint(4, None, before + Counts(inserted=2, requests_ok=2)))
    assert source.asked == [50, 51]


# The lease is lost.


def test_a_lease_lost_while_a_page_is_in_flight_cancels_it_and_stores_nothing_more(scene: Scene) -> None:
    second = Gate(page(2))
    outcome = started(scene, ScriptedSource(page(1, then=1), second))
    assert second.asked.wait(PATIENCE_S)
    scene.cancel.cancel(LOST)
    assert outcome() == Abandoned()
    assert second.left.wait(PATIENCE_S)
    assert 2 not in scene.stored()


def test_a_page_fetched_before_the_lease_was_lost_is_not_stored(scene: Scene) -> None:
    second = Gate(page(2, then=2))

    def lose(number: int) -> None:
        if number == 1:
            second.open()
            assert second.left.wait(PATIENCE_S)
            scene.cancel.cancel(LOST)

    scene.sink.before = lose
    assert scene.run(ScriptedSource(page(1, then=1), second)) == Abandoned()
    assert scene.stored() == [1]


@pytest.mark.parametrize(("asleep_s", "stored"), [(OCM.lease_s, [1]), (OCM.lease_s / 4, [1, 2])])
def test_a_page_that_was_long_in_hand_is_stored_only_while_the_lease_is_held(
    scene: Scene, asleep_s: float, stored: list[int]
) -> None:
    second = Gate(page(2))

    def stand_still(number: int) -> None:
        if number == 1:
            second.open()
            for _ in range(3):  # the first page fetched, the first page checked, the second page fetched
                assert scene.clock_read.acquire(timeout=PATIENCE_S)
            scene.now += asleep_s

    scene.sink.before = stand_still
    renew = scene.queue.renew

    def taken_over_meanwhile(leases: Sequence[Lease]) -> list[bool]:
        scene.queue.take_over(scene.lease)
        return renew(leases)

    scene.queue.renew = taken_over_meanwhile  # type: ignore[method-assign]
    outcome = scene.run(ScriptedSource(page(1, then=1), second))
    assert scene.stored() == stored
    assert isinstance(outcome, Abandoned) == (stored == [1])


def test_a_lease_that_the_queue_gave_to_another_ends_the_attempt_at_its_checkpoint(scene: Scene) -> None:
    second = Gate(page(2))
    scene.sink.before = lambda number: scene.queue.take_over(scene.lease)
    assert scene.run(ScriptedSource(page(1, then=1), second)) == Abandoned()
    assert second.left.wait(PATIENCE_S), "the page ahead is cancelled"
    assert scene.stored() == [1]
    assert scene.queue.owner_of(scene.lease) == "other:1"


@pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
def test_a_row_that_is_final_already_ends_the_attempt_before_the_queue_is_told(scene: Scene, status: str) -> None:
    row = scene.ledger.rows["ocm", KEY]
    scene.sink.before = lambda number: scene.ledger.rows.update({("ocm", KEY): replace(row, status=status)})
    assert scene.run(ScriptedSource(page(1, then=1), Gate(page(2)))) == Abandoned()
    assert scene.calls == ["ledger.checkpoint"]


def test_an_attempt_that_lost_its_lease_settles_nothing(scene: Scene) -> None:
    scene.sink.before = lambda number: scene.queue.take_over(scene.lease)
    scene.run(ScriptedSource(page(1, then=1), Gate(page(2))))
    assert set(scene.calls) <= {"ledger.checkpoint", "queue.checkpoint"}


# A stop.


def test_a_stop_cancels_the_page_in_flight_and_keeps_what_is_stored(scene: Scene) -> None:
    second = Gate(page(2))
    outcome = started(scene, ScriptedSource(page(1, then=1), second))
    assert second.asked.wait(PATIENCE_S)
    scene.cancel.cancel("stop")
    ended = outcome()
    assert isinstance(ended, Released)
    assert ended.refused is None
    assert (ended.checkpoint.page, ended.checkpoint.cursor) == (1, 1)
    assert scene.stored() == [1]
    assert second.left.wait(PATIENCE_S)


def test_a_page_that_was_fetched_before_the_stop_is_stored_and_no_further_one_is_asked_for(scene: Scene) -> None:
    second = Gate(page(2, then=2))
    source = ScriptedSource(page(1, then=1), second)

    def stop(number: int) -> None:
        if number == 1:
            second.open()
            assert second.left.wait(PATIENCE_S)
            scene.cancel.cancel("stop")

    scene.sink.before = stop
    assert scene.run(source) == Released(Checkpoint(2, 2, Counts(inserted=2, requests_ok=2)))
    assert source.asked == [None, 1]
    assert scene.stored() == [1, 2]
    assert scene.ledger_checkpoint.page == 2


def test_a_stop_during_the_last_page_still_completes_the_shard(scene: Scene) -> None:
    scene.sink.before = lambda number: scene.cancel.cancel("stop")
    assert scene.run(ScriptedSource(page(1))) == Completed(Checkpoint(1, None, Counts(inserted=1, requests_ok=1)))


@pytest.mark.parametrize("reason", ["stop", "paused"])
def test_a_stop_before_the_first_page_gives_the_shard_back_as_it_was(scene: Scene, reason: str) -> None:
    scene.lease = replace(scene.lease, checkpoint=Checkpoint(2, 50, Counts(inserted=9)))
    scene.cancel.cancel(reason)
    assert scene.run(ScriptedSource(Gate(page(51)))) == Released(scene.lease.checkpoint)
    assert scene.stored() == []
    assert scene.calls == []


def test_a_stop_between_two_tries_of_a_page_does_not_wait_for_the_next(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_importer, "PAGE_RETRY_S", 10 * PATIENCE_S)

    def stopped(cancel: Cancel) -> Page:
        scene.cancel.cancel("stop")
        raise FAILED

    source = ScriptedSource(stopped)
    outcome = started(scene, source)()
    assert isinstance(outcome, Released)
    assert outcome.checkpoint.page == 0


def test_a_stop_while_a_server_is_away_gives_back_the_last_stored_page(scene: Scene) -> None:
    def away(number: int) -> None:
        if number == 2:
            scene.cancel.cancel("stop")
            raise Unavailable("MongoDB", "away")

    scene.sink.before = away
    outcome = started(scene, ScriptedSource(*THREE_PAGES))()
    assert isinstance(outcome, Released)
    assert (outcome.checkpoint.page, outcome.checkpoint.cursor) == (1, 2)


def test_a_page_stored_but_not_checkpointed_at_a_stop_is_in_the_checkpoint_given_back(scene: Scene) -> None:
    def stop(number: int) -> None:
        scene.ledger.away = True
        scene.cancel.cancel("stop")

    scene.sink.before = stop
    outcome = started(scene, ScriptedSource(page(1, then=1), Gate(page(2))))()
    assert isinstance(outcome, Released)
    assert (outcome.checkpoint.page, outcome.checkpoint.cursor) == (1, 1)


# The upstream has a bad moment.


def test_a_page_is_tried_a_few_times_before_the_shard_pays_for_it(scene: Scene) -> None:
    source = ScriptedSource(*[FAILED] * PAGE_TRIES)
    assert scene.run(source) == Retry(
        Checkpoint(counts=Counts(requests_failed=PAGE_TRIES)), Failure("http_502", "api.example: answered 502", 502)
    )
    assert source.asked == [None] * PAGE_TRIES


def test_an_upstream_that_says_when_to_come_back_is_not_asked_before(scene: Scene) -> None:
    source = ScriptedSource(page(1, then=1), Transient("http_500", "answered 500", 500, 7200.0), page(2))
    outcome = scene.run(source)
    assert isinstance(outcome, Retry)
    assert (outcome.wait_s, outcome.checkpoint.page, outcome.failure.code) == (7200.0, 1, "http_500")
    assert source.asked == [None, 1]


def test_an_upstream_that_says_to_come_back_at_once_is_tried_like_any_other(scene: Scene) -> None:
    source = ScriptedSource(*[Transient("http_500", "answered 500", 500, 0.0)] * PAGE_TRIES)
    outcome = scene.run(source)
    assert isinstance(outcome, Retry)
    assert (outcome.wait_s, len(source.asked)) == (0.0, PAGE_TRIES)


def test_every_page_has_its_own_tries(scene: Scene) -> None:
    bad = [FAILED] * (PAGE_TRIES - 1)
    source = ScriptedSource(*bad, page(1, then=1), *bad, page(2))
    assert scene.run(source) == Completed(
        Checkpoint(2, None, Counts(inserted=2, requests_ok=2, requests_failed=2 * (PAGE_TRIES - 1)))
    )


def test_a_failing_page_does_not_take_back_the_pages_before_it(scene: Scene) -> None:
    outcome = scene.run(ScriptedSource(page(1, then=1), *[FAILED] * PAGE_TRIES))
    assert outcome == Retry(
        Checkpoint(1, 1, Counts(inserted=1, requests_ok=1, requests_failed=PAGE_TRIES)),
        Failure("http_502", "api.example: answered 502", 502),
    )
    assert scene.stored() == [1]


def test_weather_costs_no_try_however_long_it_lasts(scene: Scene) -> None:
    source = ScriptedSource(FAILED, *[HOLD] * 50, FAILED, page(1))
    assert scene.run(source) == Completed(
        Checkpoint(1, None, Counts(inserted=1, requests_ok=1, requests_rate_limited=50, requests_failed=2))
    )


def test_a_refused_import_gives_the_shard_back_with_the_reason(scene: Scene) -> None:
    refused = ImportRefused("key_refused", "api.example: answered 403", 403)
    assert scene.run(ScriptedSource(page(1, then=1), refused)) == Released(
        Checkpoint(1, 1, Counts(inserted=1, requests_ok=1, requests_failed=1)),
        Failure("key_refused", "api.example: answered 403", 403),
    )


def test_a_refused_shard_is_dead_at_once(scene: Scene) -> None:
    source = ScriptedSource(ShardRefused("http_400", "api.example: answered 400", 400))
    assert scene.run(source) == Dead(
        Checkpoint(counts=Counts(requests_failed=1)), Failure("http_400", "api.example: answered 400", 400)
    )
    assert source.asked == [None]


# A defect of ours.


def test_an_unexpected_error_of_the_source_costs_an_attempt_and_not_the_worker(scene: Scene) -> None:
    outcome = scene.run(ScriptedSource(page(1, then=1), ZeroDivisionError("oh")))
    assert isinstance(outcome, Retry)
    assert outcome.failure == Failure("internal_error", "ZeroDivisionError: oh")
    assert outcome.checkpoint.page == 1


def test_an_unexpected_error_of_the_store_cancels_the_page_ahead(scene: Scene) -> None:
    second = Gate(page(2))

    def fail(number: int) -> None:
        assert second.asked.wait(PATIENCE_S)
        raise KeyError("oh")

    scene.sink.before = fail
    outcome = scene.run(ScriptedSource(page(1, then=1), second))
    assert isinstance(outcome, Retry)
    assert outcome.failure == Failure("internal_error", "KeyError: 'oh'")
    assert outcome.checkpoint.page == 0
    assert second.left.wait(PATIENCE_S)


def test_a_lease_on_what_is_no_shard_key_is_an_outcome_too(scene: Scene) -> None:
    scene.lease = replace(scene.lease, shard_key="no shard key")
    assert isinstance(scene.run(ScriptedSource()), Retry | Dead)


# A server of ours is away.


def test_an_outage_of_the_budget_is_waited_out_and_costs_no_try(scene: Scene) -> None:
    source = ScriptedSource(*[Unavailable("Redis", "away")] * 5, page(1))
    assert scene.run(source) == Completed(Checkpoint(1, None, Counts(inserted=1, requests_ok=1)))
    assert scene.events.names == ["outage", "outage over"]


def test_an_outage_of_the_store_is_waited_out_and_the_page_is_not_fetched_again(scene: Scene) -> None:
    left = [1, 1, 1]

    def away(number: int) -> None:
        if left:
            left.pop()
            raise Unavailable("MongoDB", "away")

    scene.sink.before = away
    source = ScriptedSource(*THREE_PAGES)
    assert isinstance(scene.run(source), Completed)
    assert source.asked == [None, 2, 4]
    assert scene.events.names == ["outage", "outage over"]


@pytest.mark.parametrize("fault", ["away", "reply lost"])
def test_a_checkpoint_cut_short_by_an_outage_is_repeated(scene: Scene, fault: str) -> None:
    scene.queue.faults["checkpoint"] = [fault]
    assert isinstance(scene.run(ScriptedSource(page(1, then=1), page(2))), Completed)
    assert scene.calls == ["ledger.checkpoint", "queue.checkpoint", "queue.checkpoint"]
    assert scene.queue.store.progress["ocm", KEY].checkpoint.page == 1


def test_a_call_cut_short_for_no_reason_of_ours_gives_the_shard_back(scene: Scene) -> None:
    assert scene.run(ScriptedSource(Cancelled("cut short"))) == Released(Checkpoint())
