"""The keeper: renews what is held, cancels what is lost, and says that the process is alive."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from streams_importer.application.cancellation import CancelToken
from streams_importer.application.lease_keeper import LeaseKeeper
from streams_importer.application.outages import Outages
from streams_importer.application.shard_importer import LOST
from streams_importer.domain.errors import Cancelled, Unavailable
from streams_importer.domain.model import Lease
from streams_importer.ports import QueuedShard
from tests.fakes.queue import FakeQueue
from tests.fakes.recorded import Events

PATIENCE_S = 10.0


class Scene:
    """Three held shards, each with its token."""

    def __init__(self) -> None:
        self.queue, self.events = FakeQueue(), Events()
        self.beats: list[int] = []
        self.failures: list[Exception] = []
        self.beaten = threading.Semaphore(0)
        self.keeper = LeaseKeeper(self.queue, Outages(self.events), self._beat, lambda: 0.01, self.failures.append)
        self.queue.enqueue("ocm", [QueuedShard(f"ids:{number}..{number + 1}", "job") for number in range(3)], "run")
        self.leases = self.queue.claim(["ocm"], 3).leases
        self.tokens = {lease: CancelToken() for lease in self.leases}
        for lease, token in self.tokens.items():
            self.keeper.hold(lease, token)

    def _beat(self, leases: int) -> None:
        self.beats.append(leases)
        self.beaten.release()

    def reasons(self) -> list[str | None]:
        return [self.tokens[lease].reason for lease in self.leases]

    def ages(self) -> list[float]:
        return [self.queue.store.now - self.queue.store.entries[lease.entry].seen for lease in self.leases]


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_what_is_held_is_renewed_in_one_call(scene: Scene) -> None:
    scene.queue.store.now += 9.0
    scene.queue.calls.clear()
    assert scene.keeper.run_once() == 0
    assert scene.queue.calls == ["renew"]
    assert scene.ages() == [0.0, 0.0, 0.0]
    assert scene.reasons() == [None, None, None]


def test_a_lost_lease_cancels_its_own_attempt_and_no_other(scene: Scene) -> None:
    scene.queue.take_over(scene.leases[1])
    assert scene.keeper.run_once() == 1
    assert scene.reasons() == [None, LOST, None]


def test_a_lost_lease_is_not_taken_back_by_renewing_it(scene: Scene) -> None:
    scene.queue.take_over(scene.leases[1])
    scene.keeper.run_once()
    scene.keeper.run_once()
    assert scene.queue.owner_of(scene.leases[1]) == "other:1"


def test_what_was_let_go_is_not_renewed(scene: Scene) -> None:
    scene.keeper.let_go(scene.leases[0])
    scene.keeper.let_go(scene.leases[0])
    scene.queue.store.now += 9.0
    scene.keeper.run_once()
    assert scene.ages() == [9.0, 0.0, 0.0]
    assert set(scene.keeper.held()) == set(scene.leases[1:])


def test_with_nothing_held_it_only_beats(scene: Scene) -> None:
    for lease in scene.leases:
        scene.keeper.let_go(lease)
    scene.queue.calls.clear()
    assert scene.keeper.run_once() == 0
    assert scene.queue.calls == []
    assert scene.beats == [0]


def test_every_beat_says_how_many_leases_there_are(scene: Scene) -> None:
    scene.keeper.run_once()
    scene.keeper.let_go(scene.leases[0])
    scene.keeper.run_once()
    assert scene.beats == [3, 2]


def test_the_list_of_what_is_held_is_a_copy(scene: Scene) -> None:
    scene.keeper.held().clear()
    assert len(scene.keeper.held()) == 3


def test_an_outage_cancels_nobody(scene: Scene) -> None:
    scene.queue.away = True
    with pytest.raises(Unavailable):
        scene.keeper.run_once()
    assert scene.reasons() == [None, None, None]
    assert set(scene.keeper.held()) == set(scene.leases)


def test_in_its_thread_it_renews_until_stopped(scene: Scene) -> None:
    scene.keeper.start()
    for _ in range(3):
        assert scene.beaten.acquire(timeout=PATIENCE_S)
    scene.keeper.stop()
    assert "keeper" not in [thread.name for thread in threading.enumerate()]


def test_in_its_thread_it_renews_at_once_when_told_that_shards_were_taken_away(scene: Scene) -> None:
    keeper = LeaseKeeper(scene.queue, Outages(scene.events), scene._beat, lambda: 3600.0, scene.failures.append)
    keeper.start()
    assert scene.beaten.acquire(timeout=PATIENCE_S)
    for _ in range(3):
        keeper.hurry()
        assert scene.beaten.acquire(timeout=0.9), "a second is how long it would have waited by itself"
    keeper.stop()


def test_in_its_thread_it_waits_out_an_outage_that_is_told_once(scene: Scene) -> None:
    over = threading.Event()
    scene.events.on_told = lambda: over.set() if scene.events.names[-1] == "outage over" else None
    scene.queue.faults["renew"] = ["away", "away", "reply lost"]
    scene.keeper.start()
    assert over.wait(PATIENCE_S)
    scene.keeper.stop()
    assert scene.events.names == ["outage", "outage over"]
    assert scene.reasons() == [None, None, None]


def test_a_shard_whose_lease_is_held_again_under_a_new_count_is_another_lease(scene: Scene) -> None:
    old: Lease = scene.leases[0]
    scene.queue.release([old])
    new = scene.queue.claim(["ocm"], 1).leases[0]
    scene.keeper.hold(new, CancelToken())
    assert scene.keeper.run_once() == 1
    assert scene.tokens[old].reason == LOST
    assert not scene.keeper.held()[new].cancelled


# Whether a request may be sent.


class Watch:
    """A keeper whose clock is moved by hand; the lease is 10 s."""

    def __init__(self, scene: Scene) -> None:
        self.now = 100.0
        self.lease, self.token = scene.leases[0], CancelToken()
        self.keeper = LeaseKeeper(
            scene.queue, Outages(scene.events), scene._beat, lambda: 10.0, scene.failures.append, lambda: self.now
        )
        self.keeper.hold(self.lease, self.token)

    def sending(self) -> list[bool | str]:
        """Asks in a thread whether it may send, and returns once it waits to know. The list gets the answer."""
        waits, answers = threading.Event(), list[bool | str]()

        def is_unsure() -> bool:
            waits.set()
            return self.keeper._has_run_out(self.lease)

        def ask() -> None:
            try:
                answers.append(self.token.may_send())
            except Cancelled:
                answers.append("cancelled")

        self.token.unsure_while(is_unsure)
        self.thread = threading.Thread(target=ask)
        self.thread.start()
        assert waits.wait(PATIENCE_S)
        return answers


@pytest.fixture
def watch(scene: Scene) -> Watch:
    return Watch(scene)


def test_within_its_lease_a_shard_may_send(watch: Watch) -> None:
    watch.now += 10.0
    assert watch.token.may_send() is True


def test_a_lease_that_ran_out_by_our_own_clock_holds_requests_back_until_it_is_renewed(watch: Watch) -> None:
    watch.now += 10.1
    answers = watch.sending()
    assert watch.keeper.run_once() == 0
    watch.thread.join(PATIENCE_S)
    assert answers == [False], "and the request takes another token"
    assert watch.token.may_send() is True


def test_a_lease_that_turns_out_to_be_lost_sends_nothing_more(scene: Scene, watch: Watch) -> None:
    watch.now += 10.1
    answers = watch.sending()
    scene.queue.take_over(watch.lease)
    assert watch.keeper.run_once() == 1
    watch.thread.join(PATIENCE_S)
    assert answers == ["cancelled"]


def test_a_renewal_counts_from_when_it_was_asked_for(scene: Scene, watch: Watch) -> None:
    renew = scene.queue.renew

    def slowly(leases: Sequence[Lease]) -> list[bool]:
        watch.now += 8.0
        return renew(leases)

    scene.queue.renew = slowly  # type: ignore[method-assign]
    watch.keeper.run_once()
    watch.now += 2.0
    assert watch.token.may_send() is True
    watch.now += 0.1
    assert watch.keeper._has_run_out(watch.lease), "Redis may have begun the lease when the call was on its way"


def test_a_renewal_that_fails_renews_nothing(scene: Scene, watch: Watch) -> None:
    watch.now += 9.0
    scene.queue.away = True
    with pytest.raises(Unavailable):
        watch.keeper.run_once()
    watch.now += 1.1
    assert watch.keeper._has_run_out(watch.lease)


def test_what_was_let_go_is_nobodys_business(watch: Watch) -> None:
    watch.keeper.let_go(watch.lease)
    watch.now += 100.0
    assert watch.token.may_send() is True
