"""What `produce` says at its end, for people or as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import islice

from ..application.producer import Produced
from ..domain.definition import Definition
from ..domain.planner import Plan
from . import output

SAMPLE_KEYS = 3


@dataclass(frozen=True, slots=True)
class Ended:
    """How waiting ended."""

    seconds: float
    records: dict[str, int]
    cancelled: int
    """Shards that somebody took back meanwhile."""
    problem: str | None


def report_plan(definition: Definition, plan: Plan, json_: bool) -> None:
    limit = definition.limit
    # A shard is finished by a page that reaches its end or is empty: one at the least.
    requests, seconds = plan.count, plan.count * limit.seconds / limit.amount
    samples = [scope.key for scope in islice(plan, SAMPLE_KEYS)]
    if json_:
        plan_json = {"import": definition.name, "dry_run": True, "shards": plan.count, "least_requests": requests}
        output.show_json(plan_json | {"least_seconds": round(seconds, 1), "rate": definition.rate, "samples": samples})
        return
    output.say(f"{definition.name}: {plan.count:,} shards, nothing queued (--dry-run)")
    for key in samples:
        output.say(f"- {key}")
    if plan.count > len(samples):
        output.say("- …")
    further = f"each further page of {definition.page_size:,} records is one more"
    output.say(f"at least {requests:,} requests, {in_two_units(seconds)} at {limit}; {further}")


def report(definition: Definition, produced: Produced, ended: Ended | None, json_: bool) -> None:
    if json_:
        waited = (
            {}
            if ended is None
            else {"waited": {"seconds": round(ended.seconds, 1), "records": ended.records, "cancelled": ended.cancelled}}
        )
        problem = {} if ended is None else {"problem": ended.problem}
        output.show_json({"import": definition.name, **asdict(produced), **waited, **problem})
        return
    left = [
        (produced.in_flight, "in flight already"),
        (produced.done, "done already (--again queues them)"),
        (produced.failed, "failed (dlq replay brings them back)"),
        (produced.cancelled, "cancelled (--again queues them)"),
        (produced.other, "left alone"),
    ]
    rest = "".join(f", {number} {what}" for number, what in left if number)
    output.say(f"{definition.name}: run {produced.run}: {produced.queued} shards queued of {produced.planned}{rest}")
    if ended is not None:
        records = ", ".join(f"{number:,} {name}" for name, number in ended.records.items() if number) or "no records"
        cancelled = f"; {ended.cancelled} shards were cancelled meanwhile" if ended.cancelled else ""
        output.say(f"{definition.name}: {records} after {in_two_units(ended.seconds)}{cancelled}")
        if ended.problem is not None:
            output.complain(ended.problem)


def in_two_units(seconds: float) -> str:
    """As long as it takes to say, in the two largest units: `3 d 4 h`."""
    left = round(seconds)
    parts: list[str] = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number or (unit == "s" and not parts):
            parts.append(f"{number:,} {unit}")
    return " ".join(parts[:2])
