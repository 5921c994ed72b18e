"""What is in flight: the work stream, its leases, and its counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..domain.model import Checkpoint, Failure, Garbage, Lease


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


class Counters(Protocol):
    """An import's counters in Redis, as a whole."""

    def forgotten(self, imports: Sequence[str]) -> list[str]:
        """Those of which Redis has no counters: it lost its memory, or never saw a shard of them."""

    def read(self, import_name: str) -> dict[str, str]: ...
    def replace(self, import_name: str, seen: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
        """Sets the wanted ones. Where there are counters: False, and nothing changed, when one of the seen has changed
        meanwhile, or when shards are in flight."""
