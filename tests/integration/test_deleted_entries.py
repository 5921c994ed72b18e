"""Entries deleted under somebody's hands: what was pending is acknowledged and reported, on Redis 6.2 and on 7 alike."""

from __future__ import annotations

import pytest

from streams_importer.domain.model import STORED_VERSION
from streams_importer.ports import QueuedShard
from tests.contract.test_queue import FIRST, LEASE_S, PAGE_1, SECOND, THERE_S, Bench


def shards(number: int) -> list[str]:
    return [f"ids:{low}..{low + 1}" for low in range(number)]


def test_reclaiming_acknowledges_and_reports_them_and_takes_their_neighbours(bench: Bench) -> None:
    bench.put(*shards(5))
    leases = bench.worker("w:1").claim(["a"], 5).leases
    bench.age(*leases)
    bench.client.xdel(bench.a.shards, leases[1].entry, leases[3].entry)
    taken = bench.worker("w:2").reclaim("a", 10, LEASE_S, [], THERE_S)
    assert ([lease.entry for lease in taken.leases], taken.deleted) == ([leases[i].entry for i in (0, 2, 4)], 2)
    assert set(bench.pending()) == {lease.entry for lease in taken.leases}


def test_reclaiming_where_all_were_deleted_reports_them_all_once(bench: Bench) -> None:
    bench.put(*shards(3))
    leases = bench.worker("w:1").claim(["a"], 3).leases
    bench.age(*leases)
    bench.client.xdel(bench.a.shards, *(lease.entry for lease in leases))
    queue = bench.worker("w:2")
    found = [queue.reclaim("a", 10, LEASE_S, [], THERE_S) for _ in range(3)]
    assert [(claimed.leases, claimed.deleted) for claimed in found] == [([], 3), ([], 0), ([], 0)]
    assert bench.pending() == {}


def test_reclaiming_in_small_steps_reports_each_in_the_end(bench: Bench) -> None:
    bench.put(*shards(6))
    leases = bench.worker("w:1").claim(["a"], 6).leases
    bench.age(*leases)
    bench.client.xdel(bench.a.shards, *(lease.entry for lease in leases[::2]))
    queue = bench.worker("w:2")
    found = [queue.reclaim("a", 1, LEASE_S, [], THERE_S) for _ in range(10)]
    assert sorted(lease.entry for claimed in found for lease in claimed.leases) == [lease.entry for lease in leases[1::2]]
    assert sum(claimed.deleted for claimed in found) == 3


def test_own_entries_that_are_running_are_not_taken_for_deleted(bench: Bench) -> None:
    bench.put(*shards(3))
    [own] = bench.worker().claim(["a"], 1).leases
    others = bench.worker("w:2").claim(["a"], 2).leases
    bench.age(*others)
    bench.client.xdel(bench.a.shards, others[0].entry)
    claimed = bench.worker().reclaim("a", 10, LEASE_S, [own], THERE_S)
    assert ([lease.entry for lease in claimed.leases], claimed.deleted) == ([others[1].entry], 1)
    assert set(bench.pending()) == {own.entry, others[1].entry}


def test_a_claim_acknowledges_and_reports_those_that_were_given_back(bench: Bench) -> None:
    bench.put(FIRST, SECOND)
    first, second = bench.worker().claim(["a"], 2).leases
    bench.worker().release([first, second])
    bench.client.xdel(bench.a.shards, first.entry)
    claimed = bench.worker("w:2").claim(["a"], 5)
    assert ([lease.entry for lease in claimed.leases], claimed.deleted) == ([second.entry], 1)
    assert list(bench.pending()) == [second.entry]


def test_those_that_were_left_to_a_newer_version_are_reported_when_their_time_has_run_out(bench: Bench) -> None:
    bench.put(FIRST, SECOND, version=STORED_VERSION + 1)
    assert bench.worker().claim(["a"], 2).too_new == 2
    first, second = bench.pending()
    bench.client.xdel(bench.a.shards, first)
    newer = bench.worker("new:1", STORED_VERSION + 1)
    assert [lease.entry for lease in newer.claim(["a"], 5).leases] == [second]
    claimed = newer.reclaim("a", 5, 0, [], THERE_S)
    assert claimed.deleted == 1
    assert list(bench.pending()) == [second]


def test_adopting_acknowledges_and_reports_those_of_a_lost_claim(bench: Bench) -> None:
    bench.put(FIRST, SECOND)
    leases = bench.worker().claim(["a"], 2).leases
    bench.client.xdel(bench.a.shards, leases[0].entry)
    adopted = bench.worker().adopt(["a"], [])
    assert (adopted.leases, adopted.deleted) == ([leases[1]], 1)
    assert list(bench.pending()) == [leases[1].entry]


def test_nothing_deleted_is_nothing_reported(bench: Bench) -> None:
    bench.put(*shards(4))
    leases = bench.worker("w:1").claim(["a"], 3).leases
    bench.age(*leases)
    queue = bench.worker("w:2")
    claims = [queue.reclaim("a", 2, LEASE_S, [], THERE_S), queue.claim(["a"], 5), queue.adopt(["a"], [])]
    assert [claimed.deleted for claimed in claims] == [0, 0, 0]


@pytest.mark.parametrize("stage", ["queued", "leased"])
def test_a_shard_whose_entry_was_deleted_can_be_queued_again(bench: Bench, stage: str) -> None:
    bench.put(FIRST)
    if stage == "leased":
        bench.age(bench.claim())
    (entry,) = [entry for entry, _ in bench.client.xrange(bench.a.shards)]
    bench.client.xdel(bench.a.shards, entry)
    bench.worker("w:2").reclaim("a", 5, LEASE_S, [], THERE_S)
    assert bench.worker().enqueue("a", [QueuedShard(FIRST, "job2")], "run1") == [True], "the ledger has it, Redis does not"
    again = bench.claim("w:2")
    assert again.job == "job2"
    bench.worker("w:2").complete([(again, PAGE_1)])
    assert bench.run() == ("run1", 1, 0, 1, 0, True), "it is still one shard of its run"
