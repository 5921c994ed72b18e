"""What is right and wrong with an import, its workers and its keys. Pure: judged on plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from ..domain.definition import Definition
from ..domain.text import plain
from ..ports import Pause
from . import checkup_ports as kinds
from .checkup import Hidden, Sample, Verdict, many, ok, unknown, wrong
from .checkup_ports import Fleet
from .snapshot import ImportStatus

Tally = Mapping[str, Sample]
"""By kind, what a scan found."""
MISSING, UNREADABLE, LETTERLESS = "missing", "unreadable", "letterless"


@dataclass(frozen=True, slots=True)
class StoredDefinition:
    """What one store has of a definition: itself, or why it cannot be used, or nothing."""

    definition: Definition | None = None
    problem: str = ""
    is_newer: bool = False


@dataclass(frozen=True, slots=True)
class CounterState:
    """`differences` are those between counters and ledger, as text; None when the two may differ, because work is in flight."""

    are_there: bool
    has_rows: bool
    differences: Sequence[str] | None = ()


def fix(name: str | None = None) -> str:
    return f"streams-importer doctor {name + ' ' if name else ''}--fix"


def number(tally: Tally, kind: str) -> int:
    return tally[kind].number if kind in tally else 0


def definition(name: str, original: StoredDefinition, copy: StoredDefinition) -> Verdict:
    if original.is_newer or copy.is_newer:
        return wrong("a newer version of streams-importer wrote it, and workers of this one leave it alone", "update this one")
    if original.problem:
        return wrong(f"MongoDB's is broken: {original.problem}", f"streams-importer produce {name} … stores a good one")
    if original.definition is None:
        where = "Redis has it and MongoDB, which has the originals, does not" if copy.definition or copy.problem else "is nowhere"
        return wrong(where, f"streams-importer produce {name} … stores it")
    if copy.problem:
        return wrong("the copy in Redis is broken", fix(name))
    if copy.definition is None:
        return wrong("Redis has no copy of it", fix(name))
    differing = [
        each.name for each in fields(Definition) if getattr(copy.definition, each.name) != getattr(original.definition, each.name)
    ]
    if differing:
        return wrong(f"the copy in Redis, which workers obey, has another {', '.join(differing)} than MongoDB", fix(name))
    return ok("the same in both stores")


def pause(name: str, original: Pause | None, copy: Pause | None, status: ImportStatus | Hidden) -> Verdict:
    if original is not None and copy is None:
        return wrong("paused in MongoDB, and Redis, which workers obey, does not know it", fix(name))
    if original is None and copy is not None:
        return wrong("Redis holds a pause that MongoDB does not know: a resume was cut short", fix(name))
    if original is None or copy is None:
        return ok("not paused")
    if not is_same_pause(original, copy):
        return wrong("Redis and MongoDB tell different pauses", fix(name))
    said = f"paused since {plain(copy.since, 40)} by {plain(copy.by, 60)}: {plain(copy.reason, 200)}"
    if not isinstance(status, Hidden) and status.in_flight:
        return wrong(f"{said}; {many(status.in_flight, 'shard')} wait", f"streams-importer resume {name}")
    return ok(said)


def is_same_pause(one: Pause, other: Pause) -> bool:
    """Each store cuts the name of whoever paused it at another length."""
    return (one.reason, one.since) == (other.reason, other.since)


def group(name: str, is_there: bool) -> Verdict:
    return ok("there") if is_there else wrong("the consumer group is missing, and nobody can claim without it", fix(name))


def lost(name: str, tally: Tally, *, is_being_produced: bool) -> Verdict:
    missing = number(tally, MISSING)
    if missing and is_being_produced:
        return unknown(f"somebody produces: {many(missing, 'shard')} may still be on the way into the queue")
    if missing:
        return wrong(f"{many(missing, 'shard')} pending in the ledger and nowhere in Redis", fix(name), tally[MISSING])
    if unreadable := number(tally, UNREADABLE):
        return wrong(
            f"{many(unreadable, 'row')} in the ledger whose shardKey names no shard: nobody can run them, and they never end",
            f"mongosh: db.import_windows.find({{import: '{name}', status: 'pending'}}), and delete what is not ours",
            tally[UNREADABLE],
        )
    return ok("what is pending in the ledger is in Redis")


def places(name: str, tally: Tally) -> Verdict:
    if dangling := number(tally, kinds.DANGLING):
        return wrong(f"{many(dangling, 'place')} of shards where there is nothing", fix(name), tally[kinds.DANGLING])
    if odd := number(tally, kinds.ODD):
        found = f"{many(odd, 'place')} not as we write them"
        return wrong(found, f"look at them: redis-cli HSCAN '{{…}}:{name}:places' 0", tally[kinds.ODD])
    return ok("each points to its shard")


def entries(name: str, tally: Tally) -> Verdict:
    if unplaced := number(tally, kinds.UNPLACED):
        return wrong(f"{many(unplaced, 'queued shard')} without a place", fix(name), tally[kinds.UNPLACED])
    if duplicate := number(tally, kinds.DUPLICATE):
        found = f"{many(duplicate, 'entry', 'entries')} of shards that are elsewhere"
        return wrong(found, fix(name), tally[kinds.DUPLICATE])
    return ok("each shard once")


def garbage(name: str, tally: Tally) -> Verdict:
    if not number(tally, kinds.GARBAGE):
        return ok("none")
    return wrong(
        f"{many(number(tally, kinds.GARBAGE), 'entry', 'entries')} on the work stream not as we write them",
        f"find out who writes there; a worker moves them to the dead letters: streams-importer dlq list {name}",
        tally[kinds.GARBAGE],
    )


def deleted(name: str, tally: Tally) -> Verdict:
    if not number(tally, kinds.DELETED):
        return ok("none")
    found = f"{many(number(tally, kinds.DELETED), 'entry', 'entries')} deleted by somebody while pending"
    return wrong(found, fix(name), tally[kinds.DELETED])


def delayed(name: str, tally: Tally) -> Verdict:
    if stuck := number(tally, kinds.STUCK):
        found = f"{many(stuck, 'shard')} without the progress that brings a delayed shard back"
        return wrong(found, fix(name), tally[kinds.STUCK])
    if stray := number(tally, kinds.STRAY):
        return wrong(f"{many(stray, 'shard')} delayed whose place is elsewhere", fix(name), tally[kinds.STRAY])
    return ok("each can come back")


def progress(name: str, tally: Tally) -> Verdict:
    orphans = number(tally, kinds.ORPHAN)
    if orphans:
        return wrong(f"kept for {many(orphans, 'shard')} not in flight", fix(name), tally[kinds.ORPHAN])
    return ok("only of shards in flight")


def leases(name: str, tally: Tally, fleet: Fleet, *, is_paused: bool) -> Verdict:
    ran_out = number(tally, kinds.RAN_OUT)
    if not ran_out:
        return ok("none ran out")
    said = f"{many(ran_out, 'lease')} ran out"
    if is_paused:
        return ok(f"{said}; nobody takes over while the import is paused")
    if fleet.serving(name):
        return ok(f"{said}; workers are there to take over")
    return wrong(f"{said}, and no worker is there to take over", f"streams-importer consume {name}", tally[kinds.RAN_OUT])


def work(name: str, status: ImportStatus, fleet: Fleet) -> Verdict:
    serving = fleet.serving(name)
    if serving:
        return ok(f"{many(serving, 'worker')}, {many(status.in_flight, 'shard')} in flight")
    if status.in_flight:
        return wrong(f"{many(status.in_flight, 'shard')} in flight and no live worker", f"streams-importer consume {name}")
    return ok("no worker, and nothing to do")


def counters(name: str, state: CounterState) -> Verdict:
    if not state.are_there:
        return wrong("Redis has lost them", fix(name)) if state.has_rows else ok("nothing was ever queued")
    if state.differences is None:
        return unknown("work is in flight: only when it has ended must counters and ledger agree")
    if not state.differences:
        return ok("agree with the ledger")
    sample = Sample()
    sample.add(state.differences)
    return wrong(f"{many(sample.number, 'counter')} differ from the ledger", fix(name), sample)


def letters(name: str, dead: int) -> Verdict:
    if not dead:
        return ok("none")
    return wrong(many(dead, "dead letter"), f"streams-importer dlq list {name}; then dlq replay or dlq purge")


def failed(name: str, tally: Tally) -> Verdict:
    if not number(tally, LETTERLESS):
        return ok("each failed shard has its letter")
    return wrong(
        f"{many(number(tally, LETTERLESS), 'failed shard')} without a dead letter: purged, dropped, or lost with Redis' memory",
        f"streams-importer shards list {name} --status failed; then dlq replay, which needs no letter",
        tally[LETTERLESS],
    )


def newer(entries: Tally, rows: Tally) -> Verdict:
    """A shard can be met in both stores, and is counted once."""
    tally = entries if number(entries, kinds.NEWER) >= number(rows, kinds.NEWER) else rows
    if not number(tally, kinds.NEWER):
        return ok("nothing is left to one")
    found = f"{many(number(tally, kinds.NEWER), 'shard')} that only a newer version of streams-importer understands"
    return wrong(found, "update this one and its workers", tally[kinds.NEWER])


# The fleet as a whole.


def heartbeats(fleet: Fleet) -> Verdict:
    gone = Sample()
    gone.add(fleet.gone)
    if not gone.number:
        return ok(f"{many(len(fleet.live), 'worker')} alive")
    return wrong(f"{many(gone.number, 'heartbeat')} of workers that are gone", fix(), gone)


def consumers(idle: Sample) -> Verdict:
    if not idle.number:
        return ok("none without a worker")
    return wrong(f"{many(idle.number, 'consumer')} without a worker and without work", fix(), idle)


def key_types(tally: Tally) -> Verdict:
    if not number(tally, kinds.WRONG_TYPE):
        return ok("as they should be")
    sample = tally[kinds.WRONG_TYPE]
    found = f"{many(sample.number, 'key')} of a type that is not ours: what needs them fails"
    return wrong(found, "find out who wrote them, and move them away: " + _move_away(sample), sample)


def strangers(tally: Tally) -> Verdict:
    if number(tally, kinds.STRANGER):
        found = f"{many(number(tally, kinds.STRANGER), 'key')} in our namespace that are not ours"
        return wrong(found, "move them away: " + _move_away(tally[kinds.STRANGER]), tally[kinds.STRANGER])
    if number(tally, kinds.UNDEFINED):
        found = f"{many(number(tally, kinds.UNDEFINED), 'key')} of imports that are defined nowhere"
        to_do = "produce such an import again, or move them away: " + _move_away(tally[kinds.UNDEFINED])
        return wrong(found, to_do, tally[kinds.UNDEFINED])
    return ok("none")


def _move_away(keys: Sample) -> str:
    """The command for the first of them. The hash tag stays in its name, so that it works on a cluster too. A name that must be
    quoted, or that was made fit to be shown, is not put into a command: that could name another key."""
    key = keys.first.partition(" is a ")[0]
    if not re.fullmatch(r"[!#-&(-\[\]-~]+", key):
        return "redis-cli RENAME … (their names must be quoted)"
    return f"redis-cli RENAME '{key}' 'moved:{key}'"
