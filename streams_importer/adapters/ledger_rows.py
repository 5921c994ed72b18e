"""The documents of the ledger: how they are written, and how they are read by somebody who trusts none of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from math import ceil
from typing import Any
from uuid import uuid4

from ..domain.model import FINAL_STATES, RECORD_COUNTS, REQUEST_COUNTS, STORED_VERSION, Checkpoint, Counts, Cursor, Failure
from ..domain.shard_key import MAX_KEY_LENGTH
from ..domain.text import one_line, plain
from ..ports import LedgerRow, LedgerTotals

MAX_ERROR = 500
"""Characters of an error text: enough to see what happened."""
MAX_CURSOR = 4096
MAX_COUNT = 2**53
"""No counter of ours gets there; beyond it other readers of the ledger lose digits."""
FIELDS = {
    "_id": 0,
    **dict.fromkeys(
        (
            "shardKey",
            "jobId",
            "run",
            "status",
            "attempts",
            "crashes",
            "page",
            "cursor",
            "counts",
            "countedAs",
            "isCountSure",
            "v",
        ),
        1,
    ),
    **dict.fromkeys(("lastErrorCode", "lastError", "lastErrorStatus"), 1),
}


def new_row(namespace: str, import_name: str, key: str, run: str) -> dict[str, Any]:
    return {
        "jobId": str(uuid4()),
        "namespace": namespace,
        "import": import_name,
        "shardKey": key,
        "run": run,
        "status": "pending",
        "attempts": 0,
        "crashes": 0,
        "leaseOwner": None,
        "leaseUntil": None,
        **checkpoint_fields(Checkpoint()),
        "lastErrorCode": None,
        "lastError": None,
        "lastErrorAt": None,
        "countedAs": None,
        "createdAt": datetime.now(UTC),
        "finishedAt": None,
        "v": STORED_VERSION,
    }


def checkpoint_fields(checkpoint: Checkpoint) -> dict[str, Any]:
    return {"page": checkpoint.page, "cursor": checkpoint.cursor, "counts": checkpoint.counts.by_name()}


def failure_fields(failure: Failure | None) -> dict[str, Any]:
    if failure is None:
        return dict.fromkeys(("lastErrorCode", "lastError", "lastErrorStatus", "lastErrorAt"))
    return {
        "lastErrorCode": plain(failure.code, MAX_ERROR),
        "lastError": plain(failure.message, MAX_ERROR),
        "lastErrorStatus": failure.status,
        "lastErrorAt": datetime.now(UTC),
    }


def read_rows(documents: Iterable[Mapping[str, Any]]) -> dict[str, LedgerRow]:
    return {row.shard_key: row for row in map(read_row, documents) if row is not None}


def read_row(document: Mapping[str, Any]) -> LedgerRow | None:
    """None when not even the shard can be told. What else is broken counts as absent: no row can stop a worker."""
    key, status, counted_as = document.get("shardKey"), document.get("status"), document.get("countedAs")
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_LENGTH:
        return None
    return LedgerRow(
        shard_key=key,
        job=_name(document.get("jobId")),
        run=_name(document.get("run")),
        status=status if status == "leased" or status in FINAL_STATES else "pending",
        attempts=_count(document.get("attempts")) or 0,
        checkpoint=_checkpoint(document),
        counted_as=counted_as if counted_as in FINAL_STATES else None,
        failure=_failure(document),
        v=_version(document.get("v")),
        is_count_sure=document.get("isCountSure") is not False,
        crashes=_count(document.get("crashes")) or 0,
    )


def read_totals(groups: Iterable[Mapping[str, Any]]) -> LedgerTotals:
    """Sums by status and run, as one whole. A run's name begins with its time, so the newest comes last."""
    known = [(_name(one["_id"].get("run")), one["_id"].get("status"), one) for one in groups]
    newest = max((run for run, _, _ in known), default="")
    states, of_run = Counter[str](), Counter[str]()
    records = Counter[str](dict.fromkeys(RECORD_COUNTS, 0))
    unfinished, ended = 0, list[datetime]()
    for run, status, one in known:
        number = _count(one.get("shards")) or 0
        records.update({name: _count(one.get(name)) or 0 for name in RECORD_COUNTS})
        counted_as = status if status in FINAL_STATES else one["_id"].get("counted")
        states[counted_as if counted_as in FINAL_STATES else ""] += number
        unfinished += number if status not in FINAL_STATES else 0
        if run == newest:
            of_run[status if status in FINAL_STATES else ""] += number
            ended += [one["ended"]] if isinstance(one.get("ended"), datetime) else []
    finished = max(ended, default=None) if not of_run[""] else None
    by_state = {state: of_run[state] for state in FINAL_STATES}
    return LedgerTotals(unfinished, {state: states[state] for state in FINAL_STATES}, dict(records), newest, by_state, finished)


def _checkpoint(document: Mapping[str, Any]) -> Checkpoint:
    """All or nothing: with one part broken, the others would count pages twice or skip them."""
    page, counts, stored = _count(document.get("page")), _counts(document.get("counts")), document.get("cursor")
    cursor = _cursor(stored)
    if page is None or counts is None or (cursor is None) != (stored is None):
        return Checkpoint()
    return Checkpoint(page, cursor, counts)


def _counts(stored: object) -> Counts | None:
    if not isinstance(stored, Mapping):
        return None
    requests = stored.get("requests")
    if not isinstance(requests, Mapping):
        return None
    values = [_count(stored.get(name)) for name in RECORD_COUNTS] + [_count(requests.get(name)) for name in REQUEST_COUNTS]
    known = [value for value in values if value is not None]
    return Counts(*known) if len(known) == len(values) else None


def _failure(document: Mapping[str, Any]) -> Failure | None:
    code, status = document.get("lastErrorCode"), document.get("lastErrorStatus")
    if not isinstance(code, str):
        return None
    text = document.get("lastError")
    return Failure(plain(code, MAX_ERROR), plain(text, MAX_ERROR) if isinstance(text, str) else "", _integer(status))


def _cursor(value: object) -> Cursor | None:
    if isinstance(value, str):
        return value if len(value) <= MAX_CURSOR else None
    return _integer(value)


def _count(value: object) -> int | None:
    number = _integer(value)
    return number if number is not None and 0 <= number < MAX_COUNT else None


def _integer(value: object) -> int | None:
    # bson gives a 64-bit integer as a subclass of int; so is bool.
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _name(value: object) -> str:
    """Compared with what Redis has: part of it may look like a short secret, and must stay."""
    return one_line(value, MAX_ERROR) if isinstance(value, str) else ""


def _version(value: object) -> int:
    """Any number above ours is newer, 1.5 too, as it is for the filter of every change."""
    if isinstance(value, float) and STORED_VERSION < value < MAX_COUNT:
        return ceil(value)
    number = _integer(value)
    return STORED_VERSION if number is None else number
