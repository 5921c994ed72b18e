"""Real servers for every test that asks for one. A server that is missing is a failure, never a skip."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from pymongo import MongoClient
from pymongo.database import Database
from redis.backoff import NoBackoff
from redis.retry import Retry

from streams_importer.domain import redaction
from streams_importer.embedded.servers import EmbeddedServers
from streams_importer.embedded.stand_in import StandIn


@pytest.fixture(autouse=True)
def nothing_is_secret_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test makes this process learn must not be blanked in the next."""
    monkeypatch.setattr(redaction.SECRETS, "_known", redaction.Redactor()._known)


@pytest.fixture(scope="session")
def servers() -> Iterator[EmbeddedServers]:
    """One pair for the whole session: not to be killed. A test that makes an outage takes `own_servers`."""
    with EmbeddedServers() as pair:
        yield pair


@pytest.fixture
def own_servers() -> Iterator[EmbeddedServers]:
    """A pair for one test alone, to kill and start again."""
    with EmbeddedServers() as pair:
        yield pair


@pytest.fixture(scope="session")
def redis_url(servers: EmbeddedServers) -> str:
    return servers.redis_url


@pytest.fixture
def redis_client(redis_url: str) -> Iterator[redis.Redis]:
    """Bytes in, bytes out, on an empty server, without hidden retries."""
    with redis.Redis.from_url(redis_url, decode_responses=False, retry=Retry(NoBackoff(), 0)) as client:
        client.flushall()
        yield client


@pytest.fixture(scope="session")
def mongo_client(servers: EmbeddedServers) -> Iterator[MongoClient[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](servers.mongodb_uri, tz_aware=True) as client:
        yield client


@pytest.fixture
def mongo_uri(servers: EmbeddedServers, mongo_client: MongoClient[dict[str, Any]]) -> Iterator[str]:
    """Names a database of the test's own, dropped afterwards."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    yield servers.mongodb_uri_of(name)
    mongo_client.drop_database(name)


@pytest.fixture
def mongo_db(mongo_client: MongoClient[dict[str, Any]], mongo_uri: str) -> Database[dict[str, Any]]:
    """The database that `mongo_uri` names."""
    return mongo_client[mongo_uri.rpartition("/")[2].partition("?")[0]]


@pytest.fixture
def stand_in() -> Iterator[Callable[..., StandIn]]:
    """Makes local Open Charge Maps, with the arguments of `StandIn`, and stops them after the test."""
    started: list[StandIn] = []

    def start(**arguments: Any) -> StandIn:
        started.append(StandIn(**arguments))
        return started[-1]

    yield start
    for one in started:
        one.stop()
