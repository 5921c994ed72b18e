"""What became of an import: lost, doubled, innocents, and whatever else does not add up. Empty lists are what is promised."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from streams_importer.adapters import redis_keys
from streams_importer.adapters.redis_keys import GROUP
from streams_importer.domain.model import RECORD_COUNTS
from streams_importer.embedded.stand_in_service import Asked
from tests.e2e.fleet import without_computed

from .driver import PAGE_SIZE, Driver
from .observer import LEDGER, Round
from .previous import PREVIOUS

LATE_S = 0.25
"""The stand-in shares a busy process: a request may be logged so long after it was sent."""
MAX_KEYS_BYTES = 64 * 1024
_IDS = re.compile(r"ids:(\d+)\.\.(\d+)")


@dataclass(slots=True)
class Verdict:
    lost: list[str] = field(default_factory=list)
    settled_twice: list[str] = field(default_factory=list)
    asked_again: list[str] = field(default_factory=list)
    late_writes: list[str] = field(default_factory=list)
    innocents: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)
    repeated: int = 0

    @property
    def problems(self) -> dict[str, list[str]]:
        found = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "repeated"}
        return {name: problems for name, problems in found.items() if problems}

    def add(self, other: Verdict) -> None:
        for name, problems in other.problems.items():
            getattr(self, name).extend(problems)
        self.repeated += other.repeated

    def replaced_by(self, later: Verdict) -> Verdict:
        """A later one on the same import has seen the same and more, but for what was put right in between."""
        both = Verdict(repeated=later.repeated)
        for one in (self, later):
            for name, problems in one.problems.items():
                known = getattr(both, name)
                known += [problem for problem in problems if problem not in known]
        return both


def judge(chaos: Driver, dead: frozenset[str] = frozenset()) -> Verdict:
    """After the end of an import. `dead`: the shards that must be dead letters."""
    rows = list(chaos.fleet.db[LEDGER].find({}))
    rounds = chaos.observer.rounds()
    verdict = Verdict(lost=_lost(chaos, rows, dead), repeated=chaos.fleet.repeated())
    verdict.settled_twice = [f"{one.shard} {one.settlements}" for one in rounds if len(one.settlements) > 1]
    # The previous version wrote its last page into the ledger even after it had lost the shard; this one cannot prevent that.
    verdict.late_writes = [text for one in rounds for who, text in one.late_writes if not who.startswith(PREVIOUS)]
    verdict.asked_again = asked_again(rounds, chaos.fleet.asked())
    letters = [letter[b"shard"].decode() for _, letter in chaos.letters()]
    verdict.innocents = [shard for shard in letters if shard not in dead]
    bound = 2 * chaos.slots_disturbed
    verdict.other = [
        *(f"{shard} is dead and has no letter" for shard in dead - set(letters)),
        *([f"{verdict.repeated} requests repeated, more than {bound}"] if verdict.repeated > bound else []),
        *(f"{row['shardKey']} has {row['attempts']} attempts" for row in rows if row["attempts"] and row["shardKey"] not in dead),
        *_status_problems(chaos, rows, len(letters)),
        *_redis_problems(chaos),
        *chaos.crew.surprises,
        *(f"process {pid} was left running" for pid in chaos.crew.left_running()),
    ]
    return verdict


def _lost(chaos: Driver, rows: list[dict[str, Any]], dead: frozenset[str]) -> list[str]:
    """Points that are not stored as they are at the upstream, and shards without an end. A dead shard's are not missed."""
    lost = []
    for row in rows:
        wanted = "failed" if row["shardKey"] in dead else "done"
        if row["status"] != wanted:
            lost.append(f"{row['shardKey']} is {row['status']}, not {wanted}")
    excused = [_range_of(shard) for shard in dead]
    stored: dict[int, Any] = {}
    for document in chaos.fleet.db["pois"].find({}, {"sourceId": 1, "data": 1}):
        if document["sourceId"] in stored:
            lost.append(f"point {document['sourceId']} is there twice")
        stored[document["sourceId"]] = document["data"]
    for point in chaos.upstream.points.rows:
        if any(low < point.id <= high for low, high in excused):
            continue
        if point.id not in stored:
            lost.append(f"point {point.id} is missing")
        elif stored[point.id] != without_computed(json.loads(point.body)):
            lost.append(f"point {point.id} is not the newest version")
    return lost


def asked_again(rounds: list[Round], asked: list[Asked]) -> list[str]:
    """Requests for a page that the ledger had as stored when they were made."""
    by_range: dict[tuple[int, int], list[Round]] = {}
    for one in sorted(rounds, key=lambda one: one.opened):
        by_range.setdefault(_range_of(one.shard), []).append(one)
    found = []
    for request in asked:
        after = int(request.params["greaterthanid"])
        for (low, high), of_shard in by_range.items():
            opened = [one for one in of_shard if one.opened <= request.wall]
            if low <= after < high and opened and _is_stored(opened[-1], after, request.wall - LATE_S):
                found.append(f"{opened[-1].shard} after {after}, asked at {request.wall:.3f}: {_story(opened[-1])}")
    return found


def _is_stored(one: Round, after: int, wall: float) -> bool:
    settled = any(at <= wall for _, at in one.settlements)
    return settled or any(each.cursor is not None and each.cursor > after and each.wall <= wall for each in one.checkpoints)


def _story(one: Round) -> str:
    starts = [f"{owner} at {wall:.3f}" for owner, wall in one.starts]
    checkpoints = [f"{each.cursor} by {each.owner} at {each.wall:.3f}" for each in one.checkpoints]
    return f"started {starts}, checkpoints {checkpoints}, settled {one.settlements}"


def _range_of(shard: str) -> tuple[int, int]:
    match = _IDS.fullmatch(shard)
    assert match is not None, shard
    return int(match[1]), int(match[2])


def _status_problems(chaos: Driver, rows: list[dict[str, Any]], letters: int) -> list[str]:
    status = chaos.fleet.status()
    states = Counter(row["status"] for row in rows)
    expected: dict[str, int] = {name: states[name] for name in ("done", "failed", "split", "cancelled")}
    expected |= {"queued": 0, "leased": 0, "delayed": 0, "dead": letters, "total": len(rows)}
    problems = [f"status says {name} {status[name]}, not {number}" for name, number in expected.items() if status[name] != number]
    records = status["records"]
    for name in RECORD_COUNTS:
        if records[name] != (counted := sum(row["counts"][name] for row in rows)):
            problems.append(f"status says {records[name]} records {name}, the ledger {counted}")
    if records["seen"] != sum(records[name] for name in RECORD_COUNTS if name != "seen"):
        problems.append(f"records do not add up: {records}")
    if not states["failed"] and records["seen"] != chaos.expected_seen:
        problems.append(f"{records['seen']} records seen, not {chaos.expected_seen}")
    if chaos.is_first_round and records["unchanged"] > chaos.pages_in_doubt * PAGE_SIZE:
        problems.append(f"{records['unchanged']} records unchanged in a first import, more than {chaos.pages_in_doubt} pages")
    run = status["run"] or {"id": None, "done": None, "failed": None}
    of_run = Counter(row["status"] for row in rows if row["run"] == run["id"])
    if (run["done"], run["failed"]) != (of_run["done"], of_run["failed"]):
        problems.append(f"status says {run}, the ledger {dict(of_run)}")
    return problems


def _redis_problems(chaos: Driver) -> list[str]:
    redis, keys = chaos.fleet.redis, chaos.keys
    problems = []
    if redis.xlen(keys.shards) or redis.xpending(keys.shards, GROUP)["pending"]:
        problems.append("the stream is not empty")
    found = sorted(key.decode() for key in redis.scan_iter())
    allowed = re.compile("|".join(_fixed_keys()))
    # A dead shard keeps its place and its checkpoint, for whoever replays it.
    in_flight = () if redis.xlen(keys.dead) else (keys.delayed, keys.places, keys.progress)
    problems += [f"left in Redis: {key}" for key in found if not allowed.fullmatch(key) or key in in_flight]
    size = sum(int(redis.memory_usage(key, samples=0) or 0) for key in found)
    return problems + ([f"{size} bytes left in Redis"] if size > MAX_KEYS_BYTES else [])


def _fixed_keys() -> list[str]:
    """Patterns, from the list that the module with all keys begins with."""
    listed = re.findall(r"^`(\{si\}:[^`]+)`", redis_keys.__doc__ or "", re.MULTILINE)
    assert len(listed) > 10
    return [re.sub(r"<\w+>", "[^ ]+", re.sub(r"[{}]", r"\\\g<0>", key)) for key in listed]
