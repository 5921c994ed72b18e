"""Shards that failed for good."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from .queue import QueuedShard
from .shards import ShardRecord


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
