"""The only place that builds adapters and puts them together."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from pymongo.database import Database
from redis import Redis

from .adapters import mongo_client, redis_client
from .adapters.http import HttpClient
from .adapters.mongo_catalogue import MongoCatalogue
from .adapters.mongo_ledger import MongoLedger
from .adapters.mongo_setup import set_up
from .adapters.mongo_sink import MongoSink
from .adapters.redis_board import RedisBoard
from .adapters.redis_budget import RedisBudget, fingerprint
from .adapters.redis_cache import RedisCache
from .adapters.redis_catalogue import RedisCatalogue
from .adapters.redis_control import ControlListener
from .adapters.redis_keys import Keys
from .adapters.redis_queue import RedisQueue, consumer_name
from .adapters.redis_workers import RedisWorkers
from .adapters.upstream import HttpUpstream
from .application.cancellation import CancelToken
from .application.consumer import Consumer, WorkerParts, lease_until
from .application.housekeeper import Housekeeper
from .application.imports import Imports
from .application.lease_keeper import LeaseKeeper
from .application.outages import Outages
from .application.producer import Producer
from .application.settlement import Settlement
from .application.shard_importer import ShardImporter
from .application.snapshot import Snapshot, WorkerStatus
from .domain.definition import Definition
from .domain.errors import BadSetting
from .domain.model import Counts, Page
from .ports import EventSink, Sink, Source
from .settings import Servers, Upstreams
from .sources.openchargemap import OpenChargeMap

ALIVE_S = 10.0
"""A worker that has not beaten for this long, or for two leases, looks dead."""


class Wiring:
    """Everything one command needs, built when first asked for."""

    def __init__(self, servers: Servers, upstreams: Upstreams, namespace: str, events: EventSink) -> None:
        self._servers = servers
        self.upstreams = upstreams
        self._namespace = namespace
        self.keys = Keys(namespace)
        self.events = events
        self.outages = Outages(events)
        self._budgets: dict[str, RedisBudget] = {}
        self._sources: dict[tuple[str, int], Source] = {}
        self._lock = threading.Lock()
        self.http_connections = 4

    def connect_redis(self, max_connections: int) -> Redis:
        servers = self._servers
        return redis_client.connect(
            servers.redis_url,
            max_connections=max_connections,
            tls_verify=servers.redis_tls_verify,
            ca_file=servers.redis_ca_file,
        )

    @cached_property
    def redis(self) -> Redis:
        """Two connections for all slots together: a worker has four at most, with the keeper's and the listener's."""
        return self.connect_redis(2)

    @cached_property
    def database(self) -> Database[dict[str, Any]]:
        return mongo_client.connect(self._servers.mongodb_uri)

    @cached_property
    def ledger(self) -> MongoLedger:
        return MongoLedger(self.database, self._namespace)

    @cached_property
    def imports(self) -> Imports:
        return Imports(MongoCatalogue(self.database, self._namespace), RedisCatalogue(self.redis, self.keys), self.events)

    @cached_property
    def workers(self) -> RedisWorkers:
        return RedisWorkers(self.redis, self.keys)

    @cached_property
    def board(self) -> RedisBoard:
        return RedisBoard(self.redis, self.keys)

    @cached_property
    def _http(self) -> HttpClient:
        return HttpClient(pool_size=self.http_connections)

    def queue(self, label: str, client: Redis | None = None) -> RedisQueue:
        return RedisQueue(client or self.redis, self.keys, consumer_name(label, secrets.token_hex(4)))

    def producer(self) -> Producer:
        return Producer(self.queue("produce"), self.ledger)

    def set_up(self, definition: Definition) -> None:
        """Indexes and group of one import; safe to repeat, and by many at a time."""
        set_up(self.database, definition.collection)
        self.queue("setup").set_up(definition.name)

    def check_servers(self) -> None:
        """Both answer, and Redis is new enough for leases to be reclaimed (XAUTOCLAIM)."""
        with redis_client.redis_errors():
            version = str(self.redis.info("server")["redis_version"])
        if tuple(int(part) for part in version.split(".")[:2]) < (6, 2):
            raise BadSetting(f"Redis {version} is too old: 6.2 or newer is needed")
        with mongo_client.mongo_errors():
            self.database.command("ping")

    def source_of(self, definition: Definition) -> Source:
        """Sources share the budget of their upstream and key; a changed limit reaches it here."""
        budget = self._budget_of(definition)
        budget.change_limit(definition.limit)
        with self._lock:
            source = self._sources.get((budget.name, definition.page_size))
            if source is None:
                upstream = HttpUpstream(self._http, self.upstreams.ocm_base_url, budget, self.upstreams.ocm_api_key)
                cache = RedisCache(
                    self.redis, self.keys, fingerprint(self._namespace, definition.source, self.upstreams.ocm_base_url)
                )
                source = self._sources[budget.name, definition.page_size] = OpenChargeMap(upstream, cache, definition.page_size)
            return source

    def _budget_of(self, definition: Definition) -> RedisBudget:
        name = fingerprint(self._namespace, definition.source, self.upstreams.ocm_api_key)
        with self._lock:
            if name not in self._budgets:
                self._budgets[name] = RedisBudget(self.redis, self.keys, name, definition.limit)
            return self._budgets[name]

    def heard(self, message: str) -> None:
        with self._lock:
            budgets = list(self._budgets.values())
        for budget in budgets:
            budget.heard(message)

    def snapshot(self, wanted: Sequence[str] = ()) -> Snapshot:
        definitions = self.imports.served(wanted)
        paused = self.imports.paused()
        statuses = self.board.read(list(definitions))
        now = self.workers.now_ms()
        beats = self.workers.all()
        imports = {}
        for name, status in statuses.items():
            imports[name] = status.with_settings(paused.get(name), str(definitions[name].limit))
        workers = [
            WorkerStatus(name, beat.imports, beat.leases, max(0.0, (now - beat.seen_ms) / 1000), beat.records_per_s)
            for name, beat in sorted(beats.items())
        ]
        return Snapshot(imports, workers, {name: self._budget_of(definitions[name]).held_for_s() for name in imports})

    def live_leases(self) -> dict[str, float]:
        """Live workers and the longest lease each announced."""
        now = self.workers.now_ms()
        return {
            name: beat.lease_s
            for name, beat in self.workers.all().items()
            if now - beat.seen_ms < max(ALIVE_S, 2 * beat.lease_s) * 1000
        }

    def forget_dead_workers(self) -> None:
        alive = self.live_leases()
        self.workers.forget([name for name in self.workers.all() if name not in alive])


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
        self._meter = RecordMeter()
        wiring.http_connections = concurrency
        queue = wiring.queue(label)
        keeper_client = wiring.connect_redis(1)
        keeper_queue = RedisQueue(keeper_client, wiring.keys, queue.consumer)
        self._beats = RedisWorkers(keeper_client, wiring.keys)
        self._queue = queue
        self._keeper = LeaseKeeper(keeper_queue, wiring.outages, self._beat, self._longest_lease)
        sink: Sink = _MeteredSink(MongoSink(wiring.database), self._meter)
        ahead = ThreadPoolExecutor(concurrency, thread_name_prefix="fetch")
        parts = WorkerParts(
            queue=queue,
            ledger=wiring.ledger,
            imports=wiring.imports,
            settlement=Settlement(queue, wiring.ledger, wiring.events),
            importer=ShardImporter(queue, wiring.ledger, sink, wiring.outages, ahead, lease_until),
            keeper=self._keeper,
            housekeeper=Housekeeper(queue, wiring.ledger, wiring.outages, wiring.live_leases, wiring.forget_dead_workers),
            outages=wiring.outages,
            events=wiring.events,
            source_of=wiring.source_of,
        )
        self.consumer = Consumer(
            parts, stop, wanted=wanted, concurrency=concurrency, shutdown_timeout_s=shutdown_timeout_s, adjust=adjust
        )
        self.housekeeper = parts.housekeeper
        self._listener = ControlListener(wiring.connect_redis(1), wiring.keys, self._heard)

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
        for name in self.consumer.definitions:
            self._queue.reap(name, [self._queue.consumer])
        self._beats.forget([self._queue.consumer])
        return ended

    def _heard(self, message: str) -> None:
        self._wiring.heard(message)
        self.consumer.heard(message)

    def _longest_lease(self) -> float:
        leases = [definition.lease_s for definition in self.consumer.definitions.values()]
        return max(leases, default=15.0)

    def _beat(self, leases: int) -> None:
        names = sorted(self.consumer.definitions)
        self._beats.beat(self._queue.consumer, names, leases, self._longest_lease(), self._meter.per_second())


class RecordMeter:
    """Records a second since it was last asked."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._count = 0
        self._asked = clock()

    def add(self, number: int) -> None:
        self._count += number

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
