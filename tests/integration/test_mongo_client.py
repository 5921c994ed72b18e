"""Connecting to MongoDB: bad settings are one line without a secret, outages are outages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import pytest
from pymongo.errors import BulkWriteError, ConfigurationError, OperationFailure, PyMongoError, WriteConcernError

from streams_importer.adapters.mongo_client import connect, masked, mongo_errors, translated
from streams_importer.domain.errors import BadSetting, Unavailable
from streams_importer.embedded.servers import EmbeddedServers

SECRET = "s3cret"


@pytest.mark.parametrize(
    ("uri", "advice"),
    [
        ("", "must begin with mongodb://"),
        (f"redis://:{SECRET}@host", "must begin with mongodb://"),
        ("mongodb://", "must look like"),
        (f"mongodb://user:{SECRET}/@host/db", "must look like"),
        (f"mongodb://user:{SECRET}", "percent-encoded"),
        (f"mongodb://user:a:{SECRET}@host/db", "percent-encoded"),
        (f"mongodb://user:{SECRET}%@host/db", "percent-encoded"),
        (f"mongodb://user:{SECRET}@host:99999/db", "must look like"),
        (f"mongodb://user:{SECRET}@host/d$b", "must look like"),
        (f"mongodb://user:{SECRET}@host/db?nonsense=1", "its option nonsense is unknown"),
        (f"mongodb://user:{SECRET}@host/db?maxPoolSize={SECRET}", "its option maxPoolSize"),
        (f"mongodb://user:{SECRET}@host/db?w=0", "w=0 cannot be used"),
        (f"mongodb://user:{SECRET}@host/db?tls", "must look like"),
        (f"mongodb://user:{SECRET}@host\n\x1b[31m/db?tls", "must look like"),
    ],
)
def test_a_malformed_uri_is_refused_in_one_line_without_its_password(uri: str, advice: str) -> None:
    with pytest.raises(BadSetting, match=re.escape(advice)) as caught:
        connect(uri)
    text = str(caught.value)
    assert text.startswith("--mongodb-uri ")
    assert SECRET not in text
    assert text.isprintable()
    assert len(text) < 400


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("mongodb://host/db", "mongodb://host/db"),
        (f"mongodb://u:{SECRET}@a:1,b:2/db?x={SECRET}", "mongodb://***@a:1,b:2/db"),
        (f"mongodb+srv://u:{SECRET}@c.example.org", "mongodb+srv://***@c.example.org"),
        (f"mongodb://u:p@{SECRET}@host/db", "mongodb://***@host/db"),
        (f"mongodb://u:{SECRET}/db", "(not shown)"),
        ("mongodb://%2Ftmp%2Fm.sock/db", "mongodb:///tmp/m.sock/db"),
    ],
)
def test_a_masked_uri_shows_the_hosts_only(uri: str, shown: str) -> None:
    assert masked(uri) == shown


def test_the_database_and_the_write_concern_come_from_the_uri_or_have_safe_defaults() -> None:
    plain = connect("mongodb://127.0.0.1/")
    assert plain.name == "streams_importer"
    assert plain.write_concern.document == {"w": "majority", "wtimeout": 10_000}
    assert plain.codec_options.tz_aware
    assert plain.client.options.retry_writes
    assert plain.client.options.server_selection_timeout == 3
    chosen = connect("mongodb://127.0.0.1/mine?w=1&wtimeoutMS=5&serverSelectionTimeoutMS=7000&retryWrites=false")
    assert chosen.name == "mine"
    assert chosen.write_concern.document == {"w": 1, "wtimeout": 5}
    assert chosen.client.options.server_selection_timeout == 7
    assert not chosen.client.options.retry_writes
    for each in (plain, chosen):
        each.client.close()


def test_a_server_that_is_not_there_is_an_outage(tmp_path: Path) -> None:
    db = connect(f"mongodb://user:{SECRET}@{quote_plus(str(tmp_path / 'no.sock'))}/", serverSelectionTimeoutMS=50)
    with pytest.raises(Unavailable, match=r"MongoDB: .*no\.sock") as caught, mongo_errors():
        db.command("ping")
    assert SECRET not in str(caught.value)
    assert "Topology" not in str(caught.value)
    db.client.close()


def test_a_refused_password_is_a_bad_setting(servers: EmbeddedServers) -> None:
    db = connect(servers.mongodb_uri.replace("mongodb://", f"mongodb://user:{SECRET}@"))
    with pytest.raises(BadSetting, match="the user or the password is wrong") as caught, mongo_errors():
        db.command("ping")
    assert SECRET not in str(caught.value)
    db.client.close()


def bulk(code: int, concern: bool = False) -> BulkWriteError:
    return BulkWriteError(
        {"writeErrors": [{"code": code, "errmsg": "x"}], "writeConcernErrors": [{"errmsg": "slow"}] if concern else []}
    )


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (OperationFailure("stepped down", 189), Unavailable),
        (OperationFailure("conflict", 112), Unavailable),
        (OperationFailure("x", 1, {"errorLabels": ["RetryableWriteError"]}), Unavailable),
        (OperationFailure("no room", 14031), Unavailable),
        (OperationFailure("you are over your space quota", 8000), Unavailable),
        (OperationFailure("bad auth : authentication failed", 8000), BadSetting),
        (OperationFailure("not authorized", 13), BadSetting),
        (WriteConcernError("waiting for replication timed out", 64), Unavailable),
        (bulk(11602), Unavailable),
        (bulk(11000, concern=True), Unavailable),
        (bulk(11000), type(None)),
        (OperationFailure("unknown operator", 2), type(None)),
    ],
)
def test_what_an_error_means(error: PyMongoError, meaning: type[Any]) -> None:
    assert isinstance(translated(error), meaning)


def test_a_reason_is_one_line_without_user_and_password() -> None:
    reason = str(translated(OperationFailure(f"cannot reach mongodb://u:{SECRET}@host\n\x1b[31mred" + "x" * 900, 6)))
    assert reason.startswith("MongoDB: cannot reach mongodb://***@host")
    assert reason.isprintable()
    assert len(reason) <= 210


def test_a_deployment_that_seems_to_have_no_sessions_is_one_that_comes_back() -> None:
    """pymongo says so for a moment after a kill or a step-down: as a setting it would pause the import for good."""
    error = ConfigurationError("Sessions are not supported by this MongoDB deployment")
    assert isinstance(translated(error), Unavailable)
    assert isinstance(translated(ConfigurationError("no such option")), BadSetting)
