"""What is finished."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ..domain.model import Checkpoint, Failure, Lease


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
