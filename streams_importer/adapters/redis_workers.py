"""Heartbeats: which workers there are, and what they do."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import redis

from ..domain.errors import BadSetting
from ..domain.text import one_line
from .lua_scripts import LuaScripts
from .redis_client import redis_errors
from .redis_keys import Keys
from .redis_messages import text

MAX_WORKERS_READ = 10_000
MAX_LEASE_S = 86_400.0
MAX_IMPORTS = 1000


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
        self._scripts = LuaScripts(client)
        self._key = keys.workers

    def now_ms(self) -> int:
        with redis_errors():
            seconds, micros = self._client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def beat(self, consumer: str, imports: list[str], leases: int, lease_s: float, records_per_s: float) -> None:
        said = {"imports": imports, "leases": leases, "lease_s": lease_s, "records_per_s": round(records_per_s, 1)}
        with redis_errors():
            self._scripts.run("beat", [self._key], [consumer, msgspec.json.encode(said).decode()])

    def all(self) -> dict[str, Heartbeat]:
        """Those that can be believed: nobody's heartbeat may be from the future or stretch everybody's lease beyond reason."""
        now = self.now_ms()
        with redis_errors():
            stored = self._client.hgetall(self._key)
        beats = {}
        for name, value in list(stored.items())[:MAX_WORKERS_READ]:
            try:
                beat = msgspec.json.decode(value, type=Heartbeat)
            except (msgspec.MsgspecError, ValueError):
                continue
            if 0 <= beat.lease_s <= MAX_LEASE_S and beat.seen_ms <= now + 5000 and len(beat.imports) <= MAX_IMPORTS:
                beats[one_line(text(name), 120)] = beat
        return beats

    def server(self) -> tuple[str, float]:
        """Which server process this is, and how long it has been up; '' and infinite where it does not say."""
        try:
            with redis_errors():
                told = self._client.info("server")
            return str(told["run_id"]), float(told["uptime_in_seconds"])
        except (BadSetting, KeyError, ValueError):
            return "", float("inf")

    def forget_unbelievable(self) -> None:
        """Drops heartbeats that nobody believes, so that they are not kept for ever."""
        with redis_errors():
            names = {text(name) for name in self._client.hkeys(self._key)}
        self.forget(sorted(names - set(self.all())))

    def forget(self, consumers: list[str]) -> None:
        if consumers:
            with redis_errors():
                self._client.hdel(self._key, *consumers)
