"""From a snapshot to what a person sees. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..application.snapshot import ImportStatus, Snapshot, WorkerStatus
from ..domain.text import plain
from ..ports import DeadLetter

STALE_S = 10.0
"""A worker silent for longer than this is shown as such."""

_RECORDS = ("inserted", "updated", "unchanged", "stale", "rejected")


def render(snapshot: Snapshot) -> RenderableType:
    if not snapshot.imports:
        return Text("No imports yet. Start with: streams-importer produce --country DE", style="dim")
    parts: list[RenderableType] = [_shards(snapshot), _records(snapshot)]
    for name, status in snapshot.imports.items():
        if status.paused is not None:
            pause = status.paused
            parts.append(
                Text(f"{name} is PAUSED since {pause.since} by {plain(pause.by)}: {plain(pause.reason)}", style="bold yellow")
            )
        held = snapshot.held_for_s.get(name, 0.0)
        if held > 0:
            parts.append(Text(f"{name}: the upstream asks to wait, {held:.0f} s left", style="bold yellow"))
    parts.append(_workers(snapshot.workers))
    return Group(*parts)


def render_letters(letters: Sequence[DeadLetter]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("shard", "error", "status", "attempts", "died", "message"):
        table.add_column(column, overflow="fold")
    for letter in letters:
        cells = (letter.shard_key or "(garbage)", letter.error, letter.status, letter.attempts, letter.died_at, letter.message)
        table.add_row(*(Text(plain(cell, 200)) for cell in cells))
    return table


def _shards(snapshot: Snapshot) -> Table:
    table = Table(box=box.SIMPLE_HEAD, expand=True)
    table.add_column("import", ratio=2, no_wrap=True)
    table.add_column("run", ratio=3)
    for column in ("queued", "leased", "delayed", "dead", "done", "failed"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, status in snapshot.imports.items():
        table.add_row(
            Text(name),
            _bar(status),
            *(f"{number:,}" for number in (status.queued, status.leased, status.delayed)),
            Text(f"{status.dead:,}", style="bold red" if status.dead else ""),
            f"{status.done:,}",
            f"{status.failed:,}",
        )
    return table


def _bar(status: ImportStatus) -> RenderableType:
    run = status.run
    if run is None:
        return Text("no run yet", style="dim")
    line = Table.grid(expand=True, padding=(0, 1))
    line.add_column(ratio=1)
    line.add_column(no_wrap=True)
    line.add_row(ProgressBar(total=max(run.total, 1), completed=run.done + run.failed), f"{run.done + run.failed}/{run.total}")
    return line


def _records(snapshot: Snapshot) -> Table:
    table = Table(box=box.SIMPLE_HEAD, expand=True)
    table.add_column("import", ratio=2, no_wrap=True)
    for column in ("seen", *_RECORDS, "requests", "limit"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, status in snapshot.imports.items():
        numbers = (sum(status.records.values()), *(status.records[key] for key in _RECORDS), sum(status.requests.values()))
        table.add_row(Text(name), *(f"{number:,}" for number in numbers), status.limit or "")
    return table


def _workers(workers: Sequence[WorkerStatus]) -> RenderableType:
    if not workers:
        return Text("No workers. Start one with: streams-importer consume", style="dim")
    table = Table(box=box.SIMPLE_HEAD, expand=True)
    table.add_column("worker", ratio=2, no_wrap=True)
    for column in ("shards", "records/s", "seen"):
        table.add_column(column, justify="right", no_wrap=True)
    for worker in workers:
        silent = worker.seen_s_ago > STALE_S
        table.add_row(
            Text(plain(worker.name, 60)),
            str(worker.leases),
            f"{worker.records_per_s:,.0f}",
            Text(f"{worker.seen_s_ago:.1f} s ago{' (silent)' if silent else ''}", style="red" if silent else ""),
        )
    return table
