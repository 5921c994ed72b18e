from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streams_importer.embedded.servers import EmbeddedServers
from streams_importer.embedded.stand_in import StandIn

from .fleet import KEY, Fleet


@pytest.fixture
def fleet_on(stand_in: Callable[..., StandIn]) -> Iterator[Callable[..., Fleet]]:
    """Makes fleets: a pair of servers, and the arguments of the local Open Charge Map."""
    fleets: list[Fleet] = []

    def make(servers: EmbeddedServers, **arguments: Any) -> Fleet:
        fleets.append(Fleet(servers, f"test_{uuid.uuid4().hex[:12]}", stand_in(**{"key": KEY, **arguments})))
        return fleets[-1]

    yield make
    for fleet in fleets:
        fleet.close()


@pytest.fixture
def fleet(servers: EmbeddedServers, fleet_on: Callable[..., Fleet]) -> Iterator[Callable[..., Fleet]]:
    """Makes a fleet on the session's servers, with an empty Redis."""

    def make(**arguments: Any) -> Fleet:
        one = fleet_on(servers, **arguments)
        one.redis.flushall()
        made.append(one)
        return one

    made: list[Fleet] = []
    yield make
    for one in made:
        one.mongo.drop_database(one.db.name)
