"""A worker: claims as many shards as it has free slots, imports them, and settles each attempt exactly once."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count

from ..domain.definition import Definition
from ..domain.errors import Cancelled, Unavailable
from ..domain.model import Outcome, Released
from ..ports import Claimed, EventSink, Ledger, ShardQueue, Source
from .apart import ApartImporter
from .cancellation import CancelToken
from .chores import Chores
from .every import Every
from .giving_back import GivingBack
from .healer import Healer
from .housekeeper import Housekeeper
from .imports import Imports
from .intake import Intake
from .lease_keeper import LeaseKeeper
from .outages import Outages
from .settlement import Attempt, Settlement
from .shard_importer import ShardImporter
from .slots import Slots

POLL_S = 1.0
"""How long a worker sleeps when nothing rings: the control channel wakes it earlier."""

REFRESH_S = 20.0
RELEASE_MARGIN_S = 2.0
"""Before the shutdown timeout, what still runs is given back as it is."""

PAUSED = "paused"
CANCEL = "cancel"
"""Heard when shards were taken from somebody's hands: their leases tell whose."""


@dataclass(frozen=True, slots=True)
class WorkerParts:
    """What a worker is made of; wiring builds them."""

    queue: ShardQueue
    ledger: Ledger
    imports: Imports
    settlement: Settlement
    importer: ShardImporter
    apart: ApartImporter
    keeper: LeaseKeeper
    housekeeper: Housekeeper
    healer: Healer
    outages: Outages
    events: EventSink
    source_of: Callable[[Definition], Source]


class Consumer:
    """The main thread of a worker. `run_once` claims, starts and settles without waiting for anything."""

    def __init__(
        self,
        parts: WorkerParts,
        stop: CancelToken,
        *,
        wanted: Sequence[str] = (),
        concurrency: int = 4,
        shutdown_timeout_s: float = 25.0,
        adjust: Callable[[Definition], Definition] = lambda definition: definition,
    ) -> None:
        self._parts = parts
        self._stop = stop
        self._stop_settling = CancelToken()
        self._wanted = list(wanted)
        self._adjust = adjust
        self._bell = threading.Event()
        self._slots = Slots(concurrency, self._bell.set)
        self._definitions: dict[str, Definition] = {}
        self._unknown: list[str] = []
        """Named imports that are defined nowhere: what lies on their streams is garbage."""
        self._stale = True
        self._adopt = False
        self._told_too_new = False
        self._told_paused: set[str] = set()
        self._refreshing = Every(REFRESH_S)
        self._chores = Chores(parts.housekeeper, parts.healer)
        self._records = 0
        self._intake = Intake(parts.ledger, parts.settlement, self._definition_of)
        self._giving_back = GivingBack(parts.queue, parts.keeper, parts.events, self._lease_s_of)
        self._shutdown_timeout_s = shutdown_timeout_s
        self._deadline = float("inf")
        stop.on_cancel(self._stopping)

    @property
    def definitions(self) -> dict[str, Definition]:
        return self._definitions

    @property
    def records(self) -> int:
        """Records of settled shards so far."""
        return self._records

    def heard(self, message: str) -> None:
        """From the control channel: whatever it says, the state is read again and the loop goes round."""
        if message not in ("work", CANCEL):
            self._stale = True
        self._bell.set()

    def run(self, is_over: Callable[[Consumer], bool] = lambda _: False) -> None:
        """Works until told to stop, or until `is_over` says so while nothing is in hand."""
        patiently = self._parts.outages.patiently
        try:
            while not self._stop.cancelled:
                self._bell.clear()
                # No proof that a server is back: with all slots busy a round may ask none. The keeper and `settle` are.
                started = patiently(self._stop, self.run_once, is_proof=False)
                if not started and self._slots.running == 0 and patiently(self._stop, lambda: is_over(self)):
                    return
                if not started or self._slots.free == 0:
                    self._bell.wait(POLL_S * random.uniform(0.5, 1.0))
        except Cancelled:
            return

    def run_once(self) -> int:
        self.settle(self._slots.finished())
        if self._stale or self._refreshing.is_due():
            self._refresh()
        names = list(self._definitions)
        self._stale = self._chores.keep_house(names) or self._stale
        # What a dead worker left comes before what is new: it has waited for a lease already.
        started = self._begin(self._reclaim(self._slots.free))
        started += self._begin(self._claim(self._slots.free))
        return started + self._chores.queue_what_is_missing(names, is_idle=not started and self._slots.running == 0)

    def settle(self, ended: list[tuple[Attempt, Outcome]]) -> None:
        """Repeated until it is written: an outage in the middle changes nothing about what has ended."""
        if not ended:
            return
        parts = self._parts
        for attempt, outcome in ended:
            if isinstance(outcome, Released) and outcome.refused is not None:
                refuse = partial(parts.imports.refuse, attempt.lease.import_name, outcome.refused, parts.queue.consumer)
                parts.outages.patiently(self._stop_settling, refuse)
        calls = count()
        parts.outages.patiently(self._stop_settling, lambda: parts.settlement.settle(ended, is_repeated=next(calls) > 0))
        parts.outages.back("MongoDB")  # whoever met its outage may have given up waiting
        for attempt, outcome in ended:
            parts.keeper.let_go(attempt.lease)
            checkpoint = getattr(outcome, "checkpoint", attempt.lease.checkpoint)
            self._records += checkpoint.counts.seen - attempt.lease.checkpoint.counts.seen

    def drain(self) -> bool:
        """After a stop: slots end their page and are settled; what is not done by the margin is given back as it is.
        Returns whether all slots ended."""
        try:
            while True:
                self._bell.clear()
                self.settle(self._slots.finished())
                left_s = self._deadline - time.monotonic()
                if self._slots.running == 0 or left_s <= 0:
                    break
                self._bell.wait(min(left_s, POLL_S))  # the deadline may be set only now, by the thread that was told to stop
        except Cancelled:
            pass
        self._giving_back.give_all()
        self._slots.close()
        return self._slots.running == 0

    def _stopping(self) -> None:
        """Settling may wait out an outage, but not beyond the shutdown timeout."""
        patience_s = max(self._shutdown_timeout_s - RELEASE_MARGIN_S, self._shutdown_timeout_s / 2)
        self._deadline = time.monotonic() + patience_s
        timer = threading.Timer(patience_s, self._stop_waiting)
        timer.daemon = True
        timer.start()
        self._bell.set()

    def _stop_waiting(self) -> None:
        """From a thread of its own: the main one may be stuck in a call to a server that stands still."""
        self._stop_settling.cancel("shutdown timeout")
        self._giving_back.give_all()

    # Claiming.

    def _claim(self, free: int) -> Claimed:
        names = [*self._definitions, *self._unknown]
        if free <= 0 or not names:
            return Claimed([], [])
        random.shuffle(names)  # no import is always first
        queue = self._parts.queue
        try:
            if self._adopt:
                adopted = queue.adopt(names, [lease.entry for lease in self._parts.keeper.held()])
                self._adopt = False
                if adopted.leases or adopted.garbage:
                    return adopted
            return queue.claim(names, free)
        except Unavailable:
            self._adopt = True  # the claim may have happened although its reply was lost
            raise

    def _reclaim(self, free: int) -> Claimed:
        try:
            reclaimed = self._chores.reclaim(self._definitions, free, list(self._parts.keeper.held()))
        except Unavailable:
            self._adopt = True  # as after a claim whose reply was lost
            raise
        for lease in reclaimed.leases:
            self._parts.events("shard reclaimed", import_name=lease.import_name, shard=lease.shard_key, crashes=lease.crashes)
        return reclaimed

    def _begin(self, claimed: Claimed) -> int:
        """Starts what is to run of it. Returns how many entries were dealt with, one way or another."""
        if claimed.too_new and not self._told_too_new:
            self._told_too_new = True
            self._parts.events("shards left to a newer version of streams-importer: update this worker", level="warning")
        if claimed.deleted:
            self._chores.entries_were_deleted()
        tokens = {lease: CancelToken(self._stop) for lease in claimed.leases}
        for lease, token in tokens.items():
            self._parts.keeper.hold(lease, token)
        patiently = self._parts.outages.patiently
        for item in claimed.garbage:
            patiently(self._stop_settling, partial(self._intake.bury, item))
        for name in {lease.import_name for lease in claimed.leases}:
            leases = [lease for lease in claimed.leases if lease.import_name == name]
            try:
                ready = patiently(self._stop, partial(self._intake.sort, name, leases))
            except Cancelled:
                self._giving_back.give(leases)
                continue
            started = {held for held, _, _ in ready}
            for lease in leases:
                self._parts.keeper.let_go(lease)
                if lease not in started:
                    tokens[lease].close()
            for held, lease, definition in ready:
                self._start(Attempt(lease, definition), tokens[held])
        return len(claimed.leases) + len(claimed.garbage)

    def _start(self, attempt: Attempt, token: CancelToken) -> None:
        self._parts.keeper.hold(attempt.lease, token)
        source = self._parts.source_of(attempt.definition)
        importer = self._parts.apart if attempt.lease.crashes else self._parts.importer

        def run() -> Outcome:
            try:
                return importer.run(attempt.lease, attempt.definition, source, token)
            finally:
                token.close()

        self._slots.start(attempt, run)

    def _definition_of(self, name: str) -> Definition | None:
        if name not in self._definitions:
            found = self._parts.imports.find(name)
            if found is not None:
                self._definitions = {**self._definitions, name: self._adjust(found)}
        return self._definitions.get(name)

    def _lease_s_of(self, name: str) -> float:
        definition = self._definitions.get(name)
        return definition.lease_s if definition else 0.0

    # Around it.

    def _refresh(self) -> None:
        """Definitions and pauses, read again: at the start, after a reconnection, and when told that they changed."""
        self._stale = False
        imports = self._parts.imports
        try:
            imports.restore_pauses()
            served = imports.served(self._wanted)
            self._definitions = {name: self._adjust(definition) for name, definition in served.items()}
            self._unknown = imports.undefined(self._wanted)
            paused = imports.paused()
        except Unavailable:
            self._stale = True
            raise
        self._parts.outages.back("MongoDB")
        for definition in self._definitions.values():
            self._parts.source_of(definition)  # a changed limit holds from now on, for those who wait for a token too
        self._parts.apart.refreshed()
        self._tell_pauses(set(paused) & set(self._definitions))
        for lease, token in self._parts.keeper.held().items():
            if lease.import_name in paused:
                token.cancel(PAUSED)

    def _tell_pauses(self, paused: set[str]) -> None:
        for name in sorted(paused ^ self._told_paused):
            self._parts.events("pause obeyed" if name in paused else "going on", import_name=name)
        self._told_paused = paused
