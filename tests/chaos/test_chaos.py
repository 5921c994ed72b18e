"""One import for every fault: nothing lost, nothing doubled, and everything as it was promised."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from . import faults
from .conftest import MakeDriver
from .driver import Driver, Size
from .faults import Fault
from .previous import MissingHistory
from .replica_set import ReplicaSet
from .verdict import judge

TOGETHER: dict[str, list[Fault]] = {
    "ends of processes": [faults.sigkill, faults.sigterm_storm, faults.same_name],
    "a worker that stands still": [faults.sigstop],
    "trouble with Redis": [faults.redis_killed, faults.redis_full, faults.flushall, faults.script_flush],
    "a bad connection": [faults.half_closed, faults.cut, faults.cut_after_command, faults.delayed],
    "silence": [faults.dropped],
    "MongoDB killed": [faults.mongod_killed],
}
"""The fast tests put several faults into one import: each import costs seconds for its processes alone."""
ALL = [fault for some in TOGETHER.values() for fault in some]
SEEDS: list[Any] = [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))]


def run(chaos: Driver, *schedule: Fault, least: int | None = None) -> None:
    """Faults for which the import is over too soon are left out, as long as `least` came (all of them, unless said)."""
    chaos.start()
    for fault in schedule:
        if not chaos.wait_for_requests(chaos.dice.randint(4, 8)):
            break
        chaos.inject(fault)
    assert len(chaos.faults) >= (len(schedule) if least is None else least), "the import was over before the fault"
    chaos.finish()
    assert judge(chaos).problems == {}


@pytest.mark.parametrize("what", TOGETHER)
def test_an_import_survives(what: str, driver: MakeDriver) -> None:
    chaos = driver(1, Size(points=1000 * (2 + len(TOGETHER[what]))))
    run(chaos, *chaos.dice.sample(TOGETHER[what], len(TOGETHER[what])))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
@pytest.mark.parametrize("fault", ALL, ids=lambda fault: fault.__name__)
def test_an_import_survives_one_fault(fault: Fault, seed: int, driver: MakeDriver) -> None:
    run(driver(seed), fault)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_import_survives_a_primary_that_steps_down(seed: int, driver: MakeDriver, replica_set: ReplicaSet) -> None:
    run(driver(seed, mongo=replica_set), faults.stepped_down)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_worker_of_the_previous_version_works_beside_this_one(seed: int, driver: MakeDriver) -> None:
    chaos = driver(seed)
    try:
        previous = chaos.previous()
    except MissingHistory as why:
        pytest.skip(str(why))
    assert previous.loaded_from() == [previous.folder / "streams_importer" / "__init__.py", previous.folder / "lua"]
    run(chaos, faults.previous_version, faults.sigkill)


@pytest.mark.parametrize("seed", SEEDS)
def test_one_poison_among_eight_slots_is_the_only_dead_letter(seed: int, driver: MakeDriver) -> None:
    chaos = driver(seed, Size(points=1600, workers=1, slots=8))
    chaos.size = replace(chaos.size, shard_size=-(-chaos.upstream.points.ids[-1] // 8))
    chaos.produce()
    shards = sorted(row["shardKey"] for row in chaos.fleet.db["import_windows"].find({}))
    assert len(shards) == 8
    poison = chaos.dice.choice(shards)
    faults.poison_shard(chaos, poison)
    chaos.crew.start(1)
    chaos.disturbed(*chaos.crew.members)
    chaos.finish()
    assert judge(chaos, dead=frozenset({poison})).problems == {}
    assert chaos.fleet.shard_states() == {"done": 7, "failed": 1}
    [(_, letter)] = chaos.letters()
    assert letter[b"error"] == b"crashed"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 6))
def test_an_import_survives_a_mixture(seed: int, driver: MakeDriver) -> None:
    chaos = driver(seed, Size(points=20_000, workers=3, slots=3, rate="60/s"))
    run(chaos, *(chaos.dice.choice(ALL) for _ in range(6)), least=1)
