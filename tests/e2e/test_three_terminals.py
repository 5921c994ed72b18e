"""Three terminals in an empty folder, at the same instant: one pair of servers, one import, and nothing left running."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from streams_importer.embedded.binaries import MONGOD, REDIS_SERVER, Binary, find_binary
from streams_importer.embedded.stand_in import StandIn
from tests.unit.command_line import clean_environment

from .fleet import COMMAND, KEY, PATIENCE_S, wait_until

SHARDS = ["ids:0..1000", "ids:1000..2000", "ids:2000..3000"]


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, arguments: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._screen, other_end = pty.openpty()
        ends = {"stdin": other_end, "stdout": other_end, "stderr": other_end}
        self.process = subprocess.Popen([COMMAND, *arguments], cwd=folder, env=environment, start_new_session=True, **ends)  # type: ignore[call-overload]
        os.close(other_end)
        self._shown = b""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait(self) -> int:
        code: int = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    @property
    def shown(self) -> str:
        return self._shown.decode()

    def close(self) -> None:
        self.process.kill()
        self.wait()
        os.close(self._screen)

    def _read(self) -> None:
        with suppress(OSError):  # the command has gone
            while data := os.read(self._screen, 65536):
                self._shown += data


class Desk:
    """A folder, what it needs to reach the upstream, and the terminals in it."""

    def __init__(self, folder: Path, upstream: StandIn) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        self._notes = folder / "notes"
        self._notes.mkdir()
        noted = {binary.variable: str(self._noting(binary)) for binary in (REDIS_SERVER, MONGOD)}
        self.environment = clean_environment(
            OCM_BASE_URL=upstream.base_url, OCM_API_KEY=KEY, STREAMS_IMPORTER_EMBEDDED_IDLE="1s", TERM="dumb", **noted
        )
        self.environment.pop("KUBERNETES_SERVICE_HOST", None)
        self.terminals: list[Terminal] = []

    def open(self, *arguments: str) -> Terminal:
        self.terminals.append(Terminal(list(arguments), self.folder, self.environment))
        return self.terminals[-1]

    def ask(self, *arguments: str) -> dict[str, Any]:
        command = [COMMAND, *arguments, "--json"]
        ended = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=PATIENCE_S)
        answer: dict[str, Any] = json.loads(ended.stdout) if ended.returncode == 0 else {}
        return answer

    def started(self) -> dict[str, list[int]]:
        """The processes that were ever started, by server."""
        return {path.name: [int(pid) for pid in path.read_text().split()] for path in self._notes.iterdir() if not path.suffix}

    def _noting(self, binary: Binary) -> Path:
        """The program, but it notes its process number first."""
        script = self._notes / f"{binary.name}.sh"
        script.write_text(f'#!/bin/sh\necho $$ >>"{self._notes / binary.name}"\nexec "{find_binary(binary)}" "$@"\n')
        script.chmod(0o755)
        return script


@pytest.fixture
def desk(tmp_path: Path, stand_in: Callable[..., StandIn]) -> Iterator[Callable[[StandIn], Desk]]:
    desks: list[Desk] = []

    def make(upstream: StandIn) -> Desk:
        desks.append(Desk(tmp_path, upstream))
        return desks[-1]

    yield make
    for one in desks:
        for terminal in one.terminals:
            terminal.close()
        subprocess.run([COMMAND, "services", "stop"], cwd=one.folder, env=one.environment, timeout=PATIENCE_S, check=True)


def test_three_terminals_at_the_same_instant_share_one_pair_and_leave_nothing_running(
    desk: Callable[[StandIn], Desk], stand_in: Callable[..., StandIn]
) -> None:
    upstream = stand_in(points=1200, key=KEY)
    expected = [identifier for identifier in upstream.control.ids() if identifier <= 3000]
    one = desk(upstream)
    produce = one.open("produce", "--id-range", "0..3000", "--shard-size", "1000", "--rate", "200/s")
    consume = one.open("consume")
    status = one.open("status")
    assert produce.wait() == 0, produce.shown
    assert "3 shards queued of 3" in produce.shown
    assert status.wait() in (0, 1), status.shown  # it came first and found nothing, or it joined
    assert "embedded Redis and MongoDB" in status.shown

    wait_until(lambda: one.ask("status", "--embedded").get("imports", {}).get("openchargemap", {}).get("done") == 3, "the import")
    where = one.ask("services", "status")
    with MongoClient[dict[str, Any]](where["mongodb_uri"]) as client:
        database = client.get_default_database()
        assert sorted(row["sourceId"] for row in database["pois"].find({}, {"sourceId": 1})) == expected
        assert sorted((row["shardKey"], row["status"]) for row in database["import_windows"].find({})) == [
            (key, "done") for key in SHARDS
        ]
    assert {name: len(pids) for name, pids in one.started().items()} == {"redis-server": 1, "mongod": 1}
    running = [os.pidfd_open(pid) for pids in one.started().values() for pid in pids] + [os.pidfd_open(where["keeper_pid"])]

    consume.process.send_signal(signal.SIGTERM)
    assert consume.wait() == 0, consume.shown
    starters = [one for one in (produce, consume) if "started the embedded Redis and MongoDB" in one.shown]
    assert len(starters) == 1, "one of the two started the pair, the other joined it"
    for process in running:
        assert select.select([process], [], [], PATIENCE_S)[0], "still running"
        os.close(process)
    assert not Path(where["redis_url"].removeprefix("unix://")).parent.exists()
    assert one.ask("services", "status")["state"] == "stopped"
