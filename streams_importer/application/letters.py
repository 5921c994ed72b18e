"""Dead letters as people ask for them: chosen by filters, written as JSON, thrown away."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..domain.errors import BadSetting
from ..domain.filters import Filter, parse_filter
from ..domain.model import Cursor
from ..ports import DeadLetter, DeadLetters, ShardRecords
from .batches import batches

FILTER_FIELDS = ("shard", "error", "status", "worker", "attempts", "crashes", "message")
NUMBERS = ("attempts", "crashes")
BATCH = 200


def letter_filter(text: str) -> Filter:
    """One `--filter` of a command about dead letters."""
    one = parse_filter(text, FILTER_FIELDS)
    if one.field in NUMBERS and not (one.pattern.isdecimal() and len(one.pattern) <= 9):
        raise BadSetting(f"--filter {text!r}: {one.field} is a number, as in {one.field}=3")
    return one


def matching(found: Iterable[Sequence[DeadLetter]], filters: Sequence[Filter]) -> Iterator[DeadLetter]:
    """Of the batches, what all filters let through."""
    return (letter for letters in found for letter in letters if all(one.matches(_value(letter, one.field)) for one in filters))


def as_json(import_name: str, letter: DeadLetter, *, with_payload: bool = False) -> dict[str, Any]:
    """The row of `dlq list --json` and of an export. What is not known is null."""
    row = {
        "import": import_name,
        "entry": letter.entry,
        "shard": letter.shard_key,
        "error": letter.error,
        "message": letter.message,
        "status": _number(letter.status),
        "attempts": _number(letter.attempts),
        "crashes": _number(letter.crashes),
        "cursor": cursor_of(letter),
        "worker": letter.worker,
        "first_seen": letter.first_seen,
        "died_at": letter.died_at,
        "job": letter.job or None,
    }
    return {**row, "payload": letter.payload} if with_payload else row


def cursor_of(letter: DeadLetter) -> Cursor | None:
    """A letter holds it as JSON; what is none is shown as it is."""
    try:
        cursor = json.loads(letter.cursor)
    except (ValueError, RecursionError):
        return letter.cursor or None
    return cursor if isinstance(cursor, int | str) and not isinstance(cursor, bool) else letter.cursor


@dataclass(slots=True)
class PurgeReport:
    shards: int = 0
    garbage: int = 0
    left: int = 0
    """Letters that were gone when we came to them: replayed, or purged by somebody else."""
    unknown: list[str] = field(default_factory=list)

    @property
    def purged(self) -> int:
        return self.shards + self.garbage


@dataclass(frozen=True, slots=True)
class Purger:
    """Throws letters away. The ledger is not touched: it keeps their shards as failed."""

    letters: DeadLetters
    progress: Callable[[int], None] = lambda number: None
    """Told after every batch how many are purged so far."""

    def purge_named(self, import_name: str, names: Sequence[str], *, dry_run: bool) -> PurgeReport:
        found = self.letters.find(import_name, names)
        by_entry = {letter.entry: letter for letter in found.values()}
        report = PurgeReport(unknown=[name for name in dict.fromkeys(names) if name not in found])
        return self._purge(import_name, by_entry.values(), report, dry_run)

    def purge_found(self, import_name: str, filters: Sequence[Filter], *, dry_run: bool) -> PurgeReport:
        """All letters that the filters let through."""
        found = matching(self.letters.newest_first(import_name), filters)
        return self._purge(import_name, found, PurgeReport(), dry_run)

    def _purge(self, import_name: str, letters: Iterable[DeadLetter], report: PurgeReport, dry_run: bool) -> PurgeReport:
        for batch in batches(letters, BATCH):
            answers = [True] * len(batch) if dry_run else self.letters.purge(import_name, [letter.entry for letter in batch])
            for letter, is_purged in zip(batch, answers, strict=True):
                report.left += not is_purged
                report.shards += is_purged and bool(letter.shard_key)
                report.garbage += is_purged and not letter.shard_key
            self.progress(report.purged)
        return report


def restore_letters(letters: DeadLetters, records: ShardRecords, import_name: str) -> int:
    """After Redis lost them: the ledger knows what failed, and why."""
    return sum(letters.restore(import_name, batch) for batch in records.in_states(import_name, ["failed"], ()))


def _value(letter: DeadLetter, name: str) -> str:
    return letter.shard_key if name == "shard" else str(getattr(letter, name))


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 9 else None
