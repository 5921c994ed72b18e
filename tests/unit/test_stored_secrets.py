"""What is written down for others to read has no secret in it; what is compared stays as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streams_importer.adapters.ledger_rows import failure_fields, read_row
from streams_importer.adapters.redis_messages import MAX_PAYLOAD, dump_payload, letter_fields, read_entry
from streams_importer.adapters.redis_queue import consumer_name
from streams_importer.domain.model import Checkpoint, Failure, Garbage, Lease
from streams_importer.domain.redaction import MASK, SECRETS

SECRET = "canary+/=&<>\"'%key"


@pytest.fixture(autouse=True)
def known_secret(nothing_is_secret_yet: None) -> None:
    SECRETS.learn(SECRET)


def letter(item: Lease | Garbage, failure: Failure, cursor: str | None = None) -> dict[Any, Any]:
    fields = letter_fields(item, Checkpoint(1, cursor), failure, 1)
    return dict(zip(fields[::2], fields[1::2], strict=True))


def test_a_dead_letter_of_garbage_has_no_secret() -> None:
    fields = [b"nonsense", SECRET.encode(), SECRET.encode(), json.dumps(SECRET).encode()]
    garbage = read_entry("openchargemap", "1-1", "w:1", 1, fields, b"")
    assert isinstance(garbage, Garbage)
    written = letter(garbage, Failure(SECRET, f"bad: {SECRET}"))
    assert not any(SECRET in str(value) or json.dumps(SECRET)[1:-1] in str(value) for value in written.values())
    assert json.loads(written["payload"]) == {"nonsense": MASK, MASK: f'"{MASK}"'}


def test_a_dead_letter_of_a_shard_has_no_secret() -> None:
    lease = Lease("openchargemap", "1-1", "w:1", 1, "ids:0..10", "job-1", f"run {SECRET}")
    written = letter(lease, Failure("http_500", f"said {SECRET}"), cursor=f"https://next.example/?key={SECRET}")
    assert SECRET not in str(written)
    assert json.dumps(SECRET)[1:-1] not in str(written)
    assert (written["error"], written["message"], written["worker"]) == ("http_500", f"said {MASK}", "w:1")


def test_a_payload_is_cut_without_cutting_a_secret() -> None:
    for length in range(MAX_PAYLOAD - 40, MAX_PAYLOAD):
        payload = dump_payload({"x": "x" * length + SECRET})
        assert "canary" not in payload
        assert len(payload.encode()) <= MAX_PAYLOAD


def test_the_ledger_says_why_without_secrets() -> None:
    written = failure_fields(Failure(f"code {SECRET}", f"text {SECRET}"))
    assert (written["lastErrorCode"], written["lastError"]) == (f"code {MASK}", f"text {MASK}")
    row = read_row({"shardKey": "ids:0..10", "lastErrorCode": "x", "lastError": f"planted {SECRET}\x1b[2J"})
    assert row is not None
    assert row.failure == Failure("x", f"planted {MASK} [2J")


def test_what_the_ledger_compares_with_redis_stays_as_it_is() -> None:
    SECRETS.learn("1234")
    row = read_row({"shardKey": "ids:0..10", "jobId": "ab1234cd", "run": "20261234-3f"})
    assert row is not None
    assert (row.job, row.run) == ("ab1234cd", "20261234-3f")


def test_a_worker_is_not_named_after_a_secret() -> None:
    assert consumer_name(f"dyno {SECRET}", "ab12") == f"dyno-{MASK}:ab12"
