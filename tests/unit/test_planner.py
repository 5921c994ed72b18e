"""The planner: ranges that meet exactly, names that never change, and no memory for what is not asked for yet."""

from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_importer.domain.errors import BadSetting
from streams_importer.domain.planner import count_id_ranges, plan_countries, plan_id_ranges
from streams_importer.domain.shard_key import IdRange, Scope, parse_key

LARGE = 10**15


@st.composite
def questions(draw: st.DrawFn) -> tuple[int, int, int]:
    """(low, high, size) with at most a few hundred shards, anywhere on the number line."""
    low = draw(st.integers(0, LARGE))
    width = draw(st.integers(1, LARGE))
    size = draw(st.integers(max(1, width // 300), 2 * width))
    return low, low + width, size


def ranges(low: int, high: int, size: int) -> list[IdRange]:
    return [scope.ids for scope in plan_id_ranges(low, high, size) if scope.ids is not None]


@given(questions())
def test_id_ranges_meet_exactly_from_the_low_end_to_the_high_end(question: tuple[int, int, int]) -> None:
    low, high, size = question
    planned = ranges(low, high, size)
    assert planned[0].low == low
    assert planned[-1].high == high
    assert all(one.high == other.low for one, other in itertools.pairwise(planned))
    assert all(0 < one.high - one.low <= size for one in planned)
    assert all(one.high - one.low == size for one in planned[:-1])


@given(st.integers(0, 500), st.integers(1, 500), st.integers(1, 600))
def test_every_id_lies_in_exactly_one_shard_and_none_outside_does(low: int, width: int, size: int) -> None:
    high = low + width
    planned = ranges(low, high, size)
    for identifier in range(max(0, low - 2), high + 3):
        assert sum(identifier in one for one in planned) == (low < identifier <= high)


@given(questions())
def test_the_number_of_shards_is_known_before_they_are_planned(question: tuple[int, int, int]) -> None:
    assert count_id_ranges(*question) == len(ranges(*question))


@given(questions())
def test_the_same_question_gives_the_same_keys_and_each_reads_back(question: tuple[int, int, int]) -> None:
    keys = [scope.key for scope in plan_id_ranges(*question)]
    assert keys == [scope.key for scope in plan_id_ranges(*question)]
    assert len(set(keys)) == len(keys)
    assert [parse_key(key) for key in keys] == list(plan_id_ranges(*question))


def test_keys_are_written_as_the_contract_spells_them() -> None:
    assert [scope.key for scope in plan_id_ranges(0, 25_000, 10_000)] == ["ids:0..10000", "ids:10000..20000", "ids:20000..25000"]
    assert [scope.key for scope in plan_countries(["DE", "FR"])] == ["country:DE", "country:FR"]


def test_a_range_that_grew_keeps_the_keys_of_its_full_shards() -> None:
    before = [scope.key for scope in plan_id_ranges(0, 30_000, 10_000)]
    assert [scope.key for scope in plan_id_ranges(0, 45_000, 10_000)][:3] == before


def test_planning_ten_million_shards_costs_no_more_than_the_first_one() -> None:
    tracemalloc.start()
    try:
        plan = plan_id_ranges(0, 10_000_000 * 10_000, 10_000)
        assert next(plan) == Scope(ids=IdRange(0, 10_000))
        assert count_id_ranges(0, 10_000_000 * 10_000, 10_000) == 10_000_000
        assert tracemalloc.get_traced_memory()[1] < 100_000  # bytes; a list of the shards would take a gigabyte
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [0, -1, -10_000])
def test_a_shard_size_below_one_is_refused_before_anything_is_planned(size: int) -> None:
    with pytest.raises(BadSetting, match=rf"^--shard-size {size}: must be 1 or more$"):
        plan_id_ranges(0, 100, size)


@pytest.mark.parametrize(("low", "high"), [(100, 0), (5, 5), (0, 0), (-1, 10), (-10, -5)])
def test_a_range_the_wrong_way_round_is_refused_before_anything_is_planned(low: int, high: int) -> None:
    with pytest.raises(BadSetting, match=rf"^--id-range {low}\.\.{high}: must go upwards"):
        plan_id_ranges(low, high, 10)


def test_a_country_named_twice_is_one_shard_in_its_first_place() -> None:
    assert [scope.country for scope in plan_countries(["FR", "DE", "FR"])] == ["FR", "DE"]
