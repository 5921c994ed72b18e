"""What every ShardQueue promises, on the server in memory and on a real one. Time is moved by shifting what is stored."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import fakeredis
import pytest
import redis

from streams_importer.adapters.redis_board import RedisBoard
from streams_importer.adapters.redis_client import connect
from streams_importer.adapters.redis_counters import RedisCounters
from streams_importer.adapters.redis_keys import GROUP, NEWER, RELEASED, Keys
from streams_importer.adapters.redis_letters import RedisLetters
from streams_importer.adapters.redis_queue import RedisQueue
from streams_importer.application.snapshot import ImportStatus
from streams_importer.domain.errors import Uncounted
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Counts, Cursor, Failure, Garbage, Lease
from streams_importer.ports import DeadLetter, QueuedShard

LEASE_S = 15.0
THERE_S = 1e9
"""Redis has been there for all that time."""
FIRST, SECOND, THIRD = "ids:0..10", "ids:10..20", "country:DE"
WHY = Failure("bad_answer", "it was not JSON", 200)
PAGE_1 = Checkpoint(1, 100, Counts(inserted=5, updated=1, requests_ok=1))
PAGE_2 = Checkpoint(2, 200, Counts(inserted=8, updated=1, unchanged=2, stale=1, rejected=1, requests_ok=2, requests_failed=1))


class Bench:
    """One server, any number of workers, and ways to look at what is stored and to move time."""

    def __init__(self, client: redis.Redis) -> None:
        self.client: Any = client
        self.keys = Keys("si")
        self.a = self.keys.of("a")

    def worker(self, name: str = "w:1", version: int = STORED_VERSION) -> RedisQueue:
        return RedisQueue(self.client, self.keys, name, version=version)

    def count(self, *names: str) -> None:
        """Counters for imports that have none: whoever queues shards makes them first."""
        counters = RedisCounters(self.client, self.keys)
        for name in counters.forgotten(names):
            assert counters.replace(name, {}, {})

    def put(self, *shards: str, run: str = "run1", name: str = "a", version: int = STORED_VERSION) -> None:
        """Queues shards in the round `job-<shard>`, as a run that begins."""
        self.count(name)
        queued = [QueuedShard(shard, f"job-{shard}") for shard in shards]
        assert all(self.worker("producer", version).enqueue(name, queued, run, begins=True))

    def claimed(self, shard: str = FIRST, worker: str = "w:1") -> Lease:
        """A new shard in the hands of a worker."""
        self.put(shard)
        return self.claim(worker)

    def claim(self, worker: str = "w:1", version: int = STORED_VERSION) -> Lease:
        claimed = self.worker(worker, version).claim(["a"], 1)
        assert (len(claimed.leases), claimed.garbage, claimed.too_new) == (1, [], 0)
        return claimed.leases[0]

    def garbage(self, fields: dict[str | bytes, str | bytes], worker: str = "w:1") -> Garbage:
        """What a worker makes of an entry that somebody else wrote."""
        self.client.xadd(self.a.shards, fields)
        claimed = self.worker(worker).claim(["a"], 1)
        assert (claimed.leases, len(claimed.garbage)) == ([], 1)
        return claimed.garbage[0]

    def dead(self, shard: str = FIRST, checkpoint: Checkpoint = PAGE_2) -> str:
        """A shard among the dead letters; returns its entry there."""
        lease = self.claimed(shard)
        assert self.worker().dead_letter(lease, checkpoint, WHY, 5)
        return self.dead_letters()[0].entry

    def letters(self) -> RedisLetters:
        return RedisLetters(self.client, self.keys)

    def dead_letters(self, name: str = "a") -> list[DeadLetter]:
        return [letter for batch in self.letters().newest_first(name) for letter in batch]

    def replay(self, entry: str, shard: QueuedShard, run: str = "run1") -> bool:
        return self.letters().replay("a", [(entry, shard)], run)[0]

    def age(self, *leases: Lease | Garbage, seconds: float = LEASE_S + 1) -> None:
        """Lets time pass for leases: who holds them does not change."""
        for lease in leases:
            stream = self.keys.of(lease.import_name).shards
            self.client.xclaim(stream, GROUP, lease.consumer, 0, [lease.entry], idle=round(seconds * 1000), justid=True)

    def taken_over(self, lease: Lease, by: str = "w:2") -> Lease:
        """The lease runs out and another worker reclaims it."""
        self.age(lease)
        (other,) = self.worker(by).reclaim(lease.import_name, 1, LEASE_S, [], THERE_S).leases
        assert (other.entry, other.consumer) == (lease.entry, by)
        return other

    def make_due(self, *shards: str) -> None:
        for shard in shards:
            self.client.zadd(self.a.delayed, {shard: 1}, xx=True)

    def pending(self, name: str = "a") -> dict[str, tuple[str, int]]:
        """Entry -> (owner, delivery count)."""
        found = self.client.xpending_range(self.keys.of(name).shards, GROUP, "-", "+", 10_000)
        return {item["message_id"].decode(): (item["consumer"].decode(), item["times_delivered"]) for item in found}

    def idle_ms(self, lease: Lease) -> int:
        (item,) = self.client.xpending_range(self.a.shards, GROUP, lease.entry, lease.entry, 1)
        return int(item["time_since_delivered"])

    def places(self) -> dict[str, str]:
        return {shard.decode("utf-8", "replace"): place.decode() for shard, place in self.client.hgetall(self.a.places).items()}

    def counters(self, name: str = "a") -> dict[str, str]:
        return {key.decode(): value.decode() for key, value in self.client.hgetall(self.keys.of(name).counters).items()}

    def board(self, name: str = "a") -> ImportStatus:
        return RedisBoard(self.client, self.keys).read([name])[name]

    def states(self) -> tuple[int, int, int, int]:
        """Queued, leased, delayed, dead."""
        status = self.board()
        return status.queued, status.leased, status.delayed, status.dead

    def run(self) -> tuple[str, int, int, int, int, bool]:
        """The newest run: id, total, left, done, failed, finished."""
        run = self.board().run
        assert run is not None
        return run.id, run.total, int(self.counters()["run_left"]), run.done, run.failed, run.finished is not None

    def dump(self) -> dict[bytes, Any]:
        """All that is stored, but for idle times."""
        return {key: self._value(key) for key in sorted(self.client.keys("*"))}

    def _value(self, key: bytes) -> Any:
        match self.client.type(key):
            case b"hash":
                return {field: _decoded(value) for field, value in self.client.hgetall(key).items()}
            case b"zset":
                return self.client.zrange(key, 0, -1, withscores=True)
            case b"stream":
                groups = [group["name"] for group in self.client.xinfo_groups(key)]
                pending = [self.client.xpending_range(key, group, "-", "+", 10_000) for group in groups]
                held = [[(p["message_id"], p["consumer"], p["times_delivered"]) for p in found] for found in pending]
                consumers = [sorted(c["name"] for c in self.client.xinfo_consumers(key, group)) for group in groups]
                return self.client.xrange(key), groups, held, consumers
            case other:
                return other, self.client.get(key)


def _decoded(value: bytes) -> Any:
    """Lua writes the fields of an object in any order."""
    try:
        return json.loads(value)
    except ValueError:
        return value


@pytest.fixture(params=["fakeredis", "redis"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "fakeredis":
        # Its scripts get the client's protocol; a real server gives them the second one whatever the client speaks.
        client: redis.Redis = fakeredis.FakeRedis(version=(6, 2), protocol=2)
    else:
        request.getfixturevalue("redis_client")  # empties the server
        client = connect(request.getfixturevalue("redis_url"), max_connections=2)
    made = Bench(client)
    for name in ("a", "b", "c"):
        made.worker().set_up(name)
        made.count(name)
    yield made
    client.close()
    client.connection_pool.disconnect()


Settle = Callable[[RedisQueue, Lease], bool]

SETTLING: dict[str, Settle] = {
    "checkpoint": lambda queue, lease: queue.checkpoint(lease, PAGE_2),
    "complete": lambda queue, lease: queue.complete([(lease, PAGE_2)])[0],
    "complete_cancelled": lambda queue, lease: queue.complete([(lease, PAGE_2)], "cancelled")[0],
    "retry": lambda queue, lease: queue.retry(lease, PAGE_2, 5, 1),
    "release": lambda queue, lease: queue.release([lease], LEASE_S)[0],
    "hand_over": lambda queue, lease: queue.hand_over(lease, STORED_VERSION + 1),
    "dead_letter": lambda queue, lease: bool(queue.dead_letter(lease, PAGE_2, WHY, 5)),
    "discard": lambda queue, lease: queue.discard([lease])[0],
}
FENCED: dict[str, Settle] = {
    **SETTLING,
    "renew": lambda queue, lease: queue.renew([lease])[0],
    "start": lambda queue, lease: queue.start([lease])[0],
}

settling = pytest.mark.parametrize("settle", SETTLING.values(), ids=SETTLING.keys())
fenced = pytest.mark.parametrize("settle", FENCED.values(), ids=FENCED.keys())


# On to the stream.


def test_a_shard_is_queued_once_and_waits_under_its_place(bench: Bench) -> None:
    shards = [QueuedShard(FIRST, "job1"), QueuedShard(SECOND, "job2"), QueuedShard(FIRST, "job3")]
    assert bench.worker().enqueue("a", shards, "run1", begins=True) == [True, True, False]
    assert bench.states() == (2, 0, 0, 0)
    entries = [entry.decode() for entry, _ in bench.client.xrange(bench.a.shards)]
    assert bench.places() == {FIRST: f"s{entries[0]}", SECOND: f"s{entries[1]}"}


@pytest.mark.parametrize("stage", ["queued", "leased", "released", "delayed", "dead"])
def test_a_shard_that_has_a_place_is_left_where_it_is(bench: Bench, stage: str) -> None:
    bench.put(FIRST)
    queue = bench.worker()
    if stage != "queued":
        lease = bench.claim()
        if stage == "released":
            queue.release([lease])
        elif stage == "delayed":
            queue.retry(lease, PAGE_1, 60, 1)
        elif stage == "dead":
            queue.dead_letter(lease, PAGE_1, WHY, 5)
    before = bench.dump()
    assert queue.enqueue("a", [QueuedShard(FIRST, "another", "done", PAGE_2)], "run2", begins=True) == [False]
    assert bench.dump() == before


@pytest.mark.parametrize("settle", [SETTLING["complete"], SETTLING["discard"]], ids=["complete", "discard"])
def test_a_shard_that_left_can_be_queued_again(bench: Bench, settle: Settle) -> None:
    assert settle(bench.worker(), bench.claimed())
    bench.put(FIRST, run="run2")
    assert bench.claim().run == "run2"


def test_a_shard_of_one_import_says_nothing_about_the_same_key_of_another(bench: Bench) -> None:
    bench.put(FIRST)
    bench.put(FIRST, name="b")
    assert {lease.import_name for lease in bench.worker().claim(["a", "b"], 5).leases} == {"a", "b"}


def test_a_shard_queued_again_leaves_the_state_it_was_counted_under(bench: Bench) -> None:
    bench.worker().complete([(bench.claimed(), PAGE_1)])
    assert bench.worker().enqueue("a", [QueuedShard(FIRST, "job2", "done")], "run2", begins=True) == [True]
    status = bench.board()
    assert (status.done, status.queued, status.total) == (0, 1, 1)


def test_a_shard_goes_on_where_its_ledger_row_says(bench: Bench) -> None:
    bench.worker().enqueue("a", [QueuedShard(FIRST, "job1", None, PAGE_2)], "run1")
    assert bench.claim().checkpoint == PAGE_2


def test_only_a_run_that_begins_becomes_the_newest(bench: Bench) -> None:
    bench.put(FIRST, run="run1")
    assert bench.worker().enqueue("a", [QueuedShard(SECOND, "job2")], "run0") == [True]
    assert bench.run() == ("run1", 1, 1, 0, 0, False)
    assert bench.worker().enqueue("a", [QueuedShard(THIRD, "job3")], "run1") == [True]
    assert bench.run() == ("run1", 2, 2, 0, 0, False)
    assert bench.worker().enqueue("a", [QueuedShard(FIRST, "job4")], "run2", begins=True) == [False]
    assert bench.run()[0] == "run1", "a run that queued nothing must not hide the one that goes on"
    bench.put("ids:20..30", run="run2")
    assert bench.run() == ("run2", 1, 1, 0, 0, False)


def test_without_counters_nothing_is_queued_and_the_caller_is_told(bench: Bench) -> None:
    bench.client.flushall()
    with pytest.raises(Uncounted):
        bench.worker().enqueue("a", [QueuedShard(FIRST, "job1")], "run1", begins=True)
    assert bench.dump() == {}
    assert bench.worker().enqueue("a", [], "run1") == []
    bench.count("a")
    assert bench.worker().enqueue("a", [QueuedShard(FIRST, "job1")], "run1", begins=True) == [True]


def test_counters_that_only_tell_of_a_producer_are_none(bench: Bench) -> None:
    bench.client.flushall()
    bench.worker().announce_producer("a", is_there=True)
    with pytest.raises(Uncounted):
        bench.worker().enqueue("a", [QueuedShard(FIRST, "job1")], "run1", begins=True)


def test_a_run_whose_shards_are_queued_before_its_producer_comes_to_it_is_counted_as_a_whole(bench: Bench) -> None:
    """A healer may find rows of a run that is just being planned: it queues them first, and the producer finds them there."""
    bench.put(FIRST, run="20260221T100000Z-aa")
    new = "20260221T110000Z-aa"
    assert bench.worker("healer").enqueue("a", [QueuedShard(SECOND, "job2")], new) == [True]
    shards = [QueuedShard(SECOND, "job2"), QueuedShard(THIRD, "job3")]
    assert bench.worker("producer").enqueue("a", shards, new, begins=True) == [False, True]
    assert bench.run() == (new, 2, 2, 0, 0, False)
    bench.worker().complete([(lease, PAGE_1) for lease in bench.worker().claim(["a"], 3).leases])
    assert bench.run() == (new, 2, 0, 2, 0, True)


def test_a_run_with_an_older_name_does_not_become_the_newest_by_being_queued_again(bench: Bench) -> None:
    bench.put(FIRST, run="20260221T110000Z-aa")
    assert bench.worker("healer").enqueue("a", [QueuedShard(SECOND, "job2")], "20260221T100000Z-aa") == [True]
    assert bench.run() == ("20260221T110000Z-aa", 1, 1, 0, 0, False)


RINGING: dict[str, Callable[[Bench], object]] = {
    "enqueue": lambda bench: bench.worker().enqueue("a", [QueuedShard(SECOND, "job2")], "run1"),
    "release": lambda bench: bench.worker().release([bench.claim()]),
    "promote": lambda bench: bench.worker().promote("a", 10),
    "replay": lambda bench: bench.replay(dead(bench), QueuedShard(THIRD, "job2")),
}


def dead(bench: Bench) -> str:
    return bench.dead_letters()[0].entry


@pytest.mark.parametrize("ring", RINGING.values(), ids=RINGING.keys())
def test_work_that_becomes_claimable_rings_for_sleeping_workers(bench: Bench, ring: Callable[[Bench], object]) -> None:
    bench.dead(THIRD)
    bench.worker().retry(bench.claimed("ids:30..40"), PAGE_1, 0, 1)
    bench.make_due("ids:30..40")
    bench.put(FIRST)
    with bench.client.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe(bench.keys.control)
        assert channel.get_message(timeout=5) is None  # the subscription itself
        ring(bench)
        message = channel.get_message(timeout=5)
    assert message is not None
    assert message["data"] == b"work"


# Into a worker's hands.


def test_a_new_shard_is_leased_with_all_its_message_says(bench: Bench) -> None:
    bench.put(FIRST)
    (entry,) = [entry.decode() for entry, _ in bench.client.xrange(bench.a.shards)]
    assert bench.claim() == Lease("a", entry, "w:1", 1, FIRST, f"job-{FIRST}", "run1", checkpoint=Checkpoint())
    assert bench.states() == (0, 1, 0, 0)


def test_a_claim_takes_no_more_than_its_limit_over_all_imports_together(bench: Bench) -> None:
    names = ["a", "b", "c"]
    for name in names:
        bench.put(FIRST, SECOND, THIRD, name=name)
    taken = [len(bench.worker(f"w:{turn}").claim(names, 4).leases) for turn in range(4)]
    assert taken == [4, 4, 1, 0]
    owners = [owner for name in names for owner, _ in bench.pending(name).values()]
    assert sorted(owners) == ["w:0"] * 4 + ["w:1"] * 4 + ["w:2"]


def test_a_claim_of_nothing_takes_nothing(bench: Bench) -> None:
    assert bench.worker().claim(["a", "b"], 3).leases == []
    bench.put(FIRST)
    assert bench.worker().claim(["a"], 0).leases == []
    assert bench.worker().claim([], 3).leases == []
    assert bench.states() == (1, 0, 0, 0)


def test_what_was_released_is_claimed_before_what_is_new(bench: Bench) -> None:
    bench.put(FIRST, SECOND, THIRD)
    leases = bench.worker().claim(["a"], 2).leases
    bench.worker().release(leases)
    assert [lease.shard_key for lease in bench.worker("w:2").claim(["a"], 3).leases] == [FIRST, SECOND, THIRD]


def test_released_shards_count_towards_the_limit(bench: Bench) -> None:
    bench.put(FIRST, SECOND, THIRD)
    bench.worker().release(bench.worker().claim(["a"], 2).leases)
    assert [lease.shard_key for lease in bench.worker("w:2").claim(["a"], 1).leases] == [FIRST]
    assert [lease.shard_key for lease in bench.worker("w:2").claim(["a"], 5).leases] == [SECOND, THIRD]


def test_nothing_is_claimed_from_a_paused_import_not_even_what_was_released(bench: Bench) -> None:
    bench.put(FIRST, SECOND)
    bench.put(THIRD, name="b")
    bench.worker().release([bench.claim()])
    bench.client.hset(bench.keys.paused, "a", "{}")
    assert [lease.import_name for lease in bench.worker().claim(["a", "b"], 5).leases] == ["b"]
    bench.client.hdel(bench.keys.paused, "a")
    assert len(bench.worker().claim(["a", "b"], 5).leases) == 2


def test_what_was_queued_before_the_group_was_made_is_claimed(bench: Bench) -> None:
    bench.client.delete(bench.a.shards)
    bench.put(FIRST)
    bench.worker().set_up("a")
    bench.worker().set_up("a")  # by many at a time
    assert bench.claim().shard_key == FIRST


# Renewal and the fence.


def test_a_renewed_lease_does_not_run_out(bench: Bench) -> None:
    lease = bench.claimed()
    bench.age(lease)
    assert bench.worker().renew([lease]) == [True]
    assert bench.worker("w:2").reclaim("a", 5, LEASE_S, [], THERE_S).leases == []
    assert bench.pending() == {lease.entry: ("w:1", 1)}


def test_leases_on_several_imports_are_renewed_in_one_call_and_answered_in_order(bench: Bench) -> None:
    bench.put(FIRST, SECOND)
    bench.put(THIRD, name="b")
    one, two = bench.worker().claim(["a"], 2).leases
    (three,) = bench.worker().claim(["b"], 1).leases
    bench.taken_over(one)
    assert bench.worker().renew([three, one, two]) == [True, False, True]
    assert bench.worker().renew([]) == []


def test_a_worker_whose_lease_ran_out_does_not_take_it_back_by_renewing(bench: Bench) -> None:
    lease = bench.claimed()
    other = bench.taken_over(lease)
    assert bench.worker().renew([lease]) == [False]
    assert bench.pending() == {lease.entry: ("w:2", 2)}
    assert bench.worker("w:2").renew([other]) == [True]


@fenced
def test_a_worker_that_lost_its_lease_writes_nothing_and_is_told(bench: Bench, settle: Settle) -> None:
    lease = bench.claimed()
    bench.worker().checkpoint(lease, PAGE_1)
    other = bench.taken_over(lease)
    before = bench.dump()
    assert settle(bench.worker(), lease) is False
    assert bench.dump() == before
    assert settle(bench.worker("w:2"), other) is True


@fenced
def test_an_earlier_lease_of_the_same_worker_is_not_its_present_one(bench: Bench, settle: Settle) -> None:
    lease = bench.claimed()
    bench.worker().release([lease])
    again = bench.claim()
    assert (again.entry, again.consumer, again.count) == (lease.entry, lease.consumer, lease.count + 1)
    before = bench.dump()
    assert settle(bench.worker(), lease) is False
    assert bench.dump() == before
    assert settle(bench.worker(), again) is True


@fenced
def test_a_lease_on_a_flushed_server_is_lost_and_nothing_is_written(bench: Bench, settle: Settle) -> None:
    lease = bench.claimed()
    bench.client.flushall()
    assert settle(bench.worker(), lease) is False
    assert bench.dump() == {}


@fenced
def test_a_settled_shard_is_not_held_any_more(bench: Bench, settle: Settle) -> None:
    lease = bench.claimed()
    bench.worker().complete([(lease, PAGE_1)])
    before = bench.dump()
    assert settle(bench.worker(), lease) is False
    assert bench.dump() == before


def test_garbage_that_another_worker_took_over_is_not_dead_lettered_twice(bench: Bench) -> None:
    garbage = bench.garbage({"what": "ever"})
    bench.age(garbage)
    (other,) = bench.worker("w:2").reclaim("a", 1, LEASE_S, [], THERE_S).garbage
    before = bench.dump()
    assert not bench.worker().dead_letter(garbage, Checkpoint(), WHY, 0)
    assert bench.dump() == before
    assert bench.worker("w:2").dead_letter(other, Checkpoint(), WHY, 0)


def test_each_shard_of_a_batch_is_answered_for_itself(bench: Bench) -> None:
    bench.put(FIRST, SECOND, THIRD)
    leases = bench.worker().claim(["a"], 3).leases
    bench.taken_over(leases[1])
    assert bench.worker().complete([(lease, PAGE_1) for lease in leases]) == [True, False, True]
    assert bench.states() == (0, 1, 0, 0)
    assert bench.board().done == 2


# Every script may run twice.

TWICE: dict[str, Callable[[RedisQueue, Lease, str], object]] = {
    **{name: lambda queue, lease, _, name=name: FENCED[name](queue, lease) for name in FENCED},  # type: ignore[misc]
    "enqueue": lambda queue, lease, _: queue.enqueue("a", [QueuedShard("ids:70..80", "job")], "run7", begins=True),
    "promote": lambda queue, lease, _: queue.promote("a", 10),
    "adopt": lambda queue, lease, _: queue.adopt(["a", "b"], []),
    "reclaim": lambda queue, lease, _: queue.reclaim("a", 10, LEASE_S, [lease], THERE_S),
    "reap": lambda queue, lease, _: queue.reap("a", ["w:1", "w:8", "w:9", "released"]),
}


@pytest.mark.parametrize("act", TWICE.values(), ids=TWICE.keys())
def test_a_script_that_runs_twice_changes_nothing_the_second_time(
    bench: Bench, act: Callable[[RedisQueue, Lease, str], object]
) -> None:
    letter = bench.dead(THIRD)
    bench.worker().retry(bench.claimed(SECOND), PAGE_1, 60, 1)
    bench.make_due(SECOND)
    bench.age(bench.claimed("ids:80..90", "w:8"))
    bench.worker("w:9").release([bench.claimed("ids:90..100", "w:9")])
    bench.put(FIRST)
    lease = next(lease for lease in bench.worker().claim(["a"], 5).leases if lease.shard_key == FIRST)
    bench.worker().checkpoint(lease, PAGE_1)
    act(bench.worker(), lease, letter)
    before = bench.dump()
    act(bench.worker(), lease, letter)
    assert bench.dump() == before


def test_garbage_dead_lettered_twice_is_there_once(bench: Bench) -> None:
    garbage = bench.garbage({"what": "ever"})
    assert bench.worker().dead_letter(garbage, Checkpoint(), WHY, 0)
    before = bench.dump()
    assert not bench.worker().dead_letter(garbage, Checkpoint(), WHY, 0)
    assert bench.dump() == before


# Checkpoints and counters.


def records(status: ImportStatus) -> Counts:
    found = {**status.records, **{f"requests_{name}": number for name, number in status.requests.items()}}
    return Counts(**found)


def test_a_checkpoint_sets_totals(bench: Bench) -> None:
    lease = bench.claimed()
    assert bench.worker().checkpoint(lease, PAGE_1)
    assert records(bench.board()) == PAGE_1.counts
    assert bench.worker().checkpoint(lease, PAGE_2)
    assert records(bench.board()) == PAGE_2.counts


def test_a_late_checkpoint_of_an_earlier_page_is_ignored(bench: Bench) -> None:
    lease = bench.claimed()
    bench.worker().checkpoint(lease, PAGE_2)
    before = bench.dump()
    assert bench.worker().checkpoint(lease, PAGE_1), "the lease is held all the same"
    assert bench.dump() == before


def test_a_page_stored_again_moves_its_records_and_counts_none_twice(bench: Bench) -> None:
    lease = bench.claimed()
    bench.worker().checkpoint(lease, Checkpoint(1, 100, Counts(inserted=5, requests_ok=1)))
    repeated = Counts(inserted=2, unchanged=3, requests_ok=2)
    bench.worker().checkpoint(lease, Checkpoint(1, 100, repeated))
    assert records(bench.board()) == repeated


def test_a_checkpoint_renews_the_lease(bench: Bench) -> None:
    lease = bench.claimed()
    bench.age(lease)
    assert bench.worker().checkpoint(lease, PAGE_1)
    assert bench.idle_ms(lease) < LEASE_S * 1000
    assert bench.pending() == {lease.entry: ("w:1", 1)}


@pytest.mark.parametrize("cursor", [None, 0, 2**60, "", "opaque=/+", 'quo"te\\', "ключ\n🔌"], ids=repr)
def test_a_cursor_comes_back_as_it_was_given(bench: Bench, cursor: Cursor | None) -> None:
    lease = bench.claimed()
    bench.worker().checkpoint(lease, Checkpoint(3, cursor, PAGE_1.counts))
    bench.worker().release([lease])
    assert bench.claim("w:2").checkpoint == Checkpoint(3, cursor, PAGE_1.counts)


def test_counters_are_the_sum_over_shards_whatever_way_they_went(bench: Bench) -> None:
    queue = bench.worker()
    bench.put(FIRST, SECOND, THIRD)
    done, tried, dies = queue.claim(["a"], 3).leases
    queue.checkpoint(done, PAGE_1)
    queue.complete([(done, PAGE_2)])
    queue.checkpoint(tried, PAGE_1)
    queue.retry(tried, PAGE_2, 0, 1)
    queue.dead_letter(dies, PAGE_1, WHY, 5)
    assert records(bench.board()) == PAGE_2.counts + PAGE_2.counts + PAGE_1.counts
    assert bench.replay(dead(bench), QueuedShard(THIRD, "job9", "failed", PAGE_1))
    assert records(bench.board()) == PAGE_2.counts + PAGE_2.counts + PAGE_1.counts
    bench.make_due(SECOND)
    queue.promote("a", 5)
    queue.complete([(lease, PAGE_2) for lease in queue.claim(["a"], 5).leases])
    status = bench.board()
    assert records(status) == PAGE_2.counts + PAGE_2.counts + PAGE_2.counts
    assert (status.done, status.failed, status.total) == (3, 0, 3)


def test_a_shard_completed_without_a_checkpoint_is_counted_in_full(bench: Bench) -> None:
    bench.worker().complete([(bench.claimed(), PAGE_2)])
    assert records(bench.board()) == PAGE_2.counts


@pytest.mark.parametrize("state", ["done", "split", "cancelled"])
def test_a_completed_shard_is_counted_under_its_state(bench: Bench, state: str) -> None:
    bench.worker().complete([(bench.claimed(), PAGE_1)], state)
    status = bench.board()
    assert {name: getattr(status, name) for name in ("done", "failed", "split", "cancelled")} == {
        **dict.fromkeys(("done", "failed", "split", "cancelled"), 0),
        state: 1,
    }
    assert status.total == 1


def test_a_run_counts_its_shards_down_and_is_finished_with_the_last(bench: Bench) -> None:
    queue = bench.worker()
    bench.put(FIRST, SECOND, THIRD)
    first, second, third = queue.claim(["a"], 3).leases
    assert bench.run() == ("run1", 3, 3, 0, 0, False)
    queue.complete([(first, PAGE_1)])
    assert bench.run() == ("run1", 3, 2, 1, 0, False)
    queue.retry(second, PAGE_1, 0, 1)
    assert bench.run() == ("run1", 3, 2, 1, 0, False)
    queue.dead_letter(third, PAGE_1, WHY, 5)
    assert bench.run() == ("run1", 3, 1, 1, 1, False)
    bench.make_due(SECOND)
    queue.promote("a", 1)
    queue.complete([(bench.claim(), PAGE_1)])
    assert bench.run() == ("run1", 3, 0, 2, 1, True)
    assert bench.replay(dead(bench), QueuedShard(THIRD, "job9", "failed", PAGE_1))
    assert bench.run() == ("run1", 3, 1, 2, 0, False)
    queue.complete([(bench.claim(), PAGE_1)])
    assert bench.run() == ("run1", 3, 0, 3, 0, True)


def test_a_shard_of_an_older_run_does_not_count_in_the_newest(bench: Bench) -> None:
    old = bench.claimed(FIRST)
    bench.put(SECOND, run="run2")
    bench.worker().complete([(old, PAGE_1)])
    assert bench.run() == ("run2", 1, 1, 0, 0, False)
    assert bench.board().done == 1


def test_what_queueing_a_discarded_shard_took_from_the_counters_is_given_back(bench: Bench) -> None:
    bench.worker().complete([(bench.claimed(), PAGE_1)])
    assert bench.board().done == 1
    bench.worker().enqueue("a", [QueuedShard(FIRST, "job2", "done")], "run1")  # by one who read the ledger too early
    assert bench.board().done == 0
    bench.worker().discard([bench.claim()])
    status = bench.board()
    assert (status.done, status.total) == (1, 1)


def test_a_discarded_shard_was_never_part_of_the_run(bench: Bench) -> None:
    bench.put(FIRST, SECOND)
    discarded, done = bench.worker().claim(["a"], 2).leases
    bench.worker().checkpoint(discarded, PAGE_1)
    assert bench.worker().discard([discarded]) == [True]
    assert bench.run() == ("run1", 1, 1, 0, 0, False)
    bench.worker().complete([(done, PAGE_1)])
    assert bench.run() == ("run1", 1, 0, 1, 0, True)
    assert bench.board().done == 1
    assert not bench.client.exists(bench.a.progress, bench.a.places)


# Retries.


def test_a_shard_that_is_tried_again_comes_back_when_its_time_has_come(bench: Bench) -> None:
    lease = bench.claimed()
    assert bench.worker().retry(lease, PAGE_1, 7200, 2) is True
    assert bench.states() == (0, 0, 1, 0)
    assert bench.places() == {FIRST: "d"}
    assert bench.worker().promote("a", 10) == 0
    bench.make_due(FIRST)
    assert bench.worker().promote("a", 10) == 1
    again = bench.claim("w:2")
    assert again == Lease("a", again.entry, "w:2", 1, FIRST, lease.job, "run1", 2, checkpoint=PAGE_1)
    assert again.entry != lease.entry
    assert bench.states() == (0, 1, 0, 0)


def test_a_delay_runs_on_the_servers_clock(bench: Bench) -> None:
    def now() -> float:
        seconds, micros = bench.client.time()
        return float(seconds) + float(micros) / 1_000_000

    lease = bench.claimed()
    before = now()
    bench.worker().retry(lease, PAGE_1, 7200.25, 1)
    ((_, due),) = bench.client.zrange(bench.a.delayed, 0, -1, withscores=True)
    assert before + 7200.249 <= due / 1000 <= now() + 7200.251


def test_only_as_many_are_promoted_as_asked_for_and_the_longest_due_first(bench: Bench) -> None:
    for shard in (FIRST, SECOND, THIRD):
        bench.worker().retry(bench.claimed(shard), PAGE_1, 60, 1)
    bench.client.zadd(bench.a.delayed, {FIRST: 3, SECOND: 1, THIRD: 2})
    assert [bench.worker().promote("a", 2), bench.worker().promote("a", 2), bench.worker().promote("a", 2)] == [2, 1, 0]
    assert [lease.shard_key for lease in bench.worker().claim(["a"], 5).leases] == [SECOND, THIRD, FIRST]


def test_a_delayed_shard_whose_place_is_elsewhere_is_not_promoted(bench: Bench) -> None:
    lease = bench.claimed()
    bench.worker().checkpoint(lease, PAGE_1)
    bench.client.zadd(bench.a.delayed, {FIRST: 1})
    assert bench.worker().promote("a", 10) == 0
    assert bench.states() == (0, 1, 0, 0)
    assert bench.places() == {FIRST: f"s{lease.entry}"}


def test_a_delayed_shard_whose_progress_is_gone_can_be_queued_again(bench: Bench) -> None:
    bench.worker().retry(bench.claimed(), PAGE_1, 60, 1)
    bench.make_due(FIRST)
    bench.client.delete(bench.a.progress)
    bench.worker().promote("a", 10)
    queued = bench.worker().enqueue("a", [QueuedShard(FIRST, "job2")], "run1")
    assert bench.states() == (1, 0, 0, 0), f"neither promoted nor queued again ({queued})"


def test_attempts_and_checkpoint_go_with_the_shard_from_retry_to_retry(bench: Bench) -> None:
    bench.worker().retry(bench.claimed(), PAGE_1, 60, 1)
    bench.make_due(FIRST)
    bench.worker().promote("a", 10)
    bench.worker().retry(bench.claim(), PAGE_2, 60, 2)
    bench.make_due(FIRST)
    bench.worker().promote("a", 10)
    again = bench.claim()
    assert (again.attempts, again.checkpoint) == (2, PAGE_2)


# Reclaim.


def test_a_shard_whose_lease_ran_out_is_taken_over_with_its_progress(bench: Bench) -> None:
    lease = bench.claimed()
    bench.worker().checkpoint(lease, PAGE_1)
    assert bench.worker("w:2").reclaim("a", 5, LEASE_S, [], THERE_S).leases == []
    other = bench.taken_over(lease)
    assert other == Lease("a", lease.entry, "w:2", 2, FIRST, lease.job, "run1", checkpoint=PAGE_1)


def test_no_more_is_reclaimed_than_asked_for(bench: Bench) -> None:
    bench.put(FIRST, SECOND, THIRD)
    bench.age(*bench.worker().claim(["a"], 3).leases)
    queue = bench.worker("w:2")
    assert [len(queue.reclaim("a", 2, LEASE_S, [], THERE_S).leases) for _ in range(2)] == [2, 1]
    assert {owner for owner, _ in bench.pending().values()} == {"w:2"}


def test_own_leases_are_renewed_first_and_never_taken(bench: Bench) -> None:
    bench.put(FIRST, SECOND)
    (own,) = bench.worker().claim(["a"], 1).leases
    (others,) = bench.worker("w:2").claim(["a"], 1).leases
    bench.age(own, others)
    assert [lease.shard_key for lease in bench.worker().reclaim("a", 5, LEASE_S, [own], THERE_S).leases] == [SECOND]
    assert bench.pending() == {own.entry: ("w:1", 1), others.entry: ("w:1", 2)}
    assert bench.idle_ms(own) < LEASE_S * 1000
    assert bench.worker().renew([own]) == [True]


def test_a_lease_that_was_lost_is_not_renewed_by_reclaiming(bench: Bench) -> None:
    lease = bench.claimed()
    other = bench.taken_over(lease)
    bench.age(other, seconds=10)
    assert bench.worker().reclaim("a", 5, LEASE_S, [lease], THERE_S).leases == []
    assert bench.idle_ms(other) >= 10_000
    assert bench.pending() == {lease.entry: ("w:2", 2)}


def test_nothing_is_reclaimed_from_a_paused_import_but_own_leases_are_renewed(bench: Bench) -> None:
    bench.put(FIRST, SECOND, THIRD)
    (own,) = bench.worker().claim(["a"], 1).leases
    dead, released = bench.worker("w:2").claim(["a"], 2).leases
    bench.age(own, dead)
    bench.worker("w:2").release([released], LEASE_S)
    bench.client.hset(bench.keys.paused, "a", "{}")
    assert bench.worker().reclaim("a", 5, LEASE_S, [own], THERE_S).leases == []
    assert bench.idle_ms(own) < LEASE_S * 1000
    bench.client.hdel(bench.keys.paused, "a")
    taken = bench.worker().reclaim("a", 5, LEASE_S, [own], THERE_S).leases
    assert {lease.entry for lease in taken} == {dead.entry, released.entry}


def test_reclaim_without_a_group_finds_nothing(bench: Bench) -> None:
    bench.client.delete(bench.a.shards)
    assert bench.worker().reclaim("a", 5, LEASE_S, [], THERE_S).leases == []


# Release.


def test_a_released_shard_keeps_its_place_and_count_and_is_claimable_at_once(bench: Bench) -> None:
    lease = bench.claimed()
    bench.worker().checkpoint(lease, PAGE_1)
    place = bench.places()
    assert bench.worker().release([lease], LEASE_S) == [True]
    assert bench.places() == place
    assert bench.pending() == {lease.entry: (RELEASED, lease.count)}
    assert bench.states() == (1, 0, 0, 0), "people call it queued"
    assert bench.worker().renew([lease]) == [False]
    other = bench.claim("w:2")
    assert (other.entry, other.attempts, other.checkpoint) == (lease.entry, 0, PAGE_1)


def test_a_shard_released_with_the_age_of_a_lease_can_be_reclaimed_at_once_too(bench: Bench) -> None:
    lease = bench.claimed()
    bench.worker().release([lease], LEASE_S)
    assert [other.entry for other in bench.worker("w:2").reclaim("a", 5, LEASE_S, [], THERE_S).leases] == [lease.entry]


# Two versions side by side.


def test_what_a_newer_version_wrote_is_given_back_once_and_not_claimed_again(bench: Bench) -> None:
    bench.put(FIRST, version=STORED_VERSION + 1)
    bench.put(SECOND)
    claimed = bench.worker().claim(["a"], 5)
    assert ([lease.shard_key for lease in claimed.leases], claimed.garbage, claimed.too_new) == ([SECOND], [], 1)
    again = bench.worker("w:2").claim(["a"], 5)
    assert (again.leases, again.garbage, again.too_new) == ([], [], 0)
    assert {owner for owner, _ in bench.pending().values()} == {NEWER, "w:1"}
    assert bench.board().queued == 1


def test_what_a_newer_version_wrote_is_claimed_by_such_a_version(bench: Bench) -> None:
    bench.put(FIRST, version=STORED_VERSION + 1)
    bench.worker().claim(["a"], 5)
    lease = bench.claim("new:1", STORED_VERSION + 1)
    assert lease.shard_key == FIRST
    assert bench.worker("new:1", STORED_VERSION + 1).complete([(lease, PAGE_1)]) == [True]


def test_a_newer_version_works_on_what_an_older_one_wrote(bench: Bench) -> None:
    bench.put(FIRST)
    assert bench.claim("new:1", STORED_VERSION + 1).shard_key == FIRST


def test_what_a_newer_version_holds_is_given_back_by_an_older_one_that_reclaims_it(bench: Bench) -> None:
    bench.put(FIRST, version=STORED_VERSION + 1)
    lease = bench.claim("new:1", STORED_VERSION + 1)
    bench.age(lease)
    claimed = bench.worker().reclaim("a", 5, LEASE_S, [], THERE_S)
    assert (claimed.leases, claimed.garbage, claimed.too_new) == ([], [], 1)
    assert [owner for owner, _ in bench.pending().values()] == [NEWER]
    assert bench.claim("new:2", STORED_VERSION + 1).entry == lease.entry


def test_a_shard_handed_over_to_a_newer_version_is_taken_by_such_a_version_only(bench: Bench) -> None:
    lease = bench.claimed()
    bench.worker().checkpoint(lease, PAGE_1)
    assert bench.worker().hand_over(lease, STORED_VERSION + 1) is True
    assert bench.states() == (1, 0, 0, 0)
    assert bench.worker().enqueue("a", [QueuedShard(FIRST, "job2")], "run1") == [False], "it has its place"
    claimed = bench.worker("w:2").claim(["a"], 5)
    assert (claimed.leases, claimed.garbage, claimed.too_new) == ([], [], 1)
    assert bench.worker("w:2").claim(["a"], 5).too_new == 0, "it would go round for ever"
    newer = bench.claim("new:1", STORED_VERSION + 1)
    assert (newer.shard_key, newer.job, newer.run, newer.checkpoint) == (FIRST, lease.job, lease.run, PAGE_1)
    assert bench.places() == {FIRST: f"s{newer.entry}"}
    assert bench.worker("new:1", STORED_VERSION + 1).complete([(newer, PAGE_2)]) == [True]
    assert bench.run() == ("run1", 1, 0, 1, 0, True)


def test_a_delayed_shard_keeps_the_version_that_wrote_it(bench: Bench) -> None:
    bench.put(FIRST, version=STORED_VERSION + 1)
    newer = bench.worker("new:1", STORED_VERSION + 1)
    newer.retry(bench.claim("new:1", STORED_VERSION + 1), PAGE_1, 60, 1)
    bench.make_due(FIRST)
    assert bench.worker().promote("a", 5) == 1
    assert bench.worker().claim(["a"], 5).too_new == 1


# Garbage and duplicates.

JUNK = bytes(range(128, 256))
GARBAGE: dict[str, dict[str | bytes, str | bytes]] = {
    "nothing of ours": {"hello": "world"},
    "no version": {"shard": FIRST, "job": "j", "run": "r"},
    "no shard": {"v": "1", "job": "j"},
    "no job": {"v": "1", "shard": FIRST},
    "version is a word": {"v": "one", "shard": FIRST, "job": "j"},
    "version is infinite": {"v": "inf", "shard": FIRST, "job": "j"},
    "version is hexadecimal": {"v": "0x10", "shard": FIRST, "job": "j"},
    "version has an exponent": {"v": "1e9", "shard": FIRST, "job": "j"},
    "version is empty": {"v": "", "shard": FIRST, "job": "j"},
    "shard is empty": {"v": "1", "shard": "", "job": "j"},
    "shard is no key": {"v": "1", "shard": "planet:mars", "job": "j"},
    "shard is a backward range": {"v": "1", "shard": "ids:9..3", "job": "j"},
    "shard is huge": {"v": "1", "shard": "x" * 100_000, "job": "j"},
    "shard is binary": {"v": "1", "shard": JUNK, "job": "j"},
    "job is empty": {"v": "1", "shard": FIRST, "job": ""},
    "job is huge": {"v": "1", "shard": FIRST, "job": "j" * 100_000},
    "all is binary": {JUNK: JUNK, b"v": JUNK, b"shard": JUNK, b"job": JUNK},
    "all is huge": {"v": "1", "shard": "🔌" * 50_000, "job": "j" * 50_000},
}


@pytest.mark.parametrize("fields", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_dead_lettered_with_a_reason_and_leaves_no_place(bench: Bench, fields: dict[str | bytes, str | bytes]) -> None:
    garbage = bench.garbage(fields)
    assert garbage.reason
    assert len(garbage.payload.encode()) <= 8 * 1024
    assert bench.worker().dead_letter(garbage, Checkpoint(), Failure("garbage", garbage.reason), 0)
    (letter,) = bench.dead_letters()
    assert (letter.shard_key, letter.error, letter.message) == ("", "garbage", garbage.reason)
    assert letter.payload == garbage.payload
    assert bench.states() == (0, 0, 0, 1)
    assert (bench.places(), bench.pending(), bench.board().failed) == ({}, {}, 0)


def test_garbage_that_names_a_good_shard_does_not_take_its_place_away(bench: Bench) -> None:
    lease = bench.claimed(FIRST)
    garbage = bench.garbage({"v": "1", "shard": FIRST})
    assert bench.worker().dead_letter(garbage, Checkpoint(), WHY, 0)
    assert bench.places() == {FIRST: f"s{lease.entry}"}
    assert bench.worker().renew([lease]) == [True]


def test_a_lease_that_is_buried_as_garbage_leaves_neither_place_nor_progress(bench: Bench) -> None:
    lease = bench.claimed()
    bench.worker().checkpoint(lease, PAGE_1)
    garbage = Garbage("a", lease.entry, lease.consumer, lease.count, "the ledger has no such shard", FIRST, FIRST)
    assert bench.worker().dead_letter(garbage, Checkpoint(), WHY, 0)
    assert not bench.client.exists(bench.a.places, bench.a.progress)


def test_an_entry_of_ours_without_a_place_gets_one(bench: Bench) -> None:
    bench.client.xadd(bench.a.shards, {"v": "1", "shard": FIRST, "job": "job1", "run": "run1"})
    lease = bench.claim()
    assert bench.places() == {FIRST: f"s{lease.entry}"}


@pytest.mark.parametrize("stage", ["queued", "leased", "delayed", "dead"])
def test_an_entry_whose_shard_is_elsewhere_is_a_duplicate_and_is_dropped(bench: Bench, stage: str) -> None:
    bench.put(FIRST)
    if stage != "queued":
        lease = bench.claim()
        if stage == "delayed":
            bench.worker().retry(lease, PAGE_1, 60, 1)
        elif stage == "dead":
            bench.worker().dead_letter(lease, PAGE_1, WHY, 5)
    before, place = bench.states(), bench.places()
    bench.client.xadd(bench.a.shards, {"v": "1", "shard": FIRST, "job": "job2", "run": "run1"})
    claimed = bench.worker("w:2").claim(["a"], 5)
    assert [lease.job for lease in claimed.leases] == ([f"job-{FIRST}"] if stage == "queued" else [])
    assert claimed.garbage == []
    assert sum(bench.states()) == sum(before)
    assert bench.places() == place


@pytest.mark.parametrize("progress", ["not JSON", "{}", "[]", '{"counts": []}', '{"counts": "x", "page": "y"}', JUNK], ids=str)
def test_a_shard_with_unreadable_progress_starts_again_and_can_be_settled(bench: Bench, progress: str | bytes) -> None:
    bench.put(FIRST, SECOND, THIRD)
    for shard in (FIRST, SECOND, THIRD):
        bench.client.hset(bench.a.progress, shard, progress)
    queue = bench.worker()
    one, two, three = queue.claim(["a"], 3).leases
    assert {lease.checkpoint for lease in (one, two, three)} == {Checkpoint()}
    assert queue.checkpoint(one, PAGE_1)
    assert queue.complete([(one, PAGE_1), (two, PAGE_1)]) == [True, True]
    assert queue.retry(three, PAGE_1, 60, 1)
    assert records(bench.board()) == PAGE_1.counts + PAGE_1.counts + PAGE_1.counts


# After a lost reply.


def test_a_worker_adopts_what_a_lost_claim_gave_it_and_nothing_else(bench: Bench) -> None:
    bench.put(FIRST, SECOND, THIRD, "ids:20..30")
    (known,) = bench.worker().claim(["a"], 1).leases
    (lost,) = bench.worker().claim(["a"], 1).leases
    bench.worker("w:2").claim(["a"], 1)
    before = bench.dump()
    adopted = bench.worker().adopt(["a", "b"], [known.entry])
    assert adopted.leases == [lost]
    assert (adopted.garbage, adopted.too_new) == ([], 0)
    assert bench.dump() == before
    assert bench.worker().complete([(lost, PAGE_1)]) == [True]


def test_adopted_shards_come_with_their_progress_and_garbage_is_told(bench: Bench) -> None:
    lease = bench.claimed()
    bench.worker().checkpoint(lease, PAGE_1)
    garbage = bench.garbage({"what": "ever"})
    adopted = bench.worker().adopt(["a"], [])
    assert [found.checkpoint for found in adopted.leases] == [PAGE_1]
    assert adopted.garbage == [garbage]


def test_adopting_without_a_group_finds_nothing(bench: Bench) -> None:
    bench.client.delete(bench.a.shards)
    assert bench.worker().adopt(["a"], []).leases == []


# Dead letters.


def test_a_dead_letter_says_what_a_person_needs_to_know(bench: Bench) -> None:
    lease = bench.claimed()
    bench.worker().checkpoint(lease, PAGE_1)
    assert bench.worker().dead_letter(lease, PAGE_2, Failure("bad_answer", "line\none\x1b[31m", 502), 5)
    (letter,) = bench.dead_letters()
    assert (letter.shard_key, letter.error, letter.message) == (FIRST, "bad_answer", "line one [31m")
    assert (letter.status, letter.attempts, letter.cursor, letter.worker) == ("502", "5", "200", "w:1")
    assert FIRST in letter.payload
    assert "2020-01-01" < letter.first_seen <= letter.died_at < "2100-01-01"
    assert len(letter.first_seen) == len(letter.died_at) == len("2026-02-21T10:00:00Z")
    assert bench.states() == (0, 0, 0, 1)
    assert bench.places() == {FIRST: f"x{letter.entry}"}
    assert not bench.client.exists(bench.a.progress)
    fields = {name.decode() for name in bench.client.xrange(bench.a.dead)[0][1]}
    assert fields >= {"shard", "payload", "error", "message", "status", "attempts", "crashes", "cursor", "worker"}
    assert fields >= {"first_seen", "died_at"}


# Consumers.


def test_only_consumers_without_pending_entries_are_forgotten(bench: Bench) -> None:
    lease = bench.claimed(FIRST, "w:busy")
    for name in ("w:idle", "w:kept"):
        bench.client.xgroup_createconsumer(bench.a.shards, GROUP, name)
    assert bench.worker().consumers("a") == {"w:busy": 1, "w:idle": 0, "w:kept": 0}
    assert bench.worker().reap("a", ["w:busy", "w:idle"]) == 1
    assert bench.worker().consumers("a") == {"w:busy": 1, "w:kept": 0}
    assert bench.worker("w:busy").renew([lease]) == [True]


def test_nothing_is_forgotten_where_there_is_nothing(bench: Bench) -> None:
    bench.client.delete(bench.a.shards)
    assert bench.worker().consumers("a") == {}
    assert bench.worker().reap("a", ["w:1"]) == 0
    assert bench.worker().reap("a", []) == 0


# What is left.


def test_with_nothing_in_flight_only_the_fixed_keys_are_left_and_they_are_small(bench: Bench) -> None:
    queue = bench.worker()
    for start in range(0, 300, 100):
        bench.put(*(f"ids:{low}..{low + 1}" for low in range(start, start + 100)), run=f"run{start}")
        leases = queue.claim(["a"], 100).leases
        for lease in leases[:10]:
            queue.checkpoint(lease, PAGE_1)
        queue.retry(leases[10], PAGE_1, 0, 1)
        queue.dead_letter(leases[15], PAGE_1, WHY, 5)
        queue.discard([leases[16]])
        queue.complete([(lease, PAGE_2) for lease in (*leases[:10], *leases[17:])])
        queue.dead_letter(bench.garbage({"v": "1", "shard": "junk", "job": "j"}), Checkpoint(), WHY, 0)
        queue.release(leases[11:15])
        bench.make_due(leases[10].shard_key)
        assert queue.promote("a", 10) == 1
        for letter in bench.dead_letters():
            bench.replay(letter.entry, QueuedShard(letter.shard_key, "again", "failed"), "run0")
        queue.complete([(lease, PAGE_2) for lease in queue.claim(["a"], 100).leases])
    bench.client.delete(bench.a.dead)  # as a person would: the garbage
    fixed = {key for keys in map(bench.keys.of, "abc") for key in (keys.shards, keys.counters)}
    assert {key.decode() for key in bench.client.keys("*")} == fixed
    assert bench.client.xlen(bench.a.shards) == 0
    assert bench.pending() == {}
    assert len(bench.client.hgetall(bench.a.counters)) < 30
    assert bench.board().done == 297
