"""Runs suspects apart: a shard that was running when its worker ended gets a process of its own, so that the next crash names
the culprit, and takes nobody along.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from ..domain.crash_policy import CrashPolicy
from ..domain.definition import Definition
from ..domain.errors import BadSetting, Cancelled, Unavailable
from ..domain.model import Abandoned, Crashed, Failure, Lease, Outcome, Released, Retry
from ..ports import Child, Ledger, ShardQueue, Source
from .cancellation import CancelToken
from .outages import Outages
from .settlement import with_ledger
from .shard_importer import LOST

MOST_CHILDREN = 2
"""Each is a whole Python process, with two connections to Redis. More suspects than this wait for their turn, unstarted, and
so cannot be charged."""

TURN_S = 0.2
NO_PROCESS_S = 5.0
"""Before a shard for which no process could be started is given back: that is this machine's trouble, and may pass."""

CHANGED = "definition changed"
ENDED_BY_PEOPLE = ("by SIGTERM", "by SIGINT", "by SIGHUP")
"""A platform signals every process it finds, also one that has just begun and does not ignore it yet."""


class ApartImporter:
    """Like ShardImporter, `run` returns an outcome and never raises."""

    def __init__(
        self,
        queue: ShardQueue,
        ledger: Ledger,
        outages: Outages,
        launch: Callable[[Lease, Definition], Child],
        rates: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._queue = queue
        self._ledger = ledger
        self._outages = outages
        self._launch = launch
        self._rates = rates
        self._turns = _Turns(MOST_CHILDREN)
        self._running: dict[Child, tuple[CancelToken, Mapping[str, str]]] = {}

    def run(self, lease: Lease, definition: Definition, _source: Source, cancel: CancelToken) -> Outcome:
        wanted = MOST_CHILDREN if CrashPolicy(definition.max_crashes).runs_alone(lease.crashes) else 1
        try:
            with self._turns.taken(wanted, cancel):
                [held] = self._outages.patiently(cancel, lambda: self._queue.start([lease]))
                return self._run_child(lease, definition, cancel) if held else Abandoned()
        except Cancelled:
            return Abandoned() if cancel.reason == LOST else Released(lease.checkpoint)
        except BadSetting as error:  # no shard can work until a person changes something
            return Released(lease.checkpoint, Failure("setting", str(error)))
        except OSError:
            cancel.wait(NO_PROCESS_S)
            return Released(lease.checkpoint)
        except Exception as error:  # a defect of ours costs this shard an attempt, never the worker
            return Retry(lease.checkpoint, Failure("internal_error", f"{type(error).__name__}: {error}"))

    def heard(self, message: str) -> None:
        """What the control channel says is for children too."""
        for child in list(self._running):
            child.hear(message)

    def refreshed(self) -> None:
        """A child has the rates it began with. After a change it gives its shard back, and the next one begins with the new."""
        for token, rates in list(self._running.values()):
            if rates != self._rates():
                token.cancel(CHANGED)

    def _run_child(self, lease: Lease, definition: Definition, cancel: CancelToken) -> Outcome:
        rates = dict(self._rates())
        child = self._launch(lease, definition)
        self._running[child] = (cancel, rates)
        forget = cancel.on_cancel(lambda: child.cancel(cancel.reason or ""))
        try:
            outcome = child.outcome()
        finally:
            forget()
            self._running.pop(child)
            child.close()
        return outcome or self._ended_without_a_word(lease, cancel, child.how_it_ended)

    def _ended_without_a_word(self, lease: Lease, cancel: CancelToken, how: str) -> Outcome:
        if cancel.reason == LOST:
            return Abandoned()
        try:
            row = self._outages.patiently(cancel, lambda: self._ledger.look(lease.import_name, [lease.shard_key]))
            latest = with_ledger(lease, row[lease.shard_key]) if lease.shard_key in row else lease
        except (Cancelled, Unavailable):
            latest = lease
        if cancel.cancelled or how in ENDED_BY_PEOPLE:
            return Released(latest.checkpoint)
        got_on = latest.checkpoint.page > lease.checkpoint.page
        failure = Failure("crashed", f"the process that ran it, and nothing else, ended {how}; perhaps it needs more memory")
        return Crashed(latest.checkpoint, failure, 1 if got_on else lease.crashes + 1)


class _Turns:
    """A number of turns, of which one can have several at once. Whoever waits for all of them is not overtaken for ever."""

    def __init__(self, number: int) -> None:
        self._free = number
        self._changed = threading.Condition()
        self._first = threading.Lock()

    @contextmanager
    def taken(self, number: int, cancel: CancelToken) -> Iterator[None]:
        while not self._first.acquire(timeout=TURN_S):
            _stop_if(cancel)
        try:
            with self._changed:
                while self._free < number:
                    _stop_if(cancel)
                    self._changed.wait(TURN_S)
                self._free -= number
        finally:
            self._first.release()
        try:
            yield
        finally:
            with self._changed:
                self._free += number
                self._changed.notify_all()


def _stop_if(cancel: CancelToken) -> None:
    if cancel.cancelled:
        raise Cancelled("stopped while it waited to run apart")
