"""Single shards, for people: where they are, and how they are taken back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ..domain.filters import Filter
from .ledger import LedgerRow


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
