"""`produce`: plans shards, records them in the ledger, queues each once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import click

from ..application.backlog import LOOK_EVERY_S, Backlog
from ..application.cancellation import CancelToken
from ..application.completion import Completion
from ..application.outages import Outages
from ..application.producer import Produced, new_run
from ..application.snapshot import ImportStatus
from ..domain.definition import MAX_PAGE_SIZE, Definition
from ..domain.errors import BadSetting, Full, Unavailable
from ..domain.model import STORED_VERSION
from ..domain.planner import Plan
from ..domain.shard_key import is_key
from ..domain.text import plain
from ..settings import DEFAULT_IMPORT, definition_from_file, one_rate
from ..wiring import Wiring
from . import output
from .axes import read_axes, with_axes
from .options import Duration, Globals, ImportName, ListItem, setting, with_data_dir, with_servers
from .produce_progress import ProduceProgress, produce_progress
from .produce_report import Ended, report, report_plan

MANY_SHARDS = 1_000_000
"""More than this is more likely a slip of the keyboard than a wish."""


@click.command(epilog="Example: streams-importer produce --country DE,FR --rate 1/s")
@click.argument("import_name", metavar="[IMPORT]", required=False, type=ImportName())
@with_axes
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
@setting("--max-crashes", type=int, help="Crashes of its process before a shard is dead-lettered. [3]")
@setting("--retry-delay", "retry_delay_s", type=Duration(), help="Wait after the first failed attempt; doubles. [5s]")
@setting(
    "--max-backlog", type=int, default=100_000, show_default=True, help="Shards in flight at most; waits for room, never drops."
)
@click.option("--again", is_flag=True, help="Queue shards that are done or cancelled, too, as a new run.")
@click.option("--missing", is_flag=True, help="Queue what the ledger has as pending and Redis does not have.")
@click.option("--wait", is_flag=True, help="Wait for the workers; 1 if a shard was dead-lettered meanwhile.")
@click.option("--dry-run", is_flag=True, help="Only say what would be queued, and what it costs at least.")
@click.option("--yes", is_flag=True, help=f"More than {MANY_SHARDS:,} shards are meant.")
@click.option("--json", "json_", is_flag=True, help="The run as one JSON object.")
@with_data_dir
@with_servers
@click.pass_obj
def produce(
    globals_: Globals,
    /,
    import_name: str | None,
    max_backlog: int,
    again: bool,
    missing: bool,
    wait: bool,
    dry_run: bool,
    yes: bool,
    json_: bool,
    **given: Any,
) -> None:
    """Plan shards and queue each of them once. --country, --bbox, --id-range and --from/--to combine; without any of them: the
    whole source. Without IMPORT: the only one there is, else openchargemap."""
    axes = read_axes(**{name: given.pop(name) for name in _AXES})
    if missing and (again or dry_run or not axes.is_whole_source):
        raise BadSetting("--missing goes alone: it queues what was planned before, without axes, --again or --dry-run")
    if dry_run and wait:
        raise BadSetting("--dry-run queues nothing that --wait could wait for: give one of them")
    if max_backlog < 1:
        raise BadSetting(f"--max-backlog {max_backlog}: must be 1 or more")
    _changed(Definition("check"), given)
    wiring = globals_.wiring(dict(os.environ), creates=True, needs_key=not missing, **given)
    definition = _definition(globals_, wiring, import_name, given)
    plan: Plan | None = None
    if not missing:
        source = wiring.source_of(definition)
        for line in axes.in_words(source):
            output.say(line, err=True)
        plan = axes.plan(source, CancelToken())
        if plan.count > MANY_SHARDS and not (yes or dry_run):
            raise BadSetting(f"that would be {plan.count:,} shards: cut more coarsely, or add --yes if they are meant")
    if dry_run and plan is not None:
        report_plan(definition, plan, json_)
        return
    command = _Produce(wiring, definition, max_backlog)
    produced = command.queue(plan, again=again)
    ended = command.wait() if wait else None
    report(definition, produced, ended, json_)
    raise SystemExit(1 if ended is not None and ended.problem else 0)


_AXES = ("countries", "bbox", "grid", "id_range", "shard_size", "from_", "to", "window_s")


class _Produce:
    """One run: queued first, waited for then."""

    def __init__(self, wiring: Wiring, definition: Definition, max_backlog: int) -> None:
        self._wiring = wiring
        self._name = definition.name
        self._definition = definition
        self._max_backlog = max_backlog
        self._run = new_run(datetime.now(UTC))
        read: Callable[[Any], dict[str, ImportStatus]] = wiring.board.read
        self._completion = Completion(read, wiring.imports.paused, self._is_pending)
        self._before: ImportStatus | None = None
        self._announcer = wiring.queue("produce")

    def queue(self, plan: Plan | None, *, again: bool) -> Produced:
        """The plan, or with none what is missing."""
        _while_full(lambda: self._wiring.set_up(self._definition), self._wiring.outages)
        self._wiring.imports.save(self._definition, self._run)
        self._completion.begin([self._name])
        self._before = self._status()
        with produce_progress(None if plan is None else plan.count) as progress:
            backlog = Backlog(
                self._max_backlog, self._in_flight, lambda number: progress.full(self._why_full(number)), time.sleep
            )
            producer = self._wiring.producer(backlog.room_for)
            try:
                if plan is None:
                    return producer.produce_missing(self._name, self._run, progress.queued)
                return producer.produce(self._name, plan, self._run, again=again, progress=progress.queued)
            except (KeyboardInterrupt, SystemExit):
                output.say("stopped before all was queued; the same command queues the rest", err=True)
                raise
            finally:
                with suppress(Unavailable):
                    self._announcer.announce_producer(self._name, is_there=False)

    def wait(self) -> Ended:
        started, status = time.monotonic(), self._status()
        of, cancelled = status.in_flight, status.cancelled
        patiently, never = self._wiring.outages.patiently, CancelToken()
        with produce_progress(of) as progress:
            try:
                while not patiently(never, lambda: self._is_over(progress, of)):
                    time.sleep(LOOK_EVERY_S)
            except (KeyboardInterrupt, SystemExit):
                output.say(f"stopped waiting; what is left of {self._name} stays queued", err=True)
                raise
        before = {} if self._before is None else self._before.records
        status = self._status()
        records = {name: number - before.get(name, 0) for name, number in status.records.items()}
        problem = self._completion.problem([self._name])
        return Ended(time.monotonic() - started, records, max(0, status.cancelled - cancelled), problem)

    def _is_over(self, progress: ProduceProgress, of: int) -> bool:
        progress.waiting(self._status(), of, len(self._wiring.live_leases()))
        return self._completion.is_over([self._name])

    def _in_flight(self) -> int:
        def look() -> int:
            self._announcer.announce_producer(self._name, is_there=True)
            return self._status().in_flight

        return self._wiring.outages.patiently(CancelToken(), look)

    def _why_full(self, in_flight: int) -> str:
        pause = self._wiring.outages.patiently(CancelToken(), self._wiring.imports.paused).get(self._name)
        if pause is not None:
            return (
                f"waiting: {self._name} is paused ({plain(pause.reason, 100)}); go on with: streams-importer resume {self._name}"
            )
        return f"waiting for workers: {in_flight:,} shards are in flight (--max-backlog)"

    def _is_pending(self, name: str) -> bool:
        """What a worker will queue and run yet: one of ours, or of the newer version that wrote the row."""
        return any(row.v > STORED_VERSION or is_key(row.shard_key) for row in self._wiring.ledger.pending(name))

    def _status(self) -> ImportStatus:
        return self._wiring.board.read([self._name])[self._name]


def _while_full(action: Callable[[], None], outages: Outages) -> None:
    """A server that cannot be reached at the start is an error; a full one is waited for."""
    try:
        action()
    except Full:
        outages.patiently(CancelToken(), action)


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
