"""What every Ledger promises: the one in memory and the one on MongoDB."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from pymongo.database import Database

from streams_importer.adapters.mongo_ledger import MongoLedger
from streams_importer.adapters.mongo_setup import set_up
from streams_importer.domain.model import FINAL_STATES, STORED_VERSION, Checkpoint, Counts, Failure, Lease
from streams_importer.ports import Ledger, LedgerRow, LedgerTotals
from tests.fakes.ledger import FakeLedger

Corrupt = Callable[..., None]

UNTIL = datetime(2026, 2, 21, 10, tzinfo=UTC)
KEYS = ["ids:0..10", "ids:10..20", "country:DE"]
SOME = Checkpoint(3, 2**40, Counts(1, 2, 3, 4, 5, 6, 7, 8))


@pytest.fixture(params=["fake", "mongodb"])
def both(request: pytest.FixtureRequest) -> tuple[Ledger, Corrupt]:
    """A ledger, and a way to make a newer version of us write one of its rows."""
    if request.param == "fake":
        fake = FakeLedger()

        def newer_fake(name: str, key: str) -> None:
            fake.rows[name, key] = replace(fake.rows[name, key], v=STORED_VERSION + 1)

        return fake, newer_fake
    db: Database[dict[str, Any]] = request.getfixturevalue("mongo_db")
    set_up(db, "pois")

    def newer_real(name: str, key: str) -> None:
        db["import_windows"].update_one({"import": name, "shardKey": key}, {"$set": {"v": STORED_VERSION + 1}})

    return MongoLedger(db, "si"), newer_real


@pytest.fixture
def ledger(both: tuple[Ledger, Corrupt]) -> Ledger:
    return both[0]


def lease_on(row: LedgerRow, import_name: str = "a", consumer: str = "w:1") -> Lease:
    return Lease(import_name, "1-1", consumer, 1, row.shard_key, row.job, row.run)


def held(ledger: Ledger, row: LedgerRow, import_name: str = "a", consumer: str = "w:1") -> Lease:
    """A shard that a worker has started."""
    lease = lease_on(row, import_name, consumer)
    ledger.start([lease], UNTIL)
    return lease


def test_plan_records_new_shards_as_pending_each_in_a_round_of_its_own(ledger: Ledger) -> None:
    rows, new = ledger.plan("a", KEYS, "run1")
    assert new == 3
    assert list(rows) == KEYS
    assert {(row.status, row.run, row.attempts, row.checkpoint) for row in rows.values()} == {
        ("pending", "run1", 0, Checkpoint())
    }
    assert all(row.counted_as is None and row.failure is None and row.v == STORED_VERSION for row in rows.values())
    assert len({UUID(row.job) for row in rows.values()}) == 3
    assert ledger.look("a", KEYS) == rows


def test_plan_leaves_known_shards_as_they_are(ledger: Ledger) -> None:
    first, _ = ledger.plan("a", KEYS[:2], "run1")
    ledger.finish([(held(ledger, first[KEYS[0]]), SOME, "done", 0, None)])
    rows, new = ledger.plan("a", KEYS, "run2")
    assert new == 1
    assert rows[KEYS[0]].status == "done"
    assert rows[KEYS[1]] == first[KEYS[1]]
    assert rows[KEYS[2]].run == "run2"


def test_plan_counts_a_key_given_twice_once(ledger: Ledger) -> None:
    rows, new = ledger.plan("a", [KEYS[0], KEYS[0]], "run1")
    assert (list(rows), new) == ([KEYS[0]], 1)
    assert ledger.plan("a", [], "run1") == ({}, 0)


def test_imports_do_not_see_each_others_shards(ledger: Ledger) -> None:
    ledger.plan("a", KEYS, "run1")
    assert ledger.look("b", KEYS) == {}
    assert not ledger.has_pending("b")
    assert ledger.plan("b", KEYS, "run1")[1] == 3


def test_look_gives_only_the_shards_that_are_known(ledger: Ledger) -> None:
    ledger.plan("a", KEYS[:1], "run1")
    assert list(ledger.look("a", KEYS)) == KEYS[:1]
    assert ledger.look("a", []) == {}


def test_a_shard_travels_from_pending_through_leased_to_done(ledger: Ledger) -> None:
    row = ledger.plan("a", KEYS[:1], "run1")[0][KEYS[0]]
    lease = lease_on(row)
    ledger.start([lease], UNTIL)
    assert ledger.look("a", KEYS)[KEYS[0]] == replace(row, status="leased")
    assert ledger.checkpoint(lease, SOME, UNTIL + timedelta(seconds=1))
    assert ledger.look("a", KEYS)[KEYS[0]] == replace(row, status="leased", checkpoint=SOME)
    last = replace(SOME, page=4, cursor=None)
    assert ledger.finish([(lease, last, "done", 1, None)]) == {}
    assert ledger.look("a", KEYS)[KEYS[0]] == replace(row, status="done", checkpoint=last, attempts=1)
    assert not ledger.has_pending("a")
    assert list(ledger.pending("a")) == []


@pytest.mark.parametrize("cursor", [0, 17, 2**53, "next=é&page=2", None])
def test_a_cursor_comes_back_as_it_was(ledger: Ledger, cursor: int | str | None) -> None:
    row = ledger.plan("a", KEYS[:1], "run1")[0][KEYS[0]]
    assert ledger.checkpoint(held(ledger, row), Checkpoint(1, cursor), UNTIL)
    came_back = ledger.look("a", KEYS)[KEYS[0]].checkpoint
    assert came_back == Checkpoint(1, cursor)
    assert type(came_back.cursor) is type(cursor)


def test_a_shard_put_back_is_pending_with_its_checkpoint_attempts_and_reason(ledger: Ledger) -> None:
    row = ledger.plan("a", KEYS[:1], "run1")[0][KEYS[0]]
    why = Failure("bad_answer", "it was HTML", 200)
    ledger.start([lease_on(row)], UNTIL)
    ledger.put_back([(lease_on(row), SOME, 2, why)])
    assert ledger.look("a", KEYS)[KEYS[0]] == replace(row, checkpoint=SOME, attempts=2, failure=why)
    assert ledger.has_pending("a")
    ledger.put_back([(held(ledger, row), SOME, 2, None)])
    assert ledger.look("a", KEYS)[KEYS[0]].failure == why, "a release at no cost keeps the last error for people"


def test_pending_lists_what_is_not_final(ledger: Ledger) -> None:
    rows, _ = ledger.plan("a", [f"ids:{n}..{n + 1}" for n in range(250)], "run1")
    leases = [lease_on(row) for row in rows.values()]
    ledger.start(leases[:20], UNTIL)
    ledger.finish([(lease, SOME, FINAL_STATES[n % 4], 0, None) for n, lease in enumerate(leases[:10])])
    assert {row.shard_key for row in ledger.pending("a")} == set(rows) - {lease.shard_key for lease in leases[:10]}


@pytest.mark.parametrize("state", FINAL_STATES)
def test_a_final_row_is_not_changed_by_the_same_round(ledger: Ledger, state: str) -> None:
    row = ledger.plan("a", KEYS[:1], "run1")[0][KEYS[0]]
    lease = held(ledger, row)
    ledger.finish([(lease, SOME, state, 1, None)])
    final = ledger.look("a", KEYS)[KEYS[0]]
    ledger.start([lease], UNTIL)
    ledger.put_back([(lease, Checkpoint(), 0, Failure("x", "y"))])
    assert ledger.checkpoint(lease, Checkpoint(9, 9), UNTIL) is False
    assert ledger.look("a", KEYS)[KEYS[0]] == final
    other = "done" if state != "done" else "failed"
    assert ledger.finish([(lease, Checkpoint(), other, 5, None)]) == {("a", KEYS[0]): final}
    assert ledger.look("a", KEYS)[KEYS[0]] == final


def test_finishing_twice_in_the_same_way_is_finishing_once(ledger: Ledger) -> None:
    row = ledger.plan("a", KEYS[:1], "run1")[0][KEYS[0]]
    lease = held(ledger, row)
    assert ledger.finish([(lease, SOME, "done", 1, None)]) == {}
    assert ledger.finish([(lease, SOME, "done", 1, None)]) == {}, "the reply of the first may have been lost"


def test_a_worker_of_an_earlier_round_changes_nothing(ledger: Ledger) -> None:
    old = ledger.plan("a", KEYS[:1], "run1")[0][KEYS[0]]
    zombie = held(ledger, old)
    ledger.finish([(zombie, SOME, "done", 1, None)])
    new = ledger.reopen("a", KEYS[:1], "done", "run2")[KEYS[0]]
    ledger.start([zombie], UNTIL)
    ledger.put_back([(zombie, SOME, 7, None)])
    assert ledger.checkpoint(zombie, SOME, UNTIL) is False
    assert ledger.finish([(zombie, SOME, "done", 1, None)]) == {("a", KEYS[0]): new}
    assert ledger.look("a", KEYS)[KEYS[0]] == new


def test_finish_tells_apart_in_one_batch_what_it_changed_and_what_it_did_not(ledger: Ledger) -> None:
    rows, _ = ledger.plan("a", KEYS, "run1")
    first, second, third = (held(ledger, rows[key]) for key in KEYS)
    ledger.finish([(second, Checkpoint(), "cancelled", 0, None)])
    stranger = replace(third, job="00000000-0000-0000-0000-000000000000")
    unchanged = ledger.finish([(lease, SOME, "done", 0, None) for lease in (first, second, stranger)])
    assert {key: row.status for key, row in unchanged.items()} == {("a", KEYS[1]): "cancelled", ("a", KEYS[2]): "leased"}
    assert ledger.look("a", KEYS)[KEYS[0]].status == "done"
    assert ledger.finish([]) == {}


def test_a_checkpoint_never_goes_backwards(ledger: Ledger) -> None:
    row = ledger.plan("a", KEYS[:1], "run1")[0][KEYS[0]]
    lease = held(ledger, row)
    assert ledger.checkpoint(lease, SOME, UNTIL)
    assert ledger.checkpoint(lease, Checkpoint(2, 5), UNTIL), "late, but of this lease"
    assert ledger.look("a", KEYS)[KEYS[0]].checkpoint == SOME


@pytest.mark.parametrize("state", FINAL_STATES)
def test_reopen_starts_a_new_round_with_the_counts_and_keeps_the_place_of_a_failed_one_only(ledger: Ledger, state: str) -> None:
    row = ledger.plan("a", KEYS[:1], "run1")[0][KEYS[0]]
    ledger.finish([(held(ledger, row), SOME, state, 5, Failure("gone", "why"))])
    again = ledger.reopen("a", KEYS, state, "run2")[KEYS[0]]
    kept = SOME if state == "failed" else Checkpoint(counts=SOME.counts)
    assert again == LedgerRow(KEYS[0], again.job, "run2", "pending", 0, kept, state, None, STORED_VERSION, is_count_sure=False)
    assert UUID(again.job) != UUID(row.job)
    assert ledger.reopen("a", KEYS, state, "run3") == {KEYS[0]: again}, "a second call finds nothing in that state"


def test_a_row_remembers_whether_the_counters_were_told(ledger: Ledger) -> None:
    rows, _ = ledger.plan("a", KEYS, "run1")
    leases = [held(ledger, rows[key]) for key in KEYS[:2]]
    ledger.finish([(lease, SOME, "done", 0, None) for lease in leases])
    assert ledger.look("a", KEYS)[KEYS[0]].counted_as is None
    ledger.counted([(leases[0], "done"), (leases[1], "failed")])  # the second is not what the row says
    assert [ledger.look("a", KEYS)[key].counted_as for key in KEYS[:2]] == ["done", None]
    again = ledger.reopen("a", KEYS, "done", "run2")
    assert [(again[key].counted_as, again[key].is_count_sure) for key in KEYS[:2]] == [("done", True), ("done", False)]
    ledger.counted([(leases[0], "done")])  # of the round before: too late
    assert ledger.look("a", KEYS)[KEYS[0]] == again[KEYS[0]]


def test_who_is_behind_can_neither_finish_nor_put_back(ledger: Ledger) -> None:
    row = ledger.plan("a", KEYS[:1], "run1")[0][KEYS[0]]
    lease = held(ledger, row)
    assert ledger.checkpoint(lease, SOME, UNTIL)
    ahead = ledger.look("a", KEYS)[KEYS[0]]
    ledger.put_back([(lease, Checkpoint(1, 1), 4, Failure("x", "y"))])
    assert ledger.finish([(lease, Checkpoint(1, 1), "failed", 5, None)]) == {("a", KEYS[0]): ahead}
    assert ledger.look("a", KEYS)[KEYS[0]] == ahead


def test_reopen_leaves_shards_in_other_states_alone_and_returns_them(ledger: Ledger) -> None:
    rows, _ = ledger.plan("a", KEYS, "run1")
    ledger.finish([(held(ledger, rows[KEYS[0]]), SOME, "failed", 5, None)])
    before = ledger.look("a", KEYS)
    assert ledger.reopen("a", KEYS, "done", "run2") == before
    with pytest.raises(ValueError, match="pending"):
        ledger.reopen("a", KEYS, "pending", "run2")


def test_a_row_of_a_newer_version_is_shown_and_never_changed(both: tuple[Ledger, Corrupt]) -> None:
    ledger, make_newer = both
    rows, _ = ledger.plan("a", KEYS, "run1")
    ledger.finish([(held(ledger, rows[KEYS[1]]), SOME, "done", 0, None)])
    lease = held(ledger, rows[KEYS[0]])
    for key in KEYS[:2]:
        make_newer("a", key)
    newer = ledger.look("a", KEYS[:2])
    assert {row.v for row in newer.values()} == {STORED_VERSION + 1}
    ledger.start([lease], UNTIL)
    ledger.put_back([(lease, SOME, 7, None)])
    assert ledger.checkpoint(lease, SOME, UNTIL) is False
    assert ledger.finish([(lease, SOME, "done", 0, None)]) == {("a", KEYS[0]): newer[KEYS[0]]}
    assert ledger.reopen("a", KEYS[:2], "done", "run2") == newer
    assert ledger.plan("a", KEYS[:2], "run2") == (newer, 0)
    assert ledger.look("a", KEYS[:2]) == newer


# Who started it last.


def test_whoever_starts_a_shard_takes_it_over_and_who_had_it_before_changes_nothing_more(ledger: Ledger) -> None:
    row = ledger.plan("a", KEYS[:1], "run1")[0][KEYS[0]]
    zombie, owner = held(ledger, row), held(ledger, row, consumer="w:2")
    before = ledger.look("a", KEYS)[KEYS[0]]
    ahead = replace(SOME, page=SOME.page + 5)
    assert ledger.checkpoint(zombie, ahead, UNTIL) is False
    ledger.put_back([(zombie, ahead, 4, Failure("x", "y"))])
    assert ledger.finish([(zombie, ahead, "done", 1, None)]) == {("a", KEYS[0]): before}
    assert ledger.look("a", KEYS)[KEYS[0]] == before
    assert ledger.checkpoint(owner, SOME, UNTIL)
    assert ledger.finish([(owner, SOME, "done", 1, None)]) == {}


def test_a_worker_that_wakes_up_after_its_shard_was_put_back_changes_nothing(ledger: Ledger) -> None:
    row = ledger.plan("a", KEYS[:1], "run1")[0][KEYS[0]]
    lease = held(ledger, row)
    ledger.put_back([(lease, SOME, 1, None)])
    before = ledger.look("a", KEYS)[KEYS[0]]
    ahead = replace(SOME, page=SOME.page + 5)
    assert ledger.checkpoint(lease, ahead, UNTIL) is False
    ledger.put_back([(lease, ahead, 4, Failure("x", "y"))])
    assert ledger.finish([(lease, ahead, "failed", 5, None)]) == {("a", KEYS[0]): before}
    assert ledger.look("a", KEYS)[KEYS[0]] == before


def test_a_shard_that_nobody_started_is_settled_by_nobody(ledger: Ledger) -> None:
    row = ledger.plan("a", KEYS[:1], "run1")[0][KEYS[0]]
    assert ledger.checkpoint(lease_on(row), SOME, UNTIL) is False
    assert ledger.finish([(lease_on(row), SOME, "done", 1, None)]) == {("a", KEYS[0]): row}


def test_a_row_says_how_many_processes_ended_while_they_ran_the_shard_until_it_gets_on(ledger: Ledger) -> None:
    def crashes() -> int:
        return ledger.look("a", KEYS)[KEYS[0]].crashes

    row = ledger.plan("a", KEYS[:1], "run1")[0][KEYS[0]]
    assert crashes() == 0
    lease = replace(lease_on(row), crashes=2)
    ledger.start([lease], UNTIL)
    assert crashes() == 2
    ledger.put_back([(replace(lease, crashes=3), SOME, 0, None)])
    assert crashes() == 3
    ledger.start([lease], UNTIL)
    assert ledger.checkpoint(lease, SOME, UNTIL)
    assert crashes() == 0, "it got on"
    ledger.finish([(replace(lease, crashes=4), SOME, "failed", 0, Failure("crashed", "by SIGKILL"))])
    assert crashes() == 4
    ledger.reopen("a", KEYS, "failed", "run2")
    assert crashes() == 0


# What it adds up to.

NOTHING = dict.fromkeys(FINAL_STATES, 0)
NO_RECORDS = {"inserted": 0, "updated": 0, "unchanged": 0, "stale": 0, "rejected": 0}


def finish(ledger: Ledger, row: LedgerRow, state: str, counts: Counts, *, counted: bool = True) -> None:
    lease = held(ledger, row)
    assert ledger.finish([(lease, Checkpoint(1, None, counts), state, 0, None)]) == {}
    ledger.counted([(lease, state)] if counted else [])


def test_an_import_without_shards_adds_up_to_nothing(ledger: Ledger) -> None:
    assert ledger.totals("a") == LedgerTotals(0, NOTHING, NO_RECORDS, "", NOTHING, None)


def test_shards_add_up_by_state_and_records_over_all_of_them(ledger: Ledger) -> None:
    rows, _ = ledger.plan("a", [f"ids:{n}..{n + 1}" for n in range(6)], "run1")
    ledger.plan("b", KEYS, "run9")
    for row, state in zip(rows.values(), ("done", "done", *FINAL_STATES[1:]), strict=False):
        finish(ledger, row, state, Counts(1, 2, 3, 4, 5, 6, 7, 8), counted=state != "split")
    last = held(ledger, rows["ids:5..6"])
    assert ledger.checkpoint(last, Checkpoint(1, 7, Counts(inserted=100)), UNTIL)
    totals = ledger.totals("a")
    states = {"done": 2, "failed": 1, "split": 1, "cancelled": 1}
    assert (totals.unfinished, totals.states, totals.run, totals.run_states) == (1, states, "run1", states)
    assert totals.records == {"inserted": 105, "updated": 10, "unchanged": 15, "stale": 20, "rejected": 25}
    assert totals.run_finished is None, "one of its shards has not ended"


def test_a_run_has_ended_with_its_last_shard(ledger: Ledger) -> None:
    rows, _ = ledger.plan("a", KEYS, "run1")
    before = datetime.now(UTC) - timedelta(seconds=1)
    for row in rows.values():
        finish(ledger, row, "done", Counts())
    finished = ledger.totals("a").run_finished
    assert finished is not None
    assert before <= finished <= datetime.now(UTC)


def test_only_the_newest_run_that_has_shards_is_told_apart(ledger: Ledger) -> None:
    old, _ = ledger.plan("a", KEYS[:1], "20260221T100000Z-aa")
    new, _ = ledger.plan("a", KEYS[1:], "20260222T100000Z-aa")
    finish(ledger, old[KEYS[0]], "failed", Counts())
    finish(ledger, new[KEYS[1]], "done", Counts())
    totals = ledger.totals("a")
    assert (totals.run, totals.run_states) == ("20260222T100000Z-aa", {**NOTHING, "done": 1})
    assert totals.states == {**NOTHING, "done": 1, "failed": 1}


@pytest.mark.parametrize("is_counted", [True, False])
def test_a_shard_of_a_new_round_is_counted_as_what_it_was_until_it_is_queued(ledger: Ledger, is_counted: bool) -> None:
    row = ledger.plan("a", KEYS[:1], "run1")[0][KEYS[0]]
    finish(ledger, row, "done", Counts(inserted=5), counted=is_counted)
    ledger.reopen("a", KEYS, "done", "run2")
    totals = ledger.totals("a")
    assert (totals.unfinished, totals.states, totals.records["inserted"]) == (1, {**NOTHING, "done": 1}, 5)
    assert (totals.run, totals.run_states) == ("run2", NOTHING), "queueing it takes it out of done, and into the run"
