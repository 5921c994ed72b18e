"""What `dlq` says it did, in words and as JSON."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ..application.letters import PurgeReport
from ..application.replayer import ReplayReport


def unknown(import_name: str, names: list[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"{import_name} has no dead letter {names[0]!r}{more}; see dlq list, and shards list --status failed"


def replay_line(report: ReplayReport, dry_run: bool) -> str:
    without = f" ({report.without_letter} without a letter)" if report.without_letter else ""
    done = f"would replay {report.replayed} shards" if dry_run else f"{report.replayed} shards replayed"
    left = report.left.total()
    return done + without + (f", {left} left alone ({_by_reason(report.left)})" if left else "")


def _by_reason(left: Counter[str]) -> str:
    return ", ".join(f"{number} {reason}" for reason, number in left.most_common() if number)


def replay_json(report: ReplayReport) -> dict[str, Any]:
    return {
        "replayed": report.replayed,
        "without_letter": report.without_letter,
        "left": dict(report.left),
        "unknown": report.unknown,
    }


def purge_line(report: PurgeReport, dry_run: bool) -> str:
    done = f"would purge {report.purged} letters" if dry_run else f"{report.purged} letters purged"
    line = done + (f" ({report.shards} of shards, {report.garbage} garbage)" if report.purged else "")
    line += f", {report.left} gone already" if report.left else ""
    if not report.shards:
        return line
    return f"{line}; the ledger keeps the shards as failed, and dlq replay still takes them"


def purge_json(report: PurgeReport) -> dict[str, Any]:
    return {
        "purged": report.purged,
        "shards": report.shards,
        "garbage": report.garbage,
        "left": report.left,
        "unknown": report.unknown,
    }
