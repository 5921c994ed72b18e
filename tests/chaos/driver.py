"""One import on real servers, disturbed by faults from a seeded schedule, and judged at its end (see verdict)."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Protocol, cast

from pymongo.errors import PyMongoError
from redis.exceptions import RedisError

from streams_importer.adapters.redis_keys import GROUP, Keys
from streams_importer.domain.model import FINAL_STATES
from streams_importer.embedded.servers import EmbeddedServers
from streams_importer.embedded.stand_in import StandIn
from tests.e2e.fleet import KEY, PATIENCE_S, Fleet

from .crew import Crew, Member
from .observer import LEDGER, Observer
from .previous import PreviousVersion

IMPORT = "openchargemap"
LEASE_S = 1.0
PAGE_SIZE = 100


class Mongo(Protocol):
    def mongodb_uri_of(self, database: str) -> str: ...
    def kill_mongod(self) -> None: ...
    def start_mongod(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Pair:
    """What a fleet reads of its servers."""

    redis_url: str
    mongodb_uri_of: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Size:
    """Small enough for a test; slow enough that a fault finds requests under way."""

    points: int = 3000
    shard_size: int = 400
    workers: int = 2
    slots: int = 2
    answer_s: float = 0.1
    rate: str = "100/s"


class Driver:
    """From construction to `close()`: servers as given, everything else its own."""

    def __init__(self, servers: EmbeddedServers, mongo: Mongo, seed: int, size: Size | None = None) -> None:
        self.size = size or Size()
        self.seed = seed
        self.servers = servers
        self.mongo = mongo
        self.dice = random.Random(seed)
        self.keys = Keys().of(IMPORT)
        self.faults: list[tuple[str, float]] = []
        """Names, and when they ended."""
        self.slots_disturbed = 0
        """Each may repeat two requests: the page being stored and the one fetched ahead."""
        self.pages_in_doubt = 0
        """Pages that may have been stored twice: whether the first time was one was not told."""
        self.expected_seen = 0
        """Records of settled pages over all rounds."""
        self.is_first_round = True
        self.poisoned: set[str] = set()
        self.shards_beyond = 0
        """Planned by faults above the highest id, where nothing is."""
        self._stack = ExitStack()
        try:
            self._set_up(f"chaos_{uuid.uuid4().hex[:12]}")
        except BaseException:
            self.close()
            raise

    def _set_up(self, database: str) -> None:
        folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="chaos-")))
        self.poison_file = folder / "poison"
        self._previous_folder = folder / "previous"
        self._previous: PreviousVersion | None = None
        self.upstream = self._stack.enter_context(StandIn(self.size.points, self.seed, KEY))
        self.upstream.control.add_fault("slow", self.size.answer_s, times=None)
        pair = Pair(self.servers.redis_url, self.mongo.mongodb_uri_of)
        self.fleet = Fleet(cast(EmbeddedServers, pair), database, self.upstream)
        self._stack.callback(self.fleet.close)
        self._stack.callback(self._drop, database)
        self.fleet.redis.flushall()
        self.observer = Observer(self.mongo.mongodb_uri_of(database))
        self._stack.callback(self.observer.close)
        self.crew = Crew(
            self.fleet.environment,
            self.size.slots,
            redis_socket=self.servers.redis_url.removeprefix("unix://"),
            poison_file=self.poison_file,
        )
        self._stack.callback(self.crew.close)

    def _drop(self, database: str) -> None:
        with suppress(PyMongoError):  # a fault that was interrupted may have left it down
            self.fleet.mongo.drop_database(database)

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # The import.

    def produce(self, *arguments: str) -> None:
        plan = ["--shard-size", str(self.size.shard_size), "--page-size", str(PAGE_SIZE), "--rate", self.size.rate]
        self.fleet.run("produce", *plan, "--lease", f"{LEASE_S:g}s", "--retry-delay", "500ms", *arguments)
        self.expected_seen += self.size.points

    def start(self) -> None:
        self.produce()
        self.crew.start(self.size.workers)

    def finish(self, seconds: float = PATIENCE_S) -> None:
        """Until all is settled; then the workers are stopped."""
        self.crew.wait_until(self.is_over, "the import's end", seconds)
        self.crew.stop()

    def is_over(self) -> bool:
        """Settled in both stores."""
        if self.fleet.db[LEDGER].find_one({"status": {"$nin": list(FINAL_STATES)}}, {"_id": 1}) is not None:
            return False
        try:
            return self.fleet.redis.xlen(self.keys.shards) == 0 and self.fleet.redis.zcard(self.keys.delayed) == 0
        except RedisError:
            return False

    def wait_for_requests(self, more: int) -> bool:
        """False when the import was over before."""
        wanted = len(self.fleet.asked()) + more
        self.crew.wait_until(lambda: len(self.fleet.asked()) >= wanted or self.is_over(), f"{wanted} requests")
        return not self.is_over()

    def wait_for_movements(self, more: int) -> None:
        """Checkpoints and settlements, or the end of the import."""
        wanted = self.observer.movements + more
        self.crew.wait_until(lambda: self.observer.movements >= wanted or self.is_over(), f"{more} checkpoints")

    def inject(self, fault: Callable[[Driver], None]) -> None:
        fault(self)
        self.faults.append((fault.__name__, time.time()))

    # What faults need.

    def disturbed(self, *members: Member) -> None:
        """The slots of these workers may repeat what they had in hand."""
        self.slots_disturbed += len(members) * self.crew.slots
        self.in_doubt(*members)

    def in_doubt(self, *members: Member) -> None:
        """The slots of these workers may store a page once more."""
        self.pages_in_doubt += len(members) * self.crew.slots

    def some_member(self) -> Member:
        return self.dice.choice(self.crew.members)

    def busy_member(self) -> Member:
        """One that holds a shard; waited for."""
        found: list[Member] = []

        def is_found() -> bool:
            found[:] = [member for member in self.crew.members if self.held_by(member)]
            return bool(found) or self.is_over()

        self.crew.wait_until(is_found, "a worker with a shard in hand")
        return self.dice.choice(found or self.crew.members)

    def some_proxies(self) -> list[Member]:
        """One worker, or all of them."""
        return [self.some_member()] if self.dice.random() < 0.5 else list(self.crew.members)

    def held_by(self, member: Member) -> set[str]:
        """The shards that a worker owns just now."""
        return {shard for shard, consumer in self.owners().items() if consumer.startswith(f"{member.name}:")}

    def owners(self) -> dict[str, str]:
        """Shards on the stream and their consumers, as Redis has them."""
        try:
            pending: Any = self.fleet.redis.xpending_range(self.keys.shards, GROUP, "-", "+", 1000)
            messages: Any = self.fleet.redis.xrange(self.keys.shards, "-", "+")
        except RedisError:
            return {}
        entries = dict(messages)
        by_entry = {one["message_id"]: one["consumer"].decode() for one in pending}
        return {entries[entry][b"shard"].decode(): owner for entry, owner in by_entry.items() if entry in entries}

    def letters(self) -> list[tuple[bytes, dict[bytes, bytes]]]:
        found: Any = self.fleet.redis.xrange(self.keys.dead, "-", "+")
        return list(found)

    def previous(self) -> PreviousVersion:
        if self._previous is None:
            self._previous_folder.mkdir()
            self._previous = PreviousVersion(self._previous_folder)
        return self._previous

    def plan_beyond(self, shards: int) -> list[str]:
        """Axes of shards that nobody planned yet and that hold no points."""
        first = self.upstream.points.ids[-1] // self.size.shard_size + 1 + self.shards_beyond
        self.shards_beyond += shards
        low, high = first * self.size.shard_size, (first + shards) * self.size.shard_size
        return ["--id-range", f"{low}..{high}", "--shard-size", str(self.size.shard_size)]
