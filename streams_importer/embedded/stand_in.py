"""A local Open Charge Map for the demo and the tests: in a thread (`StandIn`) or as a process of its own (`StandInProcess`).

By hand: `python -m streams_importer.embedded.stand_in --points 50000 --seed 1` prints its address and runs until its input ends.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from ..domain.errors import ImporterError
from .stand_in_control import Control
from .stand_in_faults import Faults
from .stand_in_http import API_PREFIX, StandInServer
from .stand_in_points import generate, read_points
from .stand_in_queries import Points
from .stand_in_service import Asked, Service

ODD_RATE = 0.005
_KEY_VARIABLE = "STREAMS_IMPORTER_STAND_IN_KEY"
_END_TIMEOUT_S = 5.0


class StandIn:
    """Serves from construction to `stop()`, from a thread. `pois` serves given records instead of generated ones."""

    def __init__(
        self,
        points: int = 1000,
        seed: int = 1,
        key: str | None = None,
        pois: Iterable[Mapping[str, Any]] | None = None,
        odd_rate: float = ODD_RATE,
        port: int = 0,
    ) -> None:
        self.control = Service(generate(points, seed, odd_rate) if pois is None else read_points(pois), key)
        self._server = StandInServer(self.control, port)
        self.base_url = f"http://127.0.0.1:{self._server.port}{API_PREFIX}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="stand-in", daemon=True)
        self._thread.start()

    @property
    def faults(self) -> Faults:
        return self.control.faults

    @property
    def log(self) -> list[Asked]:
        return self.control.log()

    @property
    def points(self) -> Points:
        return self.control.points

    def stop(self) -> None:
        """Safe to repeat. Whoever waits for an answer is cut off."""
        if self._thread.is_alive():
            self._server.stop()
            self._thread.join()

    def __enter__(self) -> StandIn:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


class StandInProcess:
    """The same in a process of its own, so that it does not share the caller's processor time. It ends with the caller."""

    def __init__(self, points: int = 1000, seed: int = 1, key: str | None = None, odd_rate: float = ODD_RATE) -> None:
        arguments = ["--points", str(points), "--seed", str(seed), "--odd-rate", str(odd_rate)]
        # A session of its own: it must still answer while Ctrl-C stops the workers.
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            env=_environment(key),
        )
        try:
            assert self._process.stdout is not None
            self.base_url = self._process.stdout.readline().decode().strip()
            if not self.base_url:
                raise ImporterError("the local Open Charge Map ended while starting")
            self.control = Control(urlsplit(self.base_url).port or 0)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def log(self) -> list[Asked]:
        return self.control.log()

    def stop(self) -> None:
        """Safe to repeat."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> StandInProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def _environment(key: str | None) -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != _KEY_VARIABLE}
    if key is not None:
        environment[_KEY_VARIABLE] = key  # arguments are visible to everybody on the machine
    # Found from an uninstalled checkout too, wherever the caller was started.
    root = str(Path(__file__).resolve().parents[2])
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
    return environment


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="stand_in", description="A local Open Charge Map. Ends when its input ends.")
    parser.add_argument("--points", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--odd-rate", type=float, default=ODD_RATE, help="share of odd rows (default: %(default)s)")
    parser.add_argument("--port", type=int, default=0, help="loopback port (default: a free one)")
    options = parser.parse_args(arguments)
    key = os.environ.get(_KEY_VARIABLE)
    with StandIn(options.points, options.seed, key, odd_rate=options.odd_rate, port=options.port) as stand_in:
        print(stand_in.base_url, flush=True)
        with suppress(KeyboardInterrupt):
            sys.stdin.buffer.read()


if __name__ == "__main__":
    main()
