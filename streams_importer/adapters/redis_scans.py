"""One import in Redis, looked through a batch at a time.

What looks wrong is looked at once more, all its parts in one moment: workers move shards meanwhile, each in one step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import redis

from ..application import checkup_ports as kinds
from ..application.checkup_ports import Scanned
from ..domain.model import STORED_VERSION, Garbage
from .lua_scripts import LuaScripts
from .redis_client import redis_errors
from .redis_keys import GROUP, NEWER, RELEASED, ImportKeys, Keys
from .redis_messages import read_entry, text
from .redis_streams import pending_after

BATCH = 500
_PLACE = re.compile(r"d|[sx][0-9]{1,20}-[0-9]{1,20}")
_COUNTS = 8


@dataclass(frozen=True, slots=True)
class _Facts:
    place: str
    is_at_place: bool
    is_delayed: bool
    progress: bytes
    has_entry: bool
    is_pending: bool


class RedisScans:
    """Implements application.checkup_ports.Scans."""

    def __init__(self, client: redis.Redis, keys: Keys, *, version: int = STORED_VERSION) -> None:
        self._client: Any = client  # pipelines and stream replies are not typed in redis-py
        self._keys = keys
        self._version = version
        self._scripts = LuaScripts(client)

    def has_group(self, import_name: str) -> bool:
        return any(text(group["name"]) == GROUP for group in self._stream_info("xinfo_groups", import_name))

    def idle_consumers(self, import_name: str, live: Mapping[str, Sequence[str]]) -> list[str]:
        found = self._stream_info("xinfo_consumers", import_name, GROUP)
        idle = [text(one["name"]) for one in found if not int(one["pending"])]
        return [name for name in idle if name not in live and name not in (RELEASED, NEWER)]

    def entries(self, import_name: str) -> Iterator[Scanned]:
        keys = self._keys.of(import_name)
        with redis_errors():
            newest = self._client.xrevrange(keys.shards, count=1)
        after = "-"
        while newest:
            with redis_errors():
                # No further than it reached at the beginning: whoever queues meanwhile must not keep us here.
                batch = self._client.xrange(keys.shards, after, newest[0][0], BATCH)
                found = self._of_entries(import_name, keys, batch)
            yield Scanned(len(batch), found)
            if len(batch) < BATCH:
                return
            after = f"({text(batch[-1][0])}"

    def _of_entries(self, import_name: str, keys: ImportKeys, batch: Sequence[Any]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {kinds.GARBAGE: [], kinds.NEWER: [], kinds.UNPLACED: [], kinds.DUPLICATE: []}
        shards: dict[str, str] = {}
        for identifier, stored in batch:
            entry, fields = text(identifier), stored or {}
            if is_newer(text(fields.get(b"v", b"")), self._version):
                found[kinds.NEWER].append(entry)
                continue
            item = read_entry(import_name, entry, "", 0, [part for pair in fields.items() for part in pair], "")
            if isinstance(item, Garbage):
                found[kinds.GARBAGE].append(entry)
            else:
                shards[entry] = item.shard_key
        places = self._client.hmget(keys.places, list(shards.values())) if shards else []
        suspects = [
            (shard, entry) for (entry, shard), at in zip(shards.items(), places, strict=True) if text(at or b"") != f"s{entry}"
        ]
        for _, entry, now in self._again(keys, suspects):
            if now.has_entry and now.place != f"s{entry}":
                found[kinds.DUPLICATE if now.place else kinds.UNPLACED].append(entry)
        return found

    def places(self, import_name: str) -> Iterator[Scanned]:
        keys = self._keys.of(import_name)
        for batch in self._fields_of(keys.places):
            places = {shard: text(place) for shard, place in batch.items()}
            odd = [exact(shard) for shard, place in places.items() if not _PLACE.fullmatch(place)]
            known = {shard: place for shard, place in places.items() if _PLACE.fullmatch(place)}
            with redis_errors():
                pipe = self._client.pipeline(transaction=False)
                for shard, place in known.items():
                    _look_at(pipe, keys, shard, place)
                there = zip(known, pipe.execute(), strict=True)
                again = self._again(keys, [(shard, "") for shard, reply in there if not _is_at(shard, reply)])
                dangling = [exact(shard) for shard, _, now in again if now.place == known[shard] and not now.is_at_place]
            yield Scanned(len(places), {kinds.DANGLING: dangling, kinds.ODD: odd})

    def delayed(self, import_name: str) -> Iterator[Scanned]:
        keys, cursor = self._keys.of(import_name), 0
        while True:
            with redis_errors():
                cursor, batch = self._client.zscan(keys.delayed, cursor, count=BATCH)
                found = self._of_delayed(keys, [shard for shard, _ in batch]) if batch else {}
            yield Scanned(len(batch), found)
            if cursor == 0:
                return

    def _of_delayed(self, keys: ImportKeys, shards: Sequence[bytes]) -> dict[str, list[str]]:
        facts = zip(shards, self._client.hmget(keys.places, shards), self._client.hmget(keys.progress, shards), strict=True)
        suspects = [(shard, "") for shard, place, behind in facts if self._why_stays(text(place or b""), behind or b"")]
        found: dict[str, list[str]] = {kinds.STUCK: [], kinds.STRAY: []}
        for shard, _, now in self._again(keys, suspects):
            why = self._why_stays(now.place, now.progress)
            if now.is_delayed and why:
                found[why].append(exact(shard))
        return found

    def _why_stays(self, place: str, progress: bytes) -> str:
        """Why nobody can promote a delayed shard; empty when they can."""
        if is_newer(_version_of(progress), self._version):
            return ""  # not for us to judge
        if place != "d":
            return kinds.STRAY
        return "" if can_be_promoted(progress) else kinds.STUCK

    def progress(self, import_name: str) -> Iterator[Scanned]:
        keys = self._keys.of(import_name)
        for batch in self._fields_of(keys.progress):
            with redis_errors():
                places = self._client.hmget(keys.places, list(batch))
                suspects = [
                    (shard, "")
                    for (shard, behind), place in zip(batch.items(), places, strict=True)
                    if place is None and not is_newer(_version_of(behind), self._version)
                ]
                again = self._again(keys, suspects)
                orphans = [exact(shard) for shard, _, now in again if now.progress and not now.place]
            yield Scanned(len(batch), {kinds.ORPHAN: orphans})

    def pending(self, import_name: str, lease_s: float) -> Iterator[Scanned]:
        keys, after = self._keys.of(import_name), "-"
        while True:
            with redis_errors():
                batch = pending_after(self._client, keys.shards, after, BATCH)
                owners = {text(one["message_id"]): text(one["consumer"]) for one in batch}
                idle = {text(one["message_id"]): int(one["time_since_delivered"]) for one in batch}
                pipe = self._client.pipeline(transaction=False)
                for entry in owners:
                    pipe.xrange(keys.shards, entry, entry)
                suspects = [("", entry) for entry, there in zip(owners, pipe.execute(), strict=True) if not there]
                deleted = [entry for _, entry, now in self._again(keys, suspects) if now.is_pending and not now.has_entry]
            held = [entry for entry, owner in owners.items() if owner not in (RELEASED, NEWER)]
            ran_out = [entry for entry in held if idle[entry] > lease_s * 1000 and entry not in deleted]
            yield Scanned(len(batch), {kinds.DELETED: deleted, kinds.RAN_OUT: ran_out})
            if len(batch) < BATCH:
                return
            after = f"({text(batch[-1]['message_id'])}"

    # Plumbing.

    def _stream_info(self, command: str, import_name: str, *args: str) -> list[Any]:
        """Nothing when there is no stream, or no group."""
        with redis_errors():
            try:
                return list(getattr(self._client, command)(self._keys.of(import_name).shards, *args))
            except redis.ResponseError as error:
                if "no such key" not in str(error) and "NOGROUP" not in str(error):
                    raise
                return []

    def _fields_of(self, key: str) -> Iterator[dict[bytes, bytes]]:
        cursor = 0
        while True:
            with redis_errors():
                cursor, batch = self._client.hscan(key, cursor, count=BATCH)
            if batch:
                yield batch
            if cursor == 0:
                return

    def _again(self, keys: ImportKeys, suspects: Sequence[tuple[bytes | str, str]]) -> Iterator[tuple[Any, str, _Facts]]:
        """Each suspect, a shard or an entry or both, with what is known of it in one moment."""
        args: list[Any] = [part for suspect in suspects for part in suspect]
        places = [keys.shards, keys.places, keys.progress, keys.delayed, keys.dead]
        found = self._scripts.run("look_again", places, [GROUP, *args]) if suspects else []
        for (shard, entry), (place, at, delayed, progress, there, pending) in zip(suspects, found, strict=True):
            yield shard, entry, _Facts(text(place), bool(at), bool(delayed), progress, bool(there), bool(pending))


def exact(name: bytes) -> str:
    """Whatever bytes somebody wrote, so that a repair finds them again. No text for a terminal, nor for MongoDB."""
    return name.decode(errors="surrogateescape")


def is_newer(version: str, ours: int) -> bool:
    return version.isascii() and version.isdecimal() and int(version[:15]) > ours


def can_be_promoted(progress: bytes) -> bool:
    """As the script sees it: without these a delayed shard cannot become a message."""
    try:
        behind = msgspec.json.decode(progress)
    except (msgspec.MsgspecError, ValueError):
        return False
    if not isinstance(behind, dict) or not isinstance(behind.get("page"), int | float):
        return False
    counts = behind.get("counts")
    are_counts = isinstance(counts, list) and len(counts) >= _COUNTS and all(isinstance(one, int | float) for one in counts)
    return are_counts and all(behind.get(name) is not None for name in ("v", "job", "run"))


def _version_of(progress: bytes) -> str:
    found = re.search(rb'"v":([0-9]+)', progress)
    return text(found[1]) if found else ""


def _look_at(pipe: Any, keys: ImportKeys, shard: bytes, place: str) -> Any:
    if place == "d":
        return pipe.zscore(keys.delayed, shard)
    return pipe.xrange(keys.dead if place[0] == "x" else keys.shards, place[1:], place[1:])


def _is_at(shard: bytes, reply: Any) -> bool:
    """What is there must be this shard's."""
    if not isinstance(reply, list):
        return reply is not None
    return any((fields or {}).get(b"shard") == shard for _, fields in reply)
