"""What the judges would not see they could not find: each kind of doubled work is made by hand, and noticed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient

from streams_importer.embedded.servers import EmbeddedServers
from streams_importer.embedded.stand_in_service import Asked

from .observer import LEDGER, Observer, Progress, Round
from .verdict import asked_again

SHARD = "ids:0..400"


@pytest.fixture
def observer(mongo_uri: str) -> Iterator[Observer]:
    one = Observer(mongo_uri)
    yield one
    one.close()


class Worker:
    """Writes as a worker does: from a process, so from a session, of its own."""

    def __init__(self, name: str, client: MongoClient[dict[str, Any]], database: str) -> None:
        self.name = name
        self.rows = client[database][LEDGER]

    def start(self) -> None:
        self.set(status="leased", leaseOwner=self.name)

    def set(self, **fields: Any) -> None:
        self.rows.update_one({"shardKey": SHARD}, {"$set": fields})


@pytest.fixture
def workers(servers: EmbeddedServers, mongo_uri: str) -> Iterator[tuple[Worker, Worker]]:
    database = mongo_uri.rpartition("/")[2].partition("?")[0]
    with MongoClient[dict[str, Any]](servers.mongodb_uri) as one, MongoClient[dict[str, Any]](servers.mongodb_uri) as other:
        yield Worker("a", one, database), Worker("b", other, database)


def plan(worker: Worker) -> None:
    row = {"shardKey": SHARD, "jobId": "1", "status": "pending", "leaseOwner": None, "page": 0, "cursor": None}
    worker.rows.insert_one(row)


def test_a_round_as_it_should_be_has_nothing_doubled(observer: Observer, workers: tuple[Worker, Worker]) -> None:
    a, b = workers
    plan(a)
    a.start()
    a.set(page=1, cursor=100)
    a.set(status="pending", leaseOwner=None)
    b.start()
    b.set(page=2, cursor=200)
    b.set(status="done", leaseOwner=None, page=3, cursor=None)
    [seen] = observer.rounds()
    assert [owner for owner, _ in seen.starts] == ["a", "b"]
    assert [(each.page, each.cursor, each.owner) for each in seen.checkpoints] == [(1, 100, "a"), (2, 200, "b")]
    assert [status for status, _ in seen.settlements] == ["done"]
    assert seen.late_writes == []
    assert observer.movements == 3


def test_a_checkpoint_after_another_one_started_is_noticed(observer: Observer, workers: tuple[Worker, Worker]) -> None:
    a, b = workers
    plan(a)
    a.start()
    b.start()
    a.set(page=1, cursor=100)  # says nothing of who it is
    [seen] = observer.rounds()
    assert seen.late_writes == [("a", f"{SHARD}: page 1 stored by a when b had it")]


def test_an_end_after_another_one_started_is_noticed(observer: Observer, workers: tuple[Worker, Worker]) -> None:
    a, b = workers
    plan(a)
    a.start()
    b.start()
    a.set(status="done", leaseOwner=None)
    [seen] = observer.rounds()
    assert seen.late_writes == [("a", f"{SHARD}: done by a when b had it")]


def test_a_second_end_in_one_round_is_noticed_and_one_in_the_next_is_not(
    observer: Observer, workers: tuple[Worker, Worker]
) -> None:
    a, _ = workers
    plan(a)
    for _ in range(2):
        a.start()
        a.set(status="done", leaseOwner=None)
    a.set(status="pending", jobId="2", page=0, cursor=None)
    a.start()
    a.set(status="done", leaseOwner=None)
    assert [len(each.settlements) for each in observer.rounds()] == [2, 1]


def asked(after: int, wall: float) -> Asked:
    return Asked(wall, wall, "/poi", {"greaterthanid": str(after)}, 200, 100, None, None, "", True, None)


@pytest.mark.parametrize(
    ("after", "wall", "found"),
    [
        (0, 9.0, 0),  # before its checkpoint
        (0, 10.1, 0),  # perhaps logged late
        (0, 11.0, 1),
        (100, 11.0, 0),  # the page that follows the checkpoint
        (100, 21.0, 1),  # all is settled
        (0, 31.0, 0),  # a new round
        (400, 21.0, 0),  # another shard's
    ],
)
def test_a_checkpointed_page_asked_again_is_noticed(after: int, wall: float, found: int) -> None:
    first = Round(SHARD, "1", 1.0, checkpoints=[Progress(1, 100, "a", 10.0)], settlements=[("done", 20.0)])
    assert len(asked_again([Round(SHARD, "2", 30.0), first], [asked(after, wall)])) == found
