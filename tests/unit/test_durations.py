"""Durations as people type them."""

from __future__ import annotations

import pytest

from streams_importer.domain.durations import parse_duration


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
