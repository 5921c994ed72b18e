"""Slots: a fixed number of attempts at a time, and each end told once."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from streams_importer.application.settlement import Attempt
from streams_importer.application.slots import Slots
from streams_importer.domain.definition import Definition
from streams_importer.domain.model import Checkpoint, Completed, Lease, Outcome

PATIENCE_S = 10.0
DONE = Completed(Checkpoint())


def attempt(number: int) -> Attempt:
    return Attempt(Lease("a", f"{number}-1", "w:1", 1, f"ids:{number}..{number + 1}", "job", "run"), Definition("a"))


class Scene:
    def __init__(self) -> None:
        self.rung = threading.Semaphore(0)
        self.slots = Slots(2, self.rung.release)
        self.go = threading.Event()

    def wait_here(self) -> Outcome:
        assert self.go.wait(PATIENCE_S)
        return DONE


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.go.set()
    scene.slots.close()


def test_a_started_attempt_takes_a_slot_until_its_end_is_collected(scene: Scene) -> None:
    assert (scene.slots.free, scene.slots.running) == (2, 0)
    scene.slots.start(attempt(1), scene.wait_here)
    assert (scene.slots.free, scene.slots.running) == (1, 1)
    assert scene.slots.finished() == []
    scene.go.set()
    assert scene.rung.acquire(timeout=PATIENCE_S)
    assert (scene.slots.free, scene.slots.running) == (1, 1)
    assert scene.slots.finished() == [(attempt(1), DONE)]
    assert (scene.slots.free, scene.slots.running) == (2, 0)
    assert scene.slots.finished() == []


def test_the_bell_rings_once_for_every_attempt_that_ends(scene: Scene) -> None:
    scene.go.set()
    for number in range(5):
        scene.slots.start(attempt(number), scene.wait_here)
    for _ in range(5):
        assert scene.rung.acquire(timeout=PATIENCE_S)
    assert not scene.rung.acquire(blocking=False)
    assert sorted(ended.lease.entry for ended, _ in scene.slots.finished()) == [f"{number}-1" for number in range(5)]


def test_no_more_attempts_run_at_a_time_than_there_are_slots(scene: Scene) -> None:
    inside, most, lock, full = 0, 0, threading.Lock(), threading.Semaphore(0)

    def run() -> Outcome:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        full.release()
        scene.go.wait(PATIENCE_S)
        with lock:
            inside -= 1
        return DONE

    for number in range(6):
        scene.slots.start(attempt(number), run)
    assert full.acquire(timeout=PATIENCE_S)
    assert full.acquire(timeout=PATIENCE_S)
    scene.go.set()
    for _ in range(6):
        assert scene.rung.acquire(timeout=PATIENCE_S)
    assert most == 2


def test_closing_waits_for_nobody(scene: Scene) -> None:
    scene.slots.start(attempt(1), scene.wait_here)
    scene.slots.close()
    assert scene.slots.running == 1
