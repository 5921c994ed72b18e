"""Shard keys: what the planner writes reads back, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_importer.domain.shard_key import MAX_KEY_LENGTH, IdRange, Scope, is_name, parse_key

COUNTRIES = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=2, max_size=2)
RANGES = st.tuples(st.integers(0, 10**17), st.integers(1, 10**17)).map(lambda pair: IdRange(pair[0], pair[0] + pair[1]))
SCOPES = st.builds(Scope, st.none() | COUNTRIES, st.none() | RANGES).filter(lambda scope: scope != Scope())


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
        "bbox:50.0,-10.0,60.0,0.0",
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


@given(st.text(max_size=300) | st.from_regex(r"(country|ids):[A-Z0-9.|:]{0,20}", fullmatch=True))
def test_whatever_is_accepted_is_written_the_same_way_again(key: str) -> None:
    try:
        scope = parse_key(key)
    except ValueError:
        return
    assert scope.key == key


def test_a_range_holds_its_high_end_and_not_its_low_end() -> None:
    assert [identifier for identifier in range(7) if identifier in IdRange(2, 5)] == [3, 4, 5]


@pytest.mark.parametrize("name", ["a", "si", "openchargemap", "a-b_c9", "a" * 63])
def test_names_of_imports_and_namespaces_that_are_allowed(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "A", "1a", "-a", "_a", "a b", "a:b", "a}", "a\n", "é", "a\x1b", "a" * 64])
def test_names_of_imports_and_namespaces_that_are_not(name: str) -> None:
    assert not is_name(name)
