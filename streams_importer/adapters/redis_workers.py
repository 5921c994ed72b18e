"""Heartbeats: which workers there are, and what they do."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import redis

from ..domain.text import plain
from .redis_client import redis_errors
from .redis_keys import Keys
from .redis_messages import text

MAX_WORKERS_READ = 10_000


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """What a worker says of itself; `seen_ms` is Redis' clock at that time."""

    imports: list[str]
    leases: int
    lease_s: float
    records_per_s: float
    seen_ms: int = 0


class RedisWorkers:
    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client = client
        self._key = keys.workers

    def now_ms(self) -> int:
        with redis_errors():
            seconds, micros = self._client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def beat(self, consumer: str, imports: list[str], leases: int, lease_s: float, records_per_s: float) -> None:
        beat = Heartbeat(imports, leases, lease_s, round(records_per_s, 1), self.now_ms())
        with redis_errors():
            self._client.hset(self._key, consumer, msgspec.json.encode(beat))

    def all(self) -> dict[str, Heartbeat]:
        with redis_errors():
            stored = self._client.hgetall(self._key)
        beats = {}
        for name, value in list(stored.items())[:MAX_WORKERS_READ]:
            try:
                beats[plain(text(name), 120)] = msgspec.json.decode(value, type=Heartbeat)
            except (msgspec.MsgspecError, ValueError):
                continue
        return beats

    def forget(self, consumers: list[str]) -> None:
        if consumers:
            with redis_errors():
                self._client.hdel(self._key, *consumers)
