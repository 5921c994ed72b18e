"""The process in which a suspect runs, on real servers: it ends with an outcome, when it is told to, or with its parent."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis
from pymongo.database import Database

from streams_importer.adapters.child_process import ChildProcess
from streams_importer.apart_process import launch
from streams_importer.application.intake import lease_until
from streams_importer.domain.definition import Definition
from streams_importer.domain.hosts import HostRule
from streams_importer.domain.model import Abandoned, Checkpoint, Completed, Lease, Outcome, Released
from streams_importer.embedded.stand_in import StandIn
from streams_importer.ports import QueuedShard
from streams_importer.settings import Servers, Upstreams
from streams_importer.wiring import Wiring
from tests.fakes.recorded import Events
from tests.fakes.source import PATIENCE_S

KEY = "0123456789abcdef"
OCM = Definition("ocm", rate="1000/s", page_size=50, lease_s=5.0)
SLOW = OCM.changed(rate="1/h")
"""Its second page is an hour away."""


class Scene:
    """A shard in the hands of `w:1`, on real servers, with a local API in front of 200 points."""

    def __init__(self, redis_url: str, mongo_uri: str, db: Database[dict[str, Any]], stand_in: Callable[..., StandIn]) -> None:
        self.db, self.events = db, Events()
        self.upstream = stand_in(points=200, key=KEY, odd_rate=0.0)
        hosts = HostRule.of("", [self.upstream.base_url])
        self.wiring = Wiring(Servers(redis_url, mongo_uri), Upstreams(KEY, self.upstream.base_url, hosts), "si", self.events)
        self.wiring.set_up(OCM)
        self.queue = self.wiring.queue("w")
        row = self.wiring.ledger.plan("ocm", ["ids:0..1000000"], "run")[0]["ids:0..1000000"]
        self.wiring.recount.rebuild("ocm")
        assert self.queue.enqueue("ocm", [QueuedShard(row.shard_key, row.job)], "run") == [True]
        [self.lease] = self.queue.claim(["ocm"], 1).leases
        self.wiring.ledger.start([self.lease], lease_until(OCM))
        self.children: list[ChildProcess] = []

    def launch(self, definition: Definition = OCM, lease: Lease | None = None) -> ChildProcess:
        self.children.append(launch(self.wiring, lease or self.lease, definition, {"ocm": definition}))
        return self.children[-1]

    def stored(self) -> int:
        return self.db["pois"].count_documents({})


@pytest.fixture
def scene(
    redis_client: redis.Redis,
    redis_url: str,
    mongo_uri: str,
    mongo_db: Database[dict[str, Any]],
    stand_in: Callable[..., StandIn],
) -> Iterator[Scene]:
    made = Scene(redis_url, mongo_uri, mongo_db, stand_in)
    yield made
    for child in made.children:
        child.close()
    made.wiring.close()


def outcome_of(child: ChildProcess) -> Callable[[], Outcome | None]:
    ended: list[Outcome | None] = []
    thread = threading.Thread(target=lambda: ended.append(child.outcome()))
    thread.start()

    def outcome() -> Outcome | None:
        thread.join(PATIENCE_S)
        assert ended, "the child does not end"
        return ended[0]

    return outcome


def test_a_shard_is_imported_with_its_checkpoints_and_settled_by_nobody(scene: Scene) -> None:
    outcome = scene.launch().outcome()
    assert isinstance(outcome, Completed)
    assert outcome.checkpoint.page >= 4
    assert outcome.checkpoint.counts.inserted == scene.stored() == 200
    row = scene.wiring.ledger.look("ocm", [scene.lease.shard_key])[scene.lease.shard_key]
    assert (row.status, row.checkpoint.page) == ("leased", outcome.checkpoint.page - 1), "the parent settles"
    assert scene.queue.renew([scene.lease]) == [True]


def test_it_goes_on_from_the_checkpoint_of_its_lease(scene: Scene) -> None:
    first = scene.launch().outcome()
    assert isinstance(first, Completed)
    asked = len(scene.upstream.log)
    done = Checkpoint(first.checkpoint.page, 10**6 - 1, first.checkpoint.counts)
    outcome = scene.launch(lease=replace(scene.lease, checkpoint=done)).outcome()
    assert isinstance(outcome, Completed)
    assert outcome.checkpoint.page == done.page + 1
    assert len(scene.upstream.log) == asked + 1


def test_when_it_is_told_to_stop_it_gives_the_shard_back_as_far_as_it_came(scene: Scene) -> None:
    child = scene.launch(SLOW)
    outcome = outcome_of(child)
    child.cancel("stop")
    assert isinstance(outcome(), Released)
    assert child.how_it_ended == "with status 0"


def test_a_lease_that_was_lost_ends_it(scene: Scene) -> None:
    scene.queue.release([scene.lease])
    assert isinstance(scene.launch().outcome(), Abandoned)


def test_signals_that_a_platform_sends_to_everybody_are_left_to_its_parent(scene: Scene) -> None:
    child = scene.launch(SLOW)
    outcome = outcome_of(child)
    for _ in range(1000):
        if scene.upstream.log:  # it is at work
            break
        threading.Event().wait(PATIENCE_S / 1000)
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(child._process.pid, number)
    child.cancel("stop")
    assert isinstance(outcome(), Released)


def test_when_its_parent_is_gone_it_ends(scene: Scene) -> None:
    child = scene.launch(SLOW)
    child.close()
    assert child.how_it_ended == "with status 1"


def test_a_child_that_is_killed_leaves_the_shard_where_it_was(scene: Scene) -> None:
    child = scene.launch(SLOW)
    os.kill(child._process.pid, signal.SIGKILL)
    assert child.outcome() is None
    assert child.how_it_ended == "by SIGKILL"
    assert scene.queue.renew([scene.lease]) == [True]


def test_the_key_is_neither_among_its_arguments_nor_in_what_it_is_told(scene: Scene) -> None:
    child = scene.launch()
    assert KEY not in str(child._process.args)
    assert isinstance(child.outcome(), Completed)
