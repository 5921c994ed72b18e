"""What an examination needs of both servers beyond the ports that everybody uses. Adapters implement these."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .checkup import Facts

# What a scan can find. The words are for the code; people read those of import_checkup.
GARBAGE, NEWER, UNPLACED, DUPLICATE = "garbage", "newer", "unplaced", "duplicate"
DANGLING, ODD = "dangling", "odd"
STUCK, STRAY = "stuck", "stray"
ORPHAN = "orphan"
DELETED, RAN_OUT = "deleted", "ran out"
WRONG_TYPE, STRANGER, UNDEFINED = "wrong type", "stranger", "undefined"


@dataclass(frozen=True, slots=True)
class Scanned:
    """One batch of a scan: how many were looked at, and by kind the names of those that are not as they should be. Each was
    looked at twice, the second time all its parts in one moment: what is merely being moved is not among them."""

    number: int
    found: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Which workers are alive, as far as their heartbeats tell."""

    live: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By name, the imports that each serves."""
    gone: Sequence[str] = ()
    longest_lease_s: float = 0.0

    def serving(self, import_name: str) -> int:
        return sum(import_name in imports for imports in self.live.values())


class RedisServer(Protocol):
    def reach(self) -> None:
        """Raises Unavailable or BadSetting when it cannot be used at all."""

    def facts(self) -> Facts: ...
    def keys(self, imports: Sequence[str]) -> Iterator[Scanned]:
        """All keys of the namespace; names of the found ones, those of a wrong type with both types."""

    def fleet(self) -> Fleet: ...
    def forget_gone(self) -> int:
        """Drops the heartbeats of workers that are gone, each only if it has not beaten meanwhile."""


class MongoServer(Protocol):
    def reach(self) -> None: ...
    def facts(self) -> Facts: ...
    def missing_indexes(self, collections: Sequence[str]) -> list[str]: ...


class Scans(Protocol):
    """One import in Redis, looked through a batch at a time."""

    def has_group(self, import_name: str) -> bool: ...
    def entries(self, import_name: str) -> Iterator[Scanned]:
        """The work stream: GARBAGE, NEWER, UNPLACED, DUPLICATE, by entry."""

    def places(self, import_name: str) -> Iterator[Scanned]:
        """DANGLING, ODD (not as we write them), by shard."""

    def delayed(self, import_name: str) -> Iterator[Scanned]:
        """STUCK (nobody can promote it), STRAY (its place is elsewhere), by shard."""

    def progress(self, import_name: str) -> Iterator[Scanned]:
        """ORPHAN, by shard."""

    def pending(self, import_name: str, lease_s: float) -> Iterator[Scanned]:
        """DELETED, RAN_OUT, by entry."""

    def idle_consumers(self, import_name: str, live: Mapping[str, Sequence[str]]) -> list[str]:
        """Consumers without a live worker and without pending entries."""


class Mending(Protocol):
    """Repairs of what a scan found. Each looks again in the same moment in which it acts, leaves alone what is right by then, and
    says how many it changed."""

    def acknowledge_deleted(self, import_name: str, entries: Sequence[str]) -> int: ...
    def put_in_place(self, import_name: str, entries: Sequence[str]) -> int:
        """Gives UNPLACED entries their place, and drops DUPLICATE ones."""

    def sweep(self, import_name: str, shards: Sequence[tuple[str, bool]]) -> int:
        """Removes what is STUCK, STRAY, ORPHAN or DANGLING of shards; True for one that the ledger has no more work for. A place
        that points to nothing stays where there is work: whoever queues the shard counts by it."""
