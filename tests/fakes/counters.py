"""Counters in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class FakeCounters:
    """Implements ports.Counters. `fields` is open to tests, by import; `in_flight` names imports with shards in flight."""

    def __init__(self) -> None:
        self.fields: dict[str, dict[str, str]] = {}
        self.in_flight: set[str] = set()

    def forgotten(self, imports: Sequence[str]) -> list[str]:
        return [name for name in imports if "since" not in self.fields.get(name, {})]

    def read(self, import_name: str) -> dict[str, str]:
        return dict(self.fields.get(import_name, {}))

    def replace(self, import_name: str, seen: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
        now = self.fields.setdefault(import_name, {})
        has_changed = any(now.get(name, "") != seen.get(name, "") for name in wanted)
        if "since" in now and (import_name in self.in_flight or has_changed):
            return False
        now.update(wanted)
        for name in [name for name, value in now.items() if not value]:
            del now[name]
        now.setdefault("since", "2026-02-21T12:00:00Z")
        return True
