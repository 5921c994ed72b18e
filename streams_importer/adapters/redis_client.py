"""Connections to Redis: bounded in number and in time, and with one kind of error for "not there just now"."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ..domain.errors import BadSetting, Full, Unavailable
from ..domain.text import plain

SOCKET_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 3.0

# A server that answers with one of these is starting, failing over or full: wait it out. redis-py has classes for some, and
# takes the word itself off their texts; within a script's error the word stays.
_PASSING_CLASSES = (
    redis.exceptions.ReadOnlyError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.MasterDownError,
    redis.exceptions.TryAgainError,
)
_PASSING = ("LOADING", "READONLY", "MISCONF", "CLUSTERDOWN", "BUSY", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS")


def connect(url: str, *, max_connections: int, tls_verify: str = "full", ca_file: str | None = None) -> redis.Redis:
    """A client that waits for a free connection instead of opening more than `max_connections`. Talks to nobody yet."""
    if not url.startswith(("redis://", "rediss://", "unix://")):
        raise BadSetting("--redis-url: must start with redis://, rediss:// or unix://")
    options: dict[str, object] = {}
    if url.startswith("rediss://") and "ssl_cert_reqs=" not in url:
        options = {
            "ssl_cert_reqs": "none" if tls_verify == "none" else "required",
            "ssl_check_hostname": tls_verify == "full",
            "ssl_ca_certs": _readable(ca_file),
        }
    try:
        pool = redis.BlockingConnectionPool.from_url(
            url,
            max_connections=max_connections,
            timeout=30,
            socket_timeout=SOCKET_TIMEOUT_S,
            socket_connect_timeout=CONNECT_TIMEOUT_S,
            # redis-py retries ten times by default: that repeats writes and hides a dead server for a minute.
            retry=Retry(NoBackoff(), 0),
            **options,
        )
        pool.connection_class(**pool.connection_kwargs)  # what it does not understand is told here, not at the first call
    except (ValueError, TypeError, redis.RedisError):
        # Not the reason itself: it quotes parts of the URL, which may be the password.
        raise BadSetting(
            "--redis-url: cannot be read; write redis://user:password@host:6379/0, with special characters percent-encoded"
        ) from None
    return redis.Redis(connection_pool=pool)


def _readable(ca_file: str | None) -> str | None:
    if ca_file is not None and not os.access(ca_file, os.R_OK):
        raise BadSetting(f"--redis-ca-file {plain(ca_file, 200)}: there is no such file, or it cannot be read")
    return ca_file


@contextmanager
def redis_errors() -> Iterator[None]:
    """Turns "not there just now" into Unavailable, and a refused log-in into a sentence."""
    try:
        yield
    except (redis.AuthenticationError, redis.exceptions.AuthorizationError) as error:
        raise BadSetting(
            f"Redis refuses the log-in ({plain(str(error), 120)}): check the user and password in --redis-url"
        ) from None
    except (redis.ConnectionError, redis.TimeoutError, redis.InvalidResponse, OSError) as error:
        text = str(error)
        if "certificate" in text.lower():
            raise BadSetting(
                f"Redis' TLS certificate is refused ({plain(text, 160)}): see --redis-tls-verify and --redis-ca-file"
            ) from None
        raise Unavailable("Redis", plain(text, 160) or type(error).__name__) from None
    except redis.ResponseError as error:
        text = str(error)
        if isinstance(error, redis.exceptions.OutOfMemoryError) or "OOM " in text:
            raise Full("Redis", "is full (maxmemory is reached): what finishes makes room; or give it more memory") from None
        if isinstance(error, _PASSING_CLASSES) or any(f"{word} " in text for word in _PASSING):
            raise Unavailable("Redis", plain(text, 160)) from None
        raise BadSetting(
            f"Redis refuses a command ({plain(text, 160)}): does something else use this namespace or this user?"
        ) from None
