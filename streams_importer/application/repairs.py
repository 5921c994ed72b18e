"""Puts right what an examination found, as far as it lies in our keys in Redis.

Workers may go on meanwhile: every step looks again in the same moment in which it acts, and leaves alone what has moved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ..domain.errors import ImporterError
from ..domain.shard_key import is_key
from ..domain.text import plain
from ..ports import Pause
from . import checkup_ports as kinds
from .batches import batches
from .checkup import WRONG, Finding, many
from .checkup_ports import Scanned
from .examination import Parts
from .healer import queue_up, queued_shard
from .import_checkup import is_same_pause
from .import_doctor import BATCH, is_open, lost_rows, stored

TRIES = 5
_MISPLACED = frozenset(("places", "delayed shards", "progress"))
_LOSING = frozenset(("lost shards", "entries", "deleted entries", *_MISPLACED))
"""Where something was wrong with one of these, a shard may be nowhere."""

Done = dict[tuple[str | None, str], str]
"""By import and check, what was done; or why it could not be."""


class Repairs:
    def __init__(self, parts: Parts, progress: Callable[[int], None] = lambda number: None) -> None:
        """`progress` is told how many things were looked at so far."""
        self._parts = parts
        self._progress = progress
        self._looked_at = 0
        self._done: Done = {}

    def fix(self, findings: Sequence[Finding]) -> Done:
        self._done = {}
        wrong = {(finding.import_name, finding.check) for finding in findings if finding.verdict.state == WRONG}
        names = list(dict.fromkeys(finding.import_name for finding in findings if finding.import_name is not None))
        for name in names:
            self._fix_import(name, {check for of, check in wrong if of == name})
        if (None, "heartbeats") in wrong:
            self._try(None, "heartbeats", lambda: _said(self._parts.redis.forget_gone(), "forgotten"))
        if (None, "consumers") in wrong:
            self._try(None, "consumers", lambda: _said(self._reap(names), "forgotten"))
        return self._done

    def _fix_import(self, name: str, wrong: set[str]) -> None:
        """In this order: what is nobody's goes first, so that nothing stands in the way of what is queued again."""
        parts, scans = self._parts, self._parts.scans
        if "definition" in wrong:
            self._try(name, "definition", partial(self._restore_definition, name))
        if "pause" in wrong:
            self._try(name, "pause", partial(self._restore_pause, name))
        if "group" in wrong:
            self._try(name, "group", partial(self._make_group, name))
        if "deleted entries" in wrong:
            scan = partial(self._found, lambda: scans.pending(name, 0.0), kinds.DELETED)
            self._each(name, "deleted entries", scan, partial(parts.mending.acknowledge_deleted, name), "acknowledged")
        if "entries" in wrong:
            scan = partial(self._found, lambda: scans.entries(name), kinds.UNPLACED, kinds.DUPLICATE)
            self._each(name, "entries", scan, partial(parts.mending.put_in_place, name), "put in their place or dropped")
        if wrong & _MISPLACED:
            sweeps: dict[str, Callable[[], Iterator[Scanned]]] = {
                "delayed shards": lambda: scans.delayed(name),
                "places": lambda: scans.places(name),
                "progress": lambda: scans.progress(name),
            }
            for check, look in sweeps.items():
                scan = partial(self._found, look, kinds.STUCK, kinds.STRAY, kinds.ORPHAN, kinds.DANGLING)
                self._each(name, check, scan, partial(self._sweep, name), "swept")
        if "counters" in wrong:
            self._try(name, "counters", partial(self._rebuild, name))
        if wrong & _LOSING:
            self._try(name, "lost shards", lambda: _said(self._queue_lost(name), "queued"))
        if "counters" in wrong:
            self._try(name, "counters", lambda: "put right" if parts.recount.audit(name) else "")

    def _try(self, name: str | None, check: str, action: Callable[[], str]) -> None:
        """One that fails, because somebody's key stands in the way or a server has gone, must not keep the others from it."""
        try:
            said = action()
        except ImporterError as error:
            said = f"not fixed: {plain(str(error), 200)}"
        if said:
            self._done[name, check] = said

    def _each(
        self, name: str, check: str, scan: Callable[[], Iterator[list[str]]], repair: Callable[[list[str]], int], verb: str
    ) -> None:
        self._try(name, check, lambda: _said(sum(repair(names) for names in scan()), verb))

    def _found(self, look: Callable[[], Iterator[Scanned]], *of: str) -> Iterator[list[str]]:
        """Of each batch of the scan, what is of these kinds."""
        for batch in look():
            self._looked_at += batch.number
            self._progress(self._looked_at)
            names = [name for kind in of for name in batch.found.get(kind, ())]
            if names:
                yield names

    def _queue_lost(self, name: str) -> int:
        """Other than healing, which trusts that somebody runs who drops what it queued needlessly, this leaves nothing behind."""
        parts, queued = self._parts, 0
        for batch in batches(parts.ledger.pending(name), BATCH):
            lost = lost_rows(parts, name, batch)
            for run in sorted({row.run for row in lost}):
                shards = [queued_shard(row) for row in lost if row.run == run]
                queued += sum(queue_up(parts.queue, parts.recount, name, shards, run))
        return queued

    def _sweep(self, name: str, shards: list[str]) -> int:
        rows = self._parts.ledger.look(name, [shard for shard in shards if is_key(shard)])
        is_over = [(shard, shard not in rows or not is_open(rows[shard])) for shard in shards]
        return self._parts.mending.sweep(name, is_over)

    def _rebuild(self, name: str) -> str:
        """Whoever rebuilds them restores the letters as well: afterwards nobody knows that these were lost, and not purged."""
        recount = self._parts.recount
        if not recount.counters.forgotten([name]) or not recount.rebuild(name):
            return ""
        letters = self._parts.restore_letters(name)
        return "rebuilt from the ledger" + (f", with {many(letters, 'dead letter')}" if letters else "")

    def _make_group(self, name: str) -> str:
        self._parts.set_up(name)
        return "made" if self._parts.scans.has_group(name) else ""

    def _restore_definition(self, name: str) -> str:
        """The copy follows the original; when somebody stores another meanwhile, it follows that."""
        parts = self._parts
        if stored(parts.copy, name).is_newer:
            return ""
        for _ in range(TRIES):
            original = stored(parts.original, name).definition
            if original is None:
                return ""
            parts.copy.save(original, "")
            if stored(parts.original, name).definition == original:
                return "copied from MongoDB"
        return "not fixed: somebody keeps changing it"

    def _restore_pause(self, name: str) -> str:
        parts = self._parts
        for _ in range(TRIES):
            original, copy = parts.original.paused().get(name), parts.copy.paused().get(name)
            if _agree(original, copy):
                return ""
            parts.copy.pause(name, original)
            if _agree(parts.original.paused().get(name), original):
                return "pause copied from MongoDB" if original else "pause ended, as in MongoDB"
        return "not fixed: somebody keeps changing it"

    def _reap(self, names: Sequence[str]) -> int:
        fleet = self._parts.redis.fleet()
        idle = {name: self._parts.scans.idle_consumers(name, fleet.live) for name in names}
        return sum(self._parts.queue.reap(name, consumers) for name, consumers in idle.items() if consumers)


def _agree(one: Pause | None, other: Pause | None) -> bool:
    return one == other if one is None or other is None else is_same_pause(one, other)


def _said(number: int, verb: str) -> str:
    return f"{number:,} {verb}" if number else ""
