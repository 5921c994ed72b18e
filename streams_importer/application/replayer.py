"""Brings dead shards back: the ledger opens a new round, then the script moves the letter onto the stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..ports import DeadLetter, Ledger, LedgerRow, ShardQueue
from .housekeeper import queued_shard

BATCH = 500
MAX_LETTERS = 1_000_000


@dataclass(frozen=True, slots=True)
class Replayed:
    replayed: int
    left: int
    """Letters that were not asked for, garbage, and those whose shard is not theirs any more."""
    unknown: set[str]


@dataclass(frozen=True, slots=True)
class Replayer:
    queue: ShardQueue
    ledger: Ledger

    def replay(self, import_name: str, wanted: set[str] | None) -> Replayed:
        """All dead shards, or the wanted ones. Safe to repeat: a letter is replayed once, and finishes what was cut short."""
        letters = self.queue.dead_letters(import_name, MAX_LETTERS)
        chosen = [letter for letter in letters if letter.shard_key and (wanted is None or letter.shard_key in wanted)]
        replayed = 0
        for start in range(0, len(chosen), BATCH):
            replayed += self._replay(import_name, chosen[start : start + BATCH])
        unknown = (wanted or set()) - {letter.shard_key for letter in chosen}
        return Replayed(replayed, len(letters) - replayed, unknown)

    def _replay(self, import_name: str, letters: Sequence[DeadLetter]) -> int:
        keys = [letter.shard_key for letter in letters]
        rows = self.ledger.look(import_name, keys)
        for run in {row.run for row in rows.values()}:
            of_run = [key for key in keys if key in rows and rows[key].run == run]
            rows.update(self.ledger.reopen(import_name, of_run, "failed", run))
        replayed = 0
        for run in {row.run for row in rows.values()}:
            pairs = [
                (letter.entry, queued_shard(rows[letter.shard_key]))
                for letter in letters
                if letter.shard_key in rows and _is_open(rows[letter.shard_key], run)
            ]
            replayed += sum(self.queue.replay(import_name, pairs, run)) if pairs else 0
        return replayed


def _is_open(row: LedgerRow, run: str) -> bool:
    return row.run == run and row.status in ("pending", "leased")
