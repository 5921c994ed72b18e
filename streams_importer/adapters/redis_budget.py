"""One budget of requests for the whole fleet, on Redis' clock."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import redis

from ..domain.errors import Cancelled
from ..domain.rates import Limit
from ..ports import Cancel
from .lua_scripts import LuaScripts, read_part
from .redis_client import redis_errors
from .redis_keys import Keys

SHORTEST_TOLERANCE_S = 0.002
"""Below this a sleep cannot be told from a late one; a slot overslept by more than its spacing, or this, is thrown away."""

SLOWEST_REPLY_S = 0.1
"""A reply that took longer than this (and than the spacing, and than the way to Redis takes anyhow) may be old: the process could
have stood still meanwhile."""

REPLIES_COMPARED = 8

HOLD_MESSAGE = "hold:"


def fingerprint(namespace: str, source: str, secret: str | None) -> str:
    """Names a budget without telling the key: a keyed hash of source and API key."""
    digest = hashlib.blake2b(digest_size=8, key=f"streams-importer:{namespace}".encode()[:64])
    digest.update(f"{source}\0{secret or ''}".encode())
    return digest.hexdigest()


class RedisBudget:
    """Implements ports.RequestBudget. Every caller reserves its own slot, sleeps once and goes."""

    def __init__(
        self,
        client: redis.Redis,
        keys: Keys,
        name: str,
        limit: Limit,
        *,
        clock: Callable[[], float] = time.monotonic,
        read: Callable[[str], str] = read_part,
    ) -> None:
        self._client = client
        self._scripts = LuaScripts(client, read)
        self._key = keys.budget(name)
        self._channel = keys.control
        self.name = name
        self._limit = limit
        self._clock = clock
        self._replies_s: deque[float] = deque(maxlen=REPLIES_COMPARED)
        self._sleepers: set[threading.Event] = set()
        self._lock = threading.Lock()

    def take(self, cancel: Cancel) -> int:
        while True:
            if cancel.cancelled:
                raise Cancelled("cancelled while waiting for a token")
            slot = self._reserve_and_sleep(cancel)
            if slot is not None:
                return slot

    def _reserve_and_sleep(self, cancel: Cancel) -> int | None:
        """None when the slot must not be used: woken by a hold or a cancel, or too late for it."""
        spacing_us = self._limit.spacing_us
        spacing_s = spacing_us / 1_000_000
        with self._alarm(cancel) as alarm:
            # The alarm is set up before the reservation, so that no hold falls between the two.
            asked = self._clock()
            with redis_errors():
                slot, wait_us = self._scripts.run("take_token", [self._key], [spacing_us])
            answered = self._clock()
            wait_s = int(wait_us) / 1_000_000
            woken = alarm.wait(wait_s) if wait_s > 0 else alarm.is_set()
        overslept = self._clock() - answered - wait_s
        is_fresh = self._is_fresh(answered - asked, spacing_s)
        is_usable = not woken and is_fresh and overslept <= max(spacing_s, SHORTEST_TOLERANCE_S)
        return int(slot) if is_usable else None

    def _is_fresh(self, took_s: float, spacing_s: float) -> bool:
        """Where Redis is far away every reply is slow, and the fastest of the last ones tells how far."""
        usual_s = min(self._replies_s, default=0.0)
        self._replies_s.append(took_s)
        return took_s <= max(spacing_s, SLOWEST_REPLY_S, 2 * usual_s)

    @contextmanager
    def _alarm(self, cancel: Cancel) -> Iterator[threading.Event]:
        """Goes off when the call is cancelled or the slots are void."""
        alarm = threading.Event()
        with self._lock:
            self._sleepers.add(alarm)
        forget = cancel.on_cancel(alarm.set)
        try:
            yield alarm
        finally:
            forget()
            with self._lock:
                self._sleepers.discard(alarm)

    def hold(self, seconds: float) -> None:
        with redis_errors():
            is_held = self._scripts.run(
                "hold_budget", [self._key], [round(seconds * 1_000_000), self._channel, HOLD_MESSAGE + self.name]
            )
        if is_held:
            self.void_slots()

    def held_for_s(self) -> float:
        """How long nobody is granted anything from now on."""
        with redis_errors():
            hold = self._client.hget(self._key, "hold")
            seconds, micros = self._client.time()
        try:
            return max(0.0, int(hold or 0) / 1_000_000 - (int(seconds) + int(micros) / 1_000_000))
        except ValueError:
            return 0.0

    def void_slots(self) -> None:
        """Wakes everybody who sleeps towards a slot, to take another one: a hold has begun or the limit has changed."""
        with self._lock:
            for sleeper in self._sleepers:
                sleeper.set()

    def heard(self, message: str) -> None:
        """A message of the control channel."""
        if message == HOLD_MESSAGE + self.name:
            self.void_slots()

    def change_limit(self, limit: Limit) -> None:
        if limit != self._limit:
            self._limit = limit
            self.void_slots()
