"""The nouns: what a shard, a lease, a page and a record are, and how an attempt can end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any

STORED_VERSION = 1
"""Version of what we write into messages, progress, ledger and definitions. A worker gives back what is newer than this."""

Cursor = int | str
"""Where to go on within a shard: whatever the source understands."""

FINAL_STATES = ("done", "failed", "split", "cancelled")
RECORD_COUNTS = ("inserted", "updated", "unchanged", "stale", "rejected")
REQUEST_COUNTS = ("ok", "rate_limited", "failed")


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the records and requests of a shard since it was planned: totals, never increments."""

    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    stale: int = 0
    rejected: int = 0
    requests_ok: int = 0
    requests_rate_limited: int = 0
    requests_failed: int = 0

    @property
    def seen(self) -> int:
        """Every record of a stored page ends in exactly one of these."""
        return self.inserted + self.updated + self.unchanged + self.stale + self.rejected

    def by_name(self) -> dict[str, Any]:
        """As the ledger and the commands write them."""
        records = {name: getattr(self, name) for name in RECORD_COUNTS}
        requests = {name: getattr(self, f"requests_{name}") for name in REQUEST_COUNTS}
        return {"seen": self.seen, **records, "requests": {"total": sum(requests.values()), **requests}}

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Counts)))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a shard is: `page` pages are stored, the next one starts after `cursor`."""

    page: int = 0
    cursor: Cursor | None = None
    counts: Counts = field(default_factory=Counts)


@dataclass(frozen=True, slots=True)
class Lease:
    """A claimed shard. The triple (entry, consumer, count) never repeats: it is the fence for every later write."""

    import_name: str
    entry: str
    consumer: str
    count: int
    shard_key: str
    job: str
    run: str
    attempts: int = 0
    crashes: int = 0
    """Processes that ended while they ran it, since it last stored a page. More than none: it runs apart."""
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    was: str = ""
    """The state under which the shard was counted before it was queued: given back when queueing it was a mistake."""


@dataclass(frozen=True, slots=True)
class Garbage:
    """An entry of the work stream that is no shard message: to be dead-lettered, never run."""

    import_name: str
    entry: str
    consumer: str
    count: int
    reason: str
    payload: str
    shard_key: str = ""
    """What it calls its shard, so that a place it was given can be freed."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record, ready to be stored."""

    external_id: str
    source_id: Any
    updated_at: datetime | None
    location: Mapping[str, Any] | None
    data: Mapping[str, Any]
    content_hash: str


@dataclass(frozen=True, slots=True)
class Reject:
    """One record that cannot be stored, and why."""

    reason: str
    record: str


@dataclass(frozen=True, slots=True)
class Page:
    """One answer of an upstream. `next_cursor` is None at the end of the shard."""

    records: list[Record]
    rejects: list[Reject]
    next_cursor: Cursor | None
    order: int
    """Decides between versions of a record with equal or missing times: when the request was granted, on Redis' clock."""


# How an attempt ends: exactly one of these, settled at one place.


@dataclass(frozen=True, slots=True)
class Completed:
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt did not succeed, fit to be stored and shown."""

    code: str
    message: str
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    checkpoint: Checkpoint
    failure: Failure
    wait_s: float = 0.0
    """What the upstream asked for; a longer wait of our own stays."""


@dataclass(frozen=True, slots=True)
class Dead:
    checkpoint: Checkpoint
    failure: Failure


@dataclass(frozen=True, slots=True)
class Crashed:
    """The process that ran the shard, and nothing else, ended without a word. `crashes` with this one."""

    checkpoint: Checkpoint
    failure: Failure
    crashes: int


@dataclass(frozen=True, slots=True)
class Released:
    """Given back untouched, at no cost: a stop, a pause, or a refusal that pauses the whole import."""

    checkpoint: Checkpoint
    refused: Failure | None = None


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The lease was lost: whoever has it now settles."""


Outcome = Completed | Retry | Dead | Crashed | Released | Abandoned
