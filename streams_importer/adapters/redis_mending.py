"""The scripts that put right what a look at an import found. Each looks again before it acts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import redis

from ..domain.model import STORED_VERSION
from .lua_scripts import LuaScripts, read_part
from .redis_client import redis_errors
from .redis_keys import GROUP, Keys


class RedisMending:
    """Implements application.checkup_ports.Mending."""

    def __init__(
        self, client: redis.Redis, keys: Keys, *, version: int = STORED_VERSION, read: Callable[[str], str] = read_part
    ) -> None:
        self._scripts = LuaScripts(client, read)
        self._keys = keys
        self._version = version

    def acknowledge_deleted(self, import_name: str, entries: Sequence[str]) -> int:
        with redis_errors():
            return int(self._scripts.run("ack_deleted", [self._keys.of(import_name).shards], [GROUP, *entries]))

    def put_in_place(self, import_name: str, entries: Sequence[str]) -> int:
        keys = self._keys.of(import_name)
        places = [keys.shards, keys.places, keys.delayed, keys.dead]
        with redis_errors():
            return int(self._scripts.run("put_in_place", places, [GROUP, self._version, *entries]))

    def sweep(self, import_name: str, shards: Sequence[tuple[str, bool]]) -> int:
        keys = self._keys.of(import_name)
        args: list[Any] = [part for shard, is_over in shards for part in (shard.encode(errors="surrogateescape"), int(is_over))]
        places = [keys.shards, keys.places, keys.progress, keys.delayed, keys.dead]
        with redis_errors():
            return int(self._scripts.run("sweep", places, [self._version, *args]))
