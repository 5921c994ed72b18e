"""The planner: parts that meet exactly, names that never change, and no memory for what is not asked for yet."""

from __future__ import annotations

import itertools
import tracemalloc
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_importer.domain.axes import WIDEST_BOX, Box, IdRange, Window
from streams_importer.domain.errors import BadSetting
from streams_importer.domain.planner import Countries, Grid, IdRanges, Plan, Windows
from streams_importer.domain.shard_key import Scope, parse_key

LARGE = 10**15
START = datetime(2026, 2, 21, tzinfo=UTC)


@st.composite
def id_questions(draw: st.DrawFn) -> IdRanges:
    """At most a few hundred shards, anywhere on the number line."""
    low = draw(st.integers(0, LARGE))
    width = draw(st.integers(1, LARGE))
    size = draw(st.integers(max(1, width // 300), 2 * width))
    return IdRanges(low, low + width, size)


@st.composite
def window_questions(draw: st.DrawFn) -> Windows:
    start = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=draw(st.integers(0, 4 * 10**9)))
    width = draw(st.integers(1, 10**9))
    length = draw(st.none() | st.integers(max(1, width // 300), 2 * width))
    return Windows(start, start + timedelta(seconds=width), length)


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    """Decimal edges of one to seven digits, over 180° too, with at most some hundred boxes."""
    unit = Decimal(1).scaleb(-draw(st.integers(1, 7)))
    steps = int(Decimal(10) / unit)

    def edge(low: int, high: int) -> Decimal:
        return draw(st.integers(int(low / unit), int(high / unit))) * unit

    south = edge(-90, 89)
    north = min(Decimal(90), south + max(unit, edge(0, 60)))
    west = edge(-180, 179)
    width = max(unit, edge(0, 100))
    east = west + width if west + width <= 180 else west + width - 360
    return Grid(south, west, north, east, draw(st.integers(steps // 2, 3 * steps)) * unit)


def grid(south: Any, west: Any, north: Any, east: Any, step: str | None = None) -> Grid:
    return Grid(Decimal(south), Decimal(west), Decimal(north), Decimal(east), None if step is None else Decimal(step))


PLANS = st.builds(
    Plan,
    st.none() | st.lists(st.sampled_from(["DE", "FR", "GB"]), min_size=1).map(lambda codes: Countries(tuple(codes))),
    st.none() | grids(),
    st.none() | st.just(IdRanges(0, 25_000)),
    st.none() | st.just(Windows(START, START + timedelta(hours=5), 7200)),
).filter(lambda plan: plan != Plan() and plan.count < 2000)


# Ids.


@given(id_questions())
def test_id_ranges_meet_exactly_from_the_low_end_to_the_high_end(question: IdRanges) -> None:
    planned = list(question)
    assert (planned[0].low, planned[-1].high) == (question.low, question.high)
    assert all(one.high == other.low for one, other in itertools.pairwise(planned))
    assert all(0 < one.high - one.low <= question.size for one in planned)
    assert all(one.high - one.low == question.size for one in planned[:-1])
    assert len(planned) == question.count


@given(st.integers(0, 500), st.integers(1, 500), st.integers(1, 600))
def test_every_id_lies_in_exactly_one_shard_and_none_outside_does(low: int, width: int, size: int) -> None:
    high = low + width
    planned = list(IdRanges(low, high, size))
    for identifier in range(max(0, low - 2), high + 3):
        assert sum(identifier in one for one in planned) == (low < identifier <= high)


def test_a_range_that_grew_keeps_the_keys_of_its_full_shards() -> None:
    before = [scope.key for scope in Plan(ids=IdRanges(0, 30_000))]
    assert [scope.key for scope in Plan(ids=IdRanges(0, 45_000))][:3] == before


# Time.


@given(window_questions())
def test_windows_tile_without_gap_or_overlap(question: Windows) -> None:
    planned = list(question)
    assert (planned[0].start, planned[-1].end) == (question.start, question.end)
    assert all(one.end == other.start for one, other in itertools.pairwise(planned))
    assert all(one.start < one.end for one in planned)
    assert len(planned) == question.count
    if question.length_s is not None:
        assert all(one.end - one.start == timedelta(seconds=question.length_s) for one in planned[:-1])


@given(st.integers(1, 400), st.integers(1, 450), st.integers(-3, 405))
def test_every_second_lies_in_exactly_one_window_and_none_outside_does(width: int, length: int, second: int) -> None:
    planned = list(Windows(START, START + timedelta(seconds=width), length))
    at = START + timedelta(seconds=second, milliseconds=999)
    assert sum(one.contains(at) for one in planned) == (0 <= second < width)


def test_the_last_window_before_the_end_of_time_can_be_planned() -> None:
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert [window.end for window in Windows(end - timedelta(hours=3), end, 7200)][-1] == end


# Places.


@given(grids(), st.data())
def test_boxes_cover_an_area_exactly_once_edges_and_corners_included(grid: Grid, data: st.DataObject) -> None:
    boxes = list(grid)
    assert len(boxes) == grid.count
    assert all(box.east - box.west <= WIDEST_BOX for box in boxes)
    latitudes = sorted({edge for box in boxes for edge in (box.south, box.north)})
    longitudes = sorted({edge for box in boxes for edge in (box.west, box.east)})
    latitude = data.draw(st.sampled_from(latitudes) | st.floats(-90, 90))
    longitude = data.draw(st.sampled_from(longitudes) | st.floats(-180, 180))
    assert sum(box.contains(latitude, longitude) for box in boxes) == is_within(grid, latitude, longitude)


def is_within(grid: Grid, latitude: float, longitude: float) -> bool:
    """By hand: half open, the world's edge closed, over 180° when west is east of east."""
    south, west, north, east = map(float, (grid.south, grid.west, grid.north, grid.east))
    high_enough = south <= latitude < north or latitude == north == 90
    if west < east:
        return high_enough and (west <= longitude < east or longitude == east == 180)
    return high_enough and (longitude >= west or longitude < east)


@pytest.mark.parametrize("step", ["10", "7.3", "0.9", "45", "90"])
def test_the_whole_world_is_covered_exactly_once(step: str) -> None:
    boxes = list(grid(-90, -180, 90, 180, step=step))
    by_south: Counter[float] = Counter(box.south for box in boxes)
    assert len(boxes) == len(by_south) * by_south[-90.0]
    corners = [(-90, -180), (90, 180), (90, -180), (-90, 180), (0, 0), (-90, 0), (90, 0), (12.3456789, 180.0), (0, -180.0)]
    for latitude, longitude in corners:
        assert sum(box.contains(latitude, longitude) for box in boxes) == 1


def test_decimal_edges_meet_where_floats_would_not() -> None:
    boxes = list(grid("0", "0", "0.1", "1", step="0.1"))
    assert [box.west for box in boxes] == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]  # 3 * 0.1 is not 0.3
    assert str(boxes[3]) == "0.0,0.3,0.1,0.4"


def test_an_area_over_180_degrees_is_split_there() -> None:
    boxes = [str(box) for box in grid(-20, 175, -10, -175, step="10")]
    assert boxes == ["-20.0,175.0,-10.0,180.0", "-20.0,-180.0,-10.0,-175.0"]
    assert [str(box) for box in grid(-20, 180, -10, -175)] == ["-20.0,-180.0,-10.0,-175.0"]
    assert [str(box) for box in grid(-20, 175, -10, -180)] == ["-20.0,175.0,-10.0,180.0"]


# All together.


@given(PLANS)
def test_the_same_question_gives_the_same_keys_in_the_same_order_and_each_reads_back(plan: Plan) -> None:
    keys = [scope.key for scope in plan]
    assert keys == [scope.key for scope in plan]
    assert len(set(keys)) == len(keys) == plan.count
    assert [parse_key(key) for key in keys] == list(plan)


def test_keys_are_written_as_the_contract_spells_them() -> None:
    windows = Windows(START, START + timedelta(hours=2), 3600)
    assert [scope.key for scope in Plan(ids=IdRanges(0, 25_000))] == ["ids:0..10000", "ids:10000..20000", "ids:20000..25000"]
    assert [scope.key for scope in Plan(Countries(("DE", "FR")), windows=windows)] == [
        "country:DE|window:2026-02-21T00:00:00Z..2026-02-21T01:00:00Z",
        "country:DE|window:2026-02-21T01:00:00Z..2026-02-21T02:00:00Z",
        "country:FR|window:2026-02-21T00:00:00Z..2026-02-21T01:00:00Z",
        "country:FR|window:2026-02-21T01:00:00Z..2026-02-21T02:00:00Z",
    ]
    assert [scope.key for scope in Plan(boxes=grid(50, -10, 60, 0))] == ["bbox:50.0,-10.0,60.0,0.0"]
    assert [scope.key for scope in Plan(Countries(("DE",)), ids=IdRanges(0, 5))] == ["country:DE|ids:0..5"]


def test_every_product_is_planned_as_every_combination_of_its_parts() -> None:
    plan = Plan(
        Countries(("DE", "FR")),
        grid(0, 0, 20, 20, step="10"),
        IdRanges(0, 30, 10),
        Windows(START, START + timedelta(hours=2), 3600),
    )
    scopes = list(plan)
    assert len(scopes) == plan.count == 2 * 4 * 3 * 2
    assert scopes[0] == Scope("DE", IdRange(0, 10), Box(0, 0, 10, 10), Window(START, START + timedelta(hours=1)))
    parts = [(scope.country, scope.box, scope.ids, scope.window) for scope in scopes]
    assert parts == list(itertools.product(["DE", "FR"], plan.boxes or [], plan.ids or [], plan.windows or []))


TEN_MILLION: list[tuple[str, Plan]] = [
    ("ids", Plan(ids=IdRanges(0, 10_000_000, 1))),
    ("windows", Plan(windows=Windows(START, START + timedelta(seconds=10_000_000), 1))),
    ("boxes", Plan(boxes=grid("0", "0", "2", "50", step="0.00316"))),
    ("product", Plan(Countries(("DE",)), ids=IdRanges(0, 10_000), windows=Windows(START, START + timedelta(days=120), 1))),
]


@pytest.mark.parametrize(("name", "plan"), TEN_MILLION, ids=[name for name, _ in TEN_MILLION])
def test_ten_million_shards_are_planned_in_constant_memory(name: str, plan: Plan) -> None:
    assert plan.count >= 10_000_000
    tracemalloc.start()
    try:
        for scope in itertools.islice(plan, 20_000):
            assert scope.key
        assert tracemalloc.get_traced_memory()[1] < 100_000  # bytes; a list of the first 20,000 alone would take megabytes
    finally:
        tracemalloc.stop()


def test_a_country_named_twice_is_one_shard_in_its_first_place() -> None:
    assert list(Countries(("FR", "DE", "FR"))) == ["FR", "DE"]
    assert Countries(("FR", "DE", "FR")).count == 2


# What cannot be.


@pytest.mark.parametrize("size", [0, -1, -10_000])
def test_a_shard_size_below_one_is_refused_before_anything_is_planned(size: int) -> None:
    with pytest.raises(BadSetting, match=rf"^--shard-size {size}: must be 1 or more$"):
        IdRanges(0, 100, size)


@pytest.mark.parametrize(("low", "high"), [(100, 0), (5, 5), (0, 0), (-1, 10), (-10, -5)])
def test_a_range_the_wrong_way_round_is_refused_before_anything_is_planned(low: int, high: int) -> None:
    with pytest.raises(BadSetting, match=rf"^--id-range {low}\.\.{high}: must go upwards"):
        IdRanges(low, high, 10)


@pytest.mark.parametrize(
    ("edges", "step", "why"),
    [
        (("60", "0", "50", "10"), None, "the south edge must be below"),
        (("50", "0", "50", "10"), None, "the south edge must be below"),
        (("-91", "0", "50", "10"), None, "within -90 to 90"),
        (("50", "10", "60", "10"), None, "west and east must differ"),
        (("50", "180", "60", "-180"), None, "west and east must differ"),
        (("50", "-181", "60", "10"), None, "within -180 to 180"),
        (("50", "0", "60", "120"), None, "cut it: --grid 10"),
        (("50", "0", "60", "120"), "100", "cut it: --grid 10"),
        (("50", "80", "60", "-100"), None, "cut it: --grid 10"),
        (("nan", "0", "60", "1"), None, "edges are numbers"),
        (("inf", "0", "60", "1"), None, "edges are numbers"),
        (("1e30", "0", "60", "1"), None, "edges are numbers"),
        (("0.00000001", "0", "60", "1"), None, "up to 7 digits"),
        (("0", "0", "1", "1"), "0", "--grid 0: must be degrees above 0"),
        (("0", "0", "1", "1"), "-1", "--grid -1"),
        (("0", "0", "1", "1"), "nan", "--grid NaN"),
        (("0", "0", "1", "1"), "1e-9", "--grid 1E-9"),
        (("0", "0", "1", "1"), "1e99", r"--grid 1E\+99"),
    ],
)
def test_a_box_that_cannot_be_is_refused_with_what_is_wrong(edges: tuple[str, str, str, str], step: str | None, why: str) -> None:
    with pytest.raises(BadSetting, match=why):
        grid(*edges, step)


@pytest.mark.parametrize(("end", "length"), [(START, 60), (START - timedelta(hours=1), 60), (START + timedelta(hours=1), 0)])
def test_windows_that_cannot_be_are_refused(end: datetime, length: int) -> None:
    with pytest.raises(BadSetting, match=r"later than|whole seconds"):
        Windows(START, end, length)
