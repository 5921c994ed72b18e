"""What Redis' refusals mean: away, full, or something that a person must change."""

from __future__ import annotations

import pytest
import redis

from streams_importer.adapters.redis_client import redis_errors
from streams_importer.domain.errors import BadSetting, Full, ImporterError, Unavailable

OOM = "command not allowed when used memory > 'maxmemory'."
CASES: dict[str, tuple[Exception, type[ImporterError]]] = {
    "full": (redis.exceptions.OutOfMemoryError(OOM), Full),
    "full, in a script": (redis.ResponseError(f"Error running script: @user_script:1: -OOM {OOM}"), Full),
    "no connection": (redis.ConnectionError("Connection refused"), Unavailable),
    "no answer": (redis.TimeoutError("Timeout reading from socket"), Unavailable),
    "starting": (redis.exceptions.BusyLoadingError("Redis is loading the dataset in memory"), Unavailable),
    "a replica": (redis.exceptions.ReadOnlyError("You can't write against a read only replica."), Unavailable),
    "a replica, in a script": (redis.ResponseError("READONLY You can't write against a read only replica."), Unavailable),
    "its disk is full": (redis.ResponseError("MISCONF Redis is configured to save RDB snapshots"), Unavailable),
    "log-in": (redis.AuthenticationError("invalid username-password pair"), BadSetting),
    "another type": (redis.ResponseError("WRONGTYPE Operation against a key holding the wrong kind of value"), BadSetting),
}


@pytest.mark.parametrize(("raised", "meant"), CASES.values(), ids=CASES.keys())
def test_every_refusal_has_its_branch(raised: Exception, meant: type[ImporterError]) -> None:
    with pytest.raises(meant) as told, redis_errors():
        raise raised
    assert type(told.value) is meant


def test_a_full_redis_is_waited_for_like_one_that_is_away_and_says_what_helps() -> None:
    with pytest.raises(Unavailable) as told, redis_errors():
        raise redis.exceptions.OutOfMemoryError(OOM)
    assert told.value.server == "Redis"
    assert "what finishes makes room" in told.value.reason
