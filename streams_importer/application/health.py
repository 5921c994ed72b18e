"""What is wrong right now, in words: for `status --check`, and whoever else must raise an alarm. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from .snapshot import ImportStatus, Snapshot

PATIENCE_S = 300.0
"""Nothing is called long before five minutes, or two leases where these are longer."""


def problems(snapshot: Snapshot, max_dead: int) -> list[str]:
    found = []
    for name, status in snapshot.imports.items():
        held_for_s = snapshot.held_for_s.get(name, 0.0)
        found += [f"{name}: {problem}" for problem in _of(name, status, held_for_s, snapshot.now_ms, max_dead)]
    return found


def _of(name: str, status: ImportStatus, held_for_s: float, now_ms: int, max_dead: int) -> Iterator[str]:
    long_s = max(PATIENCE_S, 2 * status.lease_s)
    if status.paused is not None:
        yield f"paused by {status.paused.by}: {status.paused.reason}; go on with: streams-importer resume {name}"
    if held_for_s > long_s:
        yield f"the upstream asks to wait for {held_for_s:.0f} s more"
    if status.dead > max_dead:
        yield f"{status.dead} dead letters; see: streams-importer dlq list {name}"
    quiet_s = (now_ms - (status.moved_ms or now_ms)) / 1000
    if status.queued and status.paused is None and held_for_s <= 0 and quiet_s > long_s:
        yield f"stalled: {status.queued} shards queued, and nothing claimed or stored for {quiet_s:.0f} s; are workers running?"
