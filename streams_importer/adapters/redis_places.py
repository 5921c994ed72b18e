"""Where shards in flight are, a few pipelined calls a batch however many they are; and how they are taken from there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import redis

from ..domain.model import STORED_VERSION
from ..domain.text import one_line
from ..ports import LedgerRow, Place
from .lua_scripts import LuaScripts, read_part
from .redis_client import redis_errors
from .redis_keys import GROUP, NEWER, RELEASED, ImportKeys, Keys
from .redis_messages import dump_counts, read_job, text
from .redis_streams import pending_after

BATCH = 500
MAX_WORKER = 120
MOST_SORTED = 10_000
"""Delayed shards that are held to put them in order."""


class RedisPlaces:
    """Implements ports.Places."""

    def __init__(
        self, client: redis.Redis, keys: Keys, *, version: int = STORED_VERSION, read: Callable[[str], str] = read_part
    ) -> None:
        self._client: Any = client  # pipelines and stream replies are not typed in redis-py
        self._keys = keys
        self._version = version
        self._scripts = LuaScripts(client, read)

    def look(self, import_name: str, keys: Sequence[str]) -> dict[str, Place]:
        with redis_errors():
            found = self._look(self._keys.of(import_name), list(dict.fromkeys(keys)))
            # Between the two calls a shard may have gone from one place to the next.
            moved = [key for key, place in found.items() if place is None]
            found |= self._look(self._keys.of(import_name), moved)
        return {key: place for key, place in found.items() if place is not None}

    def leased(self, import_name: str) -> Iterator[list[str]]:
        stream, after = self._keys.of(import_name).shards, "-"
        while True:
            with redis_errors():
                pending = pending_after(self._client, stream, after, BATCH)
                held = [item["message_id"] for item in pending if text(item["consumer"]) not in (RELEASED, NEWER)]
                pipe = self._client.pipeline(transaction=False)
                for entry in held:
                    pipe.xrange(stream, entry, entry)
                entries = [entry for found in pipe.execute() for entry in found]
            if entries:
                yield [text(fields[b"shard"]) for _, fields in entries if b"shard" in fields]
            if len(pending) < BATCH:
                return
            after = f"({text(pending[-1]['message_id'])}"

    def delayed(self, import_name: str) -> Iterator[list[str]]:
        key, cursor = self._keys.of(import_name).delayed, 0
        batch: dict[bytes, float] = {}
        while True:
            with redis_errors():
                cursor, found = self._client.zscan(key, cursor, count=BATCH)
            batch.update(found)
            if batch and (cursor == 0 or len(batch) >= MOST_SORTED):
                yield [text(shard) for shard in sorted(batch, key=batch.__getitem__)]
                batch = {}
            if cursor == 0:
                return

    def cancel(self, import_name: str, rows: Sequence[LedgerRow]) -> list[bool]:
        keys = self._keys.of(import_name)
        args: list[str | int] = [GROUP, self._version, self._keys.control]
        for row in rows:
            args += [row.shard_key, row.job, row.run, dump_counts(row.checkpoint.counts)]
        with redis_errors():
            places = [keys.shards, keys.places, keys.progress, keys.delayed, keys.counters]
            return [bool(flag) for flag in self._scripts.run("cancel", places, args)]

    def _look(self, keys: ImportKeys, shards: Sequence[str]) -> dict[str, Place | None]:
        """None for a shard that is not where its place says: it has just moved, or somebody removed it."""
        stored = self._client.hmget(keys.places, shards) if shards else []
        places = {shard: text(place) for shard, place in zip(shards, stored, strict=True) if place}
        pipe = self._client.pipeline(transaction=False)
        pipe.time()
        for shard, place in places.items():
            kind, entry = place[0], place[1:]
            if kind == "d":
                pipe.zscore(keys.delayed, shard)
                pipe.hget(keys.progress, shard)
            else:
                pipe.xrange(keys.dead if kind == "x" else keys.shards, entry, entry)
                pipe.xpending_range(keys.shards, GROUP, entry, entry, 1)
        time, *rest = pipe.execute(raise_on_error=False)
        if isinstance(time, Exception):
            raise time
        replies = iter(rest)
        return {shard: _place(place[0], time, next(replies), next(replies)) for shard, place in places.items()}


def _place(kind: str, time: tuple[int, int], first: Any, second: Any) -> Place | None:
    """A reply may be an error: there is no group, or the place is none of ours. Then there is nothing."""
    if kind == "d":
        progress = second if isinstance(second, bytes) else None
        return _delayed(first, progress, time) if isinstance(first, float) else None
    if not isinstance(first, list) or not first:
        return None
    if kind == "x":
        return Place("failed")
    return _on_stream(first[0][1], second[0] if isinstance(second, list) and second else None)


def _delayed(score: float, progress: bytes | None, time: tuple[int, int]) -> Place:
    comes_back_s = max(0.0, score / 1000 - time[0] - time[1] / 1_000_000)
    return Place("delayed", comes_back_s=comes_back_s, job=read_job(progress or b""))


def _on_stream(fields: dict[bytes, bytes], pending: Any) -> Place:
    job = text(fields[b"job"]) if b"job" in fields else None
    owner = one_line(text(pending["consumer"]), MAX_WORKER) if pending else RELEASED
    if owner in (RELEASED, NEWER):
        return Place("queued", job=job)
    return Place("leased", worker=owner, idle_s=int(pending["time_since_delivered"]) / 1000, job=job)
