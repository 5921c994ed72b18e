from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from streams_importer.adapters.redis_client import connect
from streams_importer.embedded.servers import EmbeddedServers
from tests.contract.test_queue import Bench


def bench_on(url: str) -> Iterator[Bench]:
    client = connect(url, max_connections=2)
    made = Bench(client)
    made.worker().set_up("a")
    made.count("a")
    yield made
    client.close()
    client.connection_pool.disconnect()


@pytest.fixture
def bench(redis_client: redis.Redis, redis_url: str) -> Iterator[Bench]:
    yield from bench_on(redis_url)


@pytest.fixture
def own_bench(own_servers: EmbeddedServers) -> Iterator[Bench]:
    """On a server whose settings may be changed."""
    yield from bench_on(own_servers.redis_url)
