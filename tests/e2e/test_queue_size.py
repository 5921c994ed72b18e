"""What a queued shard costs in Redis, and what is left when all is done."""

from __future__ import annotations

import pytest

from streams_importer.adapters.redis_keys import Keys
from streams_importer.embedded.servers import EmbeddedServers
from tests.measurements.queue import measure


@pytest.mark.slow
def test_a_hundred_thousand_shards_are_small_and_leave_the_fixed_list_of_keys(own_servers: EmbeddedServers) -> None:
    measured = measure(own_servers, "queue_size", 100_000)
    assert measured.bytes_a_shard <= 400
    keys = Keys("si")
    fixed = {
        keys.imports,
        keys.paused,
        keys.workers,
        *(getattr(keys.of("openchargemap"), name) for name in keys.of("x").__slots__),
    }
    assert {key for key in measured.left if not key.startswith((keys.budget(""), keys.cache("")))} <= fixed
    assert measured.left_bytes < 64 * 1024
