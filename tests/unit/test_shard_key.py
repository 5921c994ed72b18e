"""Shard keys: what the planner writes reads back, and nothing else does."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_importer.domain.axes import Box, IdRange, Window, parse_moment
from streams_importer.domain.shard_key import MAX_KEY_LENGTH, Scope, is_name, parse_key

COUNTRIES = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=2, max_size=2)
RANGES = st.tuples(st.integers(0, 10**17), st.integers(1, 10**17)).map(lambda pair: IdRange(pair[0], pair[0] + pair[1]))
MOMENTS = st.integers(0, 8 * 10**9).map(lambda seconds: datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds))
WINDOWS = st.tuples(MOMENTS, st.integers(1, 10**9)).map(lambda pair: Window(pair[0], pair[0] + timedelta(seconds=pair[1])))
SMALL = 10**7
BOXES = st.tuples(
    st.integers(-90 * SMALL, 80 * SMALL),
    st.integers(-180 * SMALL, 90 * SMALL),
    st.integers(1, 10 * SMALL),
    st.integers(1, 90 * SMALL),
).map(lambda n: Box(n[0] / SMALL, n[1] / SMALL, (n[0] + n[2]) / SMALL, (n[1] + n[3]) / SMALL))
SCOPES = st.builds(Scope, *(st.none() | each for each in (COUNTRIES, RANGES, BOXES, WINDOWS))).filter(
    lambda scope: scope != Scope()
)
HOUR = Window(datetime(2026, 2, 21, tzinfo=UTC), datetime(2026, 2, 21, 1, tzinfo=UTC))


@given(SCOPES)
def test_a_key_reads_back_as_the_scope_that_it_names(scope: Scope) -> None:
    assert parse_key(scope.key) == scope
    assert len(scope.key) <= MAX_KEY_LENGTH


@pytest.mark.parametrize(
    ("key", "scope"),
    [
        ("country:DE", Scope("DE")),
        ("ids:0..10000", Scope(ids=IdRange(0, 10_000))),
        ("country:DE|ids:0..10000", Scope("DE", IdRange(0, 10_000))),
        ("country:DE|window:2026-02-21T00:00:00Z..2026-02-21T01:00:00Z", Scope("DE", window=HOUR)),
        ("bbox:50.0,-10.0,60.0,0.0", Scope(box=Box(50.0, -10.0, 60.0, 0.0))),
        (
            "bbox:50.0,-10.0,60.0,0.0|window:2026-02-21T00:00:00Z..2026-02-21T01:00:00Z",
            Scope(box=Box(50.0, -10.0, 60.0, 0.0), window=HOUR),
        ),
        ("bbox:-0.0000001,0.0,0.0000001,0.5", Scope(box=Box(-1e-07, 0.0, 1e-07, 0.5))),
    ],
)
def test_keys_are_spelled_as_in_the_contract(key: str, scope: Scope) -> None:
    assert parse_key(key) == scope
    assert scope.key == key


@pytest.mark.parametrize(
    "key",
    [
        "",
        "|",
        "country:",
        "country:de",
        "country:DEU",
        "country:DE\n",
        " country:DE",
        "country:DE ",
        "country:ÄÖ",
        "country:DE|",
        "|country:DE",
        "country:DE|country:DE",
        "country:DE|country:FR",
        "ids:0..10|country:DE",
        "ids:0..10|ids:0..10",
        "ids:10..0",
        "ids:5..5",
        "ids:0..0",
        "ids:-1..5",
        "ids:00..5",
        "ids:0..05",
        "ids:0..+5",
        "ids:0..5\n",
        "ids:0...5",
        "ids:0..1e3",
        "ids:0..1_000",
        "ids:0..1٣",
        "ids:0..１０",
        "ids:0.." + "9" * 19,
        "ids:0..10000 ",
        "ids",
        "bbox:50,-10,60,0",
        "bbox:50.00,-10.0,60.0,0.0",
        "bbox:050.0,-10.0,60.0,0.0",
        "bbox:-0.0,-10.0,60.0,0.0",
        "bbox:60.0,-10.0,50.0,0.0",
        "bbox:50.0,0.0,60.0,-10.0",
        "bbox:50.0,0.0,60.0,0.0",
        "bbox:50.0,0.0,90.1,1.0",
        "bbox:50.0,170.0,60.0,180.1",
        "bbox:50.0,0.0,60.0,90.1",
        "bbox:nan,0.0,60.0,1.0",
        "bbox:1e1,0.0,60.0,1.0",
        "bbox:50.0,0.0,60.0",
        "bbox:50.0,0.0,60.0,1.0,",
        "bbox:٥٠.0,0.0,60.0,1.0",
        "window:2026-02-21T01:00:00Z..2026-02-21T00:00:00Z",
        "window:2026-02-21T00:00:00Z..2026-02-21T00:00:00Z",
        "window:2026-02-21..2026-02-22",
        "window:2026-02-21T00:00:00..2026-02-21T01:00:00",
        "window:2026-02-21T00:00:00+00:00..2026-02-21T01:00:00+00:00",
        "window:2026-13-21T00:00:00Z..2027-02-21T01:00:00Z",
        "window:2026-02-30T00:00:00Z..2027-02-21T01:00:00Z",
        "window:2026-02-21T24:00:00Z..2027-02-21T01:00:00Z",
        "window:2026-02-21T00:00:00.5Z..2027-02-21T01:00:00Z",
        "window:2026-02-21T00:00:00Z..2026-02-21T01:00:00Z|country:DE",
        "ids:0..10|bbox:50.0,-10.0,60.0,0.0",
        "unknown:1",
        "COUNTRY:DE",
        "$where:1",
        "../../etc/passwd",
        "country:DE\x00",
        "\ud800",
        "country:DE|" * 30,
        "x" * (MAX_KEY_LENGTH + 1),
        "ids:0.." + "9" * 10_000,
    ],
)
def test_a_key_that_the_planner_would_not_write_is_refused(key: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_key(key)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 100


@given(st.text(max_size=300) | st.from_regex(r"(country|ids|bbox|window):[-A-Z0-9.,|:]{0,40}", fullmatch=True))
def test_whatever_is_accepted_is_written_the_same_way_again(key: str) -> None:
    try:
        scope = parse_key(key)
    except ValueError:
        return
    assert scope.key == key


def test_a_range_holds_its_high_end_and_not_its_low_end() -> None:
    assert [identifier for identifier in range(7) if identifier in IdRange(2, 5)] == [3, 4, 5]


def test_a_box_holds_its_south_and_west_edges_and_the_worlds_edge() -> None:
    box = Box(50.0, -10.0, 60.0, 0.0)
    assert box.contains(50.0, -10.0)
    assert not box.contains(60.0, -5.0)
    assert not box.contains(55.0, 0.0)
    assert not box.contains(float("nan"), -5.0)
    assert Box(80.0, 170.0, 90.0, 180.0).contains(90.0, 180.0)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-02-21", datetime(2026, 2, 21, tzinfo=UTC)),
        (" 2026-02-21T10:00 ", datetime(2026, 2, 21, 10, tzinfo=UTC)),
        ("2026-02-21T10:00:05Z", datetime(2026, 2, 21, 10, 0, 5, tzinfo=UTC)),
        ("2026-02-21T01:30:00+02:00", datetime(2026, 2, 20, 23, 30, tzinfo=UTC)),
    ],
)
def test_times_as_people_type_them_are_utc(text: str, moment: datetime) -> None:
    assert parse_moment(text) == moment


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2026-02-30", "21.2.2026", "1969-12-31", "2026-02-21T10:00:00.5", "0001-01-01T00:00+02:00"]
)
def test_what_is_no_time_is_refused_with_how_one_is_written(text: str) -> None:
    with pytest.raises(ValueError, match="as in 2026-02-21"):
        parse_moment(text)


@pytest.mark.parametrize("name", ["a", "si", "openchargemap", "a-b_c9", "a" * 63])
def test_names_of_imports_and_namespaces_that_are_allowed(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "A", "1a", "-a", "_a", "a b", "a:b", "a}", "a\n", "é", "a\x1b", "a" * 64])
def test_names_of_imports_and_namespaces_that_are_not(name: str) -> None:
    assert not is_name(name)
