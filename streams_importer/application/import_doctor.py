"""Looks at one import in both stores, check by check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from ..domain.definition import Definition
from ..domain.errors import BadSetting, TooNew
from ..domain.model import STORED_VERSION
from ..domain.shard_key import is_key
from ..domain.text import plain
from ..ports import Catalogue, LedgerRow
from . import import_checkup as judge
from .batches import batches
from .checkup import IMPORT, MONGODB, REDIS, Finding, Hidden, Verdict, judged
from .checkup_ports import NEWER, Fleet, Scanned
from .examination import Eyes, Parts
from .healer import can_be_queued
from .import_checkup import CounterState, StoredDefinition, Tally

T = TypeVar("T")
U = TypeVar("U")

BATCH = 500


class ImportDoctor:
    def __init__(self, parts: Parts, eyes: Eyes, fleet: Fleet | Hidden) -> None:
        self._parts = parts
        self._eyes = eyes
        self._fleet = fleet

    def examine(self, name: str) -> Iterator[Finding]:
        def row(check: str, looked_at: T | Hidden, judge_it: Callable[[str, T], Verdict]) -> Finding:
            return Finding(IMPORT, check, judged(looked_at, partial(judge_it, name)), name)

        look, parts, both = self._eyes.look, self._parts, (REDIS, MONGODB)
        status = look(lambda: parts.status(name), REDIS)
        pauses = look(lambda: (parts.original.paused().get(name), parts.copy.paused().get(name)), *both)
        rows = look(lambda: self._eyes.tally(self._pending_rows(name)), *both)
        entries = self._scanned(name, parts.scans.entries)
        pending = self._scanned(name, partial(parts.scans.pending, lease_s=self._lease_s(name)))
        is_produced = not isinstance(status, Hidden) and status.is_being_produced
        is_paused = not isinstance(pauses, Hidden) and pauses[1] is not None
        yield row("definition", look(lambda: self._definitions(name), *both), lambda name, found: judge.definition(name, *found))
        yield row("pause", pauses, lambda name, found: judge.pause(name, *found, status))
        yield row("group", look(lambda: parts.scans.has_group(name), REDIS), judge.group)
        yield row("lost shards", rows, partial(judge.lost, is_being_produced=is_produced))
        yield row("places", self._scanned(name, parts.scans.places), judge.places)
        yield row("entries", entries, judge.entries)
        yield row("garbage", entries, judge.garbage)
        yield row("deleted entries", pending, judge.deleted)
        yield row("delayed shards", self._scanned(name, parts.scans.delayed), judge.delayed)
        yield row("progress", self._scanned(name, parts.scans.progress), judge.progress)
        of_leases = together(pending, self._fleet)
        yield row("leases", of_leases, lambda name, found: judge.leases(name, *found, is_paused=is_paused))
        yield row("workers", together(status, self._fleet), lambda name, found: judge.work(name, *found))
        yield row("counters", look(lambda: self._counters(name), *both), judge.counters)
        yield row("dead letters", status, lambda name, found: judge.letters(name, found.dead))
        yield row("failed shards", look(lambda: self._eyes.tally(self._failed_rows(name)), *both), judge.failed)
        yield row("newer version", together(entries, rows), lambda _, found: judge.newer(*found))

    def _scanned(self, name: str, scan: Callable[[str], Iterator[Scanned]]) -> Tally | Hidden:
        return self._eyes.look(lambda: self._eyes.tally(scan(name)), REDIS)

    def _definitions(self, name: str) -> tuple[StoredDefinition, StoredDefinition]:
        return stored(self._parts.original, name), stored(self._parts.copy, name)

    def _lease_s(self, name: str) -> float:
        """The longest one that counts: reclaiming waits for that."""
        found = self._eyes.look(partial(stored, self._parts.copy, name), REDIS)
        definition = None if isinstance(found, Hidden) else found.definition
        lease_s = (definition or Definition(name)).lease_s
        return lease_s if isinstance(self._fleet, Hidden) else max(lease_s, self._fleet.longest_lease_s)

    def _pending_rows(self, name: str) -> Iterator[Scanned]:
        for rows in batches(self._parts.ledger.pending(name), BATCH):
            found = {
                judge.MISSING: [row.shard_key for row in lost_rows(self._parts, name, rows)],
                judge.UNREADABLE: [row.shard_key for row in rows if not is_key(row.shard_key)],
                NEWER: [row.shard_key for row in rows if row.v > STORED_VERSION],
            }
            yield Scanned(len(rows), found)

    def _failed_rows(self, name: str) -> Iterator[Scanned]:
        for records in self._parts.shards.records.in_states(name, ["failed"], []):
            keys = [record.row.shard_key for record in records]
            placed = self._parts.shards.places.look(name, keys)
            yield Scanned(len(records), {judge.LETTERLESS: [key for key in keys if key not in placed]})

    def _counters(self, name: str) -> CounterState:
        recount = self._parts.recount
        if recount.counters.forgotten([name]):
            totals = recount.ledger.totals(name)
            return CounterState(False, bool(totals.unfinished or sum(totals.states.values())))
        if self._parts.status(name).in_flight or recount.ledger.has_pending(name):
            return CounterState(True, True, None)
        differences = recount.differences(name)
        # Whatever was queued since was counted in the one store before the other.
        return CounterState(True, True, None if self._parts.status(name).in_flight else differences)


def stored(catalogue: Catalogue, name: str) -> StoredDefinition:
    try:
        return StoredDefinition(catalogue.get(name))
    except TooNew:
        return StoredDefinition(is_newer=True)
    except BadSetting as error:
        if str(error).startswith(("Redis", "--mongodb-uri")):
            raise  # not about the definition: the server did not let us see it
        return StoredDefinition(problem=plain(str(error), 200))


def together(one: T | Hidden, other: U | Hidden) -> tuple[T, U] | Hidden:
    if isinstance(one, Hidden):
        return one
    return other if isinstance(other, Hidden) else (one, other)


def lost_rows(parts: Parts, name: str, rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    """Of unfinished rows that we can run, those whose shards are nowhere in Redis, or still among the dead letters of the round
    before. Who finishes a shard writes the ledger first: what is not there and, asked after that, still open is lost, but for
    what is just being queued. So it is looked for once more."""
    lost = _not_in_flight(parts, name, [row for row in rows if can_be_queued(row)])
    now = parts.ledger.look(name, [row.shard_key for row in lost]) if lost else {}
    return _not_in_flight(parts, name, [row for row in now.values() if is_open(row)])


def _not_in_flight(parts: Parts, name: str, rows: Sequence[LedgerRow]) -> list[LedgerRow]:
    placed = parts.shards.places.look(name, [row.shard_key for row in rows]) if rows else {}
    return [row for row in rows if row.shard_key not in placed or placed[row.shard_key].state == "failed"]


def is_open(row: LedgerRow) -> bool:
    return row.status in ("pending", "leased")
