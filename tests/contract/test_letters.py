"""What every DeadLetters does: on the fake, on the server in memory and on a real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import fakeredis
import pytest
import redis

from streams_importer.adapters import redis_letters
from streams_importer.adapters.redis_keys import Keys
from streams_importer.adapters.redis_letters import RedisLetters
from streams_importer.adapters.redis_places import RedisPlaces
from streams_importer.adapters.redis_queue import RedisQueue
from streams_importer.domain.errors import Uncounted
from streams_importer.domain.model import Checkpoint, Counts, Failure, Lease
from streams_importer.ports import Buried, DeadLetter, DeadLetters, Places, QueuedShard, ShardQueue
from tests.fakes.letters import FakeLetters
from tests.fakes.places import FakePlaces
from tests.fakes.queue import Entry, FakeQueue

KEYS = [f"ids:{low}..{low + 10}" for low in range(0, 60, 10)]
PAGE = Checkpoint(1, 7, Counts(inserted=5))
WHY = Failure("http_500", "api.example: answered 500", 500)
MOST = 4


@dataclass
class Post:
    """Letters of the import `a`, of which at most four are kept, and the queue that they come from."""

    queue: ShardQueue
    letters: DeadLetters
    places: Places
    add_garbage: Callable[[], object]
    forget_counters: Callable[[], object]

    def bury(self, *keys: str, job: str = "job", why: Failure = WHY) -> list[Buried]:
        shards = [QueuedShard(key, f"{job} of {key}") for key in keys]
        assert all(self.queue.enqueue("a", shards, "run1", begins=True))
        return [self.queue.dead_letter(lease, PAGE, why, 5) for lease in self.queue.claim(["a"], len(keys)).leases]

    def bury_garbage(self) -> None:
        self.add_garbage()
        [garbage] = self.queue.claim(["a"], 1).garbage
        assert self.queue.dead_letter(garbage, Checkpoint(), Failure("garbage", garbage.reason), 0)

    def all(self) -> list[DeadLetter]:
        return [letter for batch in self.letters.newest_first("a") for letter in batch]

    def shards(self) -> list[str]:
        return [letter.shard_key for letter in self.all()]

    def replay(self, *wanted: tuple[str, str], job: str = "again") -> list[bool]:
        shards = [(entry, QueuedShard(key, f"{job} of {key}", "failed", PAGE)) for entry, key in wanted]
        return self.letters.replay("a", shards, "run1")

    def claim(self, number: int = 10) -> Sequence[Lease]:
        return self.queue.claim(["a"], number).leases


@pytest.fixture(params=["fake", "fakeredis", "real"])
def post(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Post]:
    if request.param == "fake":
        fake = FakeQueue("w:1")
        fake.max_letters = MOST
        yield Post(
            fake,
            FakeLetters(fake),
            FakePlaces(fake.store),
            lambda: fake.put(Entry("a", "", "", "", problem="no message of ours")),
            lambda: fake.store.uncounted.add("a"),
        )
        return
    monkeypatch.setattr(redis_letters, "BATCH", 2)
    client: redis.Redis
    if request.param == "real":
        client = request.getfixturevalue("redis_client")
    else:
        client = fakeredis.FakeRedis(version=(6, 2), protocol=2)
    keys = Keys()
    queue = RedisQueue(client, keys, "w:1", max_letters=MOST)
    queue.set_up("a")
    counters = keys.of("a").counters
    client.hset(counters, "since", "2026-02-21T12:00:00Z")
    yield Post(
        queue,
        RedisLetters(client, keys),
        RedisPlaces(client, keys),
        lambda: client.xadd(keys.of("a").shards, {"what": "ever"}),
        lambda: client.delete(counters),
    )


# Looking.


def test_letters_come_newest_first_and_a_batch_at_a_time(post: Post) -> None:
    assert list(post.letters.newest_first("a")) == []
    post.bury(*KEYS[:3])
    assert [[letter.shard_key for letter in batch] for batch in post.letters.newest_first("a")] == [[KEYS[2], KEYS[1]], [KEYS[0]]]
    assert list(post.letters.newest_first("b")) == []


def test_what_is_written_while_one_looks_is_not_met(post: Post) -> None:
    post.bury(*KEYS[:3])
    met = []
    for batch in post.letters.newest_first("a"):
        met += [letter.shard_key for letter in batch]
        if len(met) == 2:
            post.bury(KEYS[3])
    assert met == [KEYS[2], KEYS[1], KEYS[0]]


def test_letters_that_go_while_one_looks_keep_none_from_being_met(post: Post) -> None:
    post.bury(*KEYS[:4])
    met = []
    for batch in post.letters.newest_first("a"):
        met += [letter.shard_key for letter in batch]
        assert all(post.letters.purge("a", [letter.entry for letter in batch]))
    assert met == KEYS[3::-1]
    assert post.all() == []


def test_a_letter_says_why_and_what_was_spent(post: Post) -> None:
    post.bury(KEYS[0])
    [letter] = post.all()
    assert (letter.shard_key, letter.error, letter.message, letter.status) == (KEYS[0], WHY.code, WHY.message, "500")
    assert (letter.attempts, letter.crashes, letter.cursor, letter.worker) == ("5", "0", "7", "w:1")
    assert letter.job == f"job of {KEYS[0]}"


def test_letters_are_found_by_shard_and_by_entry(post: Post) -> None:
    post.bury(*KEYS[:2])
    post.bury_garbage()
    rubbish, second, first = post.all()
    names = [
        KEYS[0],
        second.entry,
        rubbish.entry,
        "ids:7..8",
        "1-1",
        "",
        "0-0",
        "\x1b",
        "\udcff",
        "x" * 1000,
        "9" * 30 + "-1",
        KEYS[0],
    ]
    assert post.letters.find("a", names) == {KEYS[0]: first, second.entry: second, rubbish.entry: rubbish}
    assert post.letters.find("a", []) == {}


def test_of_several_letters_of_a_shard_the_one_at_its_place_is_found(post: Post) -> None:
    post.bury(KEYS[0])
    [old] = post.all()
    assert post.replay((old.entry, KEYS[0])) == [True]
    [lease] = post.claim()
    assert post.queue.dead_letter(lease, PAGE, WHY, 2)
    assert post.letters.find("a", [KEYS[0]])[KEYS[0]].attempts == "2"


# Too many.


def test_the_oldest_letters_beyond_the_limit_are_dropped_with_their_places_and_counted(post: Post) -> None:
    assert [buried.dropped for buried in post.bury(*KEYS)] == [0, 0, 0, 0, 1, 1]
    assert post.shards() == KEYS[5:1:-1]
    assert post.letters.dropped("a") == 2
    assert post.letters.dropped("b") == 0
    assert sorted(post.places.look("a", KEYS)) == KEYS[2:]


def test_garbage_counts_as_a_letter_too(post: Post) -> None:
    post.bury(KEYS[0])
    for _ in range(MOST):
        post.bury_garbage()
    assert post.shards() == [""] * MOST
    assert post.letters.dropped("a") == 1


def test_a_dropped_letter_takes_no_place_that_is_not_its_own(post: Post) -> None:
    post.bury(*KEYS[:4])
    oldest = post.all()[-1]
    assert post.replay((oldest.entry, oldest.shard_key)) == [True]
    post.claim()
    post.bury(*KEYS[4:6])
    assert post.places.look("a", KEYS[:2])[KEYS[0]].state == "leased"
    assert KEYS[1] not in post.places.look("a", KEYS[:2])


# Bringing back.


def test_a_replayed_shard_keeps_its_checkpoint_and_has_spent_nothing(post: Post) -> None:
    post.bury(KEYS[0])
    [letter] = post.all()
    assert post.replay((letter.entry, KEYS[0])) == [True]
    assert post.all() == []
    [lease] = post.claim()
    assert (lease.job, lease.run, lease.checkpoint, lease.attempts, lease.crashes) == (f"again of {KEYS[0]}", "run1", PAGE, 0, 0)


def test_a_letter_is_replayed_once_and_only_as_the_shard_it_is(post: Post) -> None:
    post.bury(*KEYS[:2])
    post.bury_garbage()
    rubbish, second, first = post.all()
    assert post.replay((second.entry, KEYS[0]), (rubbish.entry, KEYS[0]), ("1-1", KEYS[0])) == [False] * 3
    assert len(post.all()) == 3
    assert post.replay((first.entry, KEYS[0]), (first.entry, KEYS[0])) == [True, False]
    assert post.replay((first.entry, KEYS[0]), job="other") == [False]
    assert [lease.job for lease in post.claim()] == [f"again of {KEYS[0]}"]


def test_a_shard_without_a_letter_is_replayed_unless_it_is_somewhere(post: Post) -> None:
    post.bury(*KEYS[:2])
    second, first = post.all()
    assert post.replay(("", KEYS[0])) == [False], "it has a letter"
    post.letters.purge("a", [first.entry])
    assert post.replay(("", KEYS[0]), ("", KEYS[0])) == [True, False]
    [lease] = post.claim()
    assert (lease.shard_key, lease.checkpoint) == (KEYS[0], PAGE)
    assert post.replay(("", KEYS[0])) == [False]
    assert post.queue.retry(lease, PAGE, 60, 1)
    assert post.replay(("", KEYS[0])) == [False]
    assert post.all() == [second]


def test_without_counters_nothing_is_replayed(post: Post) -> None:
    post.bury(KEYS[0])
    [letter] = post.all()
    post.forget_counters()
    with pytest.raises(Uncounted):
        post.replay((letter.entry, KEYS[0]))
    assert post.all() == [letter]


def test_a_letter_that_a_replay_left_behind_does_not_keep_the_next_round_from_being_queued(post: Post) -> None:
    post.bury(KEYS[0])
    opened = QueuedShard(KEYS[0], "opened", "failed", PAGE)
    assert post.queue.enqueue("a", [QueuedShard(KEYS[0], f"job of {KEYS[0]}", "failed", PAGE)], "run1") == [False]
    assert post.queue.enqueue("a", [QueuedShard(KEYS[0], "planned", None, PAGE)], "run1") == [False]
    assert post.queue.enqueue("a", [opened], "run1") == [True]
    assert post.queue.enqueue("a", [opened], "run1") == [False]
    assert [lease.job for lease in post.claim()] == ["opened"]
    assert post.all() == []


# Throwing away.


def test_a_purged_letter_is_gone_with_the_place_of_its_shard(post: Post) -> None:
    post.bury(*KEYS[:2])
    post.bury_garbage()
    rubbish, second, first = post.all()
    assert post.letters.purge("a", [rubbish.entry, first.entry, "1-1", first.entry]) == [True, True, False, False]
    assert post.all() == [second]
    assert list(post.places.look("a", KEYS)) == [KEYS[1]]
    assert post.letters.dropped("a") == 0
    assert post.letters.purge("a", []) == []


def test_a_letter_that_was_replayed_meanwhile_is_left_alone(post: Post) -> None:
    post.bury(KEYS[0])
    [letter] = post.all()
    assert post.replay((letter.entry, KEYS[0])) == [True]
    assert post.letters.purge("a", [letter.entry]) == [False]
    assert [lease.shard_key for lease in post.claim()] == [KEYS[0]]
