"""What a Redis server tells of itself, and which keys there are in our namespace. A hosted server may tell little."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import redis

from ..application import checkup_ports as kinds
from ..application.checkup import Facts
from ..application.checkup_ports import Fleet, Scanned
from ..domain.shard_key import is_name
from ..domain.text import plain
from .redis_client import redis_errors
from .redis_keys import Keys
from .redis_messages import text
from .redis_scans import exact
from .redis_workers import RedisWorkers

BATCH = 500
_SETTINGS = ("maxmemory", "maxmemory-policy", "maxclients", "save", "appendonly")
_IMPORT_TYPES = {
    "shards": "stream",
    "dead": "stream",
    "delayed": "zset",
    "places": "hash",
    "progress": "hash",
    "counters": "hash",
}
_TYPES = {"imports": "hash", "paused": "hash", "workers": "hash"}
_FINGERPRINT = re.compile(r"[0-9a-f]{16}")


class RedisCheckup:
    """Implements application.checkup_ports.RedisServer."""

    def __init__(
        self, client: redis.Redis, keys: Keys, workers: RedisWorkers, live_leases: Callable[[], Mapping[str, float]]
    ) -> None:
        self._client: Any = client  # replies are not typed in redis-py
        self._keys = keys
        self._workers = workers
        self._live_leases = live_leases

    def reach(self) -> None:
        with redis_errors(), suppress(redis.exceptions.NoPermissionError):  # which is an answer, too
            self._client.ping()

    def facts(self) -> Facts:
        told: dict[str, Any] = {}
        hidden: dict[str, str] = {}
        with redis_errors():
            try:
                told |= self._client.info()
            except redis.ResponseError as error:
                hidden["INFO"] = plain(str(error), 160)
            try:
                for name in _SETTINGS:  # one at a time: older servers take no more
                    told |= self._setting(name)
            except redis.ResponseError as error:
                hidden["CONFIG"] = plain(str(error), 160)
        if "appendonly" in told:
            told.setdefault("aof_enabled", "1" if told["appendonly"] == "yes" else "0")
        return Facts(told, hidden)

    def _setting(self, name: str) -> dict[str, str]:
        found = self._client.config_get(name)
        return {text(key).replace("-", "_"): text(value) for key, value in found.items() if text(key) == name}

    def keys(self, imports: Sequence[str]) -> Iterator[Scanned]:
        prefix, cursor = self._keys.imports.removesuffix("imports"), 0
        while True:
            with redis_errors():
                cursor, batch = self._client.scan(cursor, match=f"{prefix}*", count=BATCH)
                pipe = self._client.pipeline(transaction=False)
                for key in batch:
                    pipe.type(key)
                types = {exact(key): text(of) for key, of in zip(batch, pipe.execute(), strict=True)}
            found: dict[str, list[str]] = {kinds.WRONG_TYPE: [], kinds.STRANGER: [], kinds.UNDEFINED: []}
            for key, is_ in types.items():
                should_be, is_defined = _expected(key.removeprefix(prefix), imports)
                if is_ == "none":
                    continue  # gone meanwhile
                if should_be is None:
                    found[kinds.STRANGER].append(key)
                elif is_ != should_be:
                    found[kinds.WRONG_TYPE].append(f"{key} is a {is_}, not a {should_be}")
                elif not is_defined:
                    found[kinds.UNDEFINED].append(key)
            yield Scanned(len(batch), found)
            if cursor == 0:
                return

    def fleet(self) -> Fleet:
        with redis_errors():
            names = {text(name) for name in self._client.hkeys(self._keys.workers)}
        beats, leases = self._workers.all(), self._live_leases()
        live = {name: beat.imports for name, beat in beats.items() if name in leases}
        return Fleet(live, sorted(names - set(live)), max(leases.values(), default=0.0))

    def forget_gone(self) -> int:
        """Whoever beats again in this moment writes its next heartbeat all the same."""
        gone = list(self.fleet().gone)
        self._workers.forget(gone)
        return len(gone)


def _expected(name: str, imports: Sequence[str]) -> tuple[str | None, bool]:
    """The type of a key of ours, None when it is none; and whether it belongs to somebody."""
    first, _, rest = name.partition(":")
    if rest in _IMPORT_TYPES and first in imports:
        return _IMPORT_TYPES[rest], True
    if name in _TYPES:
        return _TYPES[name], True
    if first == "budget" and _FINGERPRINT.fullmatch(rest):
        return "hash", True
    if first == "cache" and _FINGERPRINT.fullmatch(rest.partition(":")[0]):
        return "string", True
    return (_IMPORT_TYPES[rest], False) if rest in _IMPORT_TYPES and is_name(first) else (None, False)
