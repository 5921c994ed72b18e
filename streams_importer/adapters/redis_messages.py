"""Between Redis' bytes and our nouns. All that is read here may have been written by anybody: it is bounded and checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple
from typing import Annotated, Any

import msgspec

from ..domain.model import FINAL_STATES, STORED_VERSION, Checkpoint, Counts, Cursor, Failure, Garbage, Lease
from ..domain.redaction import SECRETS
from ..domain.shard_key import parse_key
from ..domain.text import plain
from ..ports import DeadLetter, ShardRecord

MAX_PAYLOAD = 8 * 1024
MAX_FIELD = 256
_COUNT_FIELDS = len(astuple(Counts()))


def text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def dump_cursor(cursor: Cursor | None) -> str:
    return "" if cursor is None else msgspec.json.encode(cursor).decode()


def load_cursor(stored: str) -> Cursor | None:
    if not stored:
        return None
    try:
        return msgspec.json.decode(stored, type=int | str)
    except (msgspec.MsgspecError, ValueError):
        return None


def dump_counts(counts: Counts) -> str:
    return msgspec.json.encode(astuple(counts)).decode()


def dump_checkpoint(checkpoint: Checkpoint) -> list[str | int]:
    return [checkpoint.page, dump_cursor(checkpoint.cursor), dump_counts(checkpoint.counts)]


_Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]


class _Progress(msgspec.Struct):
    page: _Count
    cursor: str
    counts: list[_Count]
    attempts: _Count
    crashes: _Count = 0


class _Job(msgspec.Struct):
    job: str


def _read_progress(stored: bytes | str) -> _Progress | None:
    try:
        progress = msgspec.json.decode(stored, type=_Progress)
    except (msgspec.MsgspecError, ValueError):
        return None
    is_whole = len(progress.counts) == _COUNT_FIELDS and bool(progress.cursor) == (load_cursor(progress.cursor) is not None)
    return progress if is_whole else None


def read_job(progress: bytes | str) -> str | None:
    """The round that a shard's progress belongs to."""
    try:
        return msgspec.json.decode(progress, type=_Job).job
    except (msgspec.MsgspecError, ValueError):
        return None


def read_entry(
    import_name: str, entry: str, consumer: str, count: int, fields: Sequence[Any], progress: bytes | str
) -> Lease | Garbage:
    """A claimed entry: a lease when it is a message as we write them, else garbage with the reason."""
    message = {text(fields[i]): text(fields[i + 1]) for i in range(0, len(fields) - 1, 2)}
    problem = _problem(message)
    if problem:
        shard = message.get("shard", "")
        return Garbage(
            import_name, entry, consumer, count, problem, dump_payload(message), shard if len(shard) <= MAX_FIELD else ""
        )
    known = _read_progress(progress) if progress else None
    return Lease(
        import_name=import_name,
        entry=entry,
        consumer=consumer,
        count=count,
        shard_key=message["shard"],
        job=message["job"],
        run=message.get("run", "")[:MAX_FIELD],
        attempts=known.attempts if known else 0,
        crashes=known.crashes if known else 0,
        checkpoint=Checkpoint(known.page, load_cursor(known.cursor), Counts(*known.counts)) if known else Checkpoint(),
        was=message["was"] if message.get("was") in FINAL_STATES else "",
    )


def _problem(message: dict[str, str]) -> str | None:
    missing = [name for name in ("v", "shard", "job") if name not in message]
    if missing:
        return f"the message has no {', '.join(missing)}"
    if not message["v"].isdecimal():
        return "the message's version is not a number"
    if not 0 < len(message["job"]) <= MAX_FIELD:
        return "the message's job is not one of ours"
    try:
        parse_key(message["shard"])
    except ValueError as error:
        return f"the message's shard is not a shard key: {error}"
    return None


def dump_payload(message: dict[str, str]) -> str:
    """As JSON, without secrets, cut."""
    shown = SECRETS.redacted(msgspec.json.encode(message).decode(), MAX_PAYLOAD)
    return shown.encode()[:MAX_PAYLOAD].decode("utf-8", "ignore")


def letter_fields(lease: Lease | Garbage, checkpoint: Checkpoint, failure: Failure, attempts: int) -> list[str | int]:
    """What a dead letter says besides its shard and its times."""
    if isinstance(lease, Garbage):
        payload = lease.payload
    else:
        payload = dump_payload({"v": str(STORED_VERSION), "shard": lease.shard_key, "job": lease.job, "run": lease.run})
    return [
        *("payload", payload),
        *("error", plain(failure.code)),
        *("message", plain(failure.message)),
        *("status", "" if failure.status is None else failure.status),
        *("attempts", attempts),
        *("crashes", "" if isinstance(lease, Garbage) else lease.crashes),
        *("cursor", SECRETS.redacted(dump_cursor(checkpoint.cursor))),
        *("worker", lease.consumer),
    ]


def restored_fields(import_name: str, record: ShardRecord) -> list[str | int]:
    """What the letter of a failed shard said, as far as the ledger knows."""
    row = record.row
    lease = Lease(import_name, "", "", 0, row.shard_key, row.job, row.run, row.attempts, row.crashes, row.checkpoint)
    failure = row.failure or Failure("unknown", "the ledger does not say why")
    times = [("first_seen", record.created_at), ("died_at", record.finished_at)]
    told = [part for name, at in times for part in (name, at.strftime("%Y-%m-%dT%H:%M:%SZ") if at else "")]
    return [*told, *letter_fields(lease, row.checkpoint, failure, row.attempts), "job", row.job]


def read_letter(entry: tuple[Any, dict[Any, Any]]) -> DeadLetter:
    identifier, stored = entry
    fields = {text(name): text(value)[:MAX_PAYLOAD] for name, value in (stored or {}).items()}
    get = fields.get
    return DeadLetter(
        entry=text(identifier),
        shard_key=get("shard", ""),
        error=get("error", ""),
        message=get("message", ""),
        status=get("status", ""),
        attempts=get("attempts", ""),
        crashes=get("crashes", ""),
        cursor=get("cursor", ""),
        worker=get("worker", ""),
        first_seen=get("first_seen", ""),
        died_at=get("died_at", ""),
        payload=get("payload", ""),
        job=get("job", ""),
    )
