"""When imports have come to their end, and whether that is a good one: for whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..ports import Pause
from .snapshot import ImportStatus


class Completion:
    """Over when nothing is in flight and the ledger has nothing pending, or when all that is left is paused."""

    def __init__(
        self,
        read: Callable[[Sequence[str]], dict[str, ImportStatus]],
        paused: Callable[[], dict[str, Pause]],
        is_pending: Callable[[str], bool],
    ) -> None:
        self._read = read
        self._paused = paused
        self._is_pending = is_pending
        self._before: dict[str, ImportStatus] = {}
        self._stuck: str | None = None

    def begin(self, names: Sequence[str]) -> None:
        """Dead letters from before do not count."""
        self._before = self._read(names)

    def is_over(self, names: Sequence[str]) -> bool:
        statuses = self._read(names)
        left = [name for name, status in statuses.items() if status.in_flight]
        if not left:
            return not any(statuses[name].is_being_produced or self._is_pending(name) for name in names)
        paused = self._paused()
        if all(name in paused and not statuses[name].leased for name in left):
            self._stuck = "; ".join(f"{name} is paused: {paused[name].reason}" for name in left)
        return self._stuck is not None

    def problem(self, names: Sequence[str]) -> str | None:
        """Why it is no good end."""
        if self._stuck is not None:
            return f"nothing left but what is paused: {self._stuck}; when it is put right: streams-importer resume"
        dead = sum(_died(self._before.get(name), status) for name, status in self._read(names).items())
        return f"{dead} shards were dead-lettered; see: streams-importer dlq list" if dead > 0 else None


def _died(before: ImportStatus | None, now: ImportStatus) -> int:
    """Shards dead-lettered since. A Redis that was flushed meanwhile knows only how many there are."""
    if before is None:
        return now.dead_lettered
    is_same = before.since in (None, now.since)
    return now.dead_lettered - before.dead_lettered if is_same else now.failed - before.failed
