"""`produce`: plans shards, records them in the ledger, queues each once."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..application.cancellation import CancelToken
from ..application.producer import Produced, new_run
from ..domain.definition import MAX_PAGE_SIZE, Definition
from ..domain.errors import BadSetting
from ..domain.planner import DEFAULT_SHARD_SIZE, count_id_ranges, plan_countries, plan_id_ranges
from ..domain.shard_key import Scope
from ..settings import DEFAULT_IMPORT, definition_from_file, one_rate
from ..wiring import Wiring
from .options import Duration, Globals, ImportName, ListItem, setting, with_servers

_RANGE = re.compile(r"(\d{1,15})\.\.(\d{1,15})\Z")


@click.command(epilog="Example: streams-importer produce --country DE,FR --rate 1/s")
@click.argument("import_name", metavar="[IMPORT]", required=False, type=ImportName())
@click.option("--country", "countries", multiple=True, metavar="CC", help="A country shard; repeat, or separate by commas.")
@click.option("--id-range", metavar="LO..HI", help="Ids greater than LO, up to HI.")
@setting("--shard-size", type=int, default=DEFAULT_SHARD_SIZE, show_default=True, help="Ids in a shard.")
@setting(
    "--rate",
    "rates",
    multiple=True,
    type=ListItem(),
    metavar="LIMIT",
    help="Requests for the whole fleet, as in 1/s or 600/m. [1/s]",
)
@setting("--page-size", type=int, help=f"Records asked for at a time, up to {MAX_PAGE_SIZE}. [1000]")
@setting("--lease", "lease_s", type=Duration(), help="How long a silent worker keeps a shard. [15s]")
@setting("--max-attempts", type=int, help="Failed attempts before a shard is dead-lettered. [5]")
@setting("--max-crashes", type=int, help="Crashes before a shard is dead-lettered; stored, not counted yet. [3]")
@setting("--retry-delay", "retry_delay_s", type=Duration(), help="Wait after the first failed attempt; doubles. [5s]")
@click.option("--again", is_flag=True, help="Queue shards that are done, too, as a new run.")
@click.option("--missing", is_flag=True, help="Queue what the ledger has as pending and Redis does not have.")
@with_servers
@click.pass_obj
def produce(
    globals_: Globals,
    /,
    import_name: str | None,
    countries: tuple[str, ...],
    id_range: str | None,
    shard_size: int,
    again: bool,
    missing: bool,
    **given: Any,
) -> None:
    """Plan shards and queue each of them once. Without --country or --id-range: the whole source. Without IMPORT: the only one
    there is, else openchargemap."""
    if missing and (countries or id_range or again):
        raise BadSetting("--missing goes alone: it queues what was planned before")
    wanted = _axes(countries, id_range, shard_size)
    _changed(Definition("check"), given)
    wiring = globals_.wiring(dict(os.environ), **given)
    definition = _definition(globals_, wiring, import_name, given)
    run = new_run(datetime.now(UTC))
    if missing:
        plan: Iterator[Scope] | None = None
        total = None
    else:
        wiring.upstreams.require_key()
        plan, total = _plan(wiring, definition, *wanted, shard_size)
    wiring.set_up(definition)
    wiring.imports.save(definition, run)
    with _progress(total) as progress:
        if plan is None:
            produced = wiring.producer().produce_missing(definition.name, run, progress)
        else:
            produced = wiring.producer().produce(definition.name, plan, run, again=again, progress=progress)
    _report(definition, produced, again)


def _axes(countries: tuple[str, ...], id_range: str | None, shard_size: int) -> tuple[list[str], tuple[int, int] | None]:
    codes = [code.strip().upper() for text in countries for code in text.split(",") if code.strip()]
    if countries and not codes:
        raise BadSetting("--country: name at least one country, as in --country DE")
    if codes and id_range:
        raise BadSetting("--country and --id-range do not combine yet: give one of them")
    bounds = None
    if id_range is not None:
        match = _RANGE.match(id_range.strip())
        if match is None:
            raise BadSetting(f"--id-range {id_range!r}: write it as LO..HI, as in 0..500000")
        bounds = int(match[1]), int(match[2])
        plan_id_ranges(*bounds, shard_size)
    elif shard_size < 1:
        raise BadSetting(f"--shard-size {shard_size}: must be 1 or more")
    return codes, bounds


def _definition(globals_: Globals, wiring: Wiring, import_name: str | None, given: dict[str, Any]) -> Definition:
    """Flags and environment win over the file, which wins over what is stored, which wins over the defaults."""
    if import_name is None:
        known = list(globals_.file.imports) or wiring.imports.names()
        import_name = known[0] if len(known) == 1 else DEFAULT_IMPORT
    try:
        definition = wiring.imports.find(import_name)
    except BadSetting:
        definition = Definition(import_name)  # what is stored is broken: this is how it is put right
    if definition is None and import_name not in (DEFAULT_IMPORT, *globals_.file.imports):
        raise BadSetting(f"import {import_name}: not defined; name it in streams-importer.toml as [imports.{import_name}]")
    definition = definition_from_file(definition or Definition(import_name), globals_.file.imports.get(import_name, {}))
    return _changed(definition, given)


def _changed(definition: Definition, given: dict[str, Any]) -> Definition:
    """With what the flags and the environment say, checked."""
    names = ("page_size", "lease_s", "max_attempts", "max_crashes", "retry_delay_s")
    return definition.changed(rate=one_rate(given["rates"]), **{name: given[name] for name in names})


def _plan(
    wiring: Wiring, definition: Definition, codes: list[str], bounds: tuple[int, int] | None, shard_size: int
) -> tuple[Iterator[Scope], int]:
    source, cancel = wiring.source_of(definition), CancelToken()
    if codes:
        source.check_countries(codes, cancel)
        return plan_countries(codes), len(dict.fromkeys(codes))
    low, high = bounds or (0, source.highest_id(cancel))
    return plan_id_ranges(low, high, shard_size), count_id_ranges(low, high, shard_size)


@contextmanager
def _progress(total: int | None) -> Iterator[Callable[[Produced], None]]:
    """A bar on a terminal, else a line a second."""
    console = Console(stderr=True)
    if console.is_terminal:
        columns = (TextColumn("queueing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("", total=total)
            yield lambda produced: bar.update(task, completed=produced.planned)
        return
    last = time.monotonic()

    def line(produced: Produced) -> None:
        nonlocal last
        if time.monotonic() - last >= 1:
            last = time.monotonic()
            print(f"{produced.planned} of {total or '?'} shards looked at, {produced.queued} queued", file=sys.stderr, flush=True)

    yield line


def _report(definition: Definition, produced: Produced, again: bool) -> None:
    left = [
        (produced.in_flight, "in flight already"),
        (produced.done, "done already (--again queues them)"),
        (produced.failed, "failed (dlq replay brings them back)"),
        (produced.other, "left alone"),
    ]
    rest = "".join(f", {number} {what}" for number, what in left if number)
    click.echo(f"{definition.name}: run {produced.run}: {produced.queued} shards queued of {produced.planned}{rest}")
