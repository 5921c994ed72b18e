"""Each axis stores exactly the rows that belong to it: by an independent filter over what the upstream has."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from streams_importer.cli.main import cli
from streams_importer.embedded.stand_in_points import COUNTRIES

from .fleet import Fleet

SAMPLE = Path(__file__).resolve().parents[3] / "shared" / "data" / "ocm" / "ocm-sample.compact.ndjson.gz"

Poi = dict[str, Any]
Belongs = Callable[[Poi], bool]


def in_country(code: str) -> Belongs:
    number = next(country.id for country in COUNTRIES if country.iso == code)
    return lambda poi: (poi.get("AddressInfo") or {}).get("CountryID") == number


def in_ids(low: int, high: int) -> Belongs:
    return lambda poi: low < poi["ID"] <= high


def in_box(south: float, west: float, north: float, east: float) -> Belongs:
    """Half open; 90° north and 180° east are edges of the world, and belong to it."""

    def belongs(poi: Poi) -> bool:
        info = poi.get("AddressInfo") or {}
        latitude, longitude = info.get("Latitude"), info.get("Longitude")
        if not isinstance(latitude, int | float) or not isinstance(longitude, int | float):
            return False
        is_high = south <= latitude and (latitude < north or latitude == north == 90)
        to_the_east = longitude < east or longitude == east == 180
        return is_high and ((west <= longitude and to_the_east) if west < east else (west <= longitude <= 180 or to_the_east))

    return belongs


def changed(start: str, end: str) -> Belongs:
    def belongs(poi: Poi) -> bool:
        try:
            at = datetime.fromisoformat(poi["DateLastStatusUpdate"])
        except (KeyError, TypeError, ValueError):
            return False
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return datetime.fromisoformat(start) <= at < datetime.fromisoformat(end)

    return belongs


def median_times(pois: Iterable[Poi]) -> tuple[str, str]:
    """Two times with a third of the rows between them."""
    times = sorted(poi["DateLastStatusUpdate"] for poi in pois if isinstance(poi.get("DateLastStatusUpdate"), str))
    moments = [datetime.fromisoformat(times[len(times) * third // 3]) for third in (1, 2)]
    start, end = (moment.replace(tzinfo=moment.tzinfo or UTC, microsecond=0).isoformat() for moment in moments)
    return start, end


Case = tuple[list[str], list[Belongs]]


def cases(pois: list[Poi], country: str) -> dict[str, Case]:
    start, end = median_times(pois)
    middle = sorted(poi["ID"] for poi in pois)[len(pois) // 2]
    time = ["--from", start, "--to", end]
    europe = ["--bbox", "35,-10,60,25.5"]
    in_europe, in_time = in_box(35, -10, 60, 25.5), changed(start, end)
    low_ids = ["--id-range", f"0..{middle}", "--shard-size", str(middle // 2)]
    return {
        "ids": (low_ids, [in_ids(0, middle)]),
        "country": (["--country", country], [in_country(country)]),
        "window": (time, [in_time]),
        "windows": ([*time, "--window", "400d"], [in_time]),
        "box": (europe, [in_europe]),
        "boxes": ([*europe, "--grid", "7.3"], [in_europe]),
        "world": (["--bbox=-90,-180,90,180", "--grid", "60"], [in_box(-90, -180, 90, 180)]),
        "over 180": (["--bbox=-90,100,90,-60", "--grid", "70"], [in_box(-90, 100, 90, -60)]),
        "country and window": (["--country", country, *time], [in_country(country), in_time]),
        "box and window": ([*europe, "--grid", "20", *time], [in_europe, in_time]),
        "country and ids": (["--country", country, *low_ids], [in_country(country), in_ids(0, middle)]),
        "all four": (
            ["--country", country, *europe, *low_ids, *time],
            [in_country(country), in_europe, in_ids(0, middle), in_time],
        ),
    }


def expect_each_axis_to_store_its_own(one: Fleet, pois: list[Poi], country: str, folder: Path) -> None:
    """One import an axis, into a collection of its own, all served by one worker."""
    names = {name.replace(" ", "-"): case for name, case in cases(pois, country).items()}
    file = folder / "streams-importer.toml"
    file.write_text("".join(f'[imports.{name}]\ncollection = "{name}"\nrate = ["900/s"]\n' for name in names))
    with mock.patch.dict(os.environ, one.environment, clear=True):
        for name, (arguments, _) in names.items():  # in this process: starting a dozen would take longer than all the rest
            with pytest.raises(SystemExit) as ended:
                cli.main(["--config", str(file), "produce", name, *arguments], standalone_mode=False)
            assert ended.value.code == 0
    one.work(1, "--concurrency", "8")
    statuses = json.loads(one.run("status", "--json"))["imports"]
    for name, (arguments, filters) in names.items():
        expected = sorted(poi["ID"] for poi in pois if all(belongs(poi) for belongs in filters))
        stored = sorted(document["sourceId"] for document in one.db[name].find({}, {"sourceId": 1}))
        assert stored == expected, (name, arguments)
        assert 0 < len(stored) < len(pois) or name in ("world", "all-four"), (name, "the case proves nothing")
        status = statuses[name]
        assert status["records"]["seen"] == len(expected) + status["records"]["rejected"]
        assert status["dead"] == status["failed"] == 0


def test_each_axis_stores_exactly_the_rows_that_belong_to_it(fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    one = fleet(points=4000, odd_rate=0.02)
    pois = [json.loads(point.body) for point in one.upstream.points.rows]
    expect_each_axis_to_store_its_own(one, pois, "DE", tmp_path)


@pytest.mark.skipif(not SAMPLE.exists(), reason="the sample of real charge points is not on this machine")
def test_each_axis_stores_exactly_its_rows_of_the_real_charge_points(fleet: Callable[..., Fleet], tmp_path: Path) -> None:
    with gzip.open(SAMPLE, "rt", encoding="utf-8") as lines:
        pois = [json.loads(line) for line in lines]
    one = fleet(pois=pois)
    expect_each_axis_to_store_its_own(one, pois, "GB", tmp_path)
