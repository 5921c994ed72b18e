"""Single shards as people see them: the ledger's row and what Redis says of it right now, in one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..domain.definition import Definition
from ..domain.errors import BadSetting
from ..domain.filters import Filter, parse_filter
from ..domain.model import FINAL_STATES
from ..domain.shard_key import MAX_KEY_LENGTH
from ..ports import Place, Places, ShardRecord, ShardRecords
from .batches import batches

LIVE_STATES = ("queued", "leased", "delayed")
STATES = (*LIVE_STATES, *FINAL_STATES)
FILTER_FIELDS = ("shard", "run", "worker", "error", "attempts")
LISTED = ("leased", "delayed", "queued", "failed", "cancelled", "split", "done")
"""The order of a list: what is being worked on first, what is over and good last."""
BATCH = 500


@dataclass(frozen=True, slots=True)
class ShardState:
    import_name: str
    record: ShardRecord
    status: str
    worker: str | None = None
    lease_left_s: float | None = None
    comes_back_s: float | None = None
    is_nowhere: bool = False
    """Unfinished in the ledger and nowhere in Redis: a worker will queue it."""
    is_settling: bool = False
    """What is in Redis is the round before, which a worker has to settle first."""

    @property
    def key(self) -> str:
        return self.record.row.shard_key


@dataclass(frozen=True, slots=True)
class Shards:
    records: ShardRecords
    places: Places

    def listed(self, definition: Definition, states: Sequence[str], filters: Sequence[Filter]) -> Iterator[ShardState]:
        """State by state, each shard once. Reads no more than is asked for, and a shard that moves meanwhile may be missed."""
        seen: set[str] = set()
        for status in LISTED:
            for shard in self.found(definition, [status], filters) if status in states else ():
                if shard.key not in seen:
                    seen.add(shard.key)
                    yield shard

    def found(self, definition: Definition, states: Sequence[str], filters: Sequence[Filter]) -> Iterator[ShardState]:
        """All shards in these states that the filters let through."""
        workers = [one for one in filters if one.field == "worker"]
        if workers:
            states = [status for status in states if status == "leased"]  # nobody else has a worker
        for batch in self._candidates(definition.name, states, filters):
            for shard in self._now(definition, batch):
                if shard.status in states and all(one.matches(shard.worker or "") for one in workers):
                    yield shard

    def named(self, definition: Definition, keys: Iterable[str]) -> dict[str, ShardState]:
        """Those of these keys that the ledger has."""
        possible = [key for key in dict.fromkeys(keys) if _is_possible(key)]
        shards: dict[str, ShardState] = {}
        for batch in batches(possible, BATCH):
            records = self.records.of(definition.name, batch)
            known = [records[key] for key in batch if key in records]
            shards |= {shard.key: shard for shard in self._now(definition, known)}
        return shards

    def near(self, definition: Definition, key: str, limit: int) -> list[str]:
        """Keys of the same kind that stand beside where this one would be."""
        if not _is_possible(key):
            return []
        near = self.records.near(definition.name, key, limit)
        return [other for other in near if other.partition(":")[0] == key.partition(":")[0]][:limit]

    def _candidates(self, import_name: str, states: Sequence[str], filters: Sequence[Filter]) -> Iterator[list[ShardRecord]]:
        """Few shards are leased or delayed, and Redis knows which; all others are looked for in the ledger."""
        final = [status for status in states if status in FINAL_STATES]
        if "queued" in states:
            yield from self.records.in_states(import_name, ["pending", "leased"], filters)
        else:
            sources = {"leased": self.places.leased, "delayed": self.places.delayed}
            for keys in (keys for status, read in sources.items() if status in states for keys in read(import_name)):
                for batch in batches(keys, BATCH):
                    records = self.records.of(import_name, batch, filters)
                    yield [records[key] for key in batch if key in records]
        if final:
            yield from self.records.in_states(import_name, final, filters)

    def _now(self, definition: Definition, records: Sequence[ShardRecord]) -> list[ShardState]:
        """In the order of the records. What has left Redis since its row was read may be finished: it is read again."""
        unfinished = [record.row.shard_key for record in records if record.row.status not in FINAL_STATES]
        places = self.places.look(definition.name, unfinished) if unfinished else {}
        gone = [key for key in unfinished if key not in places]
        again = self.records.of(definition.name, gone) if gone else {}
        return [
            _state(definition, again.get(record.row.shard_key, record), places.get(record.row.shard_key)) for record in records
        ]


def _is_possible(key: str) -> bool:
    """Whether a shard can have this key: whatever else somebody types is not worth asking for, and may not even be sent."""
    return 0 < len(key) <= MAX_KEY_LENGTH and key.isascii() and key.isprintable()


def _state(definition: Definition, record: ShardRecord, place: Place | None) -> ShardState:
    if record.row.status in FINAL_STATES:
        return ShardState(definition.name, record, record.row.status)
    if place is None:
        return ShardState(definition.name, record, "queued", is_nowhere=True)
    left = None if place.idle_s is None else max(0.0, definition.lease_s - place.idle_s)
    is_settling = place.job not in (None, record.row.job)
    return ShardState(definition.name, record, place.state, place.worker, left, place.comes_back_s, is_settling=is_settling)


def shard_filter(text: str) -> Filter:
    """One `--filter` of a command about shards."""
    one = parse_filter(text, FILTER_FIELDS)
    if one.field == "attempts" and not (one.pattern.isdecimal() and len(one.pattern) <= 9):
        raise BadSetting(f"--filter {text!r}: attempts is a number, as in attempts=3")
    return one


def as_json(shard: ShardState) -> dict[str, Any]:
    """The row of `shards list --json`. What is not known or not measured yet is null."""
    record, row = shard.record, shard.record.row
    failure, checkpoint = row.failure, row.checkpoint
    return {
        "import": shard.import_name,
        "shard": row.shard_key,
        "status": shard.status,
        "nowhere": shard.is_nowhere,
        "run": row.run,
        "attempts": row.attempts,
        "crashes": None,
        "worker": shard.worker,
        "lease_left_s": _seconds(shard.lease_left_s),
        "comes_back_s": _seconds(shard.comes_back_s),
        "page": checkpoint.page,
        "cursor": checkpoint.cursor,
        "counts": checkpoint.counts.by_name(),
        "error": failure
        and {"code": failure.code, "message": failure.message, "status": failure.status, "at": iso(record.failed_at)},
        "created": iso(record.created_at),
        "finished": iso(record.finished_at),
        "job": row.job,
    }


def iso(time: datetime | None) -> str | None:
    return None if time is None else f"{time:%Y-%m-%dT%H:%M:%SZ}"


def _seconds(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
