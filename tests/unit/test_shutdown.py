"""Signals: the first asks for a clean stop, those within two seconds belong to it, a later one ends the process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from streams_importer.application.cancellation import CancelToken
from streams_importer.application.shutdown import SAME_SIGNAL_S, Shutdown

PATIENCE_S = 10.0


class Scene:
    """A shutdown whose clock is moved by hand, and that notes how the process would end."""

    def __init__(self) -> None:
        self.now = 100.0
        self.left: list[int] = []
        self.stop = CancelToken()
        self.shutdown = Shutdown(self.stop, lambda: self.now, self.left.append)

    def signal(self, number: int, after: float = 0.0) -> None:
        self.now += after
        self.shutdown.received(number, None)


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def own_handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_for_a_clean_stop(scene: Scene, number: int) -> None:
    scene.signal(number)
    assert scene.stop.wait(PATIENCE_S)
    assert scene.stop.reason == "stop"
    assert scene.left == []


@pytest.mark.parametrize("after", [0.0, 0.001, 1.0, SAME_SIGNAL_S])
def test_signals_within_two_seconds_are_one(scene: Scene, after: float) -> None:
    scene.signal(signal.SIGTERM)
    scene.signal(signal.SIGTERM, after)
    assert scene.left == []


def test_a_shower_of_different_signals_within_two_seconds_is_one(scene: Scene) -> None:
    for _ in range(20):
        scene.signal(signal.SIGTERM, 0.05)
        scene.signal(signal.SIGINT, 0.05)
    assert scene.left == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_later_signal_leaves_at_once_with_its_own_status(scene: Scene, number: int, status: int) -> None:
    scene.signal(signal.SIGTERM)
    scene.signal(number, SAME_SIGNAL_S + 0.01)
    assert scene.left == [status]


def test_two_seconds_count_from_the_first_signal_not_from_the_last(scene: Scene) -> None:
    scene.signal(signal.SIGTERM)
    scene.signal(signal.SIGTERM, 1.5)
    assert scene.left == []
    scene.signal(signal.SIGTERM, 1.5)
    assert scene.left == [143]


@pytest.mark.usefixtures("own_handlers")
def test_installed_it_hears_real_signals(scene: Scene) -> None:
    scene.shutdown.install()
    os.kill(os.getpid(), signal.SIGTERM)
    assert scene.stop.wait(PATIENCE_S)
    assert scene.left == []


class _SignalWhileWriting(list[Callable[[], None]]):
    """A list in whose `append` a signal arrives: the main thread is then inside the token, as it is for every claimed shard."""

    def __init__(self, scene: Scene) -> None:
        super().__init__()
        self._scene = scene

    def append(self, action: Callable[[], None]) -> None:
        super().append(action)
        self._scene.signal(signal.SIGTERM)


def test_a_signal_in_the_middle_of_a_change_to_the_stop_token_still_stops(scene: Scene) -> None:
    # A Python signal handler runs between two instructions of the main thread, whatever locks that thread holds.
    scene.stop._actions = _SignalWhileWriting(scene)
    main = threading.Thread(target=lambda: CancelToken(scene.stop), daemon=True)
    main.start()
    main.join(1.0)
    assert not main.is_alive(), "the signal handler waits for a lock that its own thread holds"
    assert scene.stop.wait(PATIENCE_S)
