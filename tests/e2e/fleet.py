"""Drives the installed command in real processes, on real servers, against the local Open Charge Map."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database
from redis import Redis

from streams_importer.embedded.servers import EmbeddedServers
from streams_importer.embedded.stand_in import StandIn
from streams_importer.embedded.stand_in_service import Asked

COMMAND = str(Path(sys.executable).with_name("streams-importer"))
KEY = "e2e-secret-key"
PATIENCE_S = 60.0


class Process:
    """A running command whose log lines can be waited for."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        self._heard = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        with self._heard:
            return "\n".join(self.lines)

    def running(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = PATIENCE_S) -> int:
        code = self._process.wait(seconds)
        self._reader.join(5)
        if self._process.stdout is not None:
            self._process.stdout.close()
        return code

    def end(self) -> None:
        if self.running():
            self._process.kill()
        self.wait()

    def wait_for_line(self, text: str, seconds: float = PATIENCE_S) -> str:
        deadline = time.monotonic() + seconds
        with self._heard:
            while True:
                found = next((line for line in self.lines if text in line), None)
                if found is not None:
                    return found
                if not self._heard.wait(max(0.0, deadline - time.monotonic())):
                    raise AssertionError(f"no line with {text!r} in:\n" + "\n".join(self.lines))

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._heard:
                self.lines.append(line.rstrip("\n"))
                self._heard.notify_all()


class Fleet:
    """One namespace on one pair of servers with one upstream."""

    def __init__(self, servers: EmbeddedServers, database: str, upstream: StandIn) -> None:
        self.upstream = upstream
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("STREAMS_IMPORTER_", "REDIS_", "OCM_"))},
            "REDIS_URL": servers.redis_url,
            "MONGODB_URI": servers.mongodb_uri_of(database),
            "OCM_BASE_URL": upstream.base_url,
            "OCM_API_KEY": KEY,
        }
        self.redis = Redis.from_url(servers.redis_url)
        self.mongo: MongoClient[dict[str, Any]] = MongoClient(servers.mongodb_uri_of(database), tz_aware=True)
        self.db: Database[dict[str, Any]] = self.mongo[database]
        self._processes: list[Process] = []

    def run(self, *arguments: str, code: int = 0, seconds: float = PATIENCE_S, **environment: str) -> str:
        """Runs a command to its end; its output. The exit status must be `code`."""
        process = self.start(*arguments, **environment)
        found = process.wait(seconds)
        assert found == code, f"{arguments} ended with {found}:\n{process.output}"
        return process.output

    def start(self, *arguments: str, **environment: str) -> Process:
        process = Process([COMMAND, *arguments], {**self.environment, **environment})
        self._processes.append(process)
        return process

    def work(self, workers: int = 2, *arguments: str, seconds: float = PATIENCE_S) -> None:
        """Workers in burst mode, to their good end."""
        running = [self.start("consume", "--until-empty", *arguments) for _ in range(workers)]
        for worker in running:
            code = worker.wait(seconds)
            assert code == 0, worker.output

    def status(self, import_name: str = "openchargemap") -> dict[str, Any]:
        status: dict[str, Any] = json.loads(self.run("status", "--json"))["imports"][import_name]
        return status

    def close(self) -> None:
        for process in self._processes:
            process.end()
        self.redis.close()
        self.mongo.close()

    # What became of it.

    def asked(self, path: str = "/poi") -> list[Asked]:
        return [asked for asked in self.upstream.log if asked.path == path]

    def repeated(self) -> int:
        """Requests for a page that were made more than once and answered."""
        pages = Counter(tuple(sorted(asked.params.items())) for asked in self.asked() if asked.status == 200)
        return sum(number - 1 for number in pages.values())

    def stored_ids(self) -> list[int]:
        return sorted(document["sourceId"] for document in self.db["pois"].find({}, {"sourceId": 1}))

    def shard_states(self) -> Counter[str]:
        return Counter(row["status"] for row in self.db["import_windows"].find({}, {"status": 1}))

    def expect_everything_once(self) -> None:
        """Every point of the upstream is stored exactly once as it is there, every shard settled, and counters agree."""
        assert self.stored_ids() == self.upstream.control.ids()
        for document in self.db["pois"].find({}):
            assert document["data"] == without_computed(json.loads(self.upstream.points.get(document["sourceId"]).body))
        rows = list(self.db["import_windows"].find({}))
        assert {row["status"] for row in rows} == {"done"}
        status = self.status()
        assert status["done"] == status["total"] == len(rows)
        assert status["queued"] == status["leased"] == status["delayed"] == status["dead"] == 0
        for name in ("seen", "inserted", "updated", "unchanged", "stale", "rejected"):
            assert status["records"][name] == sum(row["counts"][name] for row in rows), name
        assert status["records"]["seen"] == len(self.upstream.control.ids())


def without_computed(poi: dict[str, Any]) -> dict[str, Any]:
    """The record less what Open Charge Map computes at answer time."""
    poi.pop("IsRecentlyVerified", None)
    if isinstance(poi.get("AddressInfo"), dict):
        poi["AddressInfo"].pop("Distance", None)
    return poi


def wait_until(holds: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
    """Waits for an event that can only be looked for."""
    deadline = time.monotonic() + seconds
    tick = threading.Event()
    while not holds():
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}"
        tick.wait(0.02)
