"""From a snapshot to what a person sees. Pure: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ..application.snapshot import ImportStatus, Snapshot, WorkerStatus
from ..domain.model import RECORD_COUNTS
from ..domain.text import plain

STALE_S = 10.0
"""A worker silent for longer than this is shown as such."""

_STATES = ("queued", "leased", "delayed", "done", "failed")
_RARE_STATES = ("split", "cancelled")
"""Shown where there are any."""


def render(snapshot: Snapshot) -> RenderableType:
    if not snapshot.imports:
        return Text("No imports yet. Start with: streams-importer produce --country DE", style="dim")
    parts = [_import(name, status, snapshot.held_for_s.get(name, 0.0)) for name, status in snapshot.imports.items()]
    return Group(*parts, _workers(snapshot.workers))


def _import(name: str, status: ImportStatus, held_for_s: float) -> RenderableType:
    """A block of lines: it fits any width, since what does not fit wraps between two numbers."""
    block = Table.grid(expand=True, padding=(0, 1))
    block.add_column(no_wrap=True)
    block.add_column(ratio=1)
    block.add_row(Text(plain(name, 63), style="bold"), _bar(status))
    dead = "bold red" if status.dead else ""
    rare = [state for state in _RARE_STATES if getattr(status, state)]
    states = [(state, getattr(status, state), "") for state in (*_STATES, *rare)]
    block.add_row("  shards", _numbers([*states, ("dead", status.dead, dead)]))
    records = [("seen", sum(status.records.values()), ""), *((key, status.records[key], "") for key in RECORD_COUNTS)]
    block.add_row("  records", _numbers(records))
    requests = _numbers(
        [("made", sum(status.requests.values()), ""), *((key, value, "") for key, value in status.requests.items())]
    )
    limit = Text(f"  limit {plain(status.limit, 40)}") if status.limit else Text("")
    block.add_row("  requests", requests + limit)
    if status.dead:
        block.add_row("", Text(f"why they died, and the way back: streams-importer dlq list {plain(name, 63)}", style="dim"))
    if status.paused is not None:
        since, by, reason = (plain(part) for part in (status.paused.since, status.paused.by, status.paused.reason))
        block.add_row("", Text(f"{plain(name, 63)} is PAUSED since {since} by {by}: {reason}", style="bold yellow"))
    if held_for_s > 0:
        block.add_row("", Text(f"the upstream asks to wait, {held_for_s:.0f} s left", style="bold yellow"))
    block.add_row("", "")
    return block


def _numbers(named: Sequence[tuple[str, int, str]]) -> Text:
    text = Text()
    for index, (name, number, style) in enumerate(named):
        text.append("  " if index else "").append(f"{name.replace('_', ' ')} ", style="dim").append(f"{number:,}", style=style)
    return text


def _bar(status: ImportStatus) -> RenderableType:
    run = status.run
    if run is None:
        return Text("no run yet", style="dim")
    line = Table.grid(expand=True, padding=(0, 1))
    line.add_column(ratio=1)
    line.add_column(no_wrap=True)
    label = Text(f"{run.done:,}/{run.total:,}").append(f" {run.failed:,} failed" if run.failed else "", style="bold red")
    completed = run.total if run.finished and not run.failed else run.done  # cancelled shards are settled, too
    line.add_row(ProgressBar(total=max(run.total, 1), completed=completed), label)
    return line


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
