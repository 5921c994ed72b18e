"""`doctor --fix` beside working workers: what they settle meanwhile stays settled, and what was damaged is found again."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from streams_importer.adapters.redis_keys import Keys
from streams_importer.application.checkup import Finding, wrong
from streams_importer.application.doctor import Doctor
from streams_importer.application.repairs import Repairs
from streams_importer.settings import Servers, Upstreams
from streams_importer.wiring import Wiring
from tests.fakes.recorded import Events

from .fleet import Fleet, wait_until

MakeFleet = Callable[..., Fleet]
SETTINGS = ("--shard-size", "20", "--page-size", "5", "--rate", "100000/s", "--retry-delay", "50ms")
KEYS = Keys("si").of("openchargemap")


class Restless:
    """Repairs everything, wrong or not, again and again; and keeps what it did."""

    def __init__(self, fleet: Fleet) -> None:
        servers = Servers(fleet.environment["REDIS_URL"], fleet.environment["MONGODB_URI"])
        self._wiring = Wiring(servers, Upstreams(), "si", Events())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None
        self.rounds = 0
        self.done: Counter[str] = Counter()

    def __enter__(self) -> Restless:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._wiring.close()

    def _run(self) -> None:
        parts = self._wiring.examined
        try:
            while not self._stop.is_set():
                findings = [self._suspect(finding) for finding in Doctor(parts).examine()]
                for (_, check), said in Repairs(parts).fix(findings).items():
                    self.done[f"{check}: {said}"] += 1
                self.rounds += 1
        except BaseException as error:
            self.error = error

    def _suspect(self, finding: Finding) -> Finding:
        return Finding(finding.area, finding.check, wrong("suspected"), finding.import_name)


def produced(one: Fleet) -> Fleet:
    one.run("produce", "--id-range", f"0..{one.upstream.control.ids()[-1]}", *SETTINGS)
    return one


def test_repairs_beside_working_workers_break_nothing(fleet: MakeFleet) -> None:
    one = produced(fleet(points=3000, seed=43, odd_rate=0.0))
    one.upstream.control.add_fault("status", 500, times=40)
    with Restless(one) as restless:
        one.work(2, "-c", "4")
    assert restless.error is None
    assert restless.rounds >= 3
    one.expect_everything_once()
    # Nothing was wrong, so there was nothing to do, but for what is simply done again. A worker that has left is forgotten by
    # whoever comes first.
    again = ("heartbeats: ", "consumers: ", "definition: copied", "group: made")
    assert {said for said in restless.done if not said.startswith(again)} == set()
    assert one.repeated() == 0
    assert json.loads(one.run("doctor", "--json"))["wrong"] == 0


def test_what_is_damaged_beside_working_workers_is_repaired_and_ends_right(fleet: MakeFleet) -> None:
    one = produced(fleet(points=3000, seed=44, odd_rate=0.0))
    workers = [one.start("consume", "-c", "4") for _ in range(2)]
    wait_until(lambda: one.shard_states()["done"] > 20, "some shards to be done")
    redis: Any = one.redis
    redis.xdel(KEYS.shards, *[entry for entry, _ in redis.xrevrange(KEYS.shards, count=20)])
    redis.hdel(KEYS.places, *[fields[b"shard"] for _, fields in redis.xrevrange(KEYS.shards, count=40)])
    one.redis.hset(KEYS.places, "ids:1..2", "s1-1")
    one.redis.hset(KEYS.progress, "ids:1..2", "{}")
    one.redis.zadd(KEYS.delayed, {"ids:1..2": 1e15})
    one.run("doctor", "--fix")
    wait_until(lambda: set(one.shard_states()) == {"done"}, "all shards to be done")
    wait_until(lambda: not one.redis.xlen(KEYS.shards), "the stream to be empty")
    assert all(worker.running for worker in workers)
    one.run("doctor", "--fix")
    one.expect_everything_once()
    assert one.redis.hlen(KEYS.places) == one.redis.hlen(KEYS.progress) == 0
