"""What any worker does for all, and when it is due. Jittered, so that workers do not do it together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..domain.definition import Definition
from ..domain.model import Lease
from ..ports import Claimed
from .every import Every
from .healer import Healer
from .housekeeper import Housekeeper

HOUSEKEEPING_S = 0.5
REAPING_S = 5.0
MISSING_S = 20.0


class Chores:
    def __init__(self, housekeeper: Housekeeper, healer: Healer) -> None:
        self._housekeeper = housekeeper
        self._healer = healer
        self._housekeeping = Every(HOUSEKEEPING_S, at_once=True)
        self._reaping = Every(REAPING_S)
        self._missing = Every(MISSING_S)
        self._may_reclaim = False
        self._shards_are_missing = False

    def keep_house(self, imports: Sequence[str]) -> bool:
        """Whether Redis had forgotten something: then definitions and pauses are to be read again."""
        if not self._housekeeping.is_due():
            return False
        healed = self._healer.heal(imports)
        self._housekeeper.promote(imports)
        if self._reaping.is_due():
            self._housekeeper.reap(imports)
        self._may_reclaim = True
        return bool(healed)

    def reclaim(self, definitions: Mapping[str, Definition], free: int, held: Sequence[Lease]) -> Claimed:
        """As often as the house is kept, and not before a slot is free."""
        if not self._may_reclaim or free <= 0:
            return Claimed([], [])
        self._may_reclaim = False
        return self._housekeeper.reclaim(dict(definitions), free, held)

    def entries_were_deleted(self) -> None:
        """By somebody, while they were worked on: the ledger knows their shards."""
        self._shards_are_missing = True

    def queue_what_is_missing(self, imports: Sequence[str], *, is_idle: bool) -> int:
        """Now and then while there is nothing else to do, and at once when it is known that something is. When nothing is, both
        stores must agree."""
        if not self._shards_are_missing and not (is_idle and self._missing.is_due()):
            return 0
        self._shards_are_missing = False
        queued = sum(self._healer.requeue_missing(name) for name in imports)
        for name in imports if is_idle and not queued else ():
            self._healer.audit(name)
        return queued
