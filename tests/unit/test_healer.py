"""Healing: counters first, then what is missing, then whether both stores agree. Nobody has to be told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from streams_importer.application.healer import REQUEUE_BATCH, Healer, queue_up
from streams_importer.application.recount import Recount
from streams_importer.domain.errors import Full, Unavailable, Uncounted
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Counts
from streams_importer.ports import QueuedShard
from tests.fakes.counters import FakeCounters
from tests.fakes.ledger import FakeLedger
from tests.fakes.queue import FakeQueue, Store
from tests.fakes.recorded import Events

KEYS = ["ids:0..10", "ids:10..20", "ids:20..30"]
SOME = Checkpoint(2, 7, Counts(inserted=3))


class CountedQueue(FakeQueue):
    """Queues nothing for imports that the counters do not know, as Redis does; and nothing at all while it is full."""

    def __init__(self, consumer: str, store: Store, counters: FakeCounters) -> None:
        super().__init__(consumer, store)
        self.counters = counters
        self.full = False

    def enqueue(self, import_name: str, shards: Sequence[QueuedShard], run: str, *, begins: bool = False) -> list[bool]:
        self.store.uncounted = set(self.counters.forgotten([import_name]))
        if self.full:
            raise Full("Redis", "is full")
        return super().enqueue(import_name, shards, run, begins=begins)


class NotedCounters(FakeCounters):
    """Notes how often they were replaced, and with what success."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[bool] = []

    def replace(self, import_name: str, seen: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
        self.answers.append(super().replace(import_name, seen, wanted))
        return self.answers[-1]


class Scene:
    """Import `a`: one shard done and two pending, all of them in the ledger, none in Redis."""

    def __init__(self) -> None:
        self.ledger, self.counters, self.store = FakeLedger(), NotedCounters(), Store()
        self.server = "first server"
        self.events = Events()
        self.queue, self.healer = self.another()
        self.ledger.plan("a", KEYS, "run1")
        self.change(KEYS[0], status="done", checkpoint=SOME, counted_as="done")

    def another(self, consumer: str = "w:1") -> tuple[CountedQueue, Healer]:
        """The queue and the healer of one more worker."""
        queue = CountedQueue(consumer, self.store, self.counters)
        return queue, Healer(queue, self.ledger, self.counters, self.events, lambda: self.server)

    def change(self, key: str, **changes: object) -> None:
        self.ledger.rows["a", key] = replace(self.ledger.rows["a", key], **changes)  # type: ignore[arg-type]

    def flush(self) -> None:
        self.counters.fields.clear()
        self.store.entries.clear()
        self.store.places.clear()
        self.store.progress.clear()

    def queued(self) -> list[str]:
        return [entry.shard_key for entry in self.store.entries.values()]


@pytest.fixture
def scene() -> Scene:
    return Scene()


# Redis lost its memory.


def test_after_a_flush_counters_are_rebuilt_first_and_what_is_pending_is_queued_then(scene: Scene) -> None:
    assert scene.healer.heal(["a"]) == ["a"]
    assert scene.queued() == KEYS[1:]
    counted = {name: value for name, value in scene.counters.read("a").items() if name in ("done", "inserted", "run", "run_done")}
    assert counted == {"done": "1", "inserted": "3", "run": "run1", "run_done": "1"}
    assert scene.events.details("healed what Redis had lost") == [{"import_name": "a", "queued": 2}]


def test_counters_are_there_before_anything_is_queued(scene: Scene) -> None:
    there: list[list[str]] = []
    enqueue = scene.queue.put
    scene.queue.put = lambda entry: there.append(scene.counters.forgotten(["a"])) or enqueue(entry)  # type: ignore[method-assign, func-returns-value]
    scene.healer.heal(["a"])
    assert there == [[], []]


def test_with_its_memory_there_nothing_is_looked_for(scene: Scene) -> None:
    scene.healer.heal(["a"])
    scene.ledger.away = True
    assert scene.healer.heal(["a"]) == []
    assert scene.queued() == KEYS[1:]


def test_of_several_healers_one_rebuilds_and_no_shard_is_queued_twice(scene: Scene) -> None:
    healers = [scene.another(f"w:{number}")[1] for number in range(3)]
    totals = scene.ledger.totals

    def meanwhile(import_name: str):  # type: ignore[no-untyped-def]
        """While the first adds up, another heals from beginning to end."""
        scene.ledger.totals = totals  # type: ignore[method-assign]
        healers[1].heal([import_name])
        return totals(import_name)

    scene.ledger.totals = meanwhile  # type: ignore[method-assign]
    healers[0].heal(["a"])
    healers[2].heal(["a"])
    assert scene.counters.answers == [True, False]
    assert scene.queued() == KEYS[1:]
    assert scene.counters.read("a")["done"] == "1"


def test_an_import_that_is_new_to_redis_is_nothing_to_tell_of(scene: Scene) -> None:
    assert scene.healer.heal(["empty"]) == ["empty"]
    assert scene.events.told == []
    assert scene.healer.heal(["empty"]) == []


def test_only_the_imports_that_were_forgotten_are_healed(scene: Scene) -> None:
    scene.ledger.plan("b", KEYS, "run1")
    scene.counters.fields["b"] = {"since": "2026-02-21T12:00:00Z"}
    assert scene.healer.heal(["a", "b"]) == ["a"]
    assert {entry.import_name for entry in scene.store.entries.values()} == {"a"}


# Another server took over.


def test_when_another_server_answers_what_it_does_not_have_is_queued(scene: Scene) -> None:
    scene.healer.heal(["a"])
    last = next(entry for entry in reversed(scene.store.entries))
    del scene.store.places["a", scene.store.entries.pop(last).shard_key]
    assert scene.healer.heal(["a"]) == []
    assert scene.queued() == KEYS[1:2], "the same server is not asked again"
    scene.server = "second server"
    assert scene.healer.heal(["a"]) == [], "its counters are there: pauses and definitions were not lost"
    assert scene.queued() == KEYS[1:]
    assert [details["queued"] for details in scene.events.details("healed what Redis had lost")] == [2, 1]


def test_a_restart_that_kept_everything_is_not_told(scene: Scene) -> None:
    scene.healer.heal(["a"])
    scene.server = "second server"
    scene.healer.heal(["a"])
    assert len(scene.events.told) == 1


def test_a_server_that_does_not_say_who_it_is_is_not_another_one_each_time(scene: Scene) -> None:
    scene.server = ""
    scene.healer.heal(["a"])
    scene.ledger.away = True
    assert scene.healer.heal(["a"]) == []


def test_an_outage_while_it_heals_is_tried_again_until_all_is_healed(scene: Scene) -> None:
    scene.healer.heal(["a"])
    scene.store.entries.clear()
    scene.store.places.clear()
    scene.server = "second server"
    scene.ledger.away = True
    with pytest.raises(Unavailable):
        scene.healer.heal(["a"])
    scene.ledger.away = False
    scene.healer.heal(["a"])
    assert scene.queued() == KEYS[1:]


# What is missing.


def test_what_is_pending_and_has_no_place_is_queued_under_its_own_run(scene: Scene) -> None:
    scene.healer.heal([])
    scene.change(KEYS[2], run="run2", status="leased", checkpoint=SOME, attempts=2, crashes=1)
    assert scene.healer.requeue_missing("a") == 2
    leases = {lease.shard_key: lease for lease in scene.queue.claim(["a"], 10).leases}
    assert {key: lease.run for key, lease in leases.items()} == {KEYS[1]: "run1", KEYS[2]: "run2"}
    assert (leases[KEYS[2]].checkpoint, leases[KEYS[2]].attempts, leases[KEYS[2]].crashes) == (SOME, 2, 1)
    assert {key: lease.job for key, lease in leases.items()} == {key: scene.ledger.rows["a", key].job for key in KEYS[1:]}


def test_what_has_a_place_is_not_queued_twice(scene: Scene) -> None:
    scene.healer.requeue_missing("a")
    scene.queue.retry(scene.queue.claim(["a"], 1).leases[0], SOME, 60, 1)
    assert scene.healer.requeue_missing("a") == 0
    assert len(scene.store.entries) == 1


@pytest.mark.parametrize("changes", [{"status": "done"}, {"status": "failed"}, {"v": STORED_VERSION + 1}])
def test_finished_shards_and_those_of_a_newer_version_are_not_queued(scene: Scene, changes: dict[str, object]) -> None:
    scene.change(KEYS[1], **changes)
    assert scene.healer.requeue_missing("a") == 1
    assert scene.queued() == KEYS[2:]


def test_many_missing_shards_go_in_batches(scene: Scene) -> None:
    scene.ledger.plan("b", [f"ids:{number}..{number + 1}" for number in range(REQUEUE_BATCH + 1)], "run1")
    scene.counters.fields["b"] = {"since": "2026-02-21T12:00:00Z"}
    assert scene.healer.requeue_missing("b") == REQUEUE_BATCH + 1
    assert scene.queue.calls == ["enqueue", "enqueue"]


def test_a_row_that_nobody_can_run_is_not_queued_again_and_again(scene: Scene) -> None:
    scene.ledger.plan("b", ["no shard at all", "ids:0..1"], "run1")
    assert scene.healer.requeue_missing("b") == 1
    assert scene.healer.requeue_missing("b") == 0


def test_a_full_redis_is_survived_and_what_is_missing_is_queued_when_there_is_room(scene: Scene) -> None:
    scene.queue.full = True
    assert scene.healer.heal(["a"]) == ["a"]
    assert scene.healer.requeue_missing("a") == 0
    scene.queue.full = False
    assert scene.healer.requeue_missing("a") == 2


def test_a_flush_between_looking_and_queueing_is_met_by_a_rebuild(scene: Scene) -> None:
    scene.healer.heal(["a"])
    scene.flush()
    assert scene.healer.requeue_missing("a") == 2
    assert scene.counters.read("a")["done"] == "1"


def test_counters_that_cannot_be_rebuilt_are_no_endless_loop(scene: Scene) -> None:
    scene.counters.replace = lambda *_: False  # type: ignore[method-assign]
    with pytest.raises(Uncounted):
        queue_up(scene.queue, Recount(scene.ledger, scene.counters), "a", [QueuedShard(KEYS[1], "job")], "run1")


# Whether both stores agree.


class Ended(Scene):
    """All has ended, and the counters are right."""

    def __init__(self) -> None:
        super().__init__()
        for key in KEYS[1:]:
            self.change(key, status="done", checkpoint=SOME, counted_as="done")
        self.healer.heal(["a"])
        self.counters.answers.clear()


def test_wrong_counters_are_put_right_and_told_of() -> None:
    scene = Ended()
    scene.counters.fields["a"]["done"] = "4"
    scene.healer.audit("a")
    assert scene.counters.read("a")["done"] == "3"
    assert scene.events.names == ["counters put right"]


def test_right_counters_are_left_alone() -> None:
    scene = Ended()
    scene.healer.audit("a")
    assert scene.counters.answers == []
    assert scene.events.told == []


def test_what_was_looked_at_is_not_looked_at_again_until_something_is_counted() -> None:
    scene = Ended()
    scene.healer.audit("a")
    scene.ledger.away = True
    scene.healer.audit("a")
    scene.counters.fields["a"]["moved"] = "1"
    with pytest.raises(Unavailable):
        scene.healer.audit("a")
    scene.ledger.away = False
    scene.counters.fields["a"]["done"] = "2"
    scene.healer.audit("a")
    assert scene.counters.read("a")["done"] == "3"


def test_what_was_put_right_and_goes_wrong_in_the_same_way_again_is_put_right_again() -> None:
    scene = Ended()
    for _ in range(2):
        scene.counters.fields["a"]["done"] = "4"
        scene.healer.audit("a")
        scene.counters.fields["a"]["moved"] = "1"
        scene.healer.audit("a")
        assert scene.counters.read("a")["done"] == "3"
