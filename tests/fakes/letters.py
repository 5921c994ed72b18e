"""Dead letters in the store of the fake queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from streams_importer.domain.errors import Uncounted
from streams_importer.domain.model import Failure
from streams_importer.ports import DeadLetter, QueuedShard, ShardRecord
from tests.fakes.queue import Entry, FakeQueue, Progress


class FakeLetters:
    """Implements ports.DeadLetters. It shares calls, outages and faults with the queue; `batch` letters come at a time."""

    def __init__(self, queue: FakeQueue) -> None:
        self.store = queue.store
        self.batch = 2
        self._queue = queue

    def newest_first(self, import_name: str) -> Iterator[list[DeadLetter]]:
        there = self._queue._act("newest_first", lambda: self._of(import_name))
        for start in range(0, len(there), self.batch):
            yield there[start : start + self.batch]

    def find(self, import_name: str, names: Iterable[str]) -> dict[str, DeadLetter]:
        def act() -> dict[str, DeadLetter]:
            there, found = self._of(import_name), {}
            for name in dict.fromkeys(names):
                place = self.store.places.get((import_name, name), "").removeprefix("dead ")
                fits = [one for one in there if one.entry in (name, place)] or [one for one in there if one.shard_key == name]
                if name and fits:
                    found[name] = fits[0]
            return found

        return self._queue._act("find", act)

    def replay(self, import_name: str, letters: Sequence[tuple[str, QueuedShard]], run: str) -> list[bool]:
        if import_name in self.store.uncounted:
            raise Uncounted(import_name)
        return self._queue._act("replay", lambda: [self._replay(import_name, *pair, run) for pair in letters])

    def _replay(self, import_name: str, letter: str, shard: QueuedShard, run: str) -> bool:
        place = (import_name, shard.shard_key)
        at = self.store.places.get(place)
        if at != f"dead {letter}" if letter else at is not None:
            return False
        self.store.progress[place] = Progress(shard.checkpoint)
        self._queue.put(Entry(import_name, shard.shard_key, shard.job, run))
        self.store.letters = [(name, one) for name, one in self.store.letters if one.entry != letter]
        self.store.counters["failed"] -= 1
        return True

    def purge(self, import_name: str, entries: Sequence[str]) -> list[bool]:
        return self._queue._act("purge", lambda: [self.store.remove_letter(import_name, entry) for entry in entries])

    def restore(self, import_name: str, records: Sequence[ShardRecord]) -> int:
        missing = [one.row for one in records if (import_name, one.row.shard_key) not in self.store.places]
        for row in missing:
            failure = row.failure or Failure("unknown", "")
            spent = (str(row.attempts), str(row.crashes))
            letter = self.store.next_id()
            one = DeadLetter(letter, row.shard_key, failure.code, failure.message, "", *spent, "", "", "", "", "", row.job)
            self.store.letters.insert(0, (import_name, one))
            self.store.places[import_name, row.shard_key] = f"dead {letter}"
        return len(missing)

    def dropped(self, import_name: str) -> int:
        return self._queue._act("dropped", lambda: self.store.dropped[import_name])

    def _of(self, import_name: str) -> list[DeadLetter]:
        return [one for name, one in self.store.letters if name == import_name]
