"""Replaying: a dead shard goes on from its checkpoint in a new round, once, and garbage stays where it is."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from streams_importer.application.replayer import Replayed, Replayer
from streams_importer.domain.errors import Unavailable
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Counts, Failure
from streams_importer.ports import Ledger, QueuedShard, ShardQueue
from tests.fakes.ledger import FakeLedger
from tests.fakes.queue import Entry, FakeQueue
from tests.fakes.recorded import Recorded

KEYS = ["ids:0..10", "ids:10..20", "country:DE"]
SOME = Checkpoint(2, 7, Counts(inserted=3))
BAD = Failure("http_400", "answered 400", 400)


class Scene:
    """Three dead shards, the last of another run."""

    def __init__(self) -> None:
        self.queue, self.ledger = FakeQueue(), FakeLedger()
        self.calls: list[str] = []
        self.replayer = Replayer(
            cast(ShardQueue, Recorded("queue", self.queue, self.calls)),
            cast(Ledger, Recorded("ledger", self.ledger, self.calls)),
        )
        self.bury(KEYS[:2], "run1")
        self.bury(KEYS[2:], "run2")

    def bury(self, keys: list[str], run: str) -> None:
        rows, _ = self.ledger.plan("ocm", keys, run)
        self.queue.enqueue("ocm", [QueuedShard(key, rows[key].job) for key in keys], run)
        for lease in self.queue.claim(["ocm"], len(keys)).leases:
            self.ledger.finish([(lease, SOME, "failed", 5, BAD)])
            self.queue.dead_letter(lease, SOME, BAD, 5)

    def add_garbage(self) -> None:
        self.queue.put(Entry("ocm", "", "", "", problem="no shard"))
        self.queue.dead_letter(self.queue.claim(["ocm"], 1).garbage[0], Checkpoint(), Failure("garbage", "no shard"), 0)

    def change_row(self, key: str, **changes: object) -> None:
        self.ledger.rows["ocm", key] = replace(self.ledger.rows["ocm", key], **changes)  # type: ignore[arg-type]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_all_dead_shards_go_on_from_their_checkpoint_with_all_their_attempts(scene: Scene) -> None:
    jobs = {key: scene.ledger.rows["ocm", key].job for key in KEYS}
    assert scene.replayer.replay("ocm", None) == Replayed(3, 0, set())
    leases = scene.queue.claim(["ocm"], 10).leases
    assert sorted(lease.shard_key for lease in leases) == sorted(KEYS)
    for lease in leases:
        row = scene.ledger.rows["ocm", lease.shard_key]
        assert (row.status, row.attempts, row.checkpoint) == ("pending", 0, SOME)
        assert row.job == lease.job != jobs[lease.shard_key]
        assert (lease.attempts, lease.checkpoint) == (0, SOME)
    assert scene.queue.store.letters == []


def test_the_ledger_opens_the_round_before_the_letter_moves(scene: Scene) -> None:
    scene.replayer.replay("ocm", {KEYS[0]})
    assert scene.calls == ["queue.dead_letters", "ledger.look", "ledger.reopen", "queue.replay"]


def test_shards_stay_in_the_run_that_they_belong_to(scene: Scene) -> None:
    scene.replayer.replay("ocm", None)
    runs = {lease.shard_key: lease.run for lease in scene.queue.claim(["ocm"], 10).leases}
    assert runs == {KEYS[0]: "run1", KEYS[1]: "run1", KEYS[2]: "run2"}


def test_only_the_wanted_shards_are_replayed_and_unknown_ones_are_named(scene: Scene) -> None:
    assert scene.replayer.replay("ocm", {KEYS[0], "country:XX"}) == Replayed(1, 2, {"country:XX"})
    assert sorted(letter.shard_key for letter in scene.queue.dead_letters("ocm", 10)) == sorted(KEYS[1:])


def test_garbage_is_never_replayed(scene: Scene) -> None:
    scene.add_garbage()
    assert scene.replayer.replay("ocm", None) == Replayed(3, 1, set())
    assert [letter.error for letter in scene.queue.dead_letters("ocm", 10)] == ["garbage"]


def test_replaying_twice_replays_once(scene: Scene) -> None:
    scene.replayer.replay("ocm", None)
    jobs = {key: scene.ledger.rows["ocm", key].job for key in KEYS}
    assert scene.replayer.replay("ocm", None) == Replayed(0, 0, set())
    assert {key: scene.ledger.rows["ocm", key].job for key in KEYS} == jobs


@pytest.mark.parametrize("fault", ["away", "reply lost"])
def test_a_replay_cut_short_between_the_two_stores_is_finished_by_the_next(scene: Scene, fault: str) -> None:
    scene.queue.faults["replay"] = [fault]
    with pytest.raises(Unavailable):
        scene.replayer.replay("ocm", {KEYS[0]})
    opened = scene.ledger.rows["ocm", KEYS[0]].job
    scene.replayer.replay("ocm", None)
    leases = {lease.shard_key: lease.job for lease in scene.queue.claim(["ocm"], 10).leases}
    assert sorted(leases) == sorted(KEYS)
    assert leases[KEYS[0]] == opened


def test_a_letter_whose_shard_the_ledger_does_not_know_is_left(scene: Scene) -> None:
    del scene.ledger.rows["ocm", KEYS[0]]
    assert scene.replayer.replay("ocm", None) == Replayed(2, 1, set())


@pytest.mark.parametrize("status", ["done", "cancelled", "split"])
def test_a_letter_whose_shard_has_ended_otherwise_is_left(scene: Scene, status: str) -> None:
    scene.change_row(KEYS[0], status=status)
    assert scene.replayer.replay("ocm", {KEYS[0]}) == Replayed(0, 3, set())
    assert scene.ledger.rows["ocm", KEYS[0]].status == status


def test_a_row_of_a_newer_version_is_left_alone(scene: Scene) -> None:
    scene.change_row(KEYS[0], v=STORED_VERSION + 1)
    before = scene.ledger.rows["ocm", KEYS[0]]
    assert scene.replayer.replay("ocm", {KEYS[0]}) == Replayed(0, 3, set())
    assert scene.ledger.rows["ocm", KEYS[0]] == before


def test_an_empty_dead_letter_stream_is_nothing_to_do(scene: Scene) -> None:
    assert scene.replayer.replay("other", None) == Replayed(0, 0, set())
