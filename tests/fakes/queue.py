"""A queue in memory."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from streams_importer.domain.errors import Unavailable, Uncounted
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Failure, Garbage, Lease
from streams_importer.ports import MAX_LETTERS, Buried, Claimed, DeadLetter, QueuedShard

T = TypeVar("T")

RELEASED = "released"
NEWER = "newer"


@dataclass
class Entry:
    """A message on a work stream. `owner` is None until it is claimed for the first time."""

    import_name: str
    shard_key: str
    job: str
    run: str
    v: int = STORED_VERSION
    problem: str = ""
    owner: str | None = None
    count: int = 0
    seen: float = 0.0


@dataclass
class Progress:
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    attempts: int = 0
    crashes: int = 0
    started: str | None = None


@dataclass
class Store:
    """What all consumers of one Redis share. `now` is Redis' clock, moved by tests."""

    entries: dict[str, Entry] = field(default_factory=dict)
    places: dict[tuple[str, str], str] = field(default_factory=dict)
    progress: dict[tuple[str, str], Progress] = field(default_factory=dict)
    delayed: dict[tuple[str, str], tuple[float, Entry]] = field(default_factory=dict)
    letters: list[tuple[str, DeadLetter]] = field(default_factory=list)
    paused: set[str] = field(default_factory=set)
    counters: Counter[str] = field(default_factory=Counter)
    known_consumers: set[tuple[str, str]] = field(default_factory=set)
    newest_run: dict[str, str] = field(default_factory=dict)
    alive: set[str] = field(default_factory=set)
    """Consumers whose heartbeat is there."""
    uncounted: set[str] = field(default_factory=set)
    """Imports that have no counters."""
    produced: set[str] = field(default_factory=set)
    """Imports that somebody plans and queues shards of."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Letters of each import that had to go."""
    now: float = 1_000.0
    last: int = 0

    def remove_letter(self, import_name: str, entry: str) -> bool:
        """With the place of its shard, when it is there."""
        found = [one for name, one in self.letters if (name, one.entry) == (import_name, entry)]
        self.letters = [(name, one) for name, one in self.letters if (name, one.entry) != (import_name, entry)]
        for one in found:
            if self.places.get((import_name, one.shard_key)) == f"dead {entry}":
                del self.places[import_name, one.shard_key]
        return bool(found)

    def next_id(self) -> str:
        self.last += 1
        return f"{self.now * 1000:.0f}-{self.last}"


class FakeQueue:
    """Implements ports.ShardQueue. Several consumers share one `store`.

    `calls` holds the verbs in the order in which they came. While `away` is True every call fails as in an outage.
    `faults` by verb: the next calls fail, either before anything is done ("away") or after all of it ("reply lost").
    """

    def __init__(self, consumer: str = "w:1", store: Store | None = None) -> None:
        self.store = store or Store()
        self.calls: list[str] = []
        self.away = False
        self.faults: dict[str, list[str]] = {}
        self.delays: list[float] = []
        self.max_letters = MAX_LETTERS
        self._consumer = consumer
        self._lock = threading.RLock()

    def announce_producer(self, import_name: str, *, is_there: bool) -> None:
        (self.store.produced.add if is_there else self.store.produced.discard)(import_name)

    @property
    def consumer(self) -> str:
        return self._consumer

    # On to the stream.

    def enqueue(self, import_name: str, shards: Sequence[QueuedShard], run: str, *, begins: bool = False) -> list[bool]:
        def act() -> list[bool]:
            if import_name in self.store.uncounted:
                raise Uncounted(import_name)
            answers = []
            for shard in shards:
                place = (import_name, shard.shard_key)
                is_free = place not in self.store.places or self._is_of_round_before(import_name, shard)
                answers.append(is_free)
                if not is_free:
                    continue
                if shard.checkpoint != Checkpoint() or shard.attempts or shard.crashes:
                    self.store.progress[place] = Progress(shard.checkpoint, shard.attempts, shard.crashes)
                self.put(Entry(import_name, shard.shard_key, shard.job, run))
                if shard.counted_as:
                    self.store.counters[shard.counted_as] -= 1
            if begins and any(answers):
                self.store.newest_run[import_name] = run
            return answers

        return self._act("enqueue", act)

    def _is_of_round_before(self, import_name: str, shard: QueuedShard) -> bool:
        """A letter that a replay, cut short, left behind: it goes."""
        place = self.store.places[import_name, shard.shard_key]
        before = [one for name, one in self.store.letters if (name, f"dead {one.entry}") == (import_name, place)]
        left = [one for one in before if shard.counted_as == "failed" and one.job != shard.job]
        return any(self.store.remove_letter(import_name, one.entry) for one in left)

    def put(self, entry: Entry) -> str:
        """Writes a message as it is, garbage included."""
        identifier = self.store.next_id()
        self.store.entries[identifier] = entry
        if not entry.problem:
            self.store.places[entry.import_name, entry.shard_key] = identifier
        return identifier

    def promote(self, import_name: str, limit: int) -> int:
        def act() -> int:
            due = [place for place, (when, _) in self.store.delayed.items() if place[0] == import_name and when <= self.store.now]
            for place in due[:limit]:
                self.put(self.store.delayed.pop(place)[1])
            return len(due[:limit])

        return self._act("promote", act)

    # Into a worker's hands.

    def claim(self, imports: Sequence[str], limit: int) -> Claimed:
        def act() -> Claimed:
            mine = [name for name in imports if name not in self.store.paused]
            entries = [(entry, each) for entry, each in self.store.entries.items() if each.import_name in mine]
            waiting = [pair for pair in entries if pair[1].owner == RELEASED] + [pair for pair in entries if not pair[1].owner]
            return self._take(waiting, limit)

        return self._act("claim", act)

    def adopt(self, imports: Sequence[str], known: Iterable[str]) -> Claimed:
        held = set(known)

        def act() -> Claimed:
            mine = [
                (entry, each)
                for entry, each in self.store.entries.items()
                if each.owner == self._consumer and each.import_name in imports and entry not in held
            ]
            return self._take(mine, len(mine), counted=False)

        return self._act("adopt", act)

    def reclaim(self, import_name: str, limit: int, min_idle_s: float, held: Sequence[Lease], there_s: float) -> Claimed:
        def act() -> Claimed:
            for lease in held:
                self._renew(lease)
            stale = [
                (entry, each)
                for entry, each in self.store.entries.items()
                if each.import_name == import_name
                and each.owner not in (None, NEWER)
                and self.store.now - each.seen >= min_idle_s
            ]
            for _, each in stale[:limit]:
                known = self.store.progress.get((import_name, each.shard_key), Progress())
                is_crash = each.owner not in self.store.alive and self.store.now - each.seen <= there_s
                known.crashes += is_crash and known.started == each.owner
                known.started = None
            return self._take(stale, limit)

        return self._act("reclaim", act)

    def start(self, leases: Sequence[Lease]) -> list[bool]:
        def act() -> list[bool]:
            for lease in filter(self._holds, leases):
                self._progress(lease).started = lease.consumer
            return [self._renew(lease) for lease in leases]

        return self._act("start", act)

    def _take(self, waiting: list[tuple[str, Entry]], limit: int, *, counted: bool = True) -> Claimed:
        claimed = Claimed([], [])
        for entry, each in waiting:
            if len(claimed.leases) + len(claimed.garbage) >= limit:
                break
            if each.v > STORED_VERSION:
                each.owner = NEWER
                claimed = replace(claimed, too_new=claimed.too_new + 1)
                continue
            each.owner, each.seen = self._consumer, self.store.now
            each.count += counted
            self.store.known_consumers.add((each.import_name, self._consumer))
            if each.problem:
                claimed.garbage.append(
                    Garbage(each.import_name, entry, self._consumer, each.count, each.problem, "{}", each.shard_key)
                )
            else:
                claimed.leases.append(self._lease(entry, each))
        return claimed

    def _lease(self, entry: str, each: Entry) -> Lease:
        known = self.store.progress.get((each.import_name, each.shard_key), Progress())
        return Lease(each.import_name, entry, self._consumer, each.count, each.shard_key, each.job, each.run,
                     known.attempts, known.crashes, known.checkpoint)  # fmt: skip

    def renew(self, leases: Sequence[Lease]) -> list[bool]:
        return self._act("renew", lambda: [self._renew(lease) for lease in leases])

    def _renew(self, lease: Lease) -> bool:
        if self._holds(lease):
            self.store.entries[lease.entry].seen = self.store.now
        return self._holds(lease)

    def checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> bool:
        def act() -> bool:
            if self._holds(lease):
                known = self._progress(lease)
                known.checkpoint, known.crashes = checkpoint, 0
            return self._renew(lease)

        return self._act("checkpoint", act)

    # Out of a worker's hands.

    def complete(self, settled: Sequence[tuple[Lease, Checkpoint]], state: str = "done") -> list[bool]:
        return self._act(f"complete {state}", lambda: [self._leave(lease, state) for lease, _ in settled])

    def discard(self, leases: Sequence[Lease]) -> list[bool]:
        return self._act("discard", lambda: [self._leave(lease, None) for lease in leases])

    def release(self, leases: Sequence[Lease], lease_s: float = 0) -> list[bool]:
        return self._act("release", lambda: [self._give(lease, RELEASED, lease_s) for lease in leases])

    def hand_over(self, lease: Lease, version: int) -> bool:
        def act() -> bool:
            if not self._holds(lease):
                return False
            del self.store.entries[lease.entry]
            self.put(Entry(lease.import_name, lease.shard_key, lease.job, lease.run, version))
            return True

        return self._act("hand_over", act)

    def retry(self, lease: Lease, checkpoint: Checkpoint, delay_s: float, attempts: int) -> bool:
        def act() -> bool:
            if not self._holds(lease):
                return False
            known = self._progress(lease)
            known.checkpoint, known.attempts, known.crashes = checkpoint, attempts, lease.crashes
            place = (lease.import_name, lease.shard_key)
            del self.store.entries[lease.entry]
            self.store.delayed[place] = (self.store.now + delay_s, Entry(*place, lease.job, lease.run))
            self.store.places[place] = "delayed"
            self.delays.append(delay_s)
            return True

        return self._act("retry", act)

    def dead_letter(self, lease: Lease | Garbage, checkpoint: Checkpoint, failure: Failure, attempts: int) -> Buried:
        def act() -> Buried:
            if not self._holds(lease):
                return Buried(False)
            letter = self.store.next_id()
            shard_key = "" if isinstance(lease, Garbage) else lease.shard_key
            status = "" if failure.status is None else str(failure.status)
            cursor = "" if checkpoint.cursor is None else str(checkpoint.cursor)
            one = DeadLetter(letter, shard_key, failure.code, failure.message, status, str(attempts),
                             str(getattr(lease, "crashes", "")), cursor,
                             lease.consumer, "", "", lease.shard_key, getattr(lease, "job", ""))  # fmt: skip
            self.store.letters.insert(0, (lease.import_name, one))
            self._leave(lease, None)
            if shard_key:
                self.store.places[lease.import_name, shard_key] = f"dead {letter}"
                self.store.counters["failed"] += 1
            return Buried(True, self._drop_oldest(lease.import_name))

        return self._act("dead_letter", act)

    def _drop_oldest(self, import_name: str) -> int:
        there = [one.entry for name, one in self.store.letters if name == import_name]
        dropped = sum(self.store.remove_letter(import_name, entry) for entry in there[self.max_letters :])
        self.store.dropped[import_name] += dropped
        return dropped

    def dead_letters(self, import_name: str, limit: int) -> list[DeadLetter]:
        """For tests to look at, newest first."""
        return [one for name, one in self.store.letters if name == import_name][:limit]

    def reap(self, import_name: str, consumers: Sequence[str]) -> int:
        def act() -> int:
            pending = self._pending(import_name)
            gone = {(import_name, name) for name in consumers if not pending[name]} & self.store.known_consumers
            self.store.known_consumers -= gone
            return len(gone)

        return self._act("reap", act)

    def consumers(self, import_name: str) -> dict[str, int]:
        def act() -> dict[str, int]:
            pending = self._pending(import_name)
            return {consumer: pending[consumer] for name, consumer in sorted(self.store.known_consumers) if name == import_name}

        return self._act("consumers", act)

    # Plumbing.

    def owner_of(self, lease: Lease) -> str | None:
        """Who has the shard's entry now; None when it is off the stream."""
        entry = self.store.entries.get(lease.entry)
        return entry.owner if entry else None

    def take_over(self, lease: Lease) -> None:
        """Another worker takes the shard."""
        entry = self.store.entries[lease.entry]
        entry.owner, entry.count = "other:1", entry.count + 1

    def _holds(self, lease: Lease | Garbage) -> bool:
        entry = self.store.entries.get(lease.entry)
        return entry is not None and (entry.owner, entry.count) == (lease.consumer, lease.count)

    def _progress(self, lease: Lease) -> Progress:
        return self.store.progress.setdefault((lease.import_name, lease.shard_key), Progress())

    def _pending(self, import_name: str) -> Counter[str]:
        return Counter(each.owner for each in self.store.entries.values() if each.owner and each.import_name == import_name)

    def _leave(self, lease: Lease | Garbage, state: str | None) -> bool:
        if not self._holds(lease):
            return False
        del self.store.entries[lease.entry]
        place = (lease.import_name, lease.shard_key)
        if self.store.places.get(place) == lease.entry:
            del self.store.places[place]
        self.store.progress.pop(place, None)
        if state is not None:
            self.store.counters[state] += 1
        return True

    def _give(self, lease: Lease, owner: str, idle_s: float) -> bool:
        if not self._holds(lease):
            return False
        entry = self.store.entries[lease.entry]
        entry.owner, entry.seen = owner, self.store.now - idle_s
        return True

    def _act(self, verb: str, act: Callable[[], T]) -> T:
        with self._lock:
            self.calls.append(verb)
            fault = self.faults[verb].pop(0) if self.faults.get(verb) else ""
            if self.away or fault == "away":
                raise Unavailable("Redis", "away")
            result = act()
            if fault:
                raise Unavailable("Redis", fault)
            return result
