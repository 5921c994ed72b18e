"""The proxy does to a connection what it says, on a real Redis."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from streams_importer.embedded.servers import EmbeddedServers
from tests.e2e.fleet import wait_until

from .proxy import Proxy


@pytest.fixture
def proxy(servers: EmbeddedServers) -> Iterator[Proxy]:
    with Proxy(servers.redis_url.removeprefix("unix://")) as one:
        yield one


@pytest.fixture
def client(proxy: Proxy) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(proxy.url, socket_timeout=0.3, retry=Retry(NoBackoff(), 0), max_connections=1) as one:
        yield one


def test_bytes_pass_in_both_directions(client: redis.Redis, redis_client: redis.Redis) -> None:
    big = b"x" * 1_000_000
    client.set("big", big)
    assert redis_client.get("big") == big == client.get("big")


def test_a_command_runs_and_its_reply_never_comes(client: redis.Redis, redis_client: redis.Redis, proxy: Proxy) -> None:
    client.ping()
    proxy.cut_after_command(containing=b"INCR")
    client.set("other", 1)
    with pytest.raises(redis.ConnectionError):
        client.incr("counter")
    assert proxy.wait_for_cuts(1, 5)
    assert redis_client.get("counter") == b"1"
    assert client.incr("counter") == 2


def test_dropped_bytes_are_lost_and_the_connection_with_them(
    client: redis.Redis, redis_client: redis.Redis, proxy: Proxy
) -> None:
    client.ping()
    proxy.drop()
    with pytest.raises(redis.TimeoutError):
        client.set("dropped", 1)
    assert redis_client.get("dropped") is None
    proxy.forward()
    client.set("dropped", 2)
    assert redis_client.get("dropped") == b"2"


def test_a_delay_is_felt_and_ends(client: redis.Redis, proxy: Proxy) -> None:
    client.ping()
    proxy.delay(0.05)
    began = time.monotonic()
    client.ping()
    assert time.monotonic() - began >= 0.1
    proxy.forward()
    client.ping()


def test_what_is_sent_on_a_half_closed_connection_still_runs(redis_client: redis.Redis, proxy: Proxy) -> None:
    address = urlsplit(proxy.url)
    with socket.create_connection((address.hostname, address.port or 0), 5) as connection:
        connection.sendall(b"PING\r\n")
        assert connection.recv(100) == b"+PONG\r\n"
        assert proxy.half_close() == 1
        connection.sendall(b"SET half closed\r\n")
        assert connection.recv(100) == b""
        wait_until(lambda: redis_client.get("half") == b"closed", "the command to run")


def test_cutting_closes_all_connections(client: redis.Redis, proxy: Proxy) -> None:
    client.ping()
    assert proxy.cut() == 1
    wait_until(lambda: proxy.connections == 0, "the connection to end")
    client.ping()
    assert proxy.connections == 1


def test_a_server_that_is_away_refuses(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Proxy(str(tmp_path_factory.mktemp("nobody") / "here")) as proxy:
        client = redis.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0))
        with client, pytest.raises(redis.ConnectionError):
            client.ping()
