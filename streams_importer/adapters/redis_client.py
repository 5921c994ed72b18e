"""Connections to Redis: bounded in number and in time, and with one kind of error for "not there just now"."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from ..domain.errors import BadSetting, Unavailable
from ..domain.text import plain

SOCKET_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 3.0

# A server that answers with one of these is starting, failing over or full: wait it out.
_PASSING = ("LOADING", "READONLY", "MISCONF", "CLUSTERDOWN", "BUSY", "MASTERDOWN", "TRYAGAIN", "OOM", "NOREPLICAS")


def connect(url: str, *, max_connections: int, tls_verify: str = "full", ca_file: str | None = None) -> redis.Redis:
    """A client that waits for a free connection instead of opening more than `max_connections`."""
    scheme = urlsplit(url).scheme if "://" in url else ""
    if scheme not in ("redis", "rediss", "unix"):
        raise BadSetting("--redis-url: must start with redis://, rediss:// or unix://")
    options: dict[str, object] = {}
    if scheme == "rediss" and "ssl_cert_reqs=" not in url:
        options = {
            "ssl_cert_reqs": "none" if tls_verify == "none" else "required",
            "ssl_check_hostname": tls_verify == "full",
            "ssl_ca_certs": ca_file,
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
    except ValueError as error:
        raise BadSetting(f"--redis-url: {plain(str(error), 120)}") from None
    return redis.Redis(connection_pool=pool)


@contextmanager
def redis_errors() -> Iterator[None]:
    """Turns "not there just now" into Unavailable, and a refused log-in into a sentence."""
    try:
        yield
    except (redis.AuthenticationError, redis.exceptions.AuthorizationError) as error:
        raise BadSetting(
            f"Redis refuses the log-in ({plain(str(error), 120)}): check the user and password in --redis-url"
        ) from None
    except (redis.ConnectionError, redis.TimeoutError, OSError) as error:
        text = str(error)
        if "certificate" in text.lower():
            raise BadSetting(
                f"Redis' TLS certificate is refused ({plain(text, 160)}): see --redis-tls-verify and --redis-ca-file"
            ) from None
        raise Unavailable("Redis", plain(text, 160) or type(error).__name__) from None
    except redis.ResponseError as error:
        text = str(error)
        if text.split(" ", 1)[0] in _PASSING or any(f"{word} " in text for word in _PASSING):
            raise Unavailable("Redis", plain(text, 160)) from None
        raise
