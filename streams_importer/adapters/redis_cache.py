"""Small answers of an upstream, remembered for all workers."""

from __future__ import annotations

from contextlib import suppress

import redis

from ..domain.errors import Full
from .redis_client import redis_errors
from .redis_keys import Keys


class RedisCache:
    """Implements ports.Cache."""

    def __init__(self, client: redis.Redis, keys: Keys, owner: str) -> None:
        """`owner` tells upstreams apart: what one answered is not true for another."""
        self._client = client
        self._keys = keys
        self._owner = owner

    def get(self, name: str) -> bytes | None:
        with redis_errors():
            value = self._client.get(self._keys.cache(f"{self._owner}:{name}"))
        return value if isinstance(value, bytes) else None

    def put(self, name: str, value: bytes, seconds: int) -> None:
        with suppress(Full), redis_errors():  # then it is asked for again: slower, but it works
            self._client.set(self._keys.cache(f"{self._owner}:{name}"), value, ex=seconds)
