"""The read side: one snapshot of everything, in a fixed number of calls however many shards there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from ..application.snapshot import ImportStatus, RunStatus
from ..domain.model import FINAL_STATES, RECORD_COUNTS, REQUEST_COUNTS
from .redis_client import redis_errors
from .redis_keys import GROUP, NEWER, RELEASED, Keys
from .redis_messages import text

PRODUCER_S = 5
"""A producer says twice a second that it is there; one that was killed is not waited for longer than this."""


class RedisBoard:
    def __init__(self, client: redis.Redis, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    def read(self, imports: Sequence[str]) -> dict[str, ImportStatus]:
        with redis_errors():
            pipe = self._client.pipeline(transaction=False)
            for name in imports:
                keys = self._keys.of(name)
                pipe.xlen(keys.shards)
                pipe.xpending(keys.shards, GROUP)
                pipe.zcard(keys.delayed)
                pipe.xlen(keys.dead)
                pipe.hgetall(keys.counters)
            pipe.time()
            *replies, now = pipe.execute(raise_on_error=False)
            if isinstance(now, Exception):
                raise now
            return {name: _status(int(now[0]), *replies[i * 5 : i * 5 + 5]) for i, name in enumerate(imports)}


def _status(now_s: int, length: Any, pending: Any, delayed: Any, dead: Any, counters: Any) -> ImportStatus:
    for reply in (length, delayed, dead, counters):
        if isinstance(reply, Exception):
            raise reply
    # Without the group nothing is pending.
    by_consumer = {} if isinstance(pending, Exception) else {text(c["name"]): int(c["pending"]) for c in pending["consumers"]}
    leased = sum(number for name, number in by_consumer.items() if name not in (RELEASED, NEWER))
    values = {text(name): text(value) for name, value in counters.items()}

    def number(name: str) -> int:
        try:
            return int(values.get(name, "0"))
        except ValueError:
            return 0

    states = {state: number(state) for state in FINAL_STATES}
    queued = max(0, int(length) - leased)
    return ImportStatus(
        queued=queued,
        leased=leased,
        delayed=int(delayed),
        dead=int(dead),
        done=states["done"],
        failed=states["failed"],
        split=states["split"],
        cancelled=states["cancelled"],
        total=queued + leased + int(delayed) + sum(states.values()),
        run=_run(values, number) if "run" in values else None,
        records={name: number(name) for name in RECORD_COUNTS},
        requests={name: number(f"requests_{name}") for name in REQUEST_COUNTS},
        since=values.get("since"),
        dead_lettered=number("dead_lettered"),
        moved_ms=number("moved") // 1000 or None,
        is_being_produced=abs(now_s - number("producing")) <= PRODUCER_S,
    )


def _run(values: dict[str, str], number: Any) -> RunStatus:
    return RunStatus(
        id=values["run"],
        started=values.get("run_started"),
        finished=values.get("run_finished"),
        total=number("run_total"),
        done=number("run_done"),
        failed=number("run_failed"),
    )
