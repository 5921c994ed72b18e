"""What `doctor` looks at, in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from streams_importer.application.checkup import Facts
from streams_importer.application.checkup_ports import Fleet, Scanned
from streams_importer.application.examination import Parts
from streams_importer.application.recount import Recount
from streams_importer.application.shards import Shards
from streams_importer.application.snapshot import ImportStatus
from streams_importer.domain.errors import BadSetting, Unavailable
from tests.fakes.catalogue import FakeCatalogue
from tests.fakes.counters import FakeCounters
from tests.fakes.ledger import FakeLedger
from tests.fakes.places import FakePlaces
from tests.fakes.queue import FakeQueue
from tests.fakes.records import FakeRecords

REDIS_TELLS = {
    "redis_version": "7.0.15",
    "maxmemory_policy": "noeviction",
    "used_memory": 10,
    "maxmemory": 100,
    "aof_enabled": 1,
    "role": "master",
    "connected_clients": 1,
    "maxclients": 100,
}
MONGODB_TELLS = {
    "version": "6.0.5",
    "setName": "rs0",
    "members": 3,
    "connections_current": 1,
    "connections_available": 9,
    "fsUsedSize": 1,
    "fsTotalSize": 9,
}


class FakeServer:
    """Either server. While `away` is True it cannot be reached; `missing` are its indexes."""

    def __init__(self, name: str, told: Mapping[str, object]) -> None:
        self.name = name
        self.told = dict(told)
        self.away = False
        self.asked = 0
        self.missing: list[str] = []
        self.of_fleet = Fleet({"w:1": ["a"]}, longest_lease_s=15.0)
        self.found_keys: dict[str, list[str]] = {}

    def reach(self) -> None:
        self.asked += 1
        if self.away:
            raise Unavailable(self.name, "connection refused")

    def facts(self) -> Facts:
        self.reach()
        return Facts(self.told)

    def missing_indexes(self, collections: Sequence[str]) -> list[str]:
        self.reach()
        return self.missing

    def keys(self, imports: Sequence[str]) -> Iterator[Scanned]:
        self.reach()
        yield Scanned(1, self.found_keys)

    def fleet(self) -> Fleet:
        self.reach()
        return self.of_fleet

    def forget_gone(self) -> int:
        number, self.of_fleet = len(self.of_fleet.gone), Fleet(self.of_fleet.live)
        return number


class FakeScans:
    """Finds what tests put into `found`, by scan; a mending empties it. `refuses` are scans that Redis does not let happen."""

    def __init__(self) -> None:
        self.groups = {"a"}
        self.found: dict[str, dict[str, list[str]]] = {}
        self.refuses: set[str] = set()
        self.idle: list[str] = []
        self.mended: list[tuple[str, object]] = []

    def has_group(self, import_name: str) -> bool:
        return import_name in self.groups

    def entries(self, import_name: str) -> Iterator[Scanned]:
        return self._scan("entries")

    def places(self, import_name: str) -> Iterator[Scanned]:
        return self._scan("places")

    def delayed(self, import_name: str) -> Iterator[Scanned]:
        return self._scan("delayed")

    def progress(self, import_name: str) -> Iterator[Scanned]:
        return self._scan("progress")

    def pending(self, import_name: str, lease_s: float) -> Iterator[Scanned]:
        return self._scan("pending")

    def idle_consumers(self, import_name: str, live: Mapping[str, Sequence[str]]) -> list[str]:
        return self.idle

    def acknowledge_deleted(self, import_name: str, entries: Sequence[str]) -> int:
        return self._mend("pending", entries)

    def put_in_place(self, import_name: str, entries: Sequence[str]) -> int:
        return self._mend("entries", entries)

    def sweep(self, import_name: str, shards: Sequence[tuple[str, bool]]) -> int:
        swept = {shard for shard, _ in shards}
        for scan in ("places", "delayed", "progress"):
            if swept & {name for names in self.found.get(scan, {}).values() for name in names}:
                return self._mend(scan, shards)
        return 0

    def _scan(self, scan: str) -> Iterator[Scanned]:
        if scan in self.refuses:
            raise BadSetting("Redis refuses a command (WRONGTYPE)")
        found = self.found.get(scan, {})
        yield Scanned(sum(map(len, found.values())), found)

    def _mend(self, scan: str, names: Sequence[object]) -> int:
        self.mended.append((scan, list(names)))
        self.found.pop(scan, None)
        return len(names)


class Patient:
    """Both stores with one import `a` in good health, open to tests."""

    def __init__(self) -> None:
        self.redis, self.mongo = FakeServer("Redis", REDIS_TELLS), FakeServer("MongoDB", MONGODB_TELLS)
        self.scans = FakeScans()
        self.original, self.copy = FakeCatalogue(), FakeCatalogue()
        self.queue, self.ledger, self.counters = FakeQueue(), FakeLedger(), FakeCounters()
        self.set_up: list[str] = []
        self.is_being_produced = False
        self.letters_lost = 0
        self.counters.fields["a"] = {"since": "2026-02-21T12:00:00Z"}

    @property
    def parts(self) -> Parts:
        return Parts(
            redis=self.redis,
            mongo=self.mongo,
            scans=self.scans,
            mending=self.scans,
            original=self.original,
            copy=self.copy,
            queue=self.queue,
            ledger=self.ledger,
            shards=Shards(FakeRecords(self.ledger), FakePlaces(self.queue.store)),
            recount=Recount(self.ledger, self.counters),
            status=self._status,
            set_up=self._make_group,
            restore_letters=lambda _: self.letters_lost,
        )

    def _make_group(self, name: str) -> None:
        self.set_up.append(name)
        self.scans.groups.add(name)

    def _status(self, name: str) -> ImportStatus:
        self.redis.reach()
        queued = sum(entry.import_name == name for entry in self.queue.store.entries.values())
        produced = self.is_being_produced
        numbers = (queued, 0, 0, len(self.queue.store.letters), 0, 0, 0, 0, queued, None)
        return ImportStatus(*numbers, records={}, requests={}, since=None, dead_lettered=0, is_being_produced=produced)
