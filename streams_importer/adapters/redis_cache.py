"""Small answers of an upstream, remembered for all workers."""

from __future__ import annotations

import redis

from .redis_client import redis_errors
from .redis_keys import Keys


class RedisCache:
    """Implements ports.Cache."""

    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    def get(self, name: str) -> bytes | None:
        with redis_errors():
            value = self._client.get(self._keys.cache(name))
        return value if isinstance(value, bytes) else None

    def put(self, name: str, value: bytes, seconds: int) -> None:
        with redis_errors():
            self._client.set(self._keys.cache(name), value, ex=seconds)
