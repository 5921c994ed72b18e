"""The copy of definitions and pauses that workers read; MongoDB has the original."""

from __future__ import annotations

from typing import Any

import msgspec
import redis

from ..domain.definition import Definition, read_definition
from ..domain.errors import BadSetting
from ..domain.shard_key import is_name
from ..domain.text import plain
from ..ports import Pause
from .lua_scripts import LuaScripts
from .redis_client import redis_errors
from .redis_keys import Keys
from .redis_messages import text

PAUSE_MESSAGE = "pause"
IMPORTS_MESSAGE = "imports"


class RedisCatalogue:
    """Implements ports.Catalogue."""

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client = client
        self._scripts = LuaScripts(client)
        self._keys = keys

    def save(self, definition: Definition, run: str) -> None:
        with redis_errors():
            self._scripts.run("put", [self._keys.imports], [definition.name, msgspec.json.encode(definition.stored()).decode()])
            self._client.publish(self._keys.control, IMPORTS_MESSAGE)

    def get(self, name: str) -> Definition | None:
        with redis_errors():
            stored = self._client.hget(self._keys.imports, name)
        if stored is None:
            return None
        try:
            return read_definition(name, msgspec.json.decode(stored, type=dict[str, Any]))
        except (msgspec.MsgspecError, ValueError):
            raise BadSetting(f"import {name}: its stored definition is broken; run produce again to store a good one") from None

    def names(self) -> list[str]:
        with redis_errors():
            return sorted(name for name in map(text, self._client.hkeys(self._keys.imports)) if is_name(name))

    def pause(self, name: str, pause: Pause | None) -> bool:
        with redis_errors():
            if pause is None:
                self._client.hdel(self._keys.paused, name)
            else:
                self._scripts.run("put", [self._keys.paused], [name, msgspec.json.encode(_plain(pause)).decode()])
            self._client.publish(self._keys.control, PAUSE_MESSAGE)
            return bool(self._client.hexists(self._keys.imports, name))

    def paused(self) -> dict[str, Pause]:
        with redis_errors():
            stored = self._client.hgetall(self._keys.paused)
        return {text(name): read_pause(value) for name, value in stored.items() if is_name(text(name))}


def read_pause(stored: bytes | str) -> Pause:
    """An unreadable pause is still a pause."""
    try:
        pause = msgspec.json.decode(stored, type=Pause)
    except (msgspec.MsgspecError, ValueError):
        return Pause("unknown", "unknown", "")
    return _plain(pause)


def _plain(pause: Pause) -> Pause:
    return Pause(plain(pause.reason), plain(pause.by, 100), plain(pause.since, 40))
