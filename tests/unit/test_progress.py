"""Long work shows that it goes on: a bar on a terminal, a line a second elsewhere."""

from __future__ import annotations

import os
import pty
import select
import sys

import pytest

from streams_importer.application.producer import Produced
from streams_importer.cli import counting as counting_module
from streams_importer.cli import produce_progress as module
from streams_importer.cli.produce_progress import produce_progress


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_elsewhere_it_is_a_line_a_second(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    with produce_progress(10_000) as progress:
        for step in range(50):
            clock.now = step * 0.1
            progress.queued(Produced("run", planned=step * 100, queued=step * 90))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert lines[0] == "1000 of 10000 shards looked at, 900 queued"


def test_on_a_terminal_it_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = pty.openpty()
    with os.fdopen(writer, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setenv("TERM", "xterm")
        with produce_progress(200) as progress:
            progress.queued(Produced("run", planned=100, queued=100))
            progress.queued(Produced("run", planned=200, queued=150))
        terminal.flush()
        shown = ""
        while "200/200" not in shown and select.select([reader], [], [], 5)[0]:
            shown += os.read(reader, 100_000).decode("utf-8", "replace")
    os.close(reader)
    assert "queueing" in shown
    assert "200/200" in shown


def test_counting_elsewhere_is_a_line_a_second(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    monkeypatch.setattr(counting_module, "time", clock)
    with counting_module.counting("shards cancelled") as progress:
        for step in range(25):
            clock.now = step * 0.1
            progress(step * 1000)
    assert capsys.readouterr().err.splitlines() == ["10000 shards cancelled so far", "20000 shards cancelled so far"]
