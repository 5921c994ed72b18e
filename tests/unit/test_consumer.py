"""A worker with everything in memory: claims, looks in the ledger, imports, settles, and gives back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from streams_importer.application import outages as outages_module
from streams_importer.application import shard_importer
from streams_importer.application.apart import ApartImporter
from streams_importer.application.cancellation import CancelToken
from streams_importer.application.consumer import Consumer, WorkerParts
from streams_importer.application.healer import Healer
from streams_importer.application.housekeeper import Housekeeper
from streams_importer.application.imports import Imports
from streams_importer.application.intake import lease_until
from streams_importer.application.lease_keeper import LeaseKeeper
from streams_importer.application.outages import Outages
from streams_importer.application.settlement import Settlement
from streams_importer.application.shard_importer import ShardImporter
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import ImportRefused, ShardRefused, Transient, Unavailable
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Completed, Counts, Cursor, Failure, Lease, Page, Released
from streams_importer.domain.shard_key import Scope
from streams_importer.ports import Cancel, Claimed, LedgerRow, Pause, QueuedShard, Source
from tests.fakes.catalogue import FakeCatalogue
from tests.fakes.children import FakeChild
from tests.fakes.counters import FakeCounters
from tests.fakes.ledger import FakeLedger
from tests.fakes.places import FakePlaces
from tests.fakes.queue import Entry, FakeQueue
from tests.fakes.recorded import Events
from tests.fakes.records import FakeRecords
from tests.fakes.sink import FakeSink
from tests.fakes.source import PATIENCE_S, Gate, ScriptedSource, Step, page

KEYS = ["ids:0..10", "ids:10..20", "ids:20..30"]
OCM = Definition("ocm", max_attempts=2, retry_delay_s=10.0)
REFUSED = ImportRefused("key_refused", "api.example: answered 403", 403)
SOME = Checkpoint(2, 7, Counts(inserted=3))


class FlakyLedger(FakeLedger):
    """Notes what is looked up; the next looks fail while `failures` are left, and `on_look` hears of each."""

    def __init__(self) -> None:
        super().__init__()
        self.looks: list[list[str]] = []
        self.failures = 0
        self.on_look: Callable[[], None] = lambda: None

    def look(self, import_name: str, keys: Sequence[str]) -> dict[str, LedgerRow]:
        self.looks.append(list(keys))
        self.on_look()
        if self.failures:
            self.failures -= 1
            raise Unavailable("MongoDB", "away")
        return super().look(import_name, keys)


class CopyOfCatalogue(FakeCatalogue):
    """A copy whose pauses the queue sees, as it is in Redis."""

    def __init__(self, paused: set[str]) -> None:
        super().__init__()
        self._paused = paused

    def pause(self, name: str, pause: Pause | None) -> bool:
        known = super().pause(name, pause)
        self._paused.clear()
        self._paused.update(self.pauses)
        return known


class Worker:
    """A consumer and its parts. `source` answers every shard with one page until a test says otherwise."""

    def __init__(self, ahead: ThreadPoolExecutor) -> None:
        self.queue, self.ledger, self.sink, self.events = FakeQueue(), FlakyLedger(), FakeSink(), Events()
        self.counters, self.children = FakeCounters(), list[FakeChild]()
        self.apart: list[str] = []
        """Shards that ran in a process of their own: the first of `children` until a test says otherwise."""
        self.launch: Callable[[Lease], FakeChild] = lambda lease: self.children.pop(0)
        self.original, self.copy = FakeCatalogue(), CopyOfCatalogue(self.queue.store.paused)
        self.imports = Imports(self.original, self.copy, self.events)
        self.source: Source = EverySource()
        self.stop = CancelToken()
        self.outages = Outages(self.events)
        self.keeper = LeaseKeeper(self.queue, self.outages, lambda leases: None, lambda: 1.0, lambda error: None)
        self._ahead = ahead
        self._consumers: list[Consumer] = []
        self.imports.save(OCM, "run")
        self.counters.fields["ocm"] = {"since": "2026-02-21T12:00:00Z"}

    def _launch(self, lease: Lease, definition: Definition) -> FakeChild:
        self.apart.append(lease.shard_key)
        return self.launch(lease)

    def consumer(self, **options: Any) -> Consumer:
        parts = WorkerParts(
            queue=self.queue,
            ledger=self.ledger,
            imports=self.imports,
            settlement=Settlement(self.queue, self.ledger, self.events),
            importer=ShardImporter(self.queue, self.ledger, self.sink, self.outages, self._ahead, lease_until),
            apart=ApartImporter(self.queue, self.ledger, self.outages, self._launch),
            keeper=self.keeper,
            housekeeper=Housekeeper(self.queue, self.outages, lambda: {"w:1": 15.0}, lambda: None, lambda: 1e9),
            healer=Healer(self.queue, self.ledger, self.counters, self.events, lambda: "the server"),
            outages=self.outages,
            events=self.events,
            source_of=lambda definition: self.source,
        )
        self._consumers.append(Consumer(parts, self.stop, **options))
        return self._consumers[-1]

    def close(self) -> None:
        self.stop.cancel("test over")
        for consumer in self._consumers:
            consumer.drain()

    def script(self, *steps: Step) -> ScriptedSource:
        source = ScriptedSource(*steps)
        self.source = source
        return source

    def plan(self, *keys: str, name: str = "ocm") -> None:
        rows, _ = self.ledger.plan(name, keys, "run")
        self.counters.fields.setdefault(name, {"since": "2026-02-21T12:00:00Z"})
        self.queue.enqueue(name, [QueuedShard(key, rows[key].job) for key in keys], "run")

    def row(self, key: str = KEYS[0], name: str = "ocm") -> LedgerRow:
        return self.ledger.rows[name, key]

    def change_row(self, key: str = KEYS[0], **changes: Any) -> None:
        self.ledger.rows["ocm", key] = replace(self.row(key), **changes)


class EverySource:
    """One page a shard, whoever asks: its low end is the only record."""

    has_upper_time_bound = False

    def __init__(self) -> None:
        self.asked: list[Scope] = []

    def check_countries(self, codes: Sequence[str], cancel: Cancel) -> None:
        raise AssertionError("a worker plans nothing")

    def highest_id(self, cancel: Cancel) -> int:
        raise AssertionError("a worker plans nothing")

    def fetch(self, scope: Scope, cursor: Cursor | None, cancel: Cancel) -> Page:
        self.asked.append(scope)
        assert scope.ids is not None
        return page(scope.ids.low)


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    monkeypatch.setattr(shard_importer, "PAGE_RETRY_S", 0.0)
    monkeypatch.setattr(outages_module, "FIRST_WAIT_S", 0.001)
    with ThreadPoolExecutor(8) as ahead:
        worker = Worker(ahead)
        yield worker
        worker.close()


def run_until_idle(consumer: Consumer) -> None:
    """Goes round until nothing is in hand and nothing can be claimed."""
    thread = threading.Thread(target=lambda: consumer.run(lambda _: True))
    thread.start()
    thread.join(PATIENCE_S)
    assert not thread.is_alive(), "the worker does not come to rest"


# Work.


def test_all_shards_are_claimed_imported_and_settled(worker: Worker) -> None:
    worker.plan(*KEYS)
    consumer = worker.consumer(concurrency=2)
    run_until_idle(consumer)
    assert [worker.row(key).status for key in KEYS] == ["done"] * 3
    assert worker.queue.store.entries == {}
    assert worker.queue.store.counters == {"done": 3}
    assert worker.keeper.held() == {}
    assert len(worker.sink.records) == consumer.records == 3


def test_no_more_is_claimed_than_there_are_free_slots(worker: Worker) -> None:
    gates = [Gate(page(number)) for number in range(2)]
    worker.script(*gates)
    worker.plan(*KEYS)
    consumer = worker.consumer(concurrency=2)
    assert consumer.run_once() == 2
    assert consumer.run_once() == 0
    assert [worker.row(key).status for key in KEYS] == ["leased", "leased", "pending"]
    assert len(worker.keeper.held()) == 2


def test_without_imports_it_waits_for_one_and_serves_it_when_told(worker: Worker) -> None:
    worker.imports.save(Definition("later"), "run")
    worker.copy.stored.clear()
    worker.original.stored.clear()
    consumer = worker.consumer()
    assert consumer.run_once() == 0
    worker.imports.save(Definition("later"), "run")
    worker.plan(*KEYS, name="later")
    consumer.heard("imports")
    run_until_idle(consumer)
    assert worker.row(name="later").status == "done"


def test_only_the_wanted_imports_are_served(worker: Worker) -> None:
    worker.imports.save(Definition("other"), "run")
    worker.plan(KEYS[0])
    worker.plan(KEYS[0], name="other")
    run_until_idle(worker.consumer(wanted=["other"]))
    assert worker.row(name="other").status == "done"
    assert worker.row().status == "pending"


def test_overrides_of_the_definition_reach_the_attempt(worker: Worker) -> None:
    worker.script(*[Transient("http_502", "answered 502", 502)] * 3)
    worker.plan(KEYS[0])
    run_until_idle(worker.consumer(adjust=lambda definition: definition.changed(max_attempts=1)))
    assert worker.row().status == "failed"


def test_a_failed_attempt_comes_back_after_its_delay_until_its_attempts_are_used_up(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams_importer.application.chores.HOUSEKEEPING_S", 0.0)
    worker.script(*[Transient("http_502", "answered 502", 502)] * 6)
    worker.plan(KEYS[0])
    consumer = worker.consumer()
    run_until_idle(consumer)
    assert (worker.row().status, worker.row().attempts) == ("pending", 1)
    worker.queue.store.now += OCM.retry_delay_s
    run_until_idle(consumer)  # promotes it
    run_until_idle(consumer)
    assert (worker.row().status, worker.row().attempts) == ("failed", 2)
    assert [letter.shard_key for letter in worker.queue.dead_letters("ocm", 10)] == [KEYS[0]]


def test_a_refused_shard_is_dead_lettered_and_its_neighbours_go_on(worker: Worker) -> None:
    worker.script(ShardRefused("http_400", "answered 400", 400), page(11))
    worker.plan(*KEYS[:2])
    run_until_idle(worker.consumer(concurrency=1))
    assert [worker.row(key).status for key in KEYS[:2]] == ["failed", "done"]


# The ledger is looked at first.


def test_every_claim_is_one_look_in_the_ledger_for_all_its_shards(worker: Worker) -> None:
    worker.plan(*KEYS)
    worker.ledger.looks.clear()
    run_until_idle(worker.consumer())
    assert worker.ledger.looks == [KEYS]


@pytest.mark.parametrize("status", ["done", "split", "cancelled"])
def test_a_shard_that_is_finished_in_the_ledger_is_settled_without_a_request(worker: Worker, status: str) -> None:
    source = worker.script()
    worker.plan(KEYS[0])
    FakeQueue("dead:1", worker.queue.store).claim(["ocm"], 1)
    worker.change_row(status=status, checkpoint=SOME)
    worker.queue.store.now += 60
    run_until_idle(worker.consumer())
    assert source.asked == []
    assert worker.queue.store.counters == {status: 1}
    assert worker.keeper.held() == {}


def test_a_shard_that_failed_in_the_ledger_gets_its_letter_without_a_request(worker: Worker) -> None:
    source = worker.script()
    worker.plan(KEYS[0])
    FakeQueue("dead:1", worker.queue.store).claim(["ocm"], 1)
    worker.change_row(status="failed", attempts=2, failure=Failure("http_400", "answered 400", 400))
    worker.queue.store.now += 60
    run_until_idle(worker.consumer())
    assert source.asked == []
    assert [letter.error for letter in worker.queue.dead_letters("ocm", 10)] == ["http_400"]


def test_a_row_of_a_newer_version_is_left_to_it_without_a_request(worker: Worker) -> None:
    source = worker.script()
    worker.plan(KEYS[0])
    worker.change_row(v=STORED_VERSION + 1)
    before = worker.row()
    run_until_idle(worker.consumer())
    assert source.asked == []
    assert worker.row() == before
    assert ("ocm", KEYS[0]) in worker.queue.store.places


def test_a_shard_goes_on_where_the_ledger_is_a_page_ahead_of_the_queue(worker: Worker) -> None:
    source = worker.script(page(8))
    worker.plan(KEYS[0])
    worker.change_row(checkpoint=SOME)
    run_until_idle(worker.consumer())
    assert source.asked == [7]
    assert worker.row().checkpoint == Checkpoint(3, None, Counts(inserted=4, requests_ok=1))


def test_an_outage_of_the_ledger_at_a_claim_is_waited_out_and_the_shard_runs_once(worker: Worker) -> None:
    source = worker.script(page(1))
    worker.plan(KEYS[0])
    worker.ledger.failures = 3
    run_until_idle(worker.consumer())
    assert source.asked == [None]
    assert worker.row().status == "done"
    assert [name for name in worker.events.names if name.startswith("outage")] == ["outage", "outage over"]


# What can never run.


def test_a_shard_that_the_ledger_does_not_know_is_buried(worker: Worker) -> None:
    source = worker.script()
    worker.queue.enqueue("ocm", [QueuedShard(KEYS[0], "job")], "run")
    run_until_idle(worker.consumer())
    assert source.asked == []
    assert [letter.error for letter in worker.queue.dead_letters("ocm", 10)] == ["unknown_shard"]
    assert worker.queue.store.places == {}
    assert worker.keeper.held() == {}


def test_shards_of_a_named_import_that_is_defined_nowhere_are_buried(worker: Worker) -> None:
    worker.queue.enqueue("ghost", [QueuedShard(KEYS[0], "job")], "run")
    worker.plan(KEYS[0])
    run_until_idle(worker.consumer(wanted=["ghost", "ocm"]))
    assert [letter.error for letter in worker.queue.dead_letters("ghost", 10)] == ["unknown_import"]
    assert worker.row().status == "done"
    assert worker.keeper.held() == {}


def test_garbage_is_buried_and_what_lies_behind_it_runs(worker: Worker) -> None:
    worker.queue.put(Entry("ocm", "", "", "", problem="the message has no shard"))
    worker.plan(KEYS[0])
    run_until_idle(worker.consumer(concurrency=1))
    assert [letter.message for letter in worker.queue.dead_letters("ocm", 10)] == ["the message has no shard"]
    assert worker.row().status == "done"


def test_messages_of_a_newer_version_are_given_back_and_told_of_once(worker: Worker) -> None:
    consumer = worker.consumer()
    for number in range(3):
        worker.queue.put(Entry("ocm", f"ids:{number}..{number + 1}", "job", "run", v=STORED_VERSION + 1))
        run_until_idle(consumer)
    told = [name for name in worker.events.names if "newer version" in name]
    assert told == ["shards left to a newer version of streams-importer: update this worker"]
    assert [entry.owner for entry in worker.queue.store.entries.values()] == ["newer"] * 3


# Pauses.


def test_a_refused_key_pauses_the_import_once_and_burns_no_shard(worker: Worker) -> None:
    both = threading.Barrier(2)

    def refuse(cancel: Cancel) -> Page:
        both.wait(PATIENCE_S)
        raise REFUSED

    worker.script(refuse, refuse)
    worker.plan(*KEYS)
    run_until_idle(worker.consumer(concurrency=2))
    assert worker.events.names.count("import paused") == 1
    pause = worker.imports.paused()["ocm"]
    assert (pause.reason, pause.by) == ("api.example: answered 403", "w:1")
    assert worker.original.paused() == {"ocm": pause}
    assert {(worker.row(key).status, worker.row(key).attempts) for key in KEYS} == {("pending", 0)}
    assert worker.queue.store.letters == []


def test_after_a_refused_key_resuming_goes_on(worker: Worker) -> None:
    worker.script(REFUSED, page(1))
    worker.plan(KEYS[0])
    consumer = worker.consumer()
    run_until_idle(consumer)
    assert worker.row().status == "pending"
    worker.imports.pause("ocm", None)
    consumer.heard("pause")
    run_until_idle(consumer)
    assert worker.row().status == "done"
    assert worker.row().attempts == 0


def test_the_running_attempts_of_a_paused_import_are_given_back(worker: Worker) -> None:
    gate = Gate(page(1))
    worker.script(gate)
    worker.plan(KEYS[0])
    consumer = worker.consumer()
    consumer.run_once()
    assert gate.asked.wait(PATIENCE_S)
    worker.imports.pause("ocm", Pause("by hand", "me", "now"))
    consumer.heard("pause")
    run_until_idle(consumer)
    assert gate.left.is_set()
    assert (worker.row().status, worker.row().attempts) == ("pending", 0)
    assert [entry.owner for entry in worker.queue.store.entries.values()] == ["released"]


def test_a_pause_of_one_import_leaves_the_others_running(worker: Worker) -> None:
    worker.imports.save(Definition("other"), "run")
    worker.imports.pause("other", Pause("by hand", "me", "now"))
    worker.plan(KEYS[0])
    worker.plan(KEYS[0], name="other")
    run_until_idle(worker.consumer())
    assert worker.row().status == "done"
    assert worker.row(name="other").status == "pending"


def test_a_pause_that_a_flushed_redis_forgot_is_restored_before_anything_is_claimed(worker: Worker) -> None:
    source = worker.script()
    worker.imports.pause("ocm", Pause("key refused", "me", "now"))
    worker.copy.pauses.clear()
    worker.queue.store.paused.clear()
    worker.plan(KEYS[0])
    run_until_idle(worker.consumer())
    assert source.asked == []
    assert worker.imports.paused()["ocm"].reason == "key refused"


def test_a_pause_told_while_mongodb_is_away_is_obeyed_once_it_is_back(worker: Worker) -> None:
    gate = Gate(page(1))
    worker.script(gate)
    worker.plan(KEYS[0])
    consumer = worker.consumer()
    consumer.run_once()
    assert gate.asked.wait(PATIENCE_S)
    worker.imports.pause("ocm", Pause("by hand", "me", "now"))
    consumer.heard("pause")
    worker.original.away = True
    with pytest.raises(Unavailable):
        consumer.run_once()
    worker.original.away = False
    consumer.run_once()
    assert gate.left.wait(1.0), "the pause was forgotten"


def test_a_worker_that_starts_while_redis_is_away_serves_all_imports_once_it_is_back(worker: Worker) -> None:
    worker.plan(KEYS[0])
    consumer = worker.consumer()
    worker.copy.away = True
    with pytest.raises(Unavailable):
        consumer.run_once()
    worker.copy.away = False
    run_until_idle(consumer)
    assert worker.row().status == "done"


@pytest.mark.parametrize("changes", [{"v": STORED_VERSION + 1}, {"rate": "fast"}])
def test_a_named_import_that_cannot_be_used_is_told_of_and_the_others_are_served(worker: Worker, changes: dict[str, Any]) -> None:
    worker.imports.save(Definition("odd"), "run")
    worker.copy.stored["odd"].update(changes)
    worker.original.stored["odd"].update(changes)
    worker.plan(KEYS[0])
    consumer = worker.consumer(wanted=["ocm", "odd"])
    consumer.run_once()
    run_until_idle(consumer)
    assert worker.events.names.count("import left alone") == 1
    assert worker.row().status == "done"


# Lost replies and lost leases.


def test_after_a_claim_whose_reply_was_lost_the_worker_adopts_what_is_its_own(worker: Worker) -> None:
    worker.plan(*KEYS)
    worker.queue.faults["claim"] = ["reply lost"]
    consumer = worker.consumer()
    with pytest.raises(Unavailable):
        consumer.run_once()
    assert consumer.run_once() == 3
    run_until_idle(consumer)
    assert [worker.row(key).status for key in KEYS] == ["done"] * 3
    assert worker.queue.calls.count("adopt") == 1


def test_adopting_does_not_start_again_what_is_running(worker: Worker) -> None:
    gate = Gate(page(1))
    source = worker.script(gate, page(11))
    worker.plan(KEYS[0])
    consumer = worker.consumer()
    consumer.run_once()
    assert gate.asked.wait(PATIENCE_S)
    worker.plan(KEYS[1])
    worker.queue.faults["claim"] = ["reply lost"]
    with pytest.raises(Unavailable):
        consumer.run_once()
    assert consumer.run_once() == 1
    gate.open()
    run_until_idle(consumer)
    assert len(source.asked) == 2
    assert [worker.row(key).status for key in KEYS[:2]] == ["done", "done"]


def test_a_lost_lease_ends_its_attempt_and_is_left_to_its_new_owner(worker: Worker) -> None:
    gate = Gate(page(1))
    worker.script(gate)
    worker.plan(KEYS[0])
    consumer = worker.consumer()
    consumer.run_once()
    assert gate.asked.wait(PATIENCE_S)
    lease = next(iter(worker.keeper.held()))
    worker.queue.take_over(lease)
    before = worker.row()
    assert worker.keeper.run_once() == 1
    run_until_idle(consumer)
    assert worker.queue.owner_of(lease) == "other:1"
    assert worker.row() == before
    assert "lease lost" in worker.events.names
    assert worker.keeper.held() == {}


@pytest.mark.parametrize("is_told", [True, False], ids=["by_its_lease", "at_its_next_page"])
def test_a_cancelled_shard_stops_at_its_next_page_and_the_others_go_on(worker: Worker, is_told: bool) -> None:
    gate = Gate(page(2, then=7))
    source = worker.script(page(1, then=5), gate, page(3, then=9), page(21))
    worker.plan(KEYS[0])
    consumer = worker.consumer(concurrency=1)
    consumer.run_once()
    assert gate.asked.wait(PATIENCE_S)
    worker.plan(KEYS[1])
    records, places = FakeRecords(worker.ledger), FakePlaces(worker.queue.store)
    [cancelled] = records.cancel("ocm", [worker.row()])
    if is_told:
        places.cancel("ocm", [cancelled])
        assert worker.keeper.run_once() == 1
        source.steps[:1] = []  # nobody will ask for the page after the one that was dropped
    gate.open()
    run_until_idle(consumer)
    assert worker.row() == replace(cancelled, counted_as=None if is_told else "cancelled")
    assert worker.row(KEYS[1]).status == "done"
    assert [name for name, level, _ in worker.events.told if level == "warning"] == []
    assert worker.events.names.count("shard cancelled") == 1
    assert worker.queue.store.counters == {"cancelled": 1, "done": 1}
    assert worker.queue.store.letters == []
    assert worker.keeper.held() == {}


def test_a_shard_of_a_dead_worker_is_reclaimed_and_goes_on_from_its_checkpoint(worker: Worker) -> None:
    source = worker.script(page(8))
    worker.plan(KEYS[0])
    dead = FakeQueue("dead:1", worker.queue.store)
    dead.checkpoint(dead.claim(["ocm"], 1).leases[0], SOME)
    worker.queue.store.now += 60
    run_until_idle(worker.consumer())
    assert source.asked == [7]
    assert worker.row().status == "done"
    assert worker.events.details("shard reclaimed") == [{"import_name": "ocm", "shard": KEYS[0], "crashes": 0}]


# Suspects.


def killed(worker: Worker, *keys: str, times: int = 1) -> None:
    """These shards were running when their workers ended."""
    worker.plan(*keys)
    for number in range(times):
        dead = FakeQueue(f"dead:{number}", worker.queue.store)
        leases = dead.claim(["ocm"], len(keys)).leases or dead.reclaim("ocm", len(keys), 15.0, [], 1e9).leases
        assert all(dead.start(leases))
        worker.queue.store.now += 60


def test_a_shard_that_was_running_when_its_worker_ended_runs_apart(worker: Worker) -> None:
    source = worker.script()
    killed(worker, KEYS[0])
    worker.children = [FakeChild(Completed(SOME))]
    run_until_idle(worker.consumer())
    assert (worker.apart, source.asked) == ([KEYS[0]], [])
    assert worker.row().status == "done"
    assert worker.events.details("shard reclaimed") == [{"import_name": "ocm", "shard": KEYS[0], "crashes": 1}]


def test_its_neighbours_that_were_never_started_run_as_always(worker: Worker) -> None:
    worker.plan(*KEYS[:2])
    dead = FakeQueue("dead:1", worker.queue.store)
    dead.start(dead.claim(["ocm"], 2).leases[:1])
    worker.queue.store.now += 60
    worker.children = [FakeChild(Completed(SOME))]
    run_until_idle(worker.consumer())
    assert worker.apart == KEYS[:1]
    assert [worker.row(key).status for key in KEYS[:2]] == ["done", "done"]


def test_the_one_that_kills_its_process_is_dead_lettered_and_its_neighbours_are_done(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams_importer.application.chores.HOUSEKEEPING_S", 0.0)
    killed(worker, *KEYS)
    poison, consumer = KEYS[1], worker.consumer(concurrency=1)
    worker.launch = lambda lease: FakeChild(None if lease.shard_key == poison else Completed(SOME))
    for _ in range(3 * OCM.max_crashes):
        run_until_idle(consumer)
        worker.queue.store.now += 3600
    assert [worker.row(key).status for key in KEYS] == ["done", "failed", "done"]
    assert (worker.row(poison).crashes, worker.row(poison).attempts) == (OCM.max_crashes, 0)
    assert worker.apart.count(poison) == OCM.max_crashes - 1, "the crash that made it a suspect counts"
    assert [letter.shard_key for letter in worker.queue.dead_letters("ocm", 10)] == [poison]


def test_a_stop_gives_a_suspect_back_at_no_cost(worker: Worker) -> None:
    killed(worker, KEYS[0])
    child = FakeChild(waits=True, on_cancel=Released(SOME))
    worker.children = [child]
    consumer = worker.consumer()
    consumer.run_once()
    assert child.ran.wait(PATIENCE_S)
    worker.stop.cancel("stop")
    assert consumer.drain()
    assert child.told == ["cancel stop"]
    assert (worker.row().status, worker.row().attempts, worker.row().checkpoint) == ("pending", 0, SOME)
    assert [entry.owner for entry in worker.queue.store.entries.values()] == ["released"]


# What Redis lost.


def test_entries_that_were_deleted_are_put_back_from_the_ledger(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    worker.plan(KEYS[0])
    worker.queue.store.entries.clear()
    worker.queue.store.places.clear()
    consumer = worker.consumer()
    claim = worker.queue.claim

    def once(imports: Sequence[str], limit: int) -> Claimed:
        monkeypatch.setattr(worker.queue, "claim", claim)
        return Claimed([], [], deleted=1)

    monkeypatch.setattr(worker.queue, "claim", once)
    assert consumer.run_once() == 1
    run_until_idle(consumer)
    assert worker.row().status == "done"


def test_while_nothing_was_deleted_the_ledger_is_not_read_over_and_over(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams_importer.application.chores.HOUSEKEEPING_S", 0.0)
    worker.ledger.plan("ocm", KEYS[:1], "run")
    consumer = worker.consumer()
    for _ in range(5):
        assert consumer.run_once() == 0
    assert worker.row().status == "pending", "it is looked for from time to time only"


def test_after_a_flush_shards_counters_and_pauses_come_back_without_hands(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams_importer.application.chores.HOUSEKEEPING_S", 0.0)
    worker.imports.save(Definition("other"), "run")
    worker.plan(*KEYS)
    worker.plan(KEYS[0], name="other")
    worker.imports.pause("other", Pause("by hand", "me", "now"))
    consumer = worker.consumer(concurrency=1)
    run_until_idle(consumer)
    worker.ledger.plan("ocm", ["ids:30..40"], "run")
    store = worker.queue.store
    for lost in (store.entries, store.places, store.progress, store.paused, worker.counters.fields, worker.copy.pauses):
        lost.clear()
    consumer.run_once()
    run_until_idle(consumer)
    assert worker.row("ids:30..40").status == "done"
    assert worker.counters.read("ocm")["done"] == "3"
    assert worker.copy.pauses["other"].reason == "by hand"
    assert worker.row(name="other").status == "pending"
    assert [details["import_name"] for details in worker.events.details("healed what Redis had lost")] == ["ocm", "other"]


def test_a_worker_with_nothing_to_do_puts_wrong_counters_right(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    worker.plan(KEYS[0])
    run_until_idle(worker.consumer())
    worker.counters.fields["ocm"]["done"] = "7"
    for name in ("HOUSEKEEPING_S", "MISSING_S"):
        monkeypatch.setattr(f"streams_importer.application.chores.{name}", 0.0)
    worker.consumer().run_once()
    assert worker.counters.read("ocm")["done"] == "1"
    assert worker.events.names.count("counters put right") == 1


# The end.


def test_a_stop_gives_running_shards_back_with_their_checkpoint_at_no_cost(worker: Worker) -> None:
    gate = Gate(page(2))
    worker.script(page(1, then=1), gate)
    worker.plan(*KEYS[:1])
    consumer = worker.consumer()
    consumer.run_once()
    assert gate.asked.wait(PATIENCE_S)
    worker.stop.cancel("stop")
    consumer.run()
    assert consumer.drain()
    assert (worker.row().status, worker.row().attempts, worker.row().checkpoint.page) == ("pending", 0, 1)
    again = FakeQueue("w:2", worker.queue.store).claim(["ocm"], 1).leases[0]
    assert (again.shard_key, again.checkpoint.page, again.attempts) == (KEYS[0], 1, 0)
    assert worker.keeper.held() == {}


def test_a_stop_claims_nothing_more(worker: Worker) -> None:
    worker.plan(*KEYS)
    worker.stop.cancel("stop")
    consumer = worker.consumer()
    consumer.run()
    assert consumer.drain()
    assert "claim" not in worker.queue.calls


def stuck_in_a_call(worker: Worker) -> tuple[Consumer, threading.Event]:
    """A consumer whose only slot does not hear of the stop, and what lets it go on."""
    stuck, go = threading.Event(), threading.Event()

    def ignore_the_stop(cancel: Cancel) -> Page:
        stuck.set()
        assert go.wait(PATIENCE_S)
        return page(1)

    worker.script(ignore_the_stop)
    worker.plan(KEYS[0])
    consumer = worker.consumer(shutdown_timeout_s=0.02)
    consumer.run_once()
    assert stuck.wait(PATIENCE_S)
    return consumer, go


def test_a_drain_that_begins_before_its_deadline_is_known_waits_for_it(worker: Worker) -> None:
    """The main thread may see the stop before the thread that was told of it has set the deadline."""
    consumer, go = stuck_in_a_call(worker)
    ended: list[bool] = []
    draining = threading.Thread(target=lambda: ended.append(consumer.drain()))
    draining.start()
    worker.stop.cancel("stop")
    draining.join(PATIENCE_S)
    go.set()
    assert ended == [False]


def test_a_call_that_cannot_be_cut_short_does_not_hold_up_the_stop(worker: Worker) -> None:
    consumer, go = stuck_in_a_call(worker)
    worker.stop.cancel("stop")
    try:
        assert not consumer.drain()
        assert [entry.owner for entry in worker.queue.store.entries.values()] == ["released"]
    finally:
        go.set()


def test_a_stop_while_the_ledger_is_away_gives_back_what_was_just_claimed(worker: Worker) -> None:
    worker.plan(*KEYS)
    worker.ledger.failures = 10**6
    worker.ledger.on_look = lambda: worker.stop.cancel("stop")
    consumer = worker.consumer(shutdown_timeout_s=0.02)
    consumer.run()
    consumer.drain()
    assert {entry.owner for entry in worker.queue.store.entries.values()} == {"released"}
    assert worker.keeper.held() == {}


def test_a_stop_while_redis_is_away_says_that_leases_will_run_out(worker: Worker) -> None:
    gate = Gate(page(1))
    worker.script(gate)
    worker.plan(KEYS[0])
    consumer = worker.consumer(shutdown_timeout_s=0.02)
    consumer.run_once()
    assert gate.asked.wait(PATIENCE_S)
    worker.queue.away = True
    worker.stop.cancel("stop")
    consumer.run()
    consumer.drain()
    assert "could not give shards back; their leases will run out" in worker.events.names


def test_work_that_is_told_of_does_not_read_the_definitions_again(worker: Worker) -> None:
    consumer = worker.consumer()
    consumer.run_once()
    worker.copy.away = True
    for message in ("work", "cancel"):
        consumer.heard(message)
        assert consumer.run_once() == 0
    consumer.heard("pause")
    with pytest.raises(Unavailable):
        consumer.run_once()
    worker.copy.away = False
