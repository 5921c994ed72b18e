"""What must be there before workers start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .fleet import Fleet

MakeFleet = Callable[..., Fleet]


def test_setup_by_many_at_a_time_and_again_makes_every_index_and_group_once(fleet: MakeFleet) -> None:
    one = fleet(points=1)
    running = [one.start("setup") for _ in range(4)]
    for process in running:
        assert process.wait() == 0, process.output
    one.run("setup")
    assert {"externalId_1", "location_2dsphere", "source_1_changedAt_1"} <= set(one.db["pois"].index_information())
    assert one.db["pois"].index_information()["externalId_1"]["unique"]
    assert len(one.db["import_windows"].index_information()) == 3
    [group] = one.redis.xinfo_groups("{si}:openchargemap:shards")
    assert group["name"] == b"workers"


def test_a_collection_that_holds_something_else_is_refused_with_one_line(fleet: MakeFleet) -> None:
    one = fleet(points=1)
    one.db["pois"].insert_one({"name": "somebody else's"})
    for command in (["setup"], ["produce", "--id-range", "0..10"]):
        output = one.run(*command, code=2)
        assert len(output.splitlines()) == 1
        assert "externalId" in output
    assert one.db["import_windows"].count_documents({}) == 0


def test_an_import_file_defines_an_import_of_its_own(fleet: MakeFleet, tmp_path: Path) -> None:
    one = fleet(points=100)
    file = tmp_path / "mine.toml"
    file.write_text('[imports.mine]\nsource = "openchargemap"\ncollection = "stations"\nrate = ["200/s"]\npage_size = 30\n')
    one.run("--config", str(file), "produce")
    one.work(1)
    assert one.db["stations"].count_documents({}) == 100
    assert one.asked()[0].params["maxresults"] == "30"
    assert one.status("mine")["done"] == 1
