"""What becomes of claimed entries before any of them runs: every claim looks in the ledger first.

1. Garbage, and shards that nobody planned, are dead-lettered.
2. What the ledger has as settled is settled here without a request.
3. The rest is recorded as leased and started, in both stores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ..domain.crash_policy import CrashPolicy
from ..domain.definition import Definition
from ..domain.model import FINAL_STATES, STORED_VERSION, Crashed, Failure, Garbage, Lease
from ..ports import Ledger
from .settlement import Attempt, Settlement, with_ledger


@dataclass(frozen=True, slots=True)
class Intake:
    ledger: Ledger
    settlement: Settlement
    definition_of: Callable[[str], Definition | None]
    """Looked up again when it is not known: nothing is thrown away because of an old answer."""

    def bury(self, item: Garbage) -> None:
        self.settlement.bury(item, "garbage", item.reason)

    def sort(self, import_name: str, leases: Sequence[Lease]) -> list[tuple[Lease, Lease, Definition]]:
        """Of leases of one import those that are to run: as claimed, as they go on, and under which definition."""
        definition = self.definition_of(import_name)
        if definition is None:
            for lease in leases:
                self.settlement.bury(lease, "unknown_import", "no import of this name is defined; produce defines one")
            return []
        rows = self.ledger.look(import_name, [lease.shard_key for lease in leases])
        ready = []
        for lease in leases:
            row = rows.get(lease.shard_key)
            if row is None:
                self.settlement.bury(lease, "unknown_shard", "the ledger has no such shard")
            elif row.job != lease.job or row.status in FINAL_STATES or row.v > STORED_VERSION:
                self.settlement.follow(lease, row)
            else:
                ready.append((lease, with_ledger(lease, row), definition))
        return self._started(ready, lease_until(definition))

    def _started(self, ready: list[tuple[Lease, Lease, Definition]], until: datetime) -> list[tuple[Lease, Lease, Definition]]:
        """Less those whose lease was lost meanwhile, and those with which nobody gets on. Suspects are started apart.

        Redis first, for once: a row says who holds it, and must not be taken from the one who does.
        """
        queue = self.settlement.queue
        trusted = [lease for _, lease, _ in ready if not lease.crashes]
        suspects = [lease for _, lease, _ in ready if lease.crashes]
        held = dict(zip(trusted, queue.start(trusted), strict=True)) | dict(zip(suspects, queue.renew(suspects), strict=True))
        ready = [one for one in ready if held[one[1]]]
        self.ledger.start([lease for _, lease, _ in ready], until)
        going = []
        for claimed, lease, definition in ready:
            if CrashPolicy(definition.max_crashes).is_hopeless(lease.crashes):
                failure = Failure("crashed", f"{lease.crashes} workers ended while they ran it, and none stored a page of it")
                self.settlement.settle([(Attempt(lease, definition), Crashed(lease.checkpoint, failure, lease.crashes))])
            else:
                going.append((claimed, lease, definition))
        return going


def lease_until(definition: Definition) -> datetime:
    """For people, in the ledger; Redis decides."""
    return datetime.now(UTC) + timedelta(seconds=definition.lease_s)
