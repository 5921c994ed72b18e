"""Cancelling on a real server: counters to the record, whatever stage a shard is in and whatever somebody else broke."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streams_importer.adapters.redis_keys import GROUP
from streams_importer.adapters.redis_places import BATCH, RedisPlaces
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Counts
from streams_importer.ports import LedgerRow, Place, QueuedShard
from tests.contract.test_queue import FIRST, PAGE_1, PAGE_2, SECOND, WHY, Bench, records

Stage = Callable[[Bench], object]


def places(bench: Bench, version: int = STORED_VERSION) -> RedisPlaces:
    return RedisPlaces(bench.client, bench.keys, version=version)


def row(shard: str = FIRST, checkpoint: Checkpoint = PAGE_2, run: str = "run1") -> LedgerRow:
    return LedgerRow(shard, f"job-{shard}", run, "cancelled", 0, checkpoint, None, None, STORED_VERSION)


def cancel(bench: Bench, *rows: LedgerRow) -> list[bool]:
    return places(bench).cancel("a", rows or [row()])


def unread(bench: Bench) -> Bench:
    bench.put(FIRST)
    return bench


def leased(bench: Bench) -> None:
    bench.worker().checkpoint(bench.claimed(), PAGE_1)


def released(bench: Bench) -> None:
    bench.worker().release([bench.claimed()])


def delayed(bench: Bench) -> None:
    bench.worker().retry(bench.claimed(), PAGE_1, 60, 1)


IN_FLIGHT: dict[str, Stage] = {stage.__name__: stage for stage in (unread, leased, released, delayed)}
OVER: dict[str, Stage] = {
    "done": lambda bench: bench.worker().complete([(bench.claimed(), PAGE_1)]),
    "dead": lambda bench: bench.dead(),
    "cancelled": lambda bench: cancel(unread(bench)),
    "never_there": lambda bench: None,
}
in_flight = pytest.mark.parametrize("stage", IN_FLIGHT.values(), ids=IN_FLIGHT.keys())


@in_flight
def test_a_shard_is_taken_from_wherever_it_is_and_counted_with_the_ledgers_totals(bench: Bench, stage: Stage) -> None:
    stage(bench)
    assert cancel(bench) == [True]
    status = bench.board()
    assert (status.queued, status.leased, status.delayed, status.cancelled, status.total) == (0, 0, 0, 1, 1)
    assert records(status) == PAGE_2.counts
    assert bench.run() == ("run1", 1, 0, 0, 0, True)
    assert bench.counters()["run_cancelled"] == "1"
    assert set(bench.client.keys("*")) == {bench.a.shards.encode(), bench.a.counters.encode()}, "nothing of it is left"
    assert bench.pending() == {}


@in_flight
def test_cancelling_twice_is_cancelling_once(bench: Bench, stage: Stage) -> None:
    stage(bench)
    cancel(bench)
    before = bench.dump()
    assert cancel(bench) == [False]
    assert bench.dump() == before


@pytest.mark.parametrize("stage", OVER.values(), ids=OVER.keys())
def test_what_is_over_is_left_as_it_is(bench: Bench, stage: Stage) -> None:
    stage(bench)
    before = bench.dump()
    assert cancel(bench) == [False]
    assert bench.dump() == before


def test_what_only_redis_has_heard_of_is_taken_back(bench: Bench) -> None:
    """A failed attempt that came between the two writes of a cancellation: its requests are not in the ledger."""
    bench.worker().retry(bench.claimed(), PAGE_2, 60, 1)
    assert cancel(bench, row(checkpoint=PAGE_1)) == [True]
    assert records(bench.board()) == PAGE_1.counts


def test_a_round_that_goes_over_a_shard_again_gives_its_totals_once(bench: Bench) -> None:
    bench.worker().complete([(bench.claimed(), PAGE_1)])
    again = QueuedShard(FIRST, f"job-{FIRST}", "done", Checkpoint(counts=PAGE_1.counts))
    bench.worker().enqueue("a", [again], "run2", begins=True)
    assert cancel(bench, row(checkpoint=Checkpoint(counts=PAGE_1.counts))) == [True]
    status = bench.board()
    assert (status.done, status.cancelled, status.total) == (0, 1, 1)
    assert records(status) == PAGE_1.counts


def test_the_run_that_the_message_names_is_counted_down(bench: Bench) -> None:
    bench.put(FIRST, run="run2")
    cancel(bench, row(run="run1"))
    assert bench.run() == ("run2", 1, 0, 0, 0, True)


def test_each_shard_of_a_batch_is_answered_for_itself(bench: Bench) -> None:
    delayed(bench)
    bench.put(SECOND, "ids:20..30")
    assert cancel(bench, row(), row("ids:77..78"), row(SECOND)) == [True, False, True]
    assert bench.states() == (1, 0, 0, 0)


def test_a_full_redis_is_made_room_in(own_bench: Bench) -> None:
    bench = own_bench
    shards = [f"ids:{low}..{low + 1}" for low in range(30)]
    bench.put(*shards)
    leases = bench.worker().claim(["a"], 20).leases
    for lease in leases[:10]:
        bench.worker().retry(lease, PAGE_1, 60, 1)
    bench.client.config_set("maxmemory", 1)
    assert cancel(bench, *(row(shard) for shard in shards)) == [True] * 30
    assert bench.states() == (0, 0, 0, 0)
    assert bench.board().cancelled == 30
    assert bench.board().records["inserted"] == 30 * PAGE_2.counts.inserted


def test_without_a_group_what_is_on_the_stream_can_be_cancelled(bench: Bench) -> None:
    leased(bench)
    bench.put(SECOND)
    bench.client.xgroup_destroy(bench.a.shards, GROUP)
    found = places(bench)
    assert found.look("a", [FIRST, SECOND]) == {shard: Place("queued", job=f"job-{shard}") for shard in (FIRST, SECOND)}
    assert list(found.leased("a")) == []
    assert cancel(bench, row(), row(SECOND)) == [True, True]
    assert bench.client.xlen(bench.a.shards) == 0


@pytest.mark.parametrize("stage", [unread, leased])
def test_a_shard_whose_entry_was_deleted_is_nowhere_and_can_be_cancelled(bench: Bench, stage: Stage) -> None:
    stage(bench)
    [(entry, _)] = bench.client.xrange(bench.a.shards)
    bench.client.xdel(bench.a.shards, entry)
    assert places(bench).look("a", [FIRST]) == {}
    assert cancel(bench) == [True]
    assert (bench.board().cancelled, bench.places(), bench.pending()) == (1, {}, {})


def test_a_delayed_shard_whose_progress_is_gone_can_be_cancelled(bench: Bench) -> None:
    delayed(bench)
    bench.client.hset(bench.a.progress, FIRST, "not JSON")
    assert places(bench).look("a", [FIRST])[FIRST].job is None
    assert cancel(bench) == [True]
    assert (bench.board().cancelled, bench.board().delayed, bench.places()) == (1, 0, {})


@pytest.mark.parametrize("rubbish", ["", "s", "sx", "s1-1-1", "q", "x", "d1", "\xff"])
def test_a_place_that_is_none_is_nowhere_and_nothing_is_written(bench: Bench, rubbish: str) -> None:
    bench.put(FIRST)
    bench.client.hset(bench.a.places, FIRST, rubbish)
    before = bench.dump()
    assert places(bench).look("a", [FIRST]) == {}
    assert cancel(bench) == [False]
    assert bench.dump() == before


@pytest.mark.parametrize("stage", [unread, leased, delayed])
def test_what_a_newer_version_wrote_is_left_to_it(bench: Bench, stage: Stage) -> None:
    stage(bench)
    bench.client.hset(bench.a.progress, FIRST, '{"v":2,"of":"the future"}')
    before = bench.dump()
    assert cancel(bench) == [False]
    assert bench.dump() == before
    assert places(bench, version=2).cancel("a", [row()]) == [True]


def test_workers_are_told_at_once_that_a_shard_was_taken_from_them(bench: Bench) -> None:
    bench.put(FIRST, SECOND)
    bench.claim()
    with bench.client.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe(bench.keys.control)
        assert channel.get_message(timeout=5) is None  # the subscription itself
        cancel(bench, row(SECOND))
        cancel(bench, row(FIRST))
        cancel(bench, row(FIRST))
        assert channel.get_message(timeout=5)["data"] == b"cancel"
        assert channel.get_message(timeout=0.05) is None, "nobody held the other one"


def test_more_than_one_batch_of_leased_and_delayed_shards_is_listed(bench: Bench) -> None:
    shards = [f"ids:{low}..{low + 1}" for low in range(2 * BATCH + 20)]
    bench.put(*shards)
    leases = bench.worker().claim(["a"], len(shards)).leases
    bench.worker().release(leases[:10])
    assert [key for batch in places(bench).leased("a") for key in batch] == shards[10:]
    for wait, lease in enumerate(reversed(leases[10:])):
        bench.worker().retry(lease, Checkpoint(), 60 + wait, 1)
    assert [key for batch in places(bench).delayed("a") for key in batch] == shards[:9:-1]
    assert list(places(bench).leased("a")) == []


def test_counts_of_shards_that_went_every_way_add_up(bench: Bench) -> None:
    totals = Counts()
    for number, stage in enumerate((unread, leased, released, delayed)):
        stage(bench)
        checkpoint = Checkpoint(number, number, Counts(inserted=number, stale=2 * number, requests_ok=1))
        assert cancel(bench, row(checkpoint=checkpoint)) == [True]
        totals += checkpoint.counts
    assert records(bench.board()) == totals
    bench.worker().dead_letter(bench.claimed(SECOND), PAGE_1, WHY, 5)
    assert records(bench.board()) == totals + PAGE_1.counts
