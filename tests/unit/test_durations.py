"""Durations as people type them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_importer.domain.durations import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("10s", 10),
        ("5m", 300),
        ("1h", 3600),
        ("1d", 86400),
        ("0s", 0),
        ("1.5s", 1.5),
        (" 10s ", 10),
        ("0.000001s", 0.000001),
    ],
)
def test_a_duration_is_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text",
    ["", "10", "s", "-1s", "+1s", "1e3s", "1,5s", "1.s", ".5s", "10 s", "10S", "10sec", "1h30m", "nan", "infs", "1w",
     "9" * 10 + "s", "10s\x1b[2J", "10s\n10s"],
)  # fmt: skip
def test_anything_else_is_refused_with_the_value_and_what_is_allowed(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_duration(text)
    assert str(refused.value) == f"{text!r} is not a duration; write 250ms, 10s, 5m, 1h or 1d"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.25, "250ms"),
        (1, "1s"),
        (1.5, "1500ms"),
        (60, "1m"),
        (90, "90s"),
        (3600, "1h"),
        (5400, "90m"),
        (86400, "1d"),
        (0, "0ms"),
    ],
)
def test_a_duration_is_written_in_the_largest_unit_that_fits(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@given(st.integers(0, 10**9 - 1))
def test_a_duration_in_milliseconds_reads_back_as_it_is_written(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)
