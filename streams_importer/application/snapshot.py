"""What can be seen of the fleet at one moment, and the same as the JSON of `status --json`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from ..domain.definition import Definition
from ..domain.text import plain
from ..ports import Pause


@dataclass(frozen=True, slots=True)
class RunStatus:
    id: str
    started: str | None
    finished: str | None
    total: int
    done: int
    failed: int


@dataclass(frozen=True, slots=True)
class ImportStatus:
    queued: int
    leased: int
    delayed: int
    dead: int
    done: int
    failed: int
    split: int
    cancelled: int
    total: int
    run: RunStatus | None
    records: dict[str, int]
    requests: dict[str, int]
    since: str | None
    dead_lettered: int
    """Dead letters ever written; `dead` are those there now."""
    moved_ms: int | None = None
    """When a shard was last claimed or a page stored, or work came after there was none; on Redis' clock."""
    paused: Pause | None = None
    limit: str | None = None
    lease_s: float = 0.0
    is_being_produced: bool = False
    """Somebody plans and queues shards of it, or waits for room to do so."""

    @property
    def in_flight(self) -> int:
        return self.queued + self.leased + self.delayed

    def with_settings(self, paused: Pause | None, definition: Definition) -> ImportStatus:
        return replace(self, paused=paused, limit=str(definition.limit), lease_s=definition.lease_s)


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    name: str
    imports: list[str]
    leases: int
    seen_s_ago: float
    records_per_s: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    imports: dict[str, ImportStatus] = field(default_factory=dict)
    workers: list[WorkerStatus] = field(default_factory=list)
    held_for_s: dict[str, float] = field(default_factory=dict)
    now_ms: int = 0
    """Redis' clock."""


def as_json(snapshot: Snapshot) -> dict[str, Any]:
    """The shape that scripts and dashboards rely on. What is not measured yet is null."""
    return {
        "imports": {name: _import_json(status) for name, status in snapshot.imports.items()},
        "workers": [
            {
                "name": worker.name,
                "imports": worker.imports,
                "leases": worker.leases,
                "seen_s_ago": round(worker.seen_s_ago, 1),
                "records_per_s": worker.records_per_s,
            }
            for worker in snapshot.workers
        ],
        "budgets": {
            name: {"limits": [status.limit], "held_for_s": round(snapshot.held_for_s.get(name, 0.0), 1), "waiting": None}
            for name, status in snapshot.imports.items()
            if status.limit is not None
        },
        "workers_useful": None,
    }


def _import_json(status: ImportStatus) -> dict[str, Any]:
    run, pause = status.run, status.paused
    requests = status.requests
    return {
        "queued": status.queued,
        "leased": status.leased,
        "delayed": status.delayed,
        "dead": status.dead,
        "done": status.done,
        "failed": status.failed,
        "split": status.split,
        "cancelled": status.cancelled,
        "total": status.total,
        "paused": pause and {"reason": pause.reason, "by": pause.by, "since": pause.since},
        "run": run
        and {
            "id": plain(run.id, 80),
            "started": run.started,
            "finished": run.finished,
            "total": run.total,
            "done": run.done,
            "failed": run.failed,
        },
        "oldest_queued_s": None,
        "eta_s": None,
        "records": {"seen": sum(status.records.values()), **status.records},
        "requests": {"total": sum(requests.values()), **requests, "since": status.since},
    }
