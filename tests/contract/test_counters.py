"""An import's counters as a whole: the fake ones, the server in memory and a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import fakeredis
import pytest
import redis

from streams_importer.adapters.redis_counters import RedisCounters
from streams_importer.adapters.redis_keys import Keys
from streams_importer.ports import Counters
from tests.fakes.counters import FakeCounters


@dataclass
class Board:
    counters: Counters
    count: Callable[[str, str], object]
    """Somebody else sets a counter of the import `a`."""
    put_in_flight: Callable[[str], object]
    """A shard of the import `a` is on the stream, or delayed."""


@pytest.fixture(params=["fake", "fakeredis", "real"])
def board(request: pytest.FixtureRequest) -> Iterator[Board]:
    if request.param == "fake":
        fake = FakeCounters()
        yield Board(fake, fake.fields.setdefault("a", {}).__setitem__, lambda _: fake.in_flight.add("a"))
        return
    client: redis.Redis
    if request.param == "real":
        client = request.getfixturevalue("redis_client")
    else:
        client = fakeredis.FakeRedis(version=(6, 2), protocol=2)
    keys = Keys().of("a")

    def put(place: str) -> None:
        if place == "stream":
            client.xadd(keys.shards, {"shard": "ids:0..10"})
        else:
            client.zadd(keys.delayed, {"ids:0..10": 1})

    yield Board(RedisCounters(client, Keys()), lambda name, value: client.hset(keys.counters, name, value), put)


def without_since(board: Board) -> dict[str, str]:
    return {name: value for name, value in board.counters.read("a").items() if name != "since"}


def test_imports_without_counters_are_forgotten_ones(board: Board) -> None:
    assert board.counters.forgotten(["a", "b"]) == ["a", "b"]
    assert board.counters.read("a") == {}
    assert board.counters.replace("a", {}, {})
    assert board.counters.forgotten(["b", "a"]) == ["b"]
    assert board.counters.forgotten([]) == []


def test_counters_that_never_were_rebuilt_are_forgotten_ones_too(board: Board) -> None:
    board.count("producing", "1")
    assert board.counters.forgotten(["a"]) == ["a"], "who announces a producer counts nothing yet"


def test_replacing_sets_what_is_wanted_removes_what_is_empty_and_leaves_the_rest(board: Board) -> None:
    board.count("done", "7")
    board.count("requests_ok", "3")
    assert board.counters.replace("a", board.counters.read("a"), {"done": "", "failed": "2", "split": ""})
    assert without_since(board) == {"failed": "2", "requests_ok": "3"}


def test_since_when_is_noted_once(board: Board) -> None:
    board.counters.replace("a", {}, {})
    since = board.counters.read("a")["since"]
    assert since.endswith("Z")
    assert len(since) == len("2026-02-21T12:00:00Z")
    board.count("since", "2020-01-01T00:00:00Z")
    board.counters.replace("a", board.counters.read("a"), {"done": "1"})
    assert board.counters.read("a")["since"] == "2020-01-01T00:00:00Z"


def test_who_saw_something_else_than_there_is_now_replaces_nothing(board: Board) -> None:
    board.counters.replace("a", {}, {"done": "7"})
    seen = board.counters.read("a")
    board.count("done", "8")
    assert not board.counters.replace("a", seen, {"done": "5", "failed": "1"})
    assert without_since(board) == {"done": "8"}


def test_without_since_whatever_is_there_is_replaced(board: Board) -> None:
    """Half of a memory is worth nothing; and who waits for it to stand still may wait for ever."""
    board.count("done", "8")
    board.put_in_flight("stream")
    assert board.counters.replace("a", {}, {"done": "5"})
    assert without_since(board) == {"done": "5"}


def test_a_counter_that_appears_meanwhile_is_a_change(board: Board) -> None:
    board.counters.replace("a", {}, {"done": "7"})
    seen = board.counters.read("a")
    board.count("failed", "1")
    assert not board.counters.replace("a", seen, {"failed": ""})


def test_what_is_not_to_be_replaced_may_change(board: Board) -> None:
    seen = board.counters.read("a")
    board.count("moved", "1")
    assert board.counters.replace("a", seen, {"done": "5"})
    assert without_since(board) == {"moved": "1", "done": "5"}


def test_of_two_who_rebuild_at_once_the_first_wins(board: Board) -> None:
    seen = board.counters.read("a")
    assert board.counters.replace("a", seen, {"done": "5"})
    assert not board.counters.replace("a", seen, {"done": "6"})
    assert without_since(board) == {"done": "5"}


@pytest.mark.parametrize("place", ["stream", "delayed"])
def test_counters_that_are_there_are_not_replaced_while_shards_are_in_flight(board: Board, place: str) -> None:
    board.put_in_flight(place)
    assert board.counters.replace("a", {}, {"done": "5"}), "without any, there is nothing that could be counted meanwhile"
    assert not board.counters.replace("a", board.counters.read("a"), {"done": "6"})
    assert without_since(board) == {"done": "5"}
