"""A worker process: the parts of one, put together on top of the wiring."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from .adapters.child_process import ChildProcess
from .adapters.mongo_sink import MongoSink
from .adapters.redis_budget import HOLD_MESSAGE
from .adapters.redis_control import ControlListener
from .adapters.redis_queue import RedisQueue
from .adapters.redis_workers import RedisWorkers
from .apart_process import launch
from .application.apart import ApartImporter
from .application.cancellation import CancelToken
from .application.consumer import CANCEL, Consumer, WorkerParts
from .application.every import Every
from .application.housekeeper import Housekeeper
from .application.intake import lease_until
from .application.lease_keeper import LeaseKeeper
from .application.settlement import Settlement
from .application.shard_importer import ShardImporter
from .domain.definition import Definition
from .domain.errors import Unavailable
from .domain.model import Counts, Lease, Page
from .ports import Sink
from .wiring import Wiring

SUMMARY_S = 60.0
"""A long import is never silent for longer than this."""


class Worker:
    """A worker process: consumer, keeper, control listener, and their connections."""

    def __init__(
        self,
        wiring: Wiring,
        stop: CancelToken,
        *,
        label: str,
        wanted: Sequence[str],
        concurrency: int,
        shutdown_timeout_s: float,
        adjust: Callable[[Definition], Definition],
    ) -> None:
        self._wiring = wiring
        self._stop = stop
        self.error: Exception | None = None
        self._meter = RecordMeter()
        self._summary = Every(SUMMARY_S)
        wiring.http_connections = concurrency
        queue = wiring.queue(label)
        keeper_client = wiring.connect_redis(1)
        keeper_queue = RedisQueue(keeper_client, wiring.keys, queue.consumer)
        self._beats = RedisWorkers(keeper_client, wiring.keys)
        self._queue = queue
        self._keeper = LeaseKeeper(keeper_queue, wiring.outages, self._beat, self._longest_lease, self._failed)
        sink: Sink = _MeteredSink(MongoSink(wiring.database), self._meter)
        self._apart = ApartImporter(queue, wiring.ledger, wiring.outages, self._launch, self._rates)
        ahead = ThreadPoolExecutor(concurrency, thread_name_prefix="fetch")
        parts = WorkerParts(
            queue=queue,
            ledger=wiring.ledger,
            imports=wiring.imports,
            settlement=Settlement(queue, wiring.ledger, wiring.events),
            importer=ShardImporter(queue, wiring.ledger, sink, wiring.outages, ahead, lease_until),
            keeper=self._keeper,
            apart=self._apart,
            housekeeper=Housekeeper(
                queue, wiring.outages, wiring.live_leases, wiring.forget_dead_workers, lambda: wiring.workers.server()[1]
            ),
            healer=wiring.healer(queue),
            outages=wiring.outages,
            events=wiring.events,
            source_of=wiring.source_of,
        )
        self.consumer = Consumer(
            parts, stop, wanted=wanted, concurrency=concurrency, shutdown_timeout_s=shutdown_timeout_s, adjust=adjust
        )
        self.healer = parts.healer
        self._listener = ControlListener(wiring.connect_redis(1), wiring.keys, self._heard, self._failed)

    @property
    def name(self) -> str:
        return self._queue.consumer

    def start(self) -> None:
        self._keeper.start()
        self._listener.start()

    def close(self) -> bool:
        """Gives everything back and signs off. Returns whether all slots ended."""
        ended = self.consumer.drain()
        self._keeper.stop()
        self._listener.stop()
        with suppress(Unavailable):  # then others will tidy up
            for name in self.consumer.definitions:
                self._queue.reap(name, [self._queue.consumer])
            self._beats.forget([self._queue.consumer])
        return ended

    def _launch(self, lease: Lease, definition: Definition) -> ChildProcess:
        return launch(self._wiring, lease, definition, self.consumer.definitions)

    def _rates(self) -> dict[str, str]:
        return {name: definition.rate for name, definition in self.consumer.definitions.items()}

    def _failed(self, error: Exception) -> None:
        """A thread that a worker cannot do without has ended: the worker stops, and says why."""
        self.error = error
        self._stop.cancel("failed")

    def _heard(self, message: str) -> None:
        self._wiring.heard(message)
        if message.startswith(HOLD_MESSAGE):  # all that a child listens for
            self._apart.heard(message)
        self.consumer.heard(message)
        if message == CANCEL:
            self._keeper.hurry()

    def _longest_lease(self) -> float:
        leases = [definition.lease_s for definition in self.consumer.definitions.values()]
        return max(leases, default=0.0)

    def _beat(self, leases: int) -> None:
        if self._summary.is_due():
            self._wiring.events("at work" if leases else "waiting for work", shards=leases, records_so_far=self._meter.total)
        names = sorted(self.consumer.definitions)
        self._beats.beat(self._queue.consumer, names, leases, self._longest_lease(), self._meter.per_second())


class RecordMeter:
    """Records a second since it was last asked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._count = 0
        self.total = 0
        self._asked = clock()

    def add(self, number: int) -> None:
        self._count += number
        self.total += number

    def per_second(self) -> float:
        now = self._clock()
        count, self._count = self._count, 0
        elapsed, self._asked = now - self._asked, now
        return count / elapsed if elapsed > 0 else 0.0


class _MeteredSink:
    def __init__(self, sink: Sink, meter: RecordMeter) -> None:
        self._sink = sink
        self._meter = meter

    def store(self, definition: Definition, shard_key: str, page: Page) -> Counts:
        counts = self._sink.store(definition, shard_key, page)
        self._meter.add(counts.seen)
        return counts
