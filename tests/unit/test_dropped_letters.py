"""A worker whose letter pushes older ones out says so, and says what to do."""

from __future__ import annotations

import pytest

from streams_importer.domain.model import Checkpoint, Dead
from tests.fakes.queue import Entry
from tests.unit.test_settlement import BAD, KEYS, MIDDLE, Scene


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.queue.max_letters = 2
    return scene


def dropped(scene: Scene) -> list[tuple[str, dict[str, object]]]:
    return [(level, details) for event, level, details in scene.events.told if event == "dead letters dropped"]


def test_nothing_is_said_while_there_is_room(scene: Scene) -> None:
    scene.settle(*[Dead(MIDDLE, BAD)] * 2)
    assert dropped(scene) == []


def test_a_shard_that_pushes_a_letter_out_is_a_warning_with_the_way_back(scene: Scene) -> None:
    scene.settle(*[Dead(MIDDLE, BAD)] * 3)
    [(level, details)] = dropped(scene)
    assert level == "warning"
    assert (details["import_name"], details["dropped"]) == ("ocm", 1)
    assert details["hint"] == "shards list --status failed shows their shards, and dlq replay still takes them"
    assert [letter.shard_key for letter in scene.queue.dead_letters("ocm", 9)] == [KEYS[2], KEYS[1]]
    assert scene.row(0).status == "failed", "the ledger keeps it"


def test_garbage_that_pushes_a_letter_out_is_told_too(scene: Scene) -> None:
    scene.settle(*[Dead(MIDDLE, BAD)] * 2)
    scene.queue.put(Entry("ocm", "", "", "", problem="no shard"))
    [garbage] = scene.queue.claim(["ocm"], 5).garbage
    scene.settlement.bury(garbage, "garbage", garbage.reason)
    assert [details["dropped"] for _, details in dropped(scene)] == [1]


def test_who_lost_the_lease_drops_and_says_nothing(scene: Scene) -> None:
    scene.settle(*[Dead(MIDDLE, BAD)] * 2)
    lease = scene.leases[3]
    scene.queue.take_over(lease)
    assert scene.queue.dead_letter(lease, Checkpoint(), BAD, 1).dropped == 0
    assert len(scene.queue.dead_letters("ocm", 9)) == 2
