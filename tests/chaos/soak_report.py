"""What a soak has seen, as a table."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from rich.table import Table

from .verdict import Verdict


@dataclass
class Tally:
    rounds: int = 0
    shards: int = 0
    records: int = 0
    requests: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    recoveries: dict[str, list[float]] = field(default_factory=dict)
    """Seconds from a fault's end to the next checkpoint or settlement; not counted when nothing was left to do."""
    verdict: Verdict = field(default_factory=Verdict)

    def fault(self, name: str, recovery_s: float | None) -> None:
        self.faults[name] += 1
        if recovery_s is not None:
            self.recoveries.setdefault(name, []).append(recovery_s)

    def add(self, verdict: Verdict) -> None:
        self.verdict.add(verdict)

    @property
    def doubled(self) -> int:
        return len(self.verdict.settled_twice) + len(self.verdict.asked_again) + len(self.verdict.late_writes)

    @property
    def is_good(self) -> bool:
        return not (self.verdict.lost or self.doubled or self.verdict.innocents or self.verdict.other)

    def table(self, seed: int, seconds: float) -> Table:
        table = Table(title=f"soak of {seconds / 60:.1f} minutes, seed {seed}")
        for name in ("", "number", "recovery, median s", "worst s"):
            table.add_column(name, justify="left" if not name else "right")
        for name, number in sorted(self.faults.items()):
            table.add_row(name.replace("_", " "), str(number), *self._recovery(self.recoveries.get(name, [])))
        every = [seconds for recoveries in self.recoveries.values() for seconds in recoveries]
        table.add_row("all faults", str(self.faults.total()), *self._recovery(every), style="bold", end_section=True)
        verdict = self.verdict
        counts = {"rounds": self.rounds, "shards": self.shards, "records": self.records, "requests": self.requests}
        for name, number in (counts | {"requests repeated": verdict.repeated}).items():
            table.add_row(name, f"{number:,}")
        table.add_section()
        table.add_row("lost", str(len(verdict.lost)), style="bold")
        table.add_row("doubled", str(self.doubled), style="bold")
        table.add_row("  a shard settled twice", str(len(verdict.settled_twice)))
        table.add_row("  a checkpointed page asked again", str(len(verdict.asked_again)))
        table.add_row("  a write after a lost lease", str(len(verdict.late_writes)))
        table.add_row("innocents dead-lettered", str(len(verdict.innocents)), style="bold")
        table.add_row("other broken promises", str(len(verdict.other)), style="bold")
        return table

    @staticmethod
    def _recovery(seconds: list[float]) -> tuple[str, str]:
        return (f"{median(seconds):.2f}", f"{max(seconds):.2f}") if seconds else ("", "")
