"""How an attempt's end is written down: the ledger first, then the queue, and as often as it takes."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import pytest

from streams_importer.application.settlement import Attempt, Settlement, with_ledger
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import Unavailable
from streams_importer.domain.model import (
    STORED_VERSION,
    Abandoned,
    Checkpoint,
    Completed,
    Counts,
    Crashed,
    Dead,
    Failure,
    Garbage,
    Lease,
    Outcome,
    Released,
    Retry,
)
from streams_importer.ports import Ledger, LedgerRow, QueuedShard, ShardQueue
from tests.fakes.ledger import FakeLedger
from tests.fakes.places import FakePlaces
from tests.fakes.queue import Entry, FakeQueue, Progress
from tests.fakes.recorded import Events, Recorded

KEYS = ["ids:0..10", "ids:10..20", "ids:20..30", "ids:30..40"]
OCM = Definition("ocm", max_attempts=3, max_crashes=3, retry_delay_s=8.0)
UNTIL = datetime(2026, 2, 21, 10, tzinfo=UTC)
END = Checkpoint(2, None, Counts(inserted=5, requests_ok=2))
MIDDLE = Checkpoint(1, 7, Counts(inserted=3, requests_ok=1))
BAD = Failure("http_502", "answered 502", 502)
CRASHED = Failure("crashed", "the process ended by SIGKILL")


class Scene:
    def __init__(self) -> None:
        self.queue, self.ledger, self.events = FakeQueue(), FakeLedger(), Events()
        self.calls: list[str] = []
        self.settlement = Settlement(
            cast(ShardQueue, Recorded("queue", self.queue, self.calls)),
            cast(Ledger, Recorded("ledger", self.ledger, self.calls)),
            self.events,
            lambda: 0.5,
        )
        rows, _ = self.ledger.plan("ocm", KEYS, "run")
        self.queue.enqueue("ocm", [QueuedShard(key, row.job) for key, row in rows.items()], "run")
        self.leases = self.queue.claim(["ocm"], len(KEYS)).leases
        self.ledger.start(self.leases, UNTIL)

    def settle(self, *outcomes: Outcome, attempts: int = 0) -> None:
        leases = [replace(lease, attempts=attempts) for lease in self.leases]
        self.settlement.settle([(Attempt(lease, OCM), outcome) for lease, outcome in zip(leases, outcomes, strict=False)])

    def settle_patiently(self, *outcomes: Outcome, attempts: int = 0) -> int:
        """Repeats the whole of it after each outage, as the consumer does; returns how often it was cut short."""
        for cut_short in range(10):
            try:
                self.settle(*outcomes, attempts=attempts)
            except Unavailable:
                continue
            return cut_short
        raise AssertionError("never settled")

    @property
    def writes(self) -> list[str]:
        return [call for call in self.calls if call not in ("queue.renew", "ledger.look")]

    def row(self, number: int = 0) -> LedgerRow:
        return self.ledger.rows["ocm", KEYS[number]]

    def change_row(self, **changes: object) -> LedgerRow:
        self.ledger.rows["ocm", KEYS[0]] = replace(self.row(), **changes)  # type: ignore[arg-type]
        return self.row()

    def follow(self) -> None:
        self.settlement.follow(self.leases[0], self.row())


@pytest.fixture
def scene() -> Scene:
    return Scene()


# Each outcome.


def test_a_completed_shard_is_done_in_the_ledger_first_and_then_off_the_stream(scene: Scene) -> None:
    scene.settle(Completed(END))
    assert scene.calls == ["queue.renew", "ledger.finish", "queue.complete", "ledger.counted"]
    assert (scene.row().status, scene.row().checkpoint) == ("done", END)
    assert scene.queue.owner_of(scene.leases[0]) is None
    assert scene.queue.store.counters["done"] == 1


def test_a_failed_attempt_is_put_back_in_the_ledger_first_and_then_delayed(scene: Scene) -> None:
    scene.settle(Retry(MIDDLE, BAD))
    assert scene.calls == ["queue.renew", "ledger.put_back", "queue.retry"]
    row = scene.row()
    assert (row.status, row.attempts, row.checkpoint, row.failure) == ("pending", 1, MIDDLE, BAD)
    assert scene.queue.delays == [6.0]
    assert scene.events.details("shard failed, will be tried again")[0]["attempts"] == 1


@pytest.mark.parametrize(("attempts", "delay"), [(0, 6.0), (1, 12.0)])
def test_the_wait_grows_with_the_attempts_spent(scene: Scene, attempts: int, delay: float) -> None:
    scene.settle(Retry(MIDDLE, BAD), attempts=attempts)
    assert scene.queue.delays == [delay]
    assert scene.row().attempts == attempts + 1


@pytest.mark.parametrize(("wait_s", "delay"), [(5.0, 6.0), (7200.0, 7200.0)])
def test_the_wait_that_the_upstream_asked_for_wins_unless_ours_is_longer(scene: Scene, wait_s: float, delay: float) -> None:
    scene.settle(Retry(MIDDLE, BAD, wait_s))
    assert scene.queue.delays == [delay]


def test_when_the_attempts_are_used_up_the_shard_fails_and_is_dead_lettered(scene: Scene) -> None:
    scene.settle(Retry(MIDDLE, BAD), attempts=OCM.max_attempts - 1)
    assert scene.calls == ["queue.renew", "ledger.finish", "queue.dead_letter", "ledger.counted"]
    row = scene.row()
    assert (row.status, row.attempts, row.checkpoint, row.failure) == ("failed", OCM.max_attempts, MIDDLE, BAD)
    letter = scene.queue.dead_letters("ocm", 10)[0]
    assert (letter.shard_key, letter.error, letter.status, letter.attempts, letter.cursor) == (
        KEYS[0],
        "http_502",
        "502",
        "3",
        "7",
    )
    assert scene.events.names == ["shard dead-lettered"]


def test_a_refused_shard_is_dead_lettered_whatever_attempts_are_left(scene: Scene) -> None:
    scene.settle(Dead(MIDDLE, BAD))
    assert scene.calls == ["queue.renew", "ledger.finish", "queue.dead_letter", "ledger.counted"]
    assert (scene.row().status, scene.row().attempts) == ("failed", 1)


@pytest.mark.parametrize(("crashes", "delay"), [(1, 6.0), (2, 12.0)])
def test_a_shard_that_crashed_comes_back_after_a_wait_that_grows_and_has_spent_no_attempt(
    scene: Scene, crashes: int, delay: float
) -> None:
    scene.settle(Crashed(MIDDLE, CRASHED, crashes), attempts=1)
    assert scene.calls == ["queue.renew", "ledger.put_back", "queue.retry"]
    row = scene.row()
    assert (row.status, row.attempts, row.crashes, row.checkpoint, row.failure) == ("pending", 1, crashes, MIDDLE, CRASHED)
    assert scene.queue.delays == [delay]
    known = scene.queue.store.progress["ocm", KEYS[0]]
    assert (known.attempts, known.crashes, known.checkpoint) == (1, crashes, MIDDLE)
    [told] = scene.events.details("shard failed, will be tried again")
    assert (told["error"], told["attempts"]) == ("crashed", 1)


def test_a_shard_that_crashed_often_enough_is_dead_lettered_with_its_crashes_and_its_attempts_as_they_are(scene: Scene) -> None:
    scene.settle(Crashed(MIDDLE, CRASHED, OCM.max_crashes), attempts=1)
    assert scene.calls == ["queue.renew", "ledger.finish", "queue.dead_letter", "ledger.counted"]
    row = scene.row()
    assert (row.status, row.attempts, row.crashes, row.failure) == ("failed", 1, OCM.max_crashes, CRASHED)
    [letter] = scene.queue.dead_letters("ocm", 10)
    assert (letter.error, letter.attempts, letter.crashes) == ("crashed", "1", "3")


def test_a_crash_does_not_use_up_the_attempts_nor_an_attempt_the_crashes(scene: Scene) -> None:
    scene.settle(Crashed(MIDDLE, CRASHED, 1), Retry(MIDDLE, BAD), attempts=OCM.max_attempts - 1)
    assert [scene.row(number).status for number in range(2)] == ["pending", "failed"]


@pytest.mark.parametrize("outcome", [Retry(MIDDLE, BAD), Released(MIDDLE)])
def test_a_suspect_that_stored_a_page_before_it_ended_is_none_any_more(scene: Scene, outcome: Outcome) -> None:
    scene.leases[0] = replace(scene.leases[0], crashes=2)
    scene.ledger.start(scene.leases[:1], UNTIL)
    scene.ledger.checkpoint(scene.leases[0], MIDDLE, UNTIL)
    scene.queue.checkpoint(scene.leases[0], MIDDLE)
    scene.settle(outcome)
    assert scene.row().crashes == 0, "the next crash would not be its first"
    assert scene.queue.store.progress["ocm", KEYS[0]].crashes == 0


@pytest.mark.parametrize("outcome", [Retry(Checkpoint(), BAD), Released(Checkpoint())])
def test_a_suspect_that_stored_no_page_stays_one(scene: Scene, outcome: Outcome) -> None:
    scene.queue.store.progress["ocm", KEYS[0]] = Progress(crashes=2)
    scene.leases[0] = replace(scene.leases[0], crashes=2)
    scene.ledger.start(scene.leases[:1], UNTIL)
    scene.settle(outcome)
    assert scene.row().crashes == scene.queue.store.progress["ocm", KEYS[0]].crashes == 2


def test_a_released_shard_is_put_back_at_no_cost_and_can_be_claimed_at_once(scene: Scene) -> None:
    scene.settle(Released(MIDDLE), attempts=2)
    assert scene.calls == ["queue.renew", "ledger.put_back", "queue.release"]
    row = scene.row()
    assert (row.status, row.attempts, row.checkpoint, row.failure) == ("pending", 2, MIDDLE, None)
    again = FakeQueue("w:2", scene.queue.store).claim(["ocm"], 1).leases[0]
    assert (again.shard_key, again.attempts) == (KEYS[0], 0)


def test_a_refusal_of_the_whole_import_is_noted_on_the_shard_that_met_it(scene: Scene) -> None:
    scene.settle(Released(MIDDLE, BAD))
    assert scene.row().failure == BAD
    assert scene.queue.store.letters == []


def test_a_lost_lease_is_told_and_written_nowhere(scene: Scene) -> None:
    before = scene.row()
    scene.settle(Abandoned())
    assert scene.writes == []
    assert scene.row() == before
    assert scene.events.names == ["lease lost"]


@pytest.mark.parametrize("outcome", [Abandoned(), Completed(END), Retry(MIDDLE, BAD), Released(MIDDLE)])
def test_a_shard_cancelled_under_our_hands_is_no_lost_lease_and_is_settled_by_nobody(scene: Scene, outcome: Outcome) -> None:
    row = scene.change_row(status="cancelled", counted_as="cancelled")
    assert FakePlaces(scene.queue.store).cancel("ocm", [row]) == [True]
    scene.settle(outcome, Abandoned())
    assert scene.writes == []
    assert scene.row() == row
    assert [(name, level, details["shard"]) for name, level, details in scene.events.told] == [
        ("shard cancelled", "info", KEYS[0]),
        ("lease lost", "warning", KEYS[1]),
    ]
    assert scene.calls.count("ledger.look") == 1


def test_a_shard_whose_cancellation_has_not_reached_the_queue_yet_is_cancelled_there_by_who_ends_it(scene: Scene) -> None:
    scene.change_row(status="cancelled", checkpoint=MIDDLE)
    scene.settle(Completed(END))
    assert scene.queue.calls[-1] == "complete cancelled"
    assert scene.queue.store.counters == {"cancelled": 1}
    assert (scene.row().status, scene.row().checkpoint, scene.row().counted_as) == ("cancelled", MIDDLE, "cancelled")
    assert scene.events.names == ["shard cancelled"]


def test_many_ends_are_one_bulk_in_each_store(scene: Scene) -> None:
    scene.settle(Completed(END), Completed(END), Completed(END))
    assert scene.calls == ["queue.renew", "ledger.finish", "queue.complete", "ledger.counted"]
    assert scene.queue.store.counters["done"] == 3


def test_ends_of_all_kinds_together_each_get_their_own(scene: Scene) -> None:
    scene.settle(Completed(END), Retry(MIDDLE, BAD), Dead(MIDDLE, BAD), Released(MIDDLE))
    assert [scene.row(number).status for number in range(4)] == ["done", "pending", "failed", "pending"]
    store = scene.queue.store
    assert store.places["ocm", KEYS[1]] == "delayed"
    assert store.places["ocm", KEYS[2]].startswith("dead")
    assert scene.queue.owner_of(scene.leases[3]) == "released"
    assert [letter.shard_key for _, letter in store.letters] == [KEYS[2]]


def test_nothing_ended_is_nothing_written(scene: Scene) -> None:
    scene.settle()
    assert scene.writes == []


# The row is final already, or another round's.


def test_a_row_that_is_done_is_done_in_the_queue_too(scene: Scene) -> None:
    scene.change_row(status="done", checkpoint=END)
    scene.follow()
    assert scene.queue.calls[-1] == "complete done"
    assert scene.queue.store.counters["done"] == 1


@pytest.mark.parametrize("state", ["split", "cancelled"])
def test_a_row_that_is_split_or_cancelled_is_counted_as_such(scene: Scene, state: str) -> None:
    scene.change_row(status=state)
    scene.follow()
    assert scene.queue.store.counters == {state: 1}


def test_a_row_that_failed_is_dead_lettered_with_what_the_ledger_says(scene: Scene) -> None:
    scene.change_row(status="failed", attempts=3, checkpoint=MIDDLE, failure=BAD)
    scene.follow()
    letter = scene.queue.dead_letters("ocm", 10)[0]
    assert (letter.error, letter.attempts, letter.cursor) == ("http_502", "3", "7")


def test_a_row_that_failed_without_a_reason_still_gets_a_letter(scene: Scene) -> None:
    scene.change_row(status="failed")
    scene.follow()
    assert scene.queue.dead_letters("ocm", 10)[0].error == "unknown"


def test_an_entry_queued_once_more_by_a_race_is_dropped_and_not_counted(scene: Scene) -> None:
    scene.change_row(status="done", checkpoint=END, counted_as="done")
    scene.follow()
    assert scene.queue.calls[-1] == "discard"
    assert scene.queue.store.counters == {}
    assert ("ocm", KEYS[0]) not in scene.queue.store.places


def test_a_row_that_was_settled_but_never_counted_is_counted_now(scene: Scene) -> None:
    scene.change_row(status="done", checkpoint=END)
    scene.follow()
    assert scene.queue.calls[-1] == "complete done"
    assert scene.row().counted_as == "done"


def test_the_entry_of_a_round_that_is_over_is_counted_under_the_state_in_which_it_ended(scene: Scene) -> None:
    scene.change_row(job="a newer round", status="pending", counted_as="done", is_count_sure=False)
    scene.follow()
    assert scene.queue.calls[-1] == "complete done"


def test_the_entry_of_a_round_that_is_over_and_counted_is_dropped(scene: Scene) -> None:
    scene.change_row(job="a newer round", status="pending", counted_as="done")
    scene.follow()
    assert scene.queue.calls[-1] == "discard"


def test_the_entry_of_another_round_that_was_never_counted_is_dropped(scene: Scene) -> None:
    scene.change_row(job="another round", status="pending", counted_as=None)
    scene.follow()
    assert scene.queue.calls[-1] == "discard"


@pytest.mark.parametrize("status", ["pending", "done", "failed", "a word of the future"])
def test_a_row_of_a_newer_version_is_left_to_it(scene: Scene, status: str) -> None:
    before = scene.change_row(v=STORED_VERSION + 1, status=status, job="whatever")
    scene.follow()
    assert scene.queue.owner_of(scene.leases[0]) is None
    claimed = scene.queue.claim(["ocm"], 10)
    assert (claimed.leases, claimed.too_new) == ([], 1)
    assert ("ocm", KEYS[0]) in scene.queue.store.places
    assert scene.row() == before


def test_whoever_finds_its_row_final_follows_the_row_and_not_its_own_outcome(scene: Scene) -> None:
    scene.change_row(status="failed", attempts=3, checkpoint=MIDDLE, failure=BAD)
    scene.settle(Completed(END))
    assert scene.row().status == "failed"
    assert scene.queue.store.counters["done"] == 0
    assert scene.queue.dead_letters("ocm", 10)[0].error == "http_502"


def test_shards_of_the_same_name_in_two_imports_are_not_mixed_up(scene: Scene) -> None:
    other = scene.ledger.plan("other", KEYS[:1], "run")[0][KEYS[0]]
    scene.queue.enqueue("other", [QueuedShard(KEYS[0], other.job)], "run")
    scene.leases[1] = scene.queue.claim(["other"], 1).leases[0]
    scene.ledger.start([scene.leases[1]], UNTIL)
    scene.change_row(status="failed", attempts=3, failure=BAD)
    scene.settle(Completed(END), Completed(END))
    assert scene.ledger.rows["other", KEYS[0]].status == "done"
    assert scene.queue.store.counters["done"] == 1


def test_one_overruled_end_does_not_hold_up_the_others(scene: Scene) -> None:
    scene.change_row(job="a newer round")
    scene.settle(Completed(END), Completed(END))
    assert scene.queue.store.counters["done"] == 1
    assert scene.row(1).status == "done"


def test_a_zombie_of_an_earlier_round_changes_nothing(scene: Scene) -> None:
    before = scene.change_row(job="a newer round")
    for outcome in (Completed(END), Retry(MIDDLE, BAD), Dead(MIDDLE, BAD), Released(MIDDLE)):
        scene.settle(outcome)
        assert scene.row() == before


def test_a_lease_that_another_holds_now_is_settled_in_neither_store(scene: Scene) -> None:
    before = scene.row()
    scene.queue.take_over(scene.leases[0])
    for outcome in (Retry(MIDDLE, BAD), Dead(MIDDLE, BAD), Released(MIDDLE), Completed(END)):
        scene.settle(outcome, attempts=OCM.max_attempts - 1)
    assert scene.writes == []
    assert scene.row() == before
    assert scene.events.names == ["lease lost"] * 4
    assert scene.queue.owner_of(scene.leases[0]) == "other:1"
    assert scene.queue.store.counters == {}
    assert scene.queue.store.delayed == {}


# An outage in the middle.


@pytest.mark.parametrize("fault", ["away", "reply lost"])
@pytest.mark.parametrize(
    ("outcome", "attempts", "verb"),
    [
        (Completed(END), 0, "complete done"),
        (Retry(MIDDLE, BAD), 0, "retry"),
        (Retry(MIDDLE, BAD), 2, "dead_letter"),
        (Dead(MIDDLE, BAD), 0, "dead_letter"),
        (Crashed(MIDDLE, CRASHED, 1), 0, "retry"),
        (Crashed(MIDDLE, CRASHED, 3), 0, "dead_letter"),
        (Released(MIDDLE), 0, "release"),
    ],
)
def test_settling_again_after_an_outage_in_the_middle_ends_as_if_there_had_been_none(
    scene: Scene, outcome: Outcome, attempts: int, verb: str, fault: str
) -> None:
    calm = Scene()
    calm.settle(outcome, attempts=attempts)
    scene.queue.faults[verb] = [fault]
    assert scene.settle_patiently(outcome, attempts=attempts) == 1
    # Whether the counters were told is only noted by who saw the reply.
    assert replace(scene.row(), job="", counted_as=None) == replace(calm.row(), job="", counted_as=None)
    assert scene.queue.store.counters == calm.queue.store.counters
    assert scene.queue.store.places == calm.queue.store.places
    assert scene.queue.owner_of(scene.leases[0]) == calm.queue.owner_of(calm.leases[0])
    assert len(scene.queue.store.letters) == len(calm.queue.store.letters)
    assert len(scene.queue.delays) == len(calm.queue.delays)


def test_an_outage_of_the_ledger_leaves_the_queue_untouched(scene: Scene) -> None:
    scene.ledger.away = True
    for outcome in (Completed(END), Retry(MIDDLE, BAD), Dead(MIDDLE, BAD), Released(MIDDLE)):
        with pytest.raises(Unavailable):
            scene.settle(outcome)
    assert [call for call in scene.writes if call.startswith("queue")] == []
    assert scene.queue.owner_of(scene.leases[0]) == "w:1"


def test_a_batch_cut_short_after_its_first_shard_is_finished_by_the_repetition(scene: Scene) -> None:
    scene.queue.faults["retry"] = ["", "away"]
    scene.settle_patiently(Retry(MIDDLE, BAD), Retry(MIDDLE, BAD), Completed(END))
    assert scene.queue.store.places["ocm", KEYS[0]] == scene.queue.store.places["ocm", KEYS[1]] == "delayed"
    assert scene.queue.store.counters == {"done": 1}
    assert len(scene.queue.delays) == 2
    assert [scene.row(number).attempts for number in range(3)] == [1, 1, 0]


def test_a_lost_lease_is_told_once_however_often_its_batch_is_repeated(scene: Scene) -> None:
    scene.queue.faults["complete done"] = ["away", "away"]
    scene.settle_patiently(Abandoned(), Completed(END))
    assert scene.events.names.count("lease lost") == 1


# What can never run.


def test_garbage_is_buried_with_its_reason_and_no_shard(scene: Scene) -> None:
    scene.queue.put(Entry("ocm", "", "", "", problem="the message has no shard"))
    garbage = scene.queue.claim(["ocm"], 1).garbage[0]
    scene.settlement.bury(garbage, "garbage", garbage.reason)
    assert scene.calls == ["queue.dead_letter"]
    letter = scene.queue.dead_letters("ocm", 10)[0]
    assert (letter.shard_key, letter.error, letter.message) == ("", "garbage", "the message has no shard")
    assert scene.events.names == ["garbage dead-lettered"]


def test_a_shard_without_a_row_is_buried_as_garbage_and_its_place_is_freed(scene: Scene) -> None:
    scene.settlement.bury(scene.leases[0], "unknown_shard", "the ledger has no such shard")
    letter = scene.queue.dead_letters("ocm", 10)[0]
    assert (letter.shard_key, letter.error, letter.payload) == ("", "unknown_shard", KEYS[0])
    assert ("ocm", KEYS[0]) not in scene.queue.store.places
    assert scene.queue.store.counters["failed"] == 0


def test_what_another_buried_already_is_not_told_again(scene: Scene) -> None:
    scene.settlement.bury(Garbage("ocm", "1-1", "w:1", 1, "no", "{}"), "garbage", "no")
    assert scene.events.told == []


# Where to go on.


@pytest.mark.parametrize(
    ("in_queue", "in_ledger", "goes_on_at"),
    [(0, 0, 0), (1, 2, 2), (2, 1, 2), (3, 3, 3)],
)
def test_a_lease_goes_on_where_the_later_of_the_two_stores_says(
    scene: Scene, in_queue: int, in_ledger: int, goes_on_at: int
) -> None:
    lease: Lease = replace(scene.leases[0], checkpoint=Checkpoint(in_queue))
    row = scene.change_row(checkpoint=Checkpoint(in_ledger))
    assert with_ledger(lease, row).checkpoint.page == goes_on_at
