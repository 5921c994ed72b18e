from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from streams_importer.embedded.servers import EmbeddedServers

from .driver import Driver, Mongo, Size
from .replica_set import ReplicaSet

MakeDriver = Callable[..., Driver]


@pytest.fixture(scope="package")
def pair() -> Iterator[EmbeddedServers]:
    """For all of chaos, to kill and start again: each fault leaves both running."""
    with EmbeddedServers() as servers:
        yield servers


@pytest.fixture(scope="package")
def replica_set() -> Iterator[ReplicaSet]:
    with ReplicaSet() as three:
        yield three


@pytest.fixture
def driver(pair: EmbeddedServers) -> Iterator[MakeDriver]:
    """Makes drivers, on the pair's MongoDB or another one."""
    with ExitStack() as stack:

        def make(seed: int, size: Size | None = None, mongo: Mongo | None = None) -> Driver:
            return stack.enter_context(Driver(pair, mongo or pair, seed, size))

        yield make
