"""An import's counters as a whole: whether Redis has them, and how they are replaced by better ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import redis

from .lua_scripts import LuaScripts, read_part
from .redis_client import redis_errors
from .redis_keys import Keys
from .redis_messages import text


class RedisCounters:
    """Implements ports.Counters."""

    def __init__(self, client: redis.Redis, keys: Keys, *, read: Callable[[str], str] = read_part) -> None:
        self._client: Any = client  # pipelines are not typed in redis-py
        self._scripts = LuaScripts(client, read)
        self._keys = keys

    def forgotten(self, imports: Sequence[str]) -> list[str]:
        with redis_errors():
            pipe = self._client.pipeline(transaction=False)
            for name in imports:
                pipe.hexists(self._keys.of(name).counters, "since")
            return [name for name, is_there in zip(imports, pipe.execute(), strict=True) if not is_there]

    def read(self, import_name: str) -> dict[str, str]:
        with redis_errors():
            stored = self._client.hgetall(self._keys.of(import_name).counters)
        return {text(name): text(value) for name, value in stored.items()}

    def replace(self, import_name: str, seen: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
        keys = self._keys.of(import_name)
        before = [part for name in wanted for part in (name, seen.get(name, ""))]
        after = [part for pair in wanted.items() for part in pair]
        with redis_errors():
            return bool(self._scripts.run("recount", [keys.counters, keys.shards, keys.delayed], [len(before), *before, *after]))
