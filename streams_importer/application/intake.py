"""What becomes of claimed entries before any of them runs: every claim looks in the ledger first.

1. All are recorded as leased and started, in both stores; what is final there stays so.
2. Garbage, and shards that nobody planned, are dead-lettered.
3. What the ledger has as settled is settled here without a request. The rest runs.
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
        ready = []
        mine = self._started(leases, lease_until(definition))
        rows = self.ledger.look(import_name, [lease.shard_key for lease in mine])
        for lease in mine:
            row = rows.get(lease.shard_key)
            if row is None:
                self.settlement.bury(lease, "unknown_shard", "the ledger has no such shard")
            elif row.job != lease.job or row.status in FINAL_STATES or row.v > STORED_VERSION:
                self.settlement.follow(lease, row)
            elif CrashPolicy(definition.max_crashes).is_hopeless(lease.crashes):
                self._give_up(Attempt(with_ledger(lease, row), definition))
            else:
                ready.append((lease, with_ledger(lease, row), definition))
        return ready

    def _started(self, leases: Sequence[Lease], until: datetime) -> list[Lease]:
        """Less those whose lease was lost meanwhile. In Redis first: a row must not be taken from the one who holds it. Then in
        the ledger, before anybody looks there: a former holder that wakes up now can store no page behind our back.
        Suspects are started when they run apart."""
        queue = self.settlement.queue
        trusted, suspects = [one for one in leases if not one.crashes], [one for one in leases if one.crashes]
        held = dict(zip(trusted, queue.start(trusted), strict=True)) | dict(zip(suspects, queue.renew(suspects), strict=True))
        mine = [lease for lease in leases if held[lease]]
        self.ledger.start(mine, until)
        return mine

    def _give_up(self, attempt: Attempt) -> None:
        lease = attempt.lease
        failure = Failure("crashed", f"{lease.crashes} workers ended while they ran it, and none stored a page of it")
        self.settlement.settle([(attempt, Crashed(lease.checkpoint, failure, lease.crashes))])


def lease_until(definition: Definition) -> datetime:
    """For people, in the ledger; Redis decides."""
    return datetime.now(UTC) + timedelta(seconds=definition.lease_s)
