"""What the application needs from the outside. Adapters and sources implement these; fakes and real ones pass the same suites."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from .domain.definition import Definition
from .domain.filters import Filter
from .domain.model import Checkpoint, Counts, Cursor, Failure, Garbage, Lease, Outcome, Page
from .domain.shard_key import Scope


class Cancel(Protocol):
    """A request to stop what is being done, that can be waited on and reacted to."""

    @property
    def cancelled(self) -> bool: ...

    def wait(self, seconds: float) -> bool:
        """Sleeps up to `seconds`; True as soon as it is cancelled."""

    def on_cancel(self, action: Callable[[], None]) -> Callable[[], None]:
        """Runs `action` once when cancelled (at once if it already is). Returns a function that takes it back."""

    def may_send(self) -> bool:
        """Asked just before a request goes out. Raises Cancelled when it must not; waits while it is not known whether the
        work is still ours, and then says False: the time for which the request was granted has passed."""


# The queue: what is in flight.


@dataclass(frozen=True, slots=True)
class QueuedShard:
    """A ledger row on its way into the queue. `counted_as` is the state under which the counters know it (None: not yet)."""

    shard_key: str
    job: str
    counted_as: str | None = None
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    attempts: int = 0
    crashes: int = 0


@dataclass(frozen=True, slots=True)
class Claimed:
    leases: list[Lease]
    garbage: list[Garbage]
    too_new: int = 0
    """Entries given back because a newer version of us wrote them."""
    deleted: int = 0
    """Entries that were pending and are no longer there: the ledger knows their shards."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What the dead-letter stream says about one shard (or about garbage: then `shard_key` is empty)."""

    entry: str
    shard_key: str
    error: str
    message: str
    status: str
    attempts: str
    crashes: str
    cursor: str
    worker: str
    first_seen: str
    died_at: str
    payload: str
    job: str = ""
    """The round that died; empty for garbage, and in letters of older versions."""


MAX_LETTERS = 10_000
"""Dead letters that are kept of one import. The ledger knows all that failed, whatever becomes of their letters."""


@dataclass(frozen=True, slots=True)
class Buried:
    """What came of dead-lettering. True when the lease was held; `dropped` of the oldest letters made room for this one."""

    is_written: bool
    dropped: int = 0

    def __bool__(self) -> bool:
        return self.is_written


class ShardQueue(Protocol):
    """Leases on shards. Every settling call says for each lease whether it was still held; not held means nothing was written."""

    @property
    def consumer(self) -> str: ...

    def enqueue(self, import_name: str, shards: Sequence[QueuedShard], run: str, *, begins: bool = False) -> list[bool]:
        """`begins`: the run becomes the newest one. A shard that has a place already is not queued (False). Raises Uncounted
        when there are no counters to count them in."""

    def announce_producer(self, import_name: str, *, is_there: bool) -> None:
        """While somebody still plans shards, an import with nothing in flight is not over."""

    def claim(self, imports: Sequence[str], limit: int) -> Claimed: ...
    def adopt(self, imports: Sequence[str], known: Iterable[str]) -> Claimed:
        """Entries that are ours in Redis although we never saw the reply that gave them to us."""

    def reclaim(self, import_name: str, limit: int, min_idle_s: float, held: Sequence[Lease], there_s: float) -> Claimed:
        """Shards whose lease ran out. One that was started by a worker whose heartbeat is gone is charged with a crash, unless
        it has been silent for longer than `there_s`, the time for which Redis has been there: then nobody knows."""

    def start(self, leases: Sequence[Lease]) -> list[bool]:
        """Notes that these shards run from now on: a crash of the process can be theirs."""

    def renew(self, leases: Sequence[Lease]) -> list[bool]: ...
    def checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> bool: ...
    def complete(self, settled: Sequence[tuple[Lease, Checkpoint]], state: str = "done") -> list[bool]: ...
    def discard(self, leases: Sequence[Lease]) -> list[bool]:
        """Drops entries of shards that were counted as settled before: queued again by a race."""

    def retry(self, lease: Lease, checkpoint: Checkpoint, delay_s: float, attempts: int) -> bool: ...
    def release(self, leases: Sequence[Lease], lease_s: float = 0) -> list[bool]: ...
    def hand_over(self, lease: Lease, version: int) -> bool:
        """Leaves a shard to the newer version of us that wrote its ledger row."""

    def dead_letter(self, lease: Lease | Garbage, checkpoint: Checkpoint, failure: Failure, attempts: int) -> Buried: ...
    def reap(self, import_name: str, consumers: Sequence[str]) -> int: ...
    def consumers(self, import_name: str) -> dict[str, int]: ...
    def promote(self, import_name: str, limit: int) -> int: ...


class DeadLetters(Protocol):
    """The dead letters of an import, looked through a batch at a time."""

    def newest_first(self, import_name: str) -> Iterator[list[DeadLetter]]:
        """Batches of what is there now; letters that are written meanwhile are not among them."""

    def find(self, import_name: str, names: Iterable[str]) -> dict[str, DeadLetter]:
        """By shard or by entry, those that there are."""

    def replay(self, import_name: str, letters: Sequence[tuple[str, QueuedShard]], run: str) -> list[bool]:
        """Pairs of dead-letter entry and failed shard, back onto the work stream in the run that counted them. An empty entry
        stands for a shard that has no letter any more, nor any other place. False: it is elsewhere, nothing was changed. Raises
        Uncounted when there are no counters to count them in."""

    def purge(self, import_name: str, entries: Sequence[str]) -> list[bool]:
        """Removes letters, and with them the places of their shards. False: it was gone, nothing was changed."""

    def restore(self, import_name: str, records: Sequence[ShardRecord]) -> int:
        """Writes the letters of failed shards that have none, nor any other place. Returns how many."""

    def dropped(self, import_name: str) -> int:
        """How many letters had to go so far because there were too many."""


# The ledger: what is finished.


@dataclass(frozen=True, slots=True)
class LedgerRow:
    shard_key: str
    job: str
    run: str
    status: str
    attempts: int
    checkpoint: Checkpoint
    counted_as: str | None
    """The state under which Redis' counters know the shard: a final row without it was settled here but not there."""
    failure: Failure | None
    v: int
    is_count_sure: bool = True
    """False when the round before was settled in the ledger and nobody noted whether Redis was told."""
    crashes: int = 0


@dataclass(frozen=True, slots=True)
class LedgerTotals:
    """What the ledger adds up to: the truth that Redis' counters are rebuilt from."""

    unfinished: int
    states: dict[str, int]
    """Shards by the final state under which they are counted: also those of a new round, until they are queued."""
    records: dict[str, int]
    run: str
    """The newest run that has shards; empty when there are none."""
    run_states: dict[str, int]
    run_finished: datetime | None
    """When the last of its shards ended; None while one has not."""


class Ledger(Protocol):
    """One row a shard. A change asked for under a `job` that is no longer the row's, on a final row, or by a worker that did not
    start it last, changes nothing."""

    def plan(self, import_name: str, keys: Sequence[str], run: str) -> tuple[dict[str, LedgerRow], int]:
        """Records new shards as pending. Returns the rows of all keys, and how many were new."""

    def reopen(self, import_name: str, keys: Sequence[str], state: str, run: str) -> dict[str, LedgerRow]:
        """Rows in the final `state` become pending in a new round (new job). From `failed` the checkpoint is kept, otherwise
        only its counts, which are totals over all rounds. Returns the rows of all keys as they are now."""

    def look(self, import_name: str, keys: Sequence[str]) -> dict[str, LedgerRow]: ...
    def pending(self, import_name: str) -> Iterator[LedgerRow]:
        """All rows that are not final."""

    def has_pending(self, import_name: str) -> bool: ...
    def totals(self, import_name: str) -> LedgerTotals: ...
    def disown(self, import_name: str) -> None:
        """Redis has lost all leases: whoever still works on a shard can change nothing in its row any more."""

    def start(self, leases: Sequence[Lease], until: datetime) -> None: ...
    def checkpoint(self, lease: Lease, checkpoint: Checkpoint, until: datetime) -> bool:
        """False when the row is another round's or final: the lease is lost."""

    def put_back(self, settled: Sequence[tuple[Lease, Checkpoint, int, Failure | None]]) -> None:
        """Leased rows become pending again: (lease, checkpoint, attempts, why). The crashes are the lease's."""

    def finish(self, settled: Sequence[tuple[Lease, Checkpoint, str, int, Failure | None]]) -> dict[tuple[str, str], LedgerRow]:
        """Conditional updates to a final state in one bulk: (lease, checkpoint, state, attempts, why). Returns by import and key
        the rows that were NOT changed, final or another round's already: the caller follows what they say."""

    def counted(self, settled: Sequence[tuple[Lease, str]]) -> None:
        """Notes that Redis' counters know these rows under their final state: (lease, state)."""


class Counters(Protocol):
    """An import's counters in Redis, as a whole."""

    def forgotten(self, imports: Sequence[str]) -> list[str]:
        """Those of which Redis has no counters: it lost its memory, or never saw a shard of them."""

    def read(self, import_name: str) -> dict[str, str]: ...
    def replace(self, import_name: str, seen: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
        """Sets the wanted ones. Where there are counters: False, and nothing changed, when one of the seen has changed
        meanwhile, or when shards are in flight."""


# Single shards, for people: where they are, and how they are taken back.


@dataclass(frozen=True, slots=True)
class ShardRecord:
    """A ledger row with its times."""

    row: LedgerRow
    created_at: datetime | None = None
    finished_at: datetime | None = None
    failed_at: datetime | None = None
    """When the row's last failure was written."""


class ShardRecords(Protocol):
    """The ledger read shard by shard, and its side of cancelling. All filters must hold; `worker` is none of the ledger's."""

    def in_states(self, import_name: str, states: Sequence[str], filters: Sequence[Filter]) -> Iterator[list[ShardRecord]]:
        """Batches by shard key. With `pending` also rows whose status nobody knows: they count as unfinished everywhere."""

    def of(self, import_name: str, keys: Sequence[str], filters: Sequence[Filter] = ()) -> dict[str, ShardRecord]: ...
    def near(self, import_name: str, key: str, limit: int) -> list[str]:
        """Keys beside where this one would be: up to `limit` that follow it, then as many that come before it."""

    def cancel(self, import_name: str, rows: Sequence[LedgerRow]) -> list[LedgerRow]:
        """Conditional updates to `cancelled` in one bulk, checkpoints as they are. Returns the rows that are cancelled in the
        given round now: their totals do not change any more."""

    def uncounted(self, import_name: str) -> Iterator[list[LedgerRow]]:
        """Cancelled rows of which Redis was perhaps not told: the call that cancelled them was cut short."""

    def counted(self, import_name: str, rows: Sequence[LedgerRow]) -> None:
        """Notes that Redis' counters know these rows as cancelled."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in Redis a shard is: queued, leased, delayed, or failed (among the dead letters)."""

    state: str
    worker: str | None = None
    idle_s: float | None = None
    """Leased: seconds since the lease was renewed."""
    comes_back_s: float | None = None
    job: str | None = None
    """The round that is there; None when it cannot be told."""


class Places(Protocol):
    """Where shards in flight are. Redis decides that, and the picture is old as soon as it is taken."""

    def look(self, import_name: str, keys: Sequence[str]) -> dict[str, Place]:
        """The shards that are somewhere."""

    def leased(self, import_name: str) -> Iterator[list[str]]:
        """Shard keys in batches, longest on the stream first."""

    def delayed(self, import_name: str) -> Iterator[list[str]]:
        """Shard keys in batches, each in the order in which they come back. All that stay delayed meanwhile are among them."""

    def cancel(self, import_name: str, rows: Sequence[LedgerRow]) -> list[bool]:
        """Takes shards that the ledger has as cancelled from wherever they are, and counts them with the totals of their rows.
        False, and nothing changed: nothing of that round is in flight."""


@dataclass(frozen=True, slots=True)
class Pause:
    reason: str
    by: str
    since: str


class Catalogue(Protocol):
    """The imports there are: definition, pause and newest run."""

    def save(self, definition: Definition, run: str) -> None: ...
    def get(self, name: str) -> Definition | None: ...
    def names(self) -> list[str]: ...
    def pause(self, name: str, pause: Pause | None) -> bool:
        """False when there is no such import."""

    def paused(self) -> dict[str, Pause]: ...


# The store, the upstream, the budget.


class Sink(Protocol):
    def store(self, definition: Definition, shard_key: str, page: Page) -> Counts:
        """Every record of the page ends stored, or counted as unchanged or stale, or among the rejects."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A good answer: status 200 and a body within bounds. `granted_us` is the slot's time on Redis' clock."""

    body: bytes
    granted_us: int


class Upstream(Protocol):
    """One upstream with its key and its budget. Every call takes a token first."""

    def get(self, path: str, params: Mapping[str, str], cancel: Cancel) -> Answer:
        """Raises Transient, Weather, ShardRefused, ImportRefused, Cancelled or Unavailable (the budget's server)."""


class Source(Protocol):
    """What an upstream looks like."""

    @property
    def has_upper_time_bound(self) -> bool:
        """Whether it can be asked for an end of time. If not, every window downloads all that is newer, too."""

    def check_countries(self, codes: Sequence[str], cancel: Cancel) -> None:
        """Raises BadSetting naming the codes that the upstream does not know."""

    def highest_id(self, cancel: Cancel) -> int: ...
    def fetch(self, scope: Scope, cursor: Cursor | None, cancel: Cancel) -> Page: ...


class Child(Protocol):
    """A process that imports one shard and nothing else."""

    @property
    def how_it_ended(self) -> str:
        """As in "by SIGKILL"."""

    def outcome(self) -> Outcome | None:
        """Waits for its end. None when it ended without a word."""

    def cancel(self, reason: str) -> None: ...
    def hear(self, message: str) -> None:
        """A message of the control channel."""

    def close(self) -> None:
        """It has ended when this returns."""


class RequestBudget(Protocol):
    def take(self, cancel: Cancel) -> int:
        """Waits for a slot and returns its time in microseconds on Redis' clock. Raises Cancelled."""

    def hold(self, seconds: float) -> None:
        """Nobody is granted anything for that long."""


class Cache(Protocol):
    """A small answer remembered for all workers."""

    def get(self, name: str) -> bytes | None: ...
    def put(self, name: str, value: bytes, seconds: int) -> None: ...


class EventSink(Protocol):
    """One event, one line."""

    def __call__(self, event: str, *, level: str = "info", **details: Any) -> None: ...
