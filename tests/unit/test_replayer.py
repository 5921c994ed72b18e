"""Replaying: a failed shard goes on from its checkpoint in a new round, once, with a letter or without; garbage stays."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

import pytest

from streams_importer.application.healer import queued_shard
from streams_importer.application.letters import letter_filter
from streams_importer.application.recount import Recount
from streams_importer.application.replayer import Replayer, ReplayReport
from streams_importer.application.shards import Shards
from streams_importer.domain.errors import Unavailable
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Counts, Failure
from streams_importer.ports import DeadLetters, Ledger, QueuedShard
from tests.fakes.counters import FakeCounters
from tests.fakes.ledger import FakeLedger
from tests.fakes.letters import FakeLetters
from tests.fakes.places import FakePlaces
from tests.fakes.queue import Entry, FakeQueue
from tests.fakes.recorded import Recorded
from tests.fakes.records import FakeRecords

KEYS = ["ids:0..10", "ids:10..20", "country:DE"]
SOME = Checkpoint(2, 7, Counts(inserted=3))
NOON = datetime(2026, 2, 21, 12, tzinfo=UTC)
BAD = Failure("http_400", "answered 400", 400)


class Scene:
    """Three dead shards, the last of another run and for another reason."""

    def __init__(self) -> None:
        self.queue, self.ledger, self.counters = FakeQueue(), FakeLedger(), FakeCounters()
        self.letters = FakeLetters(self.queue)
        self.shards = Shards(FakeRecords(self.ledger), FakePlaces(self.queue.store))
        self.calls: list[str] = []
        self.told: list[int] = []
        self.replayer = self.new_replayer()
        self.bury(KEYS[:2], "run1")
        self.bury(KEYS[2:], "run2", Failure("http_404", "answered 404", 404))
        self.counters.fields["ocm"] = {"since": "now"}

    def new_replayer(self) -> Replayer:
        return Replayer(
            cast(DeadLetters, Recorded("letters", self.letters, self.calls)),
            cast(Ledger, Recorded("ledger", self.ledger, self.calls)),
            self.shards,
            Recount(self.ledger, self.counters),
            self.told.append,
        )

    def bury(self, keys: list[str], run: str, why: Failure = BAD) -> None:
        rows, _ = self.ledger.plan("ocm", keys, run)
        self.queue.enqueue("ocm", [QueuedShard(key, rows[key].job) for key in keys], run)
        for lease in self.queue.claim(["ocm"], len(keys)).leases:
            self.ledger.start([lease], NOON)
            self.ledger.finish([(lease, SOME, "failed", 5, why)])
            self.queue.dead_letter(lease, SOME, why, 5)
            self.ledger.counted([(lease, "failed")])

    def add_garbage(self) -> None:
        self.queue.put(Entry("ocm", "", "", "", problem="no shard"))
        self.queue.dead_letter(self.queue.claim(["ocm"], 1).garbage[0], Checkpoint(), Failure("garbage", "no shard"), 0)

    def change_row(self, key: str, **changes: object) -> None:
        self.ledger.rows["ocm", key] = replace(self.ledger.rows["ocm", key], **changes)  # type: ignore[arg-type]

    def lose_letters(self, *keys: str) -> None:
        found = self.letters.find("ocm", keys)
        assert all(self.letters.purge("ocm", [found[key].entry for key in keys]))

    def all(self, *, dry_run: bool = False) -> ReplayReport:
        return self.replayer.replay_all("ocm", dry_run=dry_run)

    def named(self, *names: str, dry_run: bool = False) -> ReplayReport:
        return self.replayer.replay_named("ocm", names, dry_run=dry_run)

    def left(self) -> list[str]:
        return sorted(letter.shard_key for letter in self.queue.dead_letters("ocm", 10))

    def stored(self) -> object:
        store = self.queue.store
        return dict(self.ledger.rows), list(store.letters), dict(store.places), dict(store.entries)


def report(replayed: int, left: dict[str, int] | None = None, unknown: list[str] | None = None, without: int = 0) -> ReplayReport:
    return ReplayReport(replayed, without, Counter(left or {}), unknown or [])


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_all_dead_shards_go_on_from_their_checkpoint_with_both_budgets(scene: Scene) -> None:
    jobs = {key: scene.ledger.rows["ocm", key].job for key in KEYS}
    scene.change_row(KEYS[0], crashes=2)
    assert scene.all() == report(3)
    leases = scene.queue.claim(["ocm"], 10).leases
    assert sorted(lease.shard_key for lease in leases) == sorted(KEYS)
    for lease in leases:
        row = scene.ledger.rows["ocm", lease.shard_key]
        assert (row.status, row.attempts, row.crashes, row.checkpoint) == ("pending", 0, 0, SOME)
        assert row.job == lease.job != jobs[lease.shard_key]
        assert (lease.attempts, lease.crashes, lease.checkpoint) == (0, 0, SOME)
    assert scene.queue.store.letters == []


def test_the_ledger_opens_the_round_before_the_letter_moves(scene: Scene) -> None:
    scene.named(KEYS[0])
    assert scene.calls == ["letters.find", "ledger.look", "ledger.reopen", "letters.replay"]


def test_shards_stay_in_the_run_that_they_belong_to(scene: Scene) -> None:
    scene.lose_letters(KEYS[1])
    scene.all()
    runs = {lease.shard_key: lease.run for lease in scene.queue.claim(["ocm"], 10).leases}
    assert runs == {KEYS[0]: "run1", KEYS[1]: "run1", KEYS[2]: "run2"}


def test_only_the_named_shards_are_replayed_and_unknown_ones_are_told(scene: Scene) -> None:
    names = [KEYS[0], "country:XX", "no key at all", KEYS[0]]
    assert scene.named(*names) == report(1, unknown=["country:XX", "no key at all"])
    assert scene.left() == sorted(KEYS[1:])


def test_a_shard_may_be_named_by_the_entry_of_its_letter(scene: Scene) -> None:
    entry = scene.letters.find("ocm", [KEYS[2]])[KEYS[2]].entry
    assert scene.named(entry, "1-1") == report(1, unknown=["1-1"])
    assert scene.left() == sorted(KEYS[:2])


def test_a_filter_chooses_among_the_letters(scene: Scene) -> None:
    chosen = [letter_filter("error=http_4*"), letter_filter("shard=ids:*")]
    assert scene.replayer.replay_found("ocm", chosen, dry_run=False) == report(2)
    assert scene.left() == KEYS[2:]


def test_garbage_is_never_replayed(scene: Scene) -> None:
    scene.add_garbage()
    assert scene.all() == report(3, {"garbage": 1})
    assert [letter.error for letter in scene.queue.dead_letters("ocm", 10)] == ["garbage"]


def test_replaying_twice_replays_once(scene: Scene) -> None:
    scene.all()
    before = scene.stored()
    assert scene.all() == report(0)
    assert scene.named(*KEYS) == report(0, {"queued": 3})
    assert scene.stored() == before


def test_a_dry_run_says_the_same_and_changes_nothing(scene: Scene) -> None:
    scene.add_garbage()
    scene.lose_letters(KEYS[1])
    before = scene.stored()
    foreseen = scene.all(dry_run=True), scene.named(*KEYS, "country:XX", dry_run=True)
    assert foreseen == (report(3, {"garbage": 1}, without=1), report(3, unknown=["country:XX"], without=1))
    assert scene.stored() == before
    assert scene.all() == foreseen[0]


def test_progress_is_told_batch_by_batch(scene: Scene) -> None:
    scene.all()
    assert scene.told[-1] == 3
    assert scene.told == sorted(scene.told)


# Cut short, or two at a time.


@pytest.mark.parametrize("fault", ["away", "reply lost"])
@pytest.mark.parametrize("again", ["all", "named"])
def test_a_replay_cut_short_between_the_two_stores_is_finished_by_the_next(scene: Scene, fault: str, again: str) -> None:
    scene.queue.faults["replay"] = [fault]
    with pytest.raises(Unavailable):
        scene.named(KEYS[0])
    opened = scene.ledger.rows["ocm", KEYS[0]].job
    _ = scene.all() if again == "all" else scene.named(*KEYS)
    leases = {lease.shard_key: lease.job for lease in scene.queue.claim(["ocm"], 10).leases}
    assert sorted(leases) == sorted(KEYS)
    assert leases[KEYS[0]] == opened


def test_what_a_replay_left_between_the_two_stores_is_queued_by_whoever_queues_what_is_missing(scene: Scene) -> None:
    scene.queue.faults["replay"] = ["away"]
    with pytest.raises(Unavailable):
        scene.named(KEYS[0])
    row = scene.ledger.rows["ocm", KEYS[0]]
    assert scene.queue.enqueue("ocm", [queued_shard(row)], row.run) == [True]
    assert scene.left() == sorted(KEYS[1:])


def test_another_replay_that_was_faster_leaves_nothing_to_do(scene: Scene) -> None:
    class Overtaken(FakeLetters):
        def replay(self, import_name: str, letters: object, run: str) -> list[bool]:
            scene.all()
            return super().replay(import_name, letters, run)  # type: ignore[arg-type]

    slow = replace(scene.replayer, letters=Overtaken(scene.queue))
    assert slow.replay_named("ocm", KEYS, dry_run=False) == report(0, {"in flight": 3})
    assert len(scene.queue.claim(["ocm"], 10).leases) == 3


# Without a letter.


def test_a_failed_shard_without_a_letter_is_replayed_by_name_and_by_all(scene: Scene) -> None:
    scene.lose_letters(*KEYS[:2])
    assert scene.named(KEYS[0]) == report(1, without=1)
    assert scene.all() == report(2, without=1)
    assert scene.all() == report(0)
    leases = scene.queue.claim(["ocm"], 10).leases
    assert {lease.shard_key: lease.checkpoint for lease in leases} == dict.fromkeys(KEYS, SOME)
    assert scene.queue.store.counters["failed"] == 0


def test_a_filter_leaves_shards_without_a_letter_alone(scene: Scene) -> None:
    scene.lose_letters(KEYS[0])
    assert scene.replayer.replay_found("ocm", [letter_filter("shard=*")], dry_run=False) == report(2)
    assert scene.ledger.rows["ocm", KEYS[0]].status == "failed"


def test_a_letter_that_is_dropped_just_before_it_would_move_is_not_missed(scene: Scene) -> None:
    class Dropping(FakeLetters):
        def replay(self, import_name: str, letters: object, run: str) -> list[bool]:
            for letter in list(self._of(import_name)):
                self.store.remove_letter(import_name, letter.entry)
            return super().replay(import_name, letters, run)  # type: ignore[arg-type]

    unlucky = replace(scene.replayer, letters=Dropping(scene.queue))
    assert unlucky.replay_named("ocm", KEYS, dry_run=False) == report(3, without=3)


def test_a_failed_row_whose_letter_is_about_to_be_written_is_left_to_its_worker(scene: Scene) -> None:
    rows, _ = scene.ledger.plan("ocm", ["ids:50..60"], "run1")
    scene.queue.enqueue("ocm", [queued_shard(rows["ids:50..60"])], "run1")
    [lease] = scene.queue.claim(["ocm"], 1).leases
    scene.ledger.start([lease], NOON)
    scene.ledger.finish([(lease, SOME, "failed", 5, BAD)])
    assert scene.all() == report(3)
    assert scene.named("ids:50..60") == report(0, {"leased": 1})
    assert scene.ledger.rows["ocm", "ids:50..60"].status == "failed"
    assert scene.queue.dead_letter(lease, SOME, BAD, 5)
    assert scene.all() == report(1)


def test_a_shard_that_is_pending_and_nowhere_is_queued_by_workers_not_by_a_replay(scene: Scene) -> None:
    scene.ledger.plan("ocm", ["ids:50..60"], "run1")
    assert scene.named("ids:50..60") == report(0, {"in flight": 1})


def test_after_a_flush_the_counters_are_rebuilt_before_the_rounds_are_opened(scene: Scene) -> None:
    scene.lose_letters(*KEYS)
    scene.counters.fields.clear()
    assert scene.all() == report(3, without=3)
    assert scene.counters.fields["ocm"]["failed"] == "3", "as counted before the three went on"


def test_nothing_to_replay_makes_no_counters(scene: Scene) -> None:
    assert scene.replayer.replay_all("other", dry_run=False) == report(0)
    assert "other" not in scene.counters.fields


# What is left.


def test_a_letter_whose_shard_the_ledger_does_not_know_is_left(scene: Scene) -> None:
    del scene.ledger.rows["ocm", KEYS[0]]
    assert scene.all() == report(2, {"unknown to the ledger": 1})


@pytest.mark.parametrize("status", ["done", "cancelled", "split"])
def test_a_letter_whose_shard_has_ended_otherwise_is_left(scene: Scene, status: str) -> None:
    scene.change_row(KEYS[0], status=status)
    assert scene.named(KEYS[0]) == report(0, {status: 1})
    assert scene.named(KEYS[0], dry_run=True) == report(0, {status: 1})
    assert scene.ledger.rows["ocm", KEYS[0]].status == status


def test_a_row_of_a_newer_version_is_left_alone(scene: Scene) -> None:
    scene.change_row(KEYS[0], v=STORED_VERSION + 1)
    before = scene.ledger.rows["ocm", KEYS[0]]
    assert scene.named(KEYS[0]) == report(0, {"of a newer version": 1})
    assert scene.ledger.rows["ocm", KEYS[0]] == before


@pytest.mark.parametrize("shard", ["ids:0..10", "\x1b[2J", "x" * 8192, "planet:mars"])
def test_a_forged_letter_brings_nothing_back_that_is_not_dead(scene: Scene, shard: str) -> None:
    forged = replace(scene.queue.store.letters[0][1], entry="9-9", shard_key=shard)
    scene.all()
    scene.queue.store.letters.append(("ocm", forged))
    before = dict(scene.queue.store.entries)
    result = scene.all()
    assert (result.replayed, result.left.total()) == (0, 1)
    assert scene.queue.store.entries == before
