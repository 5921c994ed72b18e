"""`shards`: look at single shards, and take them back."""

from __future__ import annotations

import os
from collections import Counter
from itertools import islice
from typing import Any

import click

from ..application.canceller import CancelReport
from ..application.shards import LIVE_STATES, STATES, Shards, as_json, shard_filter
from ..console.shard_view import render_shard, render_shards
from ..domain.definition import Definition
from ..domain.errors import BadSetting
from ..domain.shard_key import is_name
from ..wiring import Wiring
from . import output
from .counting import counting
from .options import Globals, ImportName, with_servers
from .pause import only_import

MAX_LISTED = 100_000
NEAR = 3

_FILTER = click.option(
    "--filter", "filters", multiple=True, metavar="FIELD=VALUE",
    help="By shard, run, worker, error or attempts; * is any text. Repeated, all must hold.",
)  # fmt: skip


@click.group(epilog="Example: streams-importer shards list --status leased")
def shards() -> None:
    """Single shards: what the ledger and the live leases say, and how to take them back."""


@shards.command("list", epilog='Example: streams-importer shards list --status failed --filter "error=http_5*"')
@click.argument("import_name", metavar="[IMPORT]", required=False, type=ImportName())
@click.option("--status", "states", multiple=True, type=click.Choice(STATES), help="Only these; may be repeated. [all]")
@_FILTER
@click.option("--limit", type=click.IntRange(1, MAX_LISTED), default=50, show_default=True, help="At most so many.")
@click.option("--json", "json_", is_flag=True, help="One JSON object a line.")
@with_servers
@click.pass_obj
def list_(
    globals_: Globals,
    /,
    import_name: str | None,
    states: tuple[str, ...],
    filters: tuple[str, ...],
    limit: int,
    json_: bool,
    **given: Any,
) -> None:
    """List shards in this order: leased, delayed (the next to come back first), queued, failed, cancelled, split, done; queued
    and finished ones by name."""
    chosen = [shard_filter(text) for text in filters]
    wiring = globals_.wiring(dict(os.environ), **given)
    definition = _definition(wiring, import_name)
    found = wiring.shards.listed(definition, states or STATES, chosen)
    if json_:
        for shard in islice(found, limit):
            output.show_json(as_json(shard))
        return
    listed = list(islice(found, limit + 1))
    if not listed:
        output.say(f"{definition.name}: no {'such ' if states or filters else ''}shards")
        return
    output.show(render_shards(listed[:limit]), wide=True)
    if len(listed) > limit:
        output.say(f"{limit} shown, there are more: see --limit, --status and --filter", err=True)


@shards.command(epilog="Example: streams-importer shards show openchargemap country:DE")
@click.argument("names", metavar="[IMPORT] SHARD", nargs=-1, required=True)
@click.option("--json", "json_", is_flag=True, help="As a JSON object.")
@with_servers
@click.pass_obj
def show(globals_: Globals, /, names: tuple[str, ...], json_: bool, **given: Any) -> None:
    """Show everything that is known about one shard."""
    *before, key = names
    if len(before) > 1 or not all(map(is_name, before)):
        raise BadSetting("shards show takes an import and one shard, as in: shards show openchargemap country:DE")
    wiring = globals_.wiring(dict(os.environ), **given)
    definition = _definition(wiring, before[0] if before else None)
    shard = wiring.shards.named(definition, [key]).get(key)
    if shard is None:
        raise BadSetting(_unknown(wiring.shards, definition, key))
    if json_:
        output.show_json(as_json(shard), indent=2)
    else:
        output.show(render_shard(shard), wide=True)


@shards.command(epilog='Example: streams-importer shards cancel openchargemap --filter "shard=country:*" --dry-run')
@click.argument("import_name", metavar="IMPORT", type=ImportName())
@click.argument("keys", metavar="[SHARD]...", nargs=-1)
@click.option("--status", "states", multiple=True, type=click.Choice(LIVE_STATES), help="Only these; may be repeated.")
@_FILTER
@click.option("--all", "all_", is_flag=True, help="Everything that is queued, leased or delayed.")
@click.option("--dry-run", is_flag=True, help="Say what would be cancelled; change nothing.")
@click.option("--json", "json_", is_flag=True, help="As a JSON object.")
@with_servers
@click.pass_obj
def cancel(
    globals_: Globals,
    /,
    import_name: str,
    keys: tuple[str, ...],
    states: tuple[str, ...],
    filters: tuple[str, ...],
    all_: bool,
    dry_run: bool,
    json_: bool,
    **given: Any,
) -> None:
    """Take queued and delayed shards back, and stop running ones at their next page. What is stored stays stored; produce --again
    queues cancelled shards once more. Safe to repeat."""
    if sum(map(bool, (keys, states or filters, all_))) != 1:
        raise BadSetting("say which shards to cancel: name them, or choose with --status and --filter, or give --all")
    chosen = [shard_filter(text) for text in filters]
    wiring = globals_.wiring(dict(os.environ), **given)
    definition = _definition(wiring, import_name)
    with counting("shards cancelled") as progress:
        canceller = wiring.canceller(progress)
        if keys:
            report = canceller.cancel_named(definition, keys, dry_run=dry_run)
        else:
            report = canceller.cancel_found(definition, states or LIVE_STATES, chosen, dry_run=dry_run)
    if json_:
        output.show_json({"import": definition.name, "dry_run": dry_run, **_report_json(report)})
    else:
        output.say(f"{definition.name}: {_report_line(report, dry_run)}")
    if report.unknown:
        raise BadSetting(_unknown(wiring.shards, definition, *report.unknown))


def _definition(wiring: Wiring, import_name: str | None) -> Definition:
    name = only_import(wiring, import_name)
    definition = wiring.imports.find(name)
    if definition is None:
        known = ", ".join(wiring.imports.names()) or "none yet; produce makes one"
        raise BadSetting(f"there is no import {name!r} (known: {known})")
    return definition


def _unknown(found: Shards, definition: Definition, *keys: str) -> str:
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    near = found.near(definition, keys[0], NEAR)
    hint = f"near it: {', '.join(near)}" if near else "shards list shows what is there"
    return f"{definition.name} has no shard {keys[0]!r}{more}; {hint}"


def _report_line(report: CancelReport, dry_run: bool) -> str:
    number = report.cancelled.total()
    what = f"would cancel {number} shards" if dry_run else f"{number} shards cancelled"
    left = report.left.total()
    return what + _by_state(report.cancelled) + (f", {left} left alone{_by_state(report.left)}" if left else "")


def _by_state(numbers: Counter[str]) -> str:
    states = (*STATES, *(other for other in numbers if other not in STATES))
    named = ", ".join(f"{numbers[state]} {state}" for state in states if numbers[state])
    return f" ({named})" if named else ""


def _report_json(report: CancelReport) -> dict[str, Any]:
    return {
        "cancelled": report.cancelled.total(),
        "by_status": {state: report.cancelled[state] for state in LIVE_STATES},
        "left": dict(report.left),
        "unknown": report.unknown,
    }
