"""The dead-letter streams: read a batch at a time, and changed by scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import redis

from ..application.batches import batches
from ..domain.errors import Uncounted
from ..domain.model import STORED_VERSION
from ..domain.shard_key import MAX_KEY_LENGTH
from ..ports import MAX_LETTERS, DeadLetter, QueuedShard, ShardRecord
from . import redis_messages as messages
from .lua_scripts import LuaScripts, read_part
from .redis_client import redis_errors
from .redis_keys import ImportKeys, Keys

BATCH = 200
"""A letter has up to some 10 KB."""
_ENTRY = re.compile(r"[0-9]{1,19}-[0-9]{1,19}")
"""All that Redis takes as an id: its numbers have 64 bits."""


class RedisLetters:
    """Implements ports.DeadLetters."""

    def __init__(
        self, client: redis.Redis, keys: Keys, *, version: int = STORED_VERSION, read: Callable[[str], str] = read_part
    ) -> None:
        self._client: Any = client  # pipelines and stream replies are not typed in redis-py
        self._keys = keys
        self._version = version
        self._scripts = LuaScripts(client, read)

    def newest_first(self, import_name: str) -> Iterator[list[DeadLetter]]:
        dead, newest = self._keys.of(import_name).dead, "+"
        while True:
            with redis_errors():
                found = self._client.xrevrange(dead, max=newest, count=BATCH)
            if found:
                yield [messages.read_letter(entry) for entry in found]
            if len(found) < BATCH:
                return
            newest = f"({messages.text(found[-1][0])}"

    def find(self, import_name: str, names: Iterable[str]) -> dict[str, DeadLetter]:
        wanted = list(dict.fromkeys(name for name in names if _is_possible(name)))
        found: dict[str, DeadLetter] = {}
        for batch in batches(wanted, BATCH):
            with redis_errors():
                found |= self._at_their_places(self._keys.of(import_name), batch)
        missing = {name for name in wanted if name not in found}
        # A letter whose shard has its place elsewhere, or none: it is seldom, and only looking through them all finds it.
        for letters in self.newest_first(import_name) if missing else ():
            for letter in letters:
                if letter.shard_key in missing:
                    found.setdefault(letter.shard_key, letter)
        return found

    def replay(self, import_name: str, letters: Sequence[tuple[str, QueuedShard]], run: str) -> list[bool]:
        keys = self._keys.of(import_name)
        args: list[str | int] = [self._version, run, self._keys.control]
        for entry, shard in letters:
            args += [entry, shard.shard_key, shard.job, *messages.dump_checkpoint(shard.checkpoint)]
        places = [keys.shards, keys.places, keys.progress, keys.dead, keys.counters, keys.delayed]
        flags = self._flags("replay", places, args)
        if letters and not flags:
            raise Uncounted(import_name)
        return flags

    def purge(self, import_name: str, entries: Sequence[str]) -> list[bool]:
        keys = self._keys.of(import_name)
        return self._flags("purge", [keys.places, keys.dead], entries)

    def restore(self, import_name: str, records: Sequence[ShardRecord]) -> int:
        keys = self._keys.of(import_name)
        letters = [[record.row.shard_key, *messages.restored_fields(import_name, record)] for record in records]
        args = [argument for letter in letters for argument in letter]
        places = [keys.places, keys.dead]
        return sum(self._flags("restore", places, [MAX_LETTERS, len(letters[0]) - 1, *args])) if letters else 0

    def dropped(self, import_name: str) -> int:
        with redis_errors():
            stored = self._client.hget(self._keys.of(import_name).counters, "letters_dropped")
        number = messages.text(stored or b"0")
        return int(number) if re.fullmatch("[0-9]{1,15}", number) else 0

    def _at_their_places(self, keys: ImportKeys, names: Sequence[str]) -> dict[str, DeadLetter]:
        places = self._client.hmget(keys.places, names)
        entries = {name: entry for name, place in zip(names, places, strict=True) if (entry := _entry(name, place))}
        pipe = self._client.pipeline(transaction=False)
        for entry in entries.values():
            pipe.xrange(keys.dead, entry, entry)
        return {name: messages.read_letter(found[0]) for name, found in zip(entries, pipe.execute(), strict=True) if found}

    def _flags(self, script: str, keys: Sequence[str], args: Sequence[str | int]) -> list[bool]:
        with redis_errors():
            return [bool(flag) for flag in self._scripts.run(script, keys, args)]


def _is_possible(name: str) -> bool:
    """Whether a letter can have this name: whatever else somebody types may not even be sent."""
    return 0 < len(name) <= MAX_KEY_LENGTH and name.isascii() and name.isprintable()


def _entry(name: str, place: bytes | None) -> str:
    """Where the letter of this name is, as far as the name or the place of the shard says; empty when they do not."""
    if _ENTRY.fullmatch(name):
        return name
    entry = messages.text(place or b"")
    return entry[1:] if entry.startswith("x") and _ENTRY.fullmatch(entry[1:]) else ""
