"""The grammar of limits, and the spacing that keeps every window at its limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_importer.domain.errors import BadSetting
from streams_importer.domain.rates import Limit, parse_limit

LIMITS = st.builds(Limit, st.integers(1, 999_999_999), st.sampled_from([1, 60, 3600, 86400]))


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("1/s", Limit(1, 1)),
        ("10/s", Limit(10, 1)),
        ("600/m", Limit(600, 60)),
        ("1000/h", Limit(1000, 3600)),
        ("5000/d", Limit(5000, 86400)),
        (" 10 / s ", Limit(10, 1)),
    ],
)
def test_a_limit_is_a_number_and_a_unit(text: str, limit: Limit) -> None:
    assert parse_limit(text) == limit


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "/s",
        "10/",
        "0/s",
        "-1/s",
        "01/s",
        "1.5/s",
        "10/w",
        "10/S",
        "10/sec",
        "1e3/s",
        "10 per s",
        "10/s;5/s",
        "10/s,5/s",
        "1" * 10 + "/s",
        "10/s\x1b[2J",
        "x" * 10_000,
    ],
)
def test_anything_else_is_refused_with_the_value_and_what_is_allowed(text: str) -> None:
    with pytest.raises(BadSetting) as refused:
        parse_limit(text)
    assert str(refused.value) == f"--rate {text!r}: write a number and a unit, as in 10/s, 600/m, 1000/h or 5000/d"


@given(LIMITS)
def test_a_limit_reads_back_as_it_is_written(limit: Limit) -> None:
    assert parse_limit(str(limit)) == limit


@given(LIMITS)
def test_no_window_ever_holds_more_grants_than_the_limit(limit: Limit) -> None:
    window_us = limit.seconds * 1_000_000
    # Grants at 0, spacing, 2 * spacing …: the one after the last allowed comes when the window has passed, or later.
    assert limit.amount * limit.spacing_us >= window_us
    assert (limit.spacing_us - 1) * limit.amount < window_us, "wider than it needs to be"


@pytest.mark.parametrize(
    ("text", "spacing_us"), [("1/s", 1_000_000), ("3/s", 333_334), ("600/m", 100_000), ("1/d", 86_400_000_000)]
)
def test_spacing_is_rounded_up_to_microseconds(text: str, spacing_us: int) -> None:
    assert parse_limit(text).spacing_us == spacing_us
