"""Looks at both servers, every import and the fleet, and says of each what is right, what is wrong and what cannot be seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ..domain.errors import BadSetting
from . import checkup, server_checkup
from . import import_checkup as judge
from .checkup import FLEET, MONGODB, REDIS, Facts, Finding, Hidden, Sample, Verdict, judged
from .checkup_ports import STRANGER, Fleet, MongoServer, RedisServer
from .examination import Eyes, Parts
from .import_checkup import Tally
from .import_doctor import ImportDoctor, stored

REDIS_CHECKS: dict[str, Callable[[Facts], Verdict]] = {
    "version": server_checkup.redis_version,
    "eviction": server_checkup.eviction,
    "memory": server_checkup.memory,
    "persistence": server_checkup.persistence,
    "role": server_checkup.role,
    "clients": server_checkup.clients,
}
MONGODB_CHECKS: dict[str, Callable[[Facts], Verdict]] = {
    "version": server_checkup.mongodb_version,
    "replica set": server_checkup.replica_set,
    "connections": server_checkup.mongodb_connections,
    "storage": server_checkup.storage,
}


class Doctor:
    def __init__(self, parts: Parts, progress: Callable[[int], None] = lambda number: None) -> None:
        """`progress` is told how many things were looked at so far."""
        self._parts = parts
        self._progress = progress
        self._eyes = Eyes(progress)

    def examine(self, wanted: Sequence[str] = ()) -> list[Finding]:
        """All imports, or the wanted ones. Raises BadSetting for one that is defined nowhere."""
        self._eyes = Eyes(self._progress)
        findings = [
            *self._server(REDIS, self._parts.redis, REDIS_CHECKS),
            *self._server(MONGODB, self._parts.mongo, MONGODB_CHECKS),
        ]
        known = self._names()
        names = list(wanted) or known.names
        if known.is_all and any(name not in known.names for name in names):
            unknown = next(name for name in names if name not in known.names)
            raise BadSetting(f"there is no import {unknown!r}; doctor without a name looks at all")
        findings.append(Finding(MONGODB, "indexes", judged(self._missing_indexes(names), server_checkup.indexes)))
        fleet = self._eyes.look(self._parts.redis.fleet, REDIS)
        for name in names:
            findings += ImportDoctor(self._parts, self._eyes, fleet).examine(name)
        return [*findings, *self._fleet(names, known, fleet)]

    # Servers.

    def _server(
        self, area: str, server: RedisServer | MongoServer, checks: dict[str, Callable[[Facts], Verdict]]
    ) -> Iterator[Finding]:
        reached = self._eyes.look(server.reach, area)
        if isinstance(reached, Hidden):
            self._eyes.away.add(area)
            setting = "--redis-url" if area == REDIS else "--mongodb-uri"
            yield Finding(area, "reachable", checkup.wrong(reached.reason, f"start it, or name another with {setting}"))
        else:
            yield Finding(area, "reachable", checkup.ok("answers"))
        facts = self._eyes.look(server.facts, area)
        for name, check in checks.items():
            yield Finding(area, name, judged(facts, check))

    def _missing_indexes(self, names: Sequence[str]) -> list[str] | Hidden:
        found = [self._eyes.look(partial(stored, self._parts.original, name), MONGODB) for name in names]
        definitions = [one.definition for one in found if not isinstance(one, Hidden)]
        collections = sorted({one.collection for one in definitions if one is not None})
        return self._eyes.look(lambda: self._parts.mongo.missing_indexes(collections), MONGODB)

    def _names(self) -> _Names:
        original = self._eyes.look(self._parts.original.names, MONGODB)
        copy = self._eyes.look(self._parts.copy.names, REDIS)
        seen = [names for names in (original, copy) if not isinstance(names, Hidden)]
        return _Names(sorted({name for names in seen for name in names}), is_all=len(seen) == 2)

    # All together.

    def _fleet(self, names: Sequence[str], known: _Names, fleet: Fleet | Hidden) -> Iterator[Finding]:
        yield Finding(FLEET, "heartbeats", judged(fleet, judge.heartbeats))
        yield Finding(FLEET, "consumers", judged(fleet, lambda found: judged(self._idle(names, found), judge.consumers)))
        keys = self._eyes.look(lambda: self._eyes.tally(self._parts.redis.keys(known.names)), REDIS)
        yield Finding(FLEET, "types of keys", judged(keys, judge.key_types))
        strangers = judged(keys, judge.strangers)
        if strangers.state == checkup.WRONG and not known.is_all and not judge.number(_tally(keys), STRANGER):
            strangers = checkup.unknown("one store cannot be asked which imports there are")
        yield Finding(FLEET, "foreign keys", strangers)

    def _idle(self, names: Sequence[str], fleet: Fleet) -> Sample | Hidden:
        def idle() -> Sample:
            sample = Sample()
            for name in names:
                sample.add(self._parts.scans.idle_consumers(name, fleet.live))
            return sample

        return self._eyes.look(idle, REDIS)


@dataclass(frozen=True, slots=True)
class _Names:
    names: list[str]
    is_all: bool
    """Both stores were asked."""


def _tally(found: Tally | Hidden) -> Tally:
    return {} if isinstance(found, Hidden) else found
