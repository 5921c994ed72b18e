"""One import all the way, with two worker processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from streams_importer.domain.planner import IdRanges
from streams_importer.embedded.stand_in_queries import least_requests

from .fleet import Fleet

MakeFleet = Callable[..., Fleet]


@pytest.mark.parametrize("points", [15_000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_two_workers_import_every_point_once_and_ask_for_every_page_once(fleet: MakeFleet, points: int) -> None:
    one = fleet(points=points, seed=7)
    one.run("produce", "--rate", "100/s")
    one.work(2)
    one.expect_everything_once()
    assert one.repeated() == 0
    ids = one.upstream.control.ids()
    ranges = [(part.low, part.high) for part in IdRanges(0, ids[-1])]
    assert len(one.asked()) == least_requests(ids, ranges, 1000)
    assert all(asked.key_in_header for asked in one.upstream.log)

    one.upstream.control.clear_log()
    assert f"{len(ranges)} done already" in one.run("produce")
    one.work(1)
    assert one.asked() == []

    stored = {document["sourceId"]: document for document in one.db["pois"].find({})}
    one.run("produce", "--again")
    one.work(2)
    assert {document["sourceId"]: document for document in one.db["pois"].find({})} == stored
    records = one.status()["records"]
    assert (records["inserted"], records["unchanged"], records["seen"]) == (points, points, 2 * points)


def test_countries_store_exactly_their_own_points(fleet: MakeFleet) -> None:
    one = fleet(points=3000, seed=3)
    one.run("produce", "--country", "DE,fr", "--country", "GB", "--rate", "100/s", "--page-size", "200")
    one.work(2)
    wanted = sorted(point.id for country in (87, 80, 1) for point in one.upstream.points.by_country[country])
    assert one.stored_ids() == wanted
    assert sorted(row["shardKey"] for row in one.db["import_windows"].find({})) == ["country:DE", "country:FR", "country:GB"]
    assert len(one.asked("/referencedata")) == 1  # asked once, then remembered for the whole fleet


def test_an_unknown_country_is_refused_before_anything_is_queued(fleet: MakeFleet) -> None:
    one = fleet(points=10)
    output = one.run("produce", "--country", "DE,QQ", code=2)
    assert "QQ" in output
    assert len(output.splitlines()) == 1
    assert one.db["import_windows"].count_documents({}) == 0
    assert one.redis.keys("*shards*") == []


def test_an_update_upstream_is_stored_and_counted_as_updated(fleet: MakeFleet) -> None:
    one = fleet(points=500, seed=5)
    one.run("produce", "--rate", "100/s")
    one.work(1)
    changed = one.upstream.control.poi(one.upstream.control.ids()[10])
    changed["GeneralComments"] = "moved to the other side"
    one.upstream.control.update_points([changed])
    one.run("produce", "--again")
    one.work(1)
    records = one.status()["records"]
    assert (records["inserted"], records["updated"], records["unchanged"]) == (500, 1, 499)
    document = one.db["pois"].find_one({"sourceId": changed["ID"]})
    assert document is not None
    assert document["data"]["GeneralComments"] == "moved to the other side"
    assert document["changedAt"] > document["firstImportedAt"]


def test_what_is_left_in_redis_afterwards_is_the_fixed_list_and_small(fleet: MakeFleet) -> None:
    one = fleet(points=5000)
    one.run("produce", "--shard-size", "50", "--rate", "1000/s")
    one.work(2)
    keys = {str(key, "utf-8") for key in one.redis.scan_iter("*")}
    budgets = {key for key in keys if key.startswith("{si}:budget:")}
    assert len(budgets) == 1
    assert keys - budgets == {"{si}:imports", "{si}:openchargemap:shards", "{si}:openchargemap:counters"}
    assert sum(one.redis.memory_usage(key) or 0 for key in keys) < 64 * 1024


def test_a_plan_that_was_interrupted_is_finished_by_missing_and_by_any_worker(fleet: MakeFleet) -> None:
    one = fleet(points=1000)
    one.run("produce", "--shard-size", "200", "--rate", "200/s")
    one.redis.delete("{si}:openchargemap:shards", "{si}:openchargemap:places")  # as if it had died before queueing
    assert "12 shards queued of 12" in one.run("produce", "--missing")
    assert "0 shards queued of 12" in one.run("produce", "--missing")
    one.redis.delete("{si}:openchargemap:shards", "{si}:openchargemap:places")
    one.work(1)
    assert one.stored_ids() == one.upstream.control.ids()
