"""Filters: `*` is any text, everything else is itself, and what cannot be meant is refused in one line."""

from __future__ import annotations

import pytest

from streams_importer.domain.errors import BadSetting
from streams_importer.domain.filters import MAX_VALUE, parse_filter

FIELDS = ("shard", "error")


@pytest.mark.parametrize(
    ("pattern", "value", "holds"),
    [
        ("ids:0..10", "ids:0..10", True),
        ("ids:0..10", "ids:0..100", False),
        ("ids:0..10", "ids:0xx10", False),
        ("ids:*", "ids:0..10", True),
        ("ids:*", "country:DE|ids:0..10", False),
        ("*ids:*", "country:DE|ids:0..10", True),
        ("*..10", "ids:0..10", True),
        ("*..10", "ids:0..100", False),
        ("country:*|ids:0..*", "country:DE|ids:0..10", True),
        ("*", "", True),
        ("**", "anything\nat all", True),
        ("a=b", "a=b", True),
        ("http_5*", "http_502", True),
        (r"[a-z]+\d(.)?^$", r"[a-z]+\d(.)?^$", True),
        ("[a-z]", "b", False),
        ("aa*aa", "aaa", False),
        ("DE", "de", False),
        ("é*", "école", True),
    ],
)
def test_a_star_is_any_text_and_everything_else_is_itself(pattern: str, value: str, holds: bool) -> None:
    assert parse_filter(f"shard={pattern}", FIELDS).matches(value) is holds


def test_what_has_no_star_can_be_looked_up_as_it_is() -> None:
    assert parse_filter("shard=ids:0..10", FIELDS).is_exact
    assert not parse_filter("shard=ids:*", FIELDS).is_exact


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("shard", "write it as field=value, with one of: shard, error"),
        ("shard=", "write it as field=value"),
        ("", "write it as field=value"),
        ("=x", "there is no field ''"),
        ("owner=x", "there is no field 'owner'; the fields are: shard, error"),
        ("shard=" + "x" * (MAX_VALUE + 1), "at most 256 characters"),
        ("shard=\x1b[2J", "all of them printable"),
        ("shard=\udcff", "all of them printable"),
        ("shard=*a*b*c*d*", "at most 4 times *"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_to_change(text: str, told: str) -> None:
    with pytest.raises(BadSetting) as refusal:
        parse_filter(text, FIELDS)
    assert told in str(refusal.value)
