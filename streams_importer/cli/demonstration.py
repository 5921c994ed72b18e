"""What `demo` does: private servers, a local Open Charge Map, real worker processes, a live view, and a proof at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

from rich import box
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ..adapters.log_events import LogEvents
from ..application.snapshot import Snapshot
from ..console.view import render
from ..domain.errors import ImporterError, Unavailable
from ..domain.planner import IdRanges
from ..embedded.guardian import die_with_parent
from ..embedded.servers import EmbeddedServers
from ..embedded.stand_in import StandInProcess
from ..embedded.stand_in_queries import least_requests
from ..settings import DEFAULT_IMPORT, Servers, Upstreams
from ..wiring import Wiring
from .output import Plain

RATE = "25/s"
PAGE_SIZE = 1000
SHARD_SIZE = 5000
"""Small enough that there is something to see on a screen for a few seconds."""
FRAMES_A_SECOND = 4


@dataclass(frozen=True, slots=True)
class Pass:
    """What one pass over the upstream did."""

    title: str
    seconds: float
    requests: int
    snapshot: Snapshot
    exit_codes: list[int]


class Demonstration:
    def __init__(self, points: int, workers: int, seed: int, console: Console) -> None:
        self._points = points
        self._workers = workers
        self._seed = seed
        self._console = console

    def run(self) -> bool:
        say = self._console.print
        say(
            f"Starting a private Redis and MongoDB, and a local Open Charge Map with {self._points:,} points …",
            style="dim",
            highlight=False,
            soft_wrap=True,
        )
        key = f"demo-{self._seed}"
        with EmbeddedServers() as servers, StandInProcess(self._points, self._seed, key) as upstream:
            environment = {
                **_without_settings(os.environ),
                "REDIS_URL": servers.redis_url,
                "MONGODB_URI": servers.mongodb_uri,
                "OCM_BASE_URL": upstream.base_url,
                "OCM_API_KEY": key,
            }
            chosen = Servers(servers.redis_url, servers.mongodb_uri)
            wiring = Wiring(chosen, Upstreams.from_environment(environment), "si", LogEvents(least="error"))
            first = self._import("first pass", wiring, upstream, environment)
            second = self._import("second pass (--again)", wiring, upstream, environment, "--again")
            return self._prove(wiring, upstream, first, second)

    def _import(self, title: str, wiring: Wiring, upstream: StandInProcess, environment: dict[str, str], *flags: str) -> Pass:
        upstream.control.clear_log()
        before = wiring.snapshot()
        started = time.monotonic()
        command = [sys.executable, "-m", "streams_importer", "--config", os.devnull]  # not the user's own file
        plan = ["produce", "--rate", RATE, "--shard-size", str(SHARD_SIZE), *flags]
        self._console.print(f"$ streams-importer {' '.join(plan)}", style="bold", highlight=False)
        if subprocess.run([*command, *plan], env=environment).returncode != 0:
            raise ImporterError("the demo cannot go on: produce failed, for the reason above")
        self._console.print(
            f"$ streams-importer consume --until-empty   (× {self._workers} processes)",
            style="bold",
            highlight=False,
            soft_wrap=True,
        )
        workers = [
            subprocess.Popen(
                [*command, "-q", "consume", "--until-empty", "--name", f"worker.{number + 1}"],
                env=environment,
                preexec_fn=die_with_parent(),
            )
            for number in range(self._workers)
        ]
        try:
            self._watch(wiring, workers)
        finally:
            for worker in workers:
                if worker.poll() is None:
                    worker.terminate()
            codes = [worker.wait() for worker in workers]
        seconds = time.monotonic() - started
        requests = sum(asked.path.endswith("/poi") for asked in upstream.control.log())
        return Pass(title, seconds, requests, _since(before, wiring.snapshot()), codes)

    def _watch(self, wiring: Wiring, workers: list[subprocess.Popen[bytes]]) -> None:
        """A live view on a terminal; a line a second elsewhere."""
        if not self._console.is_terminal:
            self._watch_plainly(wiring, workers)
            return
        with Live(console=self._console, refresh_per_second=FRAMES_A_SECOND) as live:
            while True:
                running = any(worker.poll() is None for worker in workers)
                try:
                    live.update(Plain(render(wiring.snapshot())), refresh=True)
                except Unavailable as error:
                    live.update(Plain(Text(str(error), style="yellow")), refresh=True)
                if not running:
                    return
                time.sleep(1 / FRAMES_A_SECOND)

    def _watch_plainly(self, wiring: Wiring, workers: list[subprocess.Popen[bytes]]) -> None:
        while any(worker.poll() is None for worker in workers):
            run = wiring.snapshot().imports[DEFAULT_IMPORT].run
            if run is not None:
                self._console.print(f"shards settled: {run.done + run.failed} of {run.total}", highlight=False)
            time.sleep(1)

    def _prove(self, wiring: Wiring, upstream: StandInProcess, first: Pass, second: Pass) -> bool:
        """Reads everything back and compares it with what the upstream has."""
        ids = upstream.control.ids()
        stored = sorted(document["sourceId"] for document in wiring.database["pois"].find({}, {"sourceId": 1}))
        ranges = [(part.low, part.high) for part in IdRanges(0, ids[-1], SHARD_SIZE)]
        least = least_requests(ids, ranges, PAGE_SIZE)
        status = wiring.snapshot().imports[DEFAULT_IMPORT]
        checks = [
            ("ids stored = ids upstream", f"{len(stored):,} = {len(ids):,}", stored == ids),
            ("shards done", f"{status.done} of {len(ranges)}", status.done == len(ranges) and status.dead == 0),
            ("workers ended well", str(first.exit_codes + second.exit_codes), not any(first.exit_codes + second.exit_codes)),
        ]
        for each, field in ((first, "inserted"), (second, "unchanged")):
            number = each.snapshot.imports[DEFAULT_IMPORT].records[field]
            checks += [
                (f"{each.title}: {field}", f"{number:,} of {len(ids):,} in {each.seconds:.1f} s", number == len(ids)),
                (f"{each.title}: requests", f"{each.requests} made, {least} least possible", each.requests == least),
            ]
        self._console.print(_table(checks))
        return all(ok for _, _, ok in checks)


def _since(before: Snapshot, after: Snapshot) -> Snapshot:
    """The records of `after` less those of `before`."""
    imports = {}
    for name, status in after.imports.items():
        earlier = before.imports[name].records if name in before.imports else {}
        imports[name] = replace(status, records={key: value - earlier.get(key, 0) for key, value in status.records.items()})
    return replace(after, imports=imports)


def _table(checks: list[tuple[str, str, bool]]) -> Table:
    table = Table(title="Proof", title_justify="left", box=box.SIMPLE_HEAD, show_header=False)
    for what, found, ok in checks:
        table.add_row(what, found, Text("ok", style="bold green") if ok else Text("NOT AS IT SHOULD BE", style="bold red"))
    return table


def _without_settings(environment: Any) -> dict[str, str]:
    """Nothing of the user's own servers and settings reaches the demo."""
    ours = ("STREAMS_IMPORTER_", "REDIS_", "MONGODB_", "OCM_")
    return {name: value for name, value in environment.items() if not name.startswith(ours)}
