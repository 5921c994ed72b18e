"""`status --json`: the fields that scripts and dashboards rely on, and null for what is not measured."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec

from streams_importer.application.snapshot import ImportStatus, RunStatus, Snapshot, WorkerStatus, as_json
from streams_importer.domain.definition import Definition
from streams_importer.ports import Pause

RUN = RunStatus("20260221T100000Z-3f", "2026-02-21T10:00:00Z", None, 415, 412, 0)
BUSY = ImportStatus(
    queued=1,
    leased=2,
    delayed=3,
    dead=4,
    done=412,
    failed=5,
    split=6,
    cancelled=7,
    total=436,
    run=RUN,
    records={"inserted": 10, "updated": 20, "unchanged": 30, "stale": 40, "rejected": 50},
    requests={"ok": 100, "rate_limited": 200, "failed": 300},
    since="2026-02-21T09:00:00Z",
    dead_lettered=9,
    limit="1/s",
)
WORKER = WorkerStatus("worker.1:ab12", ["openchargemap"], 4, 0.4321, 12.5)
SNAPSHOT = Snapshot({"openchargemap": BUSY}, [WORKER], {"openchargemap": 1.26})

# CONTRACT.md, `status --json`: every field there, in its order.
IMPORT_FIELDS = [
    "queued", "leased", "delayed", "dead", "done", "failed", "split", "cancelled", "total", "paused", "run", "oldest_queued_s",
    "eta_s", "records", "requests",
]  # fmt: skip


def test_the_fields_are_exactly_those_of_the_contract() -> None:
    shown = as_json(SNAPSHOT)
    assert list(shown) == ["imports", "workers", "budgets", "workers_useful"]
    ocm = shown["imports"]["openchargemap"]
    assert list(ocm) == IMPORT_FIELDS
    assert list(ocm["run"]) == ["id", "started", "finished", "total", "done", "failed"]
    assert list(ocm["records"]) == ["seen", "inserted", "updated", "unchanged", "stale", "rejected"]
    assert list(ocm["requests"]) == ["total", "ok", "rate_limited", "failed", "since"]
    assert [list(worker) for worker in shown["workers"]] == [["name", "imports", "leases", "seen_s_ago", "records_per_s"]]
    assert list(shown["budgets"]) == ["openchargemap"]
    assert list(shown["budgets"]["openchargemap"]) == ["limits", "held_for_s", "waiting"]


def test_the_numbers_are_those_of_the_snapshot() -> None:
    shown = as_json(SNAPSHOT)
    ocm = shown["imports"]["openchargemap"]
    assert [ocm[field] for field in IMPORT_FIELDS[:9]] == [1, 2, 3, 4, 412, 5, 6, 7, 436]
    assert ocm["run"] == {
        "id": RUN.id, "started": RUN.started, "finished": None, "total": 415, "done": 412, "failed": 0,
    }  # fmt: skip
    assert ocm["records"] == {"seen": 150, "inserted": 10, "updated": 20, "unchanged": 30, "stale": 40, "rejected": 50}
    assert ocm["requests"] == {"total": 600, "ok": 100, "rate_limited": 200, "failed": 300, "since": "2026-02-21T09:00:00Z"}
    assert shown["workers"] == [
        {"name": "worker.1:ab12", "imports": ["openchargemap"], "leases": 4, "seen_s_ago": 0.4, "records_per_s": 12.5}
    ]
    assert shown["budgets"] == {"openchargemap": {"limits": ["1/s"], "held_for_s": 1.3, "waiting": None}}


def test_what_is_not_measured_is_null_and_not_a_constant() -> None:
    shown = as_json(SNAPSHOT)
    assert shown["workers_useful"] is None
    assert shown["budgets"]["openchargemap"]["waiting"] is None
    assert shown["imports"]["openchargemap"]["oldest_queued_s"] is None
    assert shown["imports"]["openchargemap"]["eta_s"] is None


def test_what_there_is_not_is_null_or_empty() -> None:
    idle = replace(BUSY, run=None, since=None, limit=None)
    shown = as_json(Snapshot({"openchargemap": idle}))
    assert shown["imports"]["openchargemap"]["run"] is None
    assert shown["imports"]["openchargemap"]["paused"] is None
    assert shown["imports"]["openchargemap"]["requests"]["since"] is None
    assert (shown["workers"], shown["budgets"]) == ([], {})
    assert as_json(Snapshot()) == {"imports": {}, "workers": [], "budgets": {}, "workers_useful": None}


def test_a_pause_says_why_who_and_since_when() -> None:
    paused = replace(BUSY, paused=Pause("key refused", "worker.1:ab12", "2026-02-21T11:00:00Z"))
    assert as_json(Snapshot({"openchargemap": paused}))["imports"]["openchargemap"]["paused"] == {
        "reason": "key refused", "by": "worker.1:ab12", "since": "2026-02-21T11:00:00Z",
    }  # fmt: skip


def test_an_import_that_is_not_held_is_held_for_zero_seconds() -> None:
    assert as_json(Snapshot({"openchargemap": BUSY}))["budgets"]["openchargemap"]["held_for_s"] == 0.0


def test_hostile_text_stays_one_json_value_without_control_characters() -> None:
    hostile = "[/]\x1b[2J\nfake\u202e"
    status = replace(BUSY, run=replace(RUN, id=hostile), paused=Pause(hostile, hostile, hostile))
    snapshot = Snapshot({"openchargemap": status}, [replace(WORKER, name=hostile, imports=[hostile])])
    text = msgspec.json.encode(as_json(snapshot)).decode()
    assert "\x1b" not in text
    assert "\n" not in text
    assert json.loads(text)["imports"]["openchargemap"]["run"]["id"] == "[/] [2J fake"


def test_settings_are_put_beside_what_was_counted() -> None:
    pause = Pause("why", "who", "when")
    told = replace(BUSY, limit=None).with_settings(pause, Definition("ocm", rate="7/m", lease_s=9.0))
    assert (told.paused, told.limit, told.lease_s, told.done) == (pause, "7/m", 9.0, 412)
