"""A server that is away: one line when it goes, one with the length when it is back, and it is waited out."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from streams_importer.application.cancellation import CancelToken
from streams_importer.application.outages import LONGEST_WAIT_S, Outages
from streams_importer.domain.errors import BadSetting, Cancelled, Unavailable
from tests.fakes.recorded import Events

PATIENCE_S = 10.0
REDIS = Unavailable("Redis", "connection refused")
MONGODB = Unavailable("MongoDB", "no primary")


class Scene:
    def __init__(self) -> None:
        self.now = 50.0
        self.events = Events()
        self.outages = Outages(self.events, lambda: self.now)


class Waits:
    """A Cancel that does not sleep: it notes how long it was to, and lets time pass."""

    cancelled = False

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self.waits: list[float] = []

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self._scene.now += 2.0
        return False

    def on_cancel(self, action: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    def may_send(self) -> bool:
        return True


@pytest.fixture
def scene() -> Scene:
    return Scene()


def failing(*errors: Exception) -> Callable[[], str]:
    """Raises these in turn, then answers."""
    left = list(errors)

    def action() -> str:
        if left:
            raise left.pop(0)
        return "answer"

    return action


def test_without_an_outage_nothing_is_told(scene: Scene) -> None:
    assert scene.outages.patiently(CancelToken(), failing()) == "answer"
    assert scene.events.told == []
    assert scene.outages.seconds_since("Redis") == float("inf")
    assert scene.outages.seconds_since("Redis") > 0


def test_an_outage_is_one_line_when_it_starts_and_one_with_its_length_when_it_ends(scene: Scene) -> None:
    assert scene.outages.patiently(Waits(scene), failing(REDIS, REDIS, REDIS)) == "answer"
    assert scene.events.told == [
        ("outage", "warning", {"server": "Redis", "reason": "connection refused"}),
        ("outage over", "info", {"server": "Redis", "seconds": 6.0}),
    ]


def test_waits_grow_up_to_a_second_and_are_spread(scene: Scene) -> None:
    waits = Waits(scene)
    scene.outages.patiently(waits, failing(*[REDIS] * 30))
    assert 0 < waits.waits[0] <= 0.05
    assert max(waits.waits) <= LONGEST_WAIT_S
    assert min(waits.waits[10:]) >= LONGEST_WAIT_S / 2
    assert len(set(waits.waits)) == 30


def test_however_many_threads_meet_an_outage_it_is_told_once(scene: Scene) -> None:
    down, told, met = threading.Event(), threading.Event(), threading.Barrier(17)
    scene.events.on_told = told.set
    answers: list[str] = []

    def worker() -> None:
        meeting: list[Any] = [met]

        def action() -> str:
            if meeting:
                meeting.pop().wait(PATIENCE_S)
            if not down.is_set():
                raise REDIS
            return "answer"

        answers.append(scene.outages.patiently(CancelToken(), action))

    threads = [threading.Thread(target=worker) for _ in range(16)]
    for thread in threads:
        thread.start()
    met.wait(PATIENCE_S)
    assert told.wait(PATIENCE_S)
    scene.now += 7.5
    down.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert answers == ["answer"] * 16
    assert scene.events.names == ["outage", "outage over"]
    assert scene.events.details("outage over") == [{"server": "Redis", "seconds": 7.5}]


def test_two_servers_away_at_the_same_time_are_two_outages(scene: Scene) -> None:
    scene.outages.away(REDIS)
    scene.outages.away(MONGODB)
    scene.outages.away(REDIS)
    scene.now += 3
    scene.outages.back("MongoDB")
    assert scene.outages.seconds_since("Redis") == 0
    scene.outages.back("Redis")
    assert [(name, details["server"]) for name, _, details in scene.events.told] == [
        ("outage", "Redis"),
        ("outage", "MongoDB"),
        ("outage over", "MongoDB"),
        ("outage over", "Redis"),
    ]


def test_a_call_that_met_both_servers_away_ends_both_outages(scene: Scene) -> None:
    scene.outages.patiently(Waits(scene), failing(MONGODB, REDIS))
    assert sorted(details["server"] for details in scene.events.details("outage over")) == ["MongoDB", "Redis"]


def test_a_second_outage_is_told_again(scene: Scene) -> None:
    for _ in range(2):
        scene.outages.patiently(Waits(scene), failing(REDIS))
    assert scene.events.names == ["outage", "outage over"] * 2


def test_a_server_that_was_never_away_does_not_come_back(scene: Scene) -> None:
    scene.outages.back("Redis")
    assert scene.events.told == []


def test_whoever_waits_is_let_go_when_cancelled(scene: Scene) -> None:
    cancel, raised = CancelToken(), list[BaseException]()
    trying = threading.Event()

    def action() -> None:
        trying.set()
        raise REDIS

    def wait() -> None:
        try:
            scene.outages.patiently(cancel, action)
        except Cancelled as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    assert trying.wait(PATIENCE_S)
    cancel.cancel("stop")
    thread.join(PATIENCE_S)
    assert [str(error) for error in raised] == ["stopped while waiting for Redis"]


def test_a_cancelled_caller_still_tries_once(scene: Scene) -> None:
    cancel = CancelToken()
    cancel.cancel("stop")
    assert scene.outages.patiently(cancel, failing()) == "answer"
    with pytest.raises(Cancelled):
        scene.outages.patiently(cancel, failing(REDIS))


def test_other_errors_are_not_waited_out(scene: Scene) -> None:
    with pytest.raises(BadSetting):
        scene.outages.patiently(CancelToken(), failing(BadSetting("no")))
    assert scene.events.told == []


def test_the_time_since_an_outage_counts_from_its_end(scene: Scene) -> None:
    scene.outages.away(REDIS)
    scene.now += 10
    assert scene.outages.seconds_since("Redis") == 0
    scene.outages.back("Redis")
    scene.now += 4
    assert scene.outages.seconds_since("Redis") == 4
    assert scene.outages.seconds_since("MongoDB") == float("inf")
