"""A producer waits for room and never drops."""

from __future__ import annotations

import pytest

from streams_importer.application.backlog import Backlog


class Queue:
    """Somebody works on it while the producer sleeps."""

    def __init__(self, in_flight: int, done_a_look: int) -> None:
        self.in_flight = in_flight
        self.done_a_look = done_a_look
        self.told: list[int] = []

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.in_flight -= self.done_a_look

    def backlog(self, most: int) -> Backlog:
        return Backlog(most, lambda: self.in_flight, self.told.append, self.sleep)


@pytest.mark.parametrize(
    ("in_flight", "most", "wanted", "room"), [(0, 100, 10, 10), (95, 100, 5, 5), (50, 100, 1000, 50), (0, 1, 1000, 1)]
)
def test_where_there_is_room_nobody_waits(in_flight: int, most: int, wanted: int, room: int) -> None:
    queue = Queue(in_flight, 0)
    assert queue.backlog(most).room_for(wanted) == room
    assert queue.told == []


def test_where_there_is_none_it_waits_until_a_batch_is_worth_it_and_says_so() -> None:
    queue = Queue(100, 4)
    assert queue.backlog(100).room_for(1000) == 12
    assert queue.told == [100, 96, 92]


def test_more_in_flight_than_allowed_is_waited_for_too() -> None:
    queue = Queue(1000, 500)
    assert queue.backlog(10).room_for(1) == 1
    assert queue.told == [1000, 500]


def test_waiting_can_be_ended() -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Backlog(1, lambda: 1, lambda in_flight: None, interrupted).room_for(1)
