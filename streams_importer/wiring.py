"""The only place that builds adapters and puts them together."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

from pymongo.database import Database
from redis import Redis

from .adapters import mongo_client, redis_client
from .adapters.data_files import DataFolder
from .adapters.http import HttpClient
from .adapters.mongo_catalogue import MongoCatalogue
from .adapters.mongo_checkup import MongoCheckup
from .adapters.mongo_ledger import MongoLedger
from .adapters.mongo_setup import set_up
from .adapters.mongo_shards import MongoShards
from .adapters.redis_board import RedisBoard
from .adapters.redis_budget import RedisBudget, fingerprint
from .adapters.redis_cache import RedisCache
from .adapters.redis_catalogue import RedisCatalogue
from .adapters.redis_checkup import RedisCheckup
from .adapters.redis_counters import RedisCounters
from .adapters.redis_keys import Keys
from .adapters.redis_letters import RedisLetters
from .adapters.redis_mending import RedisMending
from .adapters.redis_places import RedisPlaces
from .adapters.redis_queue import RedisQueue, consumer_name
from .adapters.redis_scans import RedisScans
from .adapters.redis_workers import RedisWorkers
from .adapters.upstream import HttpUpstream
from .application.cancellation import CancelToken
from .application.canceller import Canceller
from .application.examination import Parts
from .application.healer import Healer
from .application.imports import Imports
from .application.letters import Purger, restore_letters
from .application.outages import Outages
from .application.producer import Producer
from .application.recount import Recount
from .application.replayer import Replayer
from .application.shards import Shards
from .application.snapshot import Snapshot, WorkerStatus
from .domain.definition import Definition
from .domain.errors import BadSetting
from .domain.rates import Limit
from .ports import EventSink, Source
from .settings import Servers, Upstreams, learn_secrets
from .sources.openchargemap import OpenChargeMap

ALIVE_S = 5.0
"""A worker that has not beaten for this long, or for two leases, looks dead."""


class Wiring:
    """Everything one command needs, built when first asked for."""

    def __init__(self, servers: Servers, upstreams: Upstreams, namespace: str, events: EventSink, *, data_dir: str = ".") -> None:
        # Once more: not everybody comes by way of the command line.
        told = {"OCM_API_KEY": upstreams.ocm_api_key or "", "REDIS_URL": servers.redis_url, "MONGODB_URI": servers.mongodb_uri}
        learn_secrets(told)
        self.servers = servers
        self.upstreams = upstreams
        self.data_dir = data_dir
        self.namespace = namespace
        self.keys = Keys(namespace)
        self.events = events
        self.outages = Outages(events)
        self._budgets: dict[str, RedisBudget] = {}
        self._limits: dict[str, dict[str, Limit]] = {}
        """Imports with the same upstream and key share a budget; the strictest of their limits holds."""
        self._sources: dict[tuple[str, int], Source] = {}
        self._lock = threading.Lock()
        self.http_connections = 4
        self.redis_connections = 2

    def connect_redis(self, max_connections: int) -> Redis:
        servers = self.servers
        return redis_client.connect(
            servers.redis_url,
            max_connections=max_connections,
            tls_verify=servers.redis_tls_verify,
            ca_file=servers.redis_ca_file,
        )

    def close(self) -> None:
        """Whatever was opened."""
        for name in ("redis", "database", "_http"):
            opened = self.__dict__.get(name)
            if isinstance(opened, Redis):
                opened.connection_pool.disconnect()
            elif isinstance(opened, Database):
                opened.client.close()
            elif isinstance(opened, HttpClient):
                opened.close()

    @cached_property
    def redis(self) -> Redis:
        """Two connections for all slots together: a worker has four at most, with the keeper's and the listener's."""
        return self.connect_redis(self.redis_connections)

    @cached_property
    def database(self) -> Database[dict[str, Any]]:
        return mongo_client.connect(self.servers.mongodb_uri)

    @cached_property
    def ledger(self) -> MongoLedger:
        return MongoLedger(self.database, self.namespace)

    @cached_property
    def imports(self) -> Imports:
        return Imports(MongoCatalogue(self.database, self.namespace), RedisCatalogue(self.redis, self.keys), self.events)

    @cached_property
    def workers(self) -> RedisWorkers:
        return RedisWorkers(self.redis, self.keys)

    @cached_property
    def board(self) -> RedisBoard:
        return RedisBoard(self.redis, self.keys)

    @cached_property
    def shards(self) -> Shards:
        return Shards(MongoShards(self.database, self.namespace), RedisPlaces(self.redis, self.keys))

    @cached_property
    def letters(self) -> RedisLetters:
        return RedisLetters(self.redis, self.keys)

    @cached_property
    def _http(self) -> HttpClient:
        return HttpClient(hosts=self.upstreams.hosts, pool_size=self.http_connections)

    @cached_property
    def data_files(self) -> DataFolder:
        """Where files that a definition names are looked for."""
        return DataFolder(self.data_dir)

    def queue(self, label: str, client: Redis | None = None) -> RedisQueue:
        return RedisQueue(client or self.redis, self.keys, consumer_name(label, secrets.token_hex(4)))

    @cached_property
    def counters(self) -> RedisCounters:
        return RedisCounters(self.redis, self.keys)

    @cached_property
    def recount(self) -> Recount:
        return Recount(self.ledger, self.counters)

    def producer(self, room_for: Callable[[int], int]) -> Producer:
        """Once it has begun it waits for servers that are away or full."""
        never = CancelToken()
        return Producer(
            self.queue("produce"), self.ledger, self.recount, room_for, lambda action: self.outages.patiently(never, action)
        )

    def canceller(self, progress: Callable[[int], None]) -> Canceller:
        return Canceller(self.queue("cancel"), self.recount, self.shards, progress)

    def healer(self, queue: RedisQueue) -> Healer:
        restore = partial(restore_letters, self.letters, self.shards.records)
        return Healer(queue, self.ledger, self.counters, self.events, lambda: self.workers.server()[0], restore)

    def replayer(self, progress: Callable[[int], None]) -> Replayer:
        return Replayer(self.letters, self.ledger, self.shards, self.recount, progress)

    def purger(self, progress: Callable[[int], None]) -> Purger:
        return Purger(self.letters, progress)

    @cached_property
    def examined(self) -> Parts:
        """What `doctor` looks at."""
        queue = self.queue("doctor")
        return Parts(
            redis=RedisCheckup(self.redis, self.keys, self.workers, self.live_leases),
            mongo=MongoCheckup(self.database),
            scans=RedisScans(self.redis, self.keys),
            mending=RedisMending(self.redis, self.keys),
            original=MongoCatalogue(self.database, self.namespace),
            copy=RedisCatalogue(self.redis, self.keys),
            queue=queue,
            ledger=self.ledger,
            shards=self.shards,
            recount=self.recount,
            status=lambda name: self.board.read([name])[name],
            set_up=queue.set_up,
            restore_letters=partial(restore_letters, self.letters, self.shards.records),
        )

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
        with self._lock:
            limits = self._limits.setdefault(budget.name, {})
            limits[definition.name] = definition.limit
            strictest = max(limits.values(), key=lambda limit: limit.spacing_us)
        budget.change_limit(strictest)
        with self._lock:
            source = self._sources.get((budget.name, definition.page_size))
            if source is None:
                upstream = HttpUpstream(self._http, self.upstreams.ocm_base_url, budget, self.upstreams.ocm_api_key)
                cache = RedisCache(
                    self.redis, self.keys, fingerprint(self.namespace, definition.source, self.upstreams.ocm_base_url)
                )
                source = self._sources[budget.name, definition.page_size] = OpenChargeMap(upstream, cache, definition.page_size)
            return source

    def _budget_of(self, definition: Definition) -> RedisBudget:
        name = fingerprint(self.namespace, definition.source, self.upstreams.ocm_api_key)
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
            imports[name] = status.with_settings(paused.get(name), definitions[name])
        workers = [
            WorkerStatus(name, beat.imports, beat.leases, max(0.0, (now - beat.seen_ms) / 1000), beat.records_per_s)
            for name, beat in sorted(beats.items())
        ]
        held = {name: self._budget_of(definitions[name]).held_for_s() for name in imports}
        return Snapshot(imports, workers, held, now)

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
        self.workers.forget_unbelievable()
