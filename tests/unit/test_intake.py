"""What becomes of claimed shards before they run: started in both stores, the ledger first, and the hopeless not at all."""

from __future__ import annotations

from typing import cast

import pytest

from streams_importer.application.intake import Intake
from streams_importer.application.settlement import Settlement
from streams_importer.domain.crash_policy import UNSEEN_FOR_ONE_SEEN
from streams_importer.domain.definition import Definition
from streams_importer.domain.model import Checkpoint, Counts, Lease
from streams_importer.ports import Ledger, LedgerRow, QueuedShard, ShardQueue
from tests.fakes.ledger import FakeLedger
from tests.fakes.queue import FakeQueue
from tests.fakes.recorded import Events, Recorded

OCM = Definition("ocm", max_crashes=2)
HOPELESS = 2 * UNSEEN_FOR_ONE_SEEN
KEYS = ["ids:0..10", "ids:10..20", "ids:20..30"]
PAGE = Checkpoint(1, 7, Counts(inserted=3))


class Scene:
    def __init__(self) -> None:
        self.queue, self.ledger, self.events = FakeQueue(), FakeLedger(), Events()
        self.calls: list[str] = []
        queue = cast(ShardQueue, Recorded("queue", self.queue, self.calls))
        ledger = cast(Ledger, Recorded("ledger", self.ledger, self.calls))
        self.intake = Intake(ledger, Settlement(queue, ledger, self.events), lambda name: OCM)

    def claimed(self, *crashes: int, attempts: int = 0) -> list[Lease]:
        """Shards with these numbers of crashes behind them."""
        rows, _ = self.ledger.plan("ocm", KEYS[: len(crashes)], "run")
        pairs = zip(rows.values(), crashes, strict=True)
        shards = [QueuedShard(row.shard_key, row.job, None, PAGE, attempts, number) for row, number in pairs]
        self.queue.enqueue("ocm", shards, "run")
        return self.queue.claim(["ocm"], len(shards)).leases

    def sort(self, leases: list[Lease]) -> list[str]:
        return [lease.shard_key for _, lease, _ in self.intake.sort("ocm", leases)]

    def row(self, number: int = 0) -> LedgerRow:
        return self.ledger.rows["ocm", KEYS[number]]

    def started(self) -> list[str]:
        return [key for (_, key), progress in self.queue.store.progress.items() if progress.started == "w:1"]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_is_to_run_is_started_in_both_stores_before_anybody_looks_how_far_it_is(scene: Scene) -> None:
    leases = scene.claimed(0, 0)
    assert scene.sort(leases) == KEYS[:2]
    assert scene.calls == ["queue.start", "queue.renew", "ledger.start", "ledger.look"]
    assert scene.started() == KEYS[:2]
    assert [scene.row(number).status for number in range(2)] == ["leased", "leased"]


def test_a_suspect_is_not_started_before_it_runs_apart(scene: Scene) -> None:
    assert scene.sort(scene.claimed(0, 1)) == KEYS[:2]
    assert scene.started() == KEYS[:1], "until then a crash cannot be its own"
    assert (scene.row(1).status, scene.row(1).crashes) == ("leased", 1)


def test_a_shard_whose_lease_was_lost_meanwhile_does_not_run(scene: Scene) -> None:
    leases = scene.claimed(0, 0)
    scene.queue.take_over(leases[0])
    assert scene.sort(leases) == KEYS[1:2]
    assert scene.started() == KEYS[1:2]


def test_a_shard_with_which_nobody_gets_on_is_dead_lettered_though_nobody_saw_it_crash(scene: Scene) -> None:
    leases = scene.claimed(0, HOPELESS, 1, attempts=1)
    assert scene.sort(leases) == [KEYS[0], KEYS[2]]
    row = scene.row(1)
    assert (row.status, row.attempts, row.crashes, row.counted_as) == ("failed", 1, HOPELESS, "failed")
    [letter] = scene.queue.dead_letters("ocm", 10)
    assert (letter.shard_key, letter.error, letter.attempts, letter.crashes) == (KEYS[1], "crashed", "1", str(HOPELESS))
    assert f"{HOPELESS} workers ended while they ran it" in letter.message
    assert scene.events.names == ["shard dead-lettered"]


def test_one_crash_less_is_one_more_try(scene: Scene) -> None:
    assert scene.sort(scene.claimed(HOPELESS - 1)) == KEYS[:1]
    assert scene.queue.store.letters == []


def test_an_outage_between_the_stores_is_finished_by_the_repetition(scene: Scene) -> None:
    leases = scene.claimed(0, HOPELESS)
    for verb in ("start", "dead_letter"):
        scene.queue.faults[verb] = ["reply lost"]
        with pytest.raises(Exception, match="reply lost"):
            scene.sort(leases)
    assert scene.sort(leases) == KEYS[:1]
    assert scene.row(1).status == "failed"
    assert len(scene.queue.dead_letters("ocm", 10)) == 1


def test_nothing_claimed_is_nothing_started(scene: Scene) -> None:
    assert scene.sort([]) == []
