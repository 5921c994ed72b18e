from __future__ import annotations

from pathlib import Path

import pytest

from .command_line import CommandLine, FakeWiring


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> CommandLine:
    return CommandLine(monkeypatch, capsys, tmp_path)


@pytest.fixture
def wiring(monkeypatch: pytest.MonkeyPatch) -> FakeWiring:
    """Every command is wired to this one."""
    fake = FakeWiring()
    monkeypatch.setattr("streams_importer.cli.options.Wiring", fake)
    return fake
