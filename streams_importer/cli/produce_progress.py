"""What `produce` shows while it queues and while it waits: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from ..application.producer import Produced
from ..application.snapshot import ImportStatus
from . import output

LINE_EVERY_S = 1.0
WAITING_LINE_EVERY_S = 10.0
"""Waiting takes long and changes little."""


class ProduceProgress(Protocol):
    def queued(self, produced: Produced) -> None: ...
    def full(self, why: str) -> None:
        """No room for more: the backlog is at its bound."""

    def waiting(self, status: ImportStatus, of: int, workers: int) -> None:
        """All is queued; this is how far the workers are with what was in flight then."""


@contextmanager
def produce_progress(total: int | None) -> Iterator[ProduceProgress]:
    console = output.console(stderr=True)
    if not console.is_terminal:
        yield _Lines(console, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield _Bar(bar, bar.add_task("queueing", total=total))


class _Bar:
    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar = bar
        self._task = task

    def queued(self, produced: Produced) -> None:
        self._bar.update(self._task, description="queueing", completed=produced.planned)

    def full(self, why: str) -> None:
        self._bar.update(self._task, description=why)

    def waiting(self, status: ImportStatus, of: int, workers: int) -> None:
        settled = max(0, of - status.in_flight)
        self._bar.update(self._task, description=_waiting(status, workers), completed=settled, total=of)


class _Lines:
    def __init__(self, console: Console, total: int | None) -> None:
        self._console = console
        self._total = total
        self._last = time.monotonic()
        self._was_full = False

    def queued(self, produced: Produced) -> None:
        self._was_full = False
        looked_at = f"{produced.planned} of {'?' if self._total is None else self._total} shards looked at"
        self._say(f"{looked_at}, {produced.queued} queued", LINE_EVERY_S)

    def full(self, why: str) -> None:
        self._say(why, WAITING_LINE_EVERY_S if self._was_full else 0.0)
        self._was_full = True

    def waiting(self, status: ImportStatus, of: int, workers: int) -> None:
        settled = max(0, of - status.in_flight)
        self._say(f"{settled} of {of} shards settled, {_waiting(status, workers)}", WAITING_LINE_EVERY_S)

    def _say(self, line: str, every_s: float) -> None:
        now = time.monotonic()
        if now - self._last >= every_s:
            self._last = now
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def _waiting(status: ImportStatus, workers: int) -> str:
    if not workers:
        return "waiting for a worker (start one: streams-importer consume)"
    return f"{workers} workers, {status.queued:,} queued, {status.leased:,} leased, {status.delayed:,} delayed"
