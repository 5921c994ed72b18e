"""What the queue costs: shards produced a second with their ledger rows, memory a queued shard, and what is left in the end.

`scripts/measure_queue` prints it; a test holds memory and keys to what is promised. Speed is shown, never asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from redis import Redis

from streams_importer.embedded.servers import EmbeddedServers
from streams_importer.embedded.stand_in import StandInProcess

KEY = "measure-queue"


@dataclass
class Measured:
    shards: int
    produce_s: float = 0.0
    bytes_a_shard: float = 0.0
    drain_s: float = 0.0
    left: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Key, its type, and its bytes."""

    @property
    def left_bytes(self) -> int:
        return sum(size for _, size in self.left.values())

    def lines(self) -> list[str]:
        keys = [f"  {key:32} {kind:8} {size:>7,} bytes" for key, (kind, size) in sorted(self.left.items())]
        return [
            f"{self.shards:,} shards produced in {self.produce_s:.1f} s, {self.shards / self.produce_s:,.0f} a second"
            " (command start and ledger rows in MongoDB included)",
            f"{self.bytes_a_shard:.0f} bytes of Redis memory a queued shard",
            f"drained in {self.drain_s:.1f} s, {self.shards / self.drain_s:,.0f} a second (one HTTP request each)",
            f"left in Redis: {len(self.left)} keys, {self.left_bytes:,} bytes",
            *keys,
        ]


def measure(servers: EmbeddedServers, database: str, shards: int, workers: int = 2) -> Measured:
    """One id a shard; the upstream has points in the first hundred only, so a shard costs one request and little else."""
    measured = Measured(shards)
    with StandInProcess(100, 1, KEY) as upstream, Redis.from_url(servers.redis_url) as redis:
        redis.flushall()
        environment = {**os.environ, "REDIS_URL": servers.redis_url, "MONGODB_URI": servers.mongodb_uri_of(database)}
        environment |= {"OCM_BASE_URL": upstream.base_url, "OCM_API_KEY": KEY}
        before = _used_memory(redis)
        started = time.monotonic()
        plan = ["--id-range", f"0..{shards}", "--shard-size", "1", "--max-backlog", str(shards), "--rate", "1000000/s"]
        produced = json.loads(_run(environment, "produce", "--json", *plan))
        measured.produce_s = time.monotonic() - started
        assert produced["queued"] == shards
        measured.bytes_a_shard = (_used_memory(redis) - before) / shards
        started = time.monotonic()
        running = [_start(environment, "-q", "consume", "--until-empty", "-c", "16") for _ in range(workers)]
        for worker in running:
            worker.communicate()  # which closes its pipe, too
        codes = [worker.returncode for worker in running]
        measured.drain_s = time.monotonic() - started
        assert not any(codes), codes
        assert json.loads(_run(environment, "status", "--json"))["imports"]["openchargemap"]["done"] == shards
        for key in redis.scan_iter(count=1000):
            measured.left[key.decode()] = redis.type(key).decode(), int(redis.memory_usage(key, samples=0) or 0)
    return measured


def _used_memory(redis: Redis) -> int:
    return int(redis.info("memory")["used_memory"])


def _start(environment: dict[str, str], *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "streams_importer", "--config", os.devnull, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)


def _run(environment: dict[str, str], *arguments: str) -> bytes:
    process = _start(environment, *arguments)
    output, _ = process.communicate()
    assert process.returncode == 0, (arguments, output)
    return output


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="What the queue costs, on embedded servers.")
    parser.add_argument("--shards", type=int, default=100_000)
    options = parser.parse_args(arguments)
    with EmbeddedServers() as servers:
        for line in measure(servers, "measure_queue", options.shards).lines():
            print(line)


if __name__ == "__main__":
    main()
