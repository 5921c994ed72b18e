"""`consume`: a worker."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import click

from ..application.cancellation import CancelToken
from ..application.completion import Completion
from ..application.consumer import Consumer
from ..application.shutdown import Shutdown
from ..domain.definition import Definition
from ..domain.errors import BadSetting
from ..settings import worker_label
from ..wiring import Wiring
from ..worker import Worker
from . import output
from .options import Duration, Globals, ImportName, setting, with_data_dir, with_servers

MAX_CONCURRENCY = 1000
LONGEST_SHUTDOWN_S = 86400.0


@click.command(epilog="Example: streams-importer consume -c 8 --until-empty")
@click.argument("imports", metavar="[IMPORT]...", nargs=-1, type=ImportName())
@setting("--concurrency", "-c", type=int, default=4, show_default=True, help="Shards at a time.")
@setting("--name", "-n", help="A label for this worker [$DYNO, the pod or the host].")
@click.option(
    "--until-empty", is_flag=True, help="Leave when nothing is queued, leased or delayed; 1 if a shard was dead-lettered."
)
@setting("--shutdown-timeout", type=Duration(), default="25s", show_default=True, help="Time for a clean stop.")
@setting("--lease", "lease_s", type=Duration(), help="Overrides the import's lease.")
@setting("--max-attempts", type=int, help="Overrides the import's attempts.")
@setting("--max-crashes", type=int, help="Overrides the import's crashes.")
@setting("--retry-delay", "retry_delay_s", type=Duration(), help="Overrides the import's delay.")
@with_data_dir
@with_servers
@click.pass_obj
def consume(
    globals_: Globals,
    /,
    imports: tuple[str, ...],
    concurrency: int,
    name: str | None,
    until_empty: bool,
    shutdown_timeout: float,
    **given: Any,
) -> None:
    """Work for the named imports, or for all, also those produced later. With nothing to do it waits."""
    if not 1 <= concurrency <= MAX_CONCURRENCY:
        raise BadSetting(f"--concurrency {concurrency}: must be 1 to {MAX_CONCURRENCY}")
    if not 0 <= shutdown_timeout <= LONGEST_SHUTDOWN_S:
        raise BadSetting(f"--shutdown-timeout {shutdown_timeout:g}s: must be 0s to 1d")
    overrides = {key: given[key] for key in ("lease_s", "max_attempts", "max_crashes", "retry_delay_s")}
    Definition("check").changed(**overrides)
    wiring = globals_.wiring(dict(os.environ), creates=True, needs_key=True, **given)
    stop = CancelToken()
    Shutdown(stop).install()
    stop.on_cancel(lambda: _leave_at_last(shutdown_timeout))
    worker = Worker(
        wiring,
        stop,
        label=name or worker_label(),
        wanted=imports,
        concurrency=concurrency,
        shutdown_timeout_s=shutdown_timeout,
        adjust=lambda definition: definition.changed(**overrides),
    )
    _leave(*_work(wiring, worker, stop, imports, until_empty))


def _work(wiring: Wiring, worker: Worker, stop: CancelToken, wanted: tuple[str, ...], until_empty: bool) -> tuple[int, bool]:
    """Exit status, and whether all slots ended."""
    burst = _Burst(wiring, worker, wanted)
    if until_empty:
        wiring.outages.patiently(stop, burst.begin)
    worker.start()
    wiring.events("worker started", worker=worker.name)
    try:
        worker.consumer.run(burst.is_over if until_empty else lambda _: False)
    finally:
        burst.was_stopped = stop.cancelled
        stop.cancel("over")
        ended = worker.close()
    if worker.error is not None:
        raise worker.error
    wiring.events("worker stopped", worker=worker.name, records=worker.consumer.records)
    return (burst.status() if until_empty else 0), ended


def _leave_at_last(timeout_s: float) -> None:
    """Armed by the first signal. A stop ends within its timeout, even when a server stands still in the middle of a call."""

    def leave() -> None:
        output.complain("stopped at its timeout, in the middle of a call; leases that were not given back will run out")
        os._exit(1)

    timer = threading.Timer(timeout_s, leave)
    timer.daemon = True
    timer.start()


def _leave(code: int, all_ended: bool) -> None:
    if not all_ended:
        # A slot is stuck in a call that cannot be cut short. Its shard was given back; waiting for it would break the promise
        # that a stop ends within its timeout.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


class _Burst:
    """Burst mode: leaves when nothing is left to do."""

    def __init__(self, wiring: Wiring, worker: Worker, wanted: tuple[str, ...]) -> None:
        self._wanted = wanted
        self._wiring = wiring
        self._worker = worker
        self._completion = Completion(wiring.board.read, wiring.imports.paused, self._queued_what_was_missing)
        self.was_stopped = False

    def begin(self) -> None:
        self._completion.begin(self._names())

    def is_over(self, consumer: Consumer) -> bool:
        return self._completion.is_over(list(consumer.definitions))

    def status(self) -> int:
        problem = self._problem()
        if problem is not None:
            output.complain(problem)
        return 0 if problem is None else 1

    def _names(self) -> list[str]:
        return list(self._wanted) or self._wiring.imports.names()

    def _queued_what_was_missing(self, name: str) -> bool:
        if self._wiring.ledger.has_pending(name):
            return self._worker.healer.requeue_missing(name) > 0
        self._worker.healer.audit(name)
        return False

    def _problem(self) -> str | None:
        """Why this is no good end."""
        if self.was_stopped:
            return "stopped before all was done; what is left stays queued"
        unusable = self._wiring.imports.left_alone
        if unusable:
            return f"left alone: {'; '.join(unusable.values())}"
        unknown = self._wiring.imports.undefined(self._wanted)
        if unknown:
            return f"no such import: {', '.join(unknown)}; produce defines one"
        return self._completion.problem(self._names())
