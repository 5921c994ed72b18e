"""Counters that Redis lost, or that a race left wrong, are rebuilt from the ledger, which is always written first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from ..domain.model import FINAL_STATES
from ..ports import Counters, Ledger, LedgerTotals

_RUN_TIME = "%Y%m%dT%H%M%SZ"
_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Recount:
    ledger: Ledger
    counters: Counters

    def rebuild(self, import_name: str) -> bool:
        """After Redis lost its memory, and before anything is queued. Of several who do it at once the first wins.

        A page that somebody has in hand meanwhile must not come into the ledger between what is counted here and what the
        shard is queued with.
        """
        seen = self.counters.read(import_name)
        if "since" in seen:
            return False
        self.ledger.disown(import_name)
        totals = self.ledger.totals(import_name)
        dead = {"dead_lettered": str(totals.states["failed"])}
        return self.counters.replace(import_name, seen, _of_shards(totals) | _of_run(totals) | dead)

    def audit(self, import_name: str) -> bool:
        """When all has ended, both stores must agree. Whether they did not, and do now."""
        seen, wanted = self._compared(import_name)
        return bool(_differing(seen, wanted)) and self.counters.replace(import_name, seen, wanted)

    def differences(self, import_name: str) -> list[str]:
        """Those that an audit would put right, in words."""
        seen, wanted = self._compared(import_name)
        return [f"{name} is {seen.get(name, '0')}, not {wanted[name] or '0'}" for name in _differing(seen, wanted)]

    def _compared(self, import_name: str) -> tuple[dict[str, str], dict[str, str]]:
        """The counters as they are and as they should be; nothing is wanted of them while something has not ended."""
        seen = self.counters.read(import_name)
        totals = self.ledger.totals(import_name)
        if totals.unfinished or "since" not in seen:
            return seen, {}
        wanted = _of_shards(totals)
        if seen.get("run") == totals.run:
            wanted |= {name: value for name, value in _of_run(totals).items() if name not in ("run_started", "run_finished")}
        return seen, wanted


def _differing(seen: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    return [name for name, value in wanted.items() if seen.get(name, "0") != (value or "0")]


def _of_shards(totals: LedgerTotals) -> dict[str, str]:
    return _numbers({**totals.states, **totals.records})


def _of_run(totals: LedgerTotals) -> dict[str, str]:
    if not totals.run:
        return {}
    numbers = {f"run_{state}": totals.run_states[state] for state in FINAL_STATES}
    # What has not ended is counted when it is queued.
    total = sum(totals.run_states.values())
    finished = totals.run_finished.strftime(_TIME) if totals.run_finished else ""
    return {
        "run": totals.run,
        "run_started": _began(totals.run),
        "run_finished": finished,
        **_numbers({**numbers, "run_total": total, "run_left": 0}),
    }


def _began(run: str) -> str:
    """A run is named after its beginning."""
    try:
        return datetime.strptime(run.partition("-")[0], _RUN_TIME).strftime(_TIME)
    except ValueError:
        return ""


def _numbers(values: Mapping[str, int]) -> dict[str, str]:
    """None at all is not written."""
    return {name: str(value) if value else "" for name, value in values.items()}
