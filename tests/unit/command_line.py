"""The command line in this process: `main()` with an environment of its own, and a wiring that reaches no server."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streams_importer.application.canceller import Canceller
from streams_importer.application.imports import Imports
from streams_importer.application.letters import Purger
from streams_importer.application.outages import Outages
from streams_importer.application.producer import Producer
from streams_importer.application.recount import Recount
from streams_importer.application.replayer import Replayer
from streams_importer.application.shards import Shards
from streams_importer.application.snapshot import ImportStatus, Snapshot
from streams_importer.cli.main import main
from streams_importer.domain.definition import Definition
from streams_importer.ports import EventSink, Source
from streams_importer.settings import Servers, Upstreams
from tests.fakes.catalogue import FakeCatalogue
from tests.fakes.counters import FakeCounters
from tests.fakes.ledger import FakeLedger
from tests.fakes.letters import FakeLetters
from tests.fakes.places import FakePlaces
from tests.fakes.queue import FakeQueue, Store
from tests.fakes.records import FakeRecords
from tests.fakes.source import ScriptedSource

OURS = ("STREAMS_IMPORTER_", "REDIS_", "MONGODB_", "OCM_", "DYNO")
UNREACHABLE = {
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "MONGODB_URI": "mongodb://127.0.0.1:1/test?serverSelectionTimeoutMS=100",
}
"""Servers that are configured and refuse every connection at once."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def message(self) -> str:
        """What went wrong, on the one line that there is for it."""
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("streams-importer: ")
        assert "Traceback" not in self.err
        return self.err.removeprefix("streams-importer: ").removesuffix("\n")


def clean_environment(**variables: str) -> dict[str, str]:
    """This process' environment without any setting of ours but `variables`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return {**kept, **variables}


class CommandLine:
    """Calls `main()` in an empty folder, with none of the settings of whoever runs the tests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.folder = folder
        monkeypatch.chdir(folder)

    def __call__(self, *arguments: str, **variables: str) -> Ended:
        with self._monkeypatch.context() as patch:
            for name in [name for name in os.environ if name.startswith(OURS)]:
                patch.delenv(name)
            for name, value in variables.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["streams-importer", *arguments])
            self._capsys.readouterr()
            with pytest.raises(SystemExit) as exit_:
                main()
            out, err = self._capsys.readouterr()
        code = exit_.value.code
        assert isinstance(code, int)
        return Ended(code, out, err)

    def write_file(self, text: str, name: str = "streams-importer.toml") -> Path:
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path


class FakeBoard:
    """Counts what is in the fake queue."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, imports: Sequence[str]) -> dict[str, ImportStatus]:
        return {name: self._status(name) for name in imports}

    def _status(self, name: str) -> ImportStatus:
        entries = [entry for entry in self._store.entries.values() if entry.import_name == name]
        leased = sum(entry.owner not in (None, "released", "newer") for entry in entries)
        delayed = sum(of == name for of, _ in self._store.delayed)
        dead = sum(of == name for of, _ in self._store.letters)
        done = self._store.counters["done"]
        zero = dict.fromkeys(("inserted", "updated", "unchanged", "stale", "rejected"), 0)
        return ImportStatus(
            *(len(entries) - leased, leased, delayed, dead, done, dead, 0, 0, len(entries) + delayed + done + dead, None),
            records=zero | {"inserted": 10 * done},
            requests={},
            since=None,
            dead_lettered=dead,
        )


class FakeWiring:
    """What a command needs of `wiring.Wiring`, in memory. Stores outlive the commands that use them."""

    def __init__(self) -> None:
        self.original, self.copy = FakeCatalogue(), FakeCatalogue()
        self.fake_queue, self.ledger, self.counters = FakeQueue(), FakeLedger(), FakeCounters()
        self.source: Source = ScriptedSource(highest=25_000)
        self.ready: list[Definition] = []
        self.statuses: dict[str, ImportStatus] = {}
        self.servers: Servers | None = None
        self.namespace = ""

    def close(self) -> None:
        """Stores outlive the commands."""

    def __call__(
        self, servers: Servers, upstreams: Upstreams, namespace: str, events: EventSink, *, data_dir: str = "."
    ) -> FakeWiring:
        """Takes the place of the class."""
        self.servers, self.upstreams, self.namespace, self.events = servers, upstreams, namespace, events
        self.data_dir = data_dir
        self.imports = Imports(self.original, self.copy, events)
        self.outages = Outages(events)
        self.board = FakeBoard(self.fake_queue.store)
        return self

    @property
    def definition(self) -> Definition:
        """The one that the last command stored."""
        return self.ready[-1]

    def queue(self, label: str) -> FakeQueue:
        return self.fake_queue

    def producer(self, room_for: Callable[[int], int]) -> Producer:
        return Producer(self.fake_queue, self.ledger, self.recount, room_for)

    @property
    def shards(self) -> Shards:
        return Shards(FakeRecords(self.ledger), FakePlaces(self.fake_queue.store))

    def canceller(self, progress: Callable[[int], None]) -> Canceller:
        return Canceller(self.fake_queue, self.recount, self.shards, progress)

    @property
    def recount(self) -> Recount:
        return Recount(self.ledger, self.counters)

    @property
    def letters(self) -> FakeLetters:
        return FakeLetters(self.fake_queue)

    def replayer(self, progress: Callable[[int], None]) -> Replayer:
        return Replayer(self.letters, self.ledger, self.shards, self.recount, progress)

    def purger(self, progress: Callable[[int], None]) -> Purger:
        return Purger(self.letters, progress)

    def set_up(self, definition: Definition) -> None:
        self.ready.append(definition)

    def source_of(self, definition: Definition) -> Source:
        return self.source

    def check_servers(self) -> None: ...

    def live_leases(self) -> dict[str, float]:
        return {"w:1": 15.0}

    def snapshot(self, wanted: Any = ()) -> Snapshot:
        return Snapshot({name: status for name, status in self.statuses.items() if not wanted or name in wanted})
