"""Where shards are, in the store of the fake queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from streams_importer.domain.model import STORED_VERSION
from streams_importer.ports import LedgerRow, Place
from tests.fakes.queue import NEWER, RELEASED, Store


class FakePlaces:
    """Implements ports.Places. `on_cancel` is called before anything is taken away; it may raise."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.on_cancel: Callable[[], object] = lambda: None

    def look(self, import_name: str, keys: Sequence[str]) -> dict[str, Place]:
        found = {key: self._place(import_name, key) for key in keys}
        return {key: place for key, place in found.items() if place is not None}

    def leased(self, import_name: str) -> Iterator[list[str]]:
        entries = [entry for entry in self.store.entries.values() if entry.import_name == import_name]
        yield [entry.shard_key for entry in entries if entry.owner not in (None, RELEASED, NEWER)]

    def delayed(self, import_name: str) -> Iterator[list[str]]:
        waiting = {key: when for (name, key), (when, _) in self.store.delayed.items() if name == import_name}
        yield sorted(waiting, key=waiting.__getitem__)

    def cancel(self, import_name: str, rows: Sequence[LedgerRow]) -> list[bool]:
        self.on_cancel()
        return [self._take(import_name, row) for row in rows]

    def _take(self, import_name: str, row: LedgerRow) -> bool:
        place = (import_name, row.shard_key)
        at = self.store.places.get(place, "")
        entry = self.store.delayed[place][1] if at == "delayed" else self.store.entries.get(at)
        if entry is None or entry.job != row.job or entry.v > STORED_VERSION:
            return False
        self.store.delayed.pop(place, None)
        self.store.entries.pop(at, None)
        self.store.progress.pop(place, None)
        del self.store.places[place]
        self.store.counters["cancelled"] += 1
        return True

    def _place(self, import_name: str, key: str) -> Place | None:
        at = self.store.places.get((import_name, key))
        if at is None:
            return None
        if at == "delayed":
            when, entry = self.store.delayed[import_name, key]
            return Place("delayed", comes_back_s=max(0.0, when - self.store.now), job=entry.job)
        if at not in self.store.entries:
            return Place("failed") if at.startswith("dead") else None
        entry = self.store.entries[at]
        if entry.owner in (None, RELEASED, NEWER):
            return Place("queued", job=entry.job)
        return Place("leased", worker=entry.owner, idle_s=self.store.now - entry.seen, job=entry.job)
