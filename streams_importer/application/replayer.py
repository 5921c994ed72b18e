"""Brings failed shards back: the ledger opens a new round, then the script moves the letter onto the work stream.

A letter can be gone: dropped because there were too many, purged, or lost with a flushed Redis. The ledger still has its shard
as failed, and that is enough to replay it. Two at a time bring each shard once, and what one could not finish the next one does:
a row that is open already, while the letter of its shard is still there, only lacks the second step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from ..domain.filters import Filter
from ..domain.model import STORED_VERSION
from ..domain.shard_key import is_key
from ..ports import DeadLetters, Ledger, LedgerRow
from .batches import batches
from .healer import queued_shard
from .letters import BATCH, matching
from .recount import Recount
from .shards import Shards

OPEN = ("pending", "leased")
NO_LETTER = ""
Wanted = tuple[str, str]
"""The entry of a letter, or NO_LETTER, and its shard."""


@dataclass(slots=True)
class ReplayReport:
    replayed: int = 0
    without_letter: int = 0
    """Of the replayed ones."""
    left: Counter[str] = field(default_factory=Counter)
    """What was asked for and left alone, by reason."""
    unknown: list[str] = field(default_factory=list)

    def count(self, entries: Iterable[str]) -> None:
        """Replayed, by the entry of their letter."""
        numbers = Counter(entry == NO_LETTER for entry in entries)
        self.replayed += numbers.total()
        self.without_letter += numbers[True]


@dataclass(frozen=True, slots=True)
class Replayer:
    letters: DeadLetters
    ledger: Ledger
    shards: Shards
    recount: Recount
    progress: Callable[[int], None] = lambda number: None
    """Told after every batch how many are replayed so far."""

    def replay_named(self, import_name: str, names: Sequence[str], *, dry_run: bool) -> ReplayReport:
        """By shard, or by the entry of a letter."""
        report = ReplayReport()
        for batch in batches(dict.fromkeys(names), BATCH):
            found = self.letters.find(import_name, batch)
            others = [name for name in batch if name not in found and is_key(name)]
            known = self.ledger.look(import_name, others) if others else {}
            placed = self.shards.places.look(import_name, list(known)) if known else {}
            report.left.update(place.state for place in placed.values())
            letters = [(letter.entry, letter.shard_key) for letter in found.values()]
            self._replay(import_name, [*letters, *((NO_LETTER, key) for key in known if key not in placed)], report, dry_run)
            report.unknown += [name for name in batch if name not in found and name not in known]
        return report

    def replay_found(self, import_name: str, filters: Sequence[Filter], *, dry_run: bool) -> ReplayReport:
        """All letters that the filters let through."""
        report = ReplayReport()
        for batch in batches(matching(self.letters.newest_first(import_name), filters), BATCH):
            self._replay(import_name, [(letter.entry, letter.shard_key) for letter in batch], report, dry_run)
        return report

    def replay_all(self, import_name: str, *, dry_run: bool) -> ReplayReport:
        """All letters, then whatever else the ledger has as failed. What is still somewhere in Redis by then was met above, or
        is about to get its letter."""
        report = self.replay_found(import_name, [], dry_run=dry_run)
        for records in self.shards.records.in_states(import_name, ["failed"], []):
            keys = [record.row.shard_key for record in records]
            placed = self.shards.places.look(import_name, keys)
            self._replay(import_name, [(NO_LETTER, key) for key in keys if key not in placed], report, dry_run)
        return report

    def _replay(self, import_name: str, wanted: Sequence[Wanted], report: ReplayReport, dry_run: bool) -> None:
        keys = [key for _, key in wanted if is_key(key)]
        rows = self.ledger.look(import_name, keys) if keys else {}
        reasons = [_why_left(entry, key, rows.get(key)) for entry, key in wanted]
        report.left.update(filter(None, reasons))
        wanted = [one for one, reason in zip(wanted, reasons, strict=True) if not reason]
        if wanted and dry_run:
            self._foresee(import_name, wanted, report)
        elif wanted:
            # Counters that are rebuilt must find the shards as they are counted: failed.
            if self.recount.counters.forgotten([import_name]):
                self.recount.rebuild(import_name)
            self._reopen(import_name, rows)
            moved = self._move(import_name, wanted, rows, report)
            self._move_lost(import_name, moved, report)
        self.progress(report.replayed)

    def _reopen(self, import_name: str, rows: dict[str, LedgerRow]) -> None:
        """Each in the run that it belongs to."""
        failed = [row for row in rows.values() if row.status == "failed"]
        for run in {row.run for row in failed}:
            rows.update(self.ledger.reopen(import_name, [row.shard_key for row in failed if row.run == run], "failed", run))

    def _move(self, import_name: str, wanted: Sequence[Wanted], rows: dict[str, LedgerRow], report: ReplayReport) -> list[str]:
        """Returns the shards that were not where they were looked for."""
        moved: list[str] = []
        for run in {rows[key].run for _, key in wanted}:
            of_run = [(entry, key) for entry, key in wanted if rows[key].run == run]
            report.left.update(rows[key].status for _, key in of_run if rows[key].status not in OPEN)  # ended since we looked
            pairs = [(entry, key) for entry, key in of_run if rows[key].status in OPEN]
            queued = [(entry, queued_shard(rows[key])) for entry, key in pairs]
            answers = self.letters.replay(import_name, queued, run) if queued else []
            report.count(entry for (entry, _), is_replayed in zip(pairs, answers, strict=True) if is_replayed)
            moved += [key for (_, key), is_replayed in zip(pairs, answers, strict=True) if not is_replayed]
        return moved

    def _move_lost(self, import_name: str, keys: Sequence[str], report: ReplayReport) -> None:
        """Shards whose letter was dropped or purged since we read it are nowhere now, and go without."""
        placed = self.shards.places.look(import_name, keys) if keys else {}
        nowhere = [key for key in keys if key not in placed]
        # The ledger is asked after Redis: what has left Redis because it is finished is finished there.
        rows = self.ledger.look(import_name, nowhere) if nowhere else {}
        lost = [key for key, row in rows.items() if row.status in OPEN and row.counted_as == "failed"]
        left = self._move(import_name, [(NO_LETTER, key) for key in lost], rows, report)
        report.left.update(["in flight"] * (len(keys) - len(lost) + len(left)))

    def _foresee(self, import_name: str, wanted: Sequence[Wanted], report: ReplayReport) -> None:
        places = self.shards.places.look(import_name, [key for _, key in wanted])
        elsewhere = {key for key, place in places.items() if place.state != "failed"}
        report.count(entry for entry, key in wanted if key not in elsewhere)
        report.left.update("in flight" for _, key in wanted if key in elsewhere)


def _why_left(entry: str, key: str, row: LedgerRow | None) -> str:
    """Empty when the shard can be replayed, as far as the ledger knows."""
    if not is_key(key):
        return "garbage"
    if row is None:
        return "unknown to the ledger"
    if row.v > STORED_VERSION:
        return "of a newer version"
    if row.status in OPEN:
        # Opened by a replay that was cut short, or else it is no business of ours: a worker queues it.
        return "" if entry != NO_LETTER or row.counted_as == "failed" else "in flight"
    return "" if row.status == "failed" else row.status
