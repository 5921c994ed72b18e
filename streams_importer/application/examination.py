"""What an examination looks at, and how it looks: a look may fail, and says so instead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from ..domain.errors import Full, ImporterError, Unavailable
from ..domain.text import plain
from ..ports import Catalogue, Ledger, ShardQueue
from .checkup import Hidden, Sample
from .checkup_ports import Mending, MongoServer, RedisServer, Scanned, Scans
from .import_checkup import Tally
from .recount import Recount
from .shards import Shards
from .snapshot import ImportStatus

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parts:
    """What is looked at, and through what."""

    redis: RedisServer
    mongo: MongoServer
    scans: Scans
    mending: Mending
    original: Catalogue
    copy: Catalogue
    queue: ShardQueue
    ledger: Ledger
    shards: Shards
    recount: Recount
    status: Callable[[str], ImportStatus]
    set_up: Callable[[str], None]
    """Makes the consumer group of an import."""
    restore_letters: Callable[[str], int]
    """Writes dead letters again that were lost together with the counters."""


@dataclass(slots=True)
class Eyes:
    """Looks that may fail. A server that was met as away is not asked again: that would take its time at every check."""

    progress: Callable[[int], None] = lambda number: None
    away: set[str] = field(default_factory=set)
    looked_at: int = 0

    def look(self, action: Callable[[], T], *servers: str) -> T | Hidden:
        """`servers` that the action needs. What it cannot see, it says instead."""
        for server in servers:
            if server in self.away:
                return Hidden(f"{server} cannot be reached")
        try:
            return action()
        except ImporterError as error:
            if isinstance(error, Unavailable) and not isinstance(error, Full):
                self.away.add(error.server)
            return Hidden(plain(str(error), 300))

    def tally(self, scan: Iterable[Scanned]) -> Tally:
        found: defaultdict[str, Sample] = defaultdict(Sample)
        for batch in scan:
            for kind, names in batch.found.items():
                found[kind].add(names)
            self.looked_at += batch.number
            self.progress(self.looked_at)
        return found
