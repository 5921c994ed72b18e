"""Definitions lie where others can write: what is stored is held to the same rules as what a user types."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_importer.domain.definition import (
    RESERVED_COLLECTIONS,
    Definition,
    checked,
    is_collection_name,
    read_definition,
)
from streams_importer.domain.errors import BadSetting, ImporterError, TooNew
from streams_importer.domain.model import STORED_VERSION
from streams_importer.domain.rates import Limit

OCM = Definition("openchargemap")
HOSTILE: list[Any] = [
    None, True, False, "", "\x1b[2J", "a\nb", "[/]", -1, 0, 10**30, 10**400, -(10**400), 0.5, -1.5, float("nan"), float("inf"),
    [], ["1/s"], {}, {"$gt": ""}, b"bytes",
]  # fmt: skip


def test_a_definition_reads_back_as_it_was_stored() -> None:
    mine = Definition("mine", collection="points", rate="5/m", page_size=7, lease_s=0.5, max_attempts=1, retry_delay_s=0.0)
    assert read_definition("mine", mine.stored()) == mine
    assert read_definition("mine", msgspec.json.decode(msgspec.json.encode(mine.stored()))) == mine


def test_what_is_stored_names_neither_the_import_nor_a_host_nor_a_secret() -> None:
    assert set(OCM.stored()) == {
        "source", "collection", "rate", "page_size", "lease_s", "max_attempts", "max_crashes", "retry_delay_s", "v",
    }  # fmt: skip


def test_what_an_older_version_did_not_store_has_its_default() -> None:
    assert read_definition("openchargemap", {"v": STORED_VERSION, "page_size": 5}) == OCM.changed(page_size=5)


def test_what_is_not_a_setting_is_passed_over() -> None:
    stored = {**OCM.stored(), "base_url": "http://evil.example", "name": "other", "__class__": "x", "stored": 1, "limit": "9/s"}
    assert read_definition("openchargemap", stored) == OCM


def test_a_whole_number_of_seconds_is_a_duration() -> None:
    definition = read_definition("openchargemap", {"lease_s": 20, "retry_delay_s": 0})
    assert (definition.lease_s, definition.retry_delay_s) == (20.0, 0.0)
    assert type(definition.lease_s) is float


@pytest.mark.parametrize("version", [STORED_VERSION + 1, 99, 10**30])
def test_a_newer_definition_is_left_to_a_newer_version(version: int) -> None:
    with pytest.raises(TooNew, match="import openchargemap: a newer version of streams-importer defined it"):
        read_definition("openchargemap", {"v": version, "source": {"whatever": "that means"}})


@pytest.mark.parametrize("version", ["2", "1", True, 1.0, 2.5, float("nan"), None, [2]])
def test_a_version_that_is_not_a_whole_number_is_refused(version: Any) -> None:
    with pytest.raises(BadSetting, match="import openchargemap: its stored definition has a bad v;"):
        read_definition("openchargemap", {**OCM.stored(), "v": version})


@pytest.mark.parametrize("key", sorted(set(OCM.stored()) - {"v"}))
@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: f"{type(value).__name__} {str(value)[:20]!r}")
def test_no_stored_value_raises_anything_but_a_sentence_for_people(key: str, value: Any) -> None:
    try:
        definition = read_definition("openchargemap", {**OCM.stored(), key: value})
    except BadSetting:
        return
    assert checked(definition) == definition
    assert getattr(definition, key) == value
    assert type(getattr(definition, key)) is type(getattr(OCM, key))


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.lists(st.integers(), max_size=2)


@given(st.dictionaries(st.sampled_from(sorted(OCM.stored())), VALUES, max_size=4))
def test_garbage_in_place_of_a_definition_is_refused_or_a_valid_definition(stored: dict[str, Any]) -> None:
    try:
        definition = read_definition("openchargemap", stored)
    except ImporterError:
        return
    assert checked(definition) == definition


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"source": "rest"}, "source rest: must be openchargemap"),
        ({"page_size": 0}, "--page-size 0: must be 1 to 10000"),
        ({"page_size": 10_001}, "--page-size 10001: must be 1 to 10000"),
        ({"lease_s": 0.1}, "--lease 0.1s: must be 200ms to 1d"),
        ({"lease_s": 86_401.0}, "--lease 86401s: must be 200ms to 1d"),
        ({"lease_s": float("nan")}, "--lease nans: must be 200ms to 1d"),
        ({"max_attempts": 0}, "--max-attempts 0: must be 1 to 1000"),
        ({"max_crashes": 1001}, "--max-crashes 1001: must be 1 to 1000"),
        ({"retry_delay_s": -1.0}, "--retry-delay -1s: must be 0s to 1d"),
        ({"rate": "fast"}, "--rate 'fast': write a number and a unit"),
        (
            {"collection": "imports"},
            "collection imports: must be a plain name other than import_windows, imports, import_rejects",
        ),
    ],
)
def test_a_bad_value_names_the_setting_the_value_and_what_is_allowed(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(BadSetting) as refused:
        OCM.changed(**changes)
    assert str(refused.value).startswith(named)


def test_a_name_that_is_no_name_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"^import name No Name: "):
        checked(Definition("No Name"))


def test_a_change_to_nothing_changes_nothing() -> None:
    assert OCM.changed(rate=None, page_size=None) == OCM
    assert OCM.changed(rate="9/s").limit == Limit(9, 1)


@pytest.mark.parametrize("name", ["pois", "POIs", "a", "a_b-c.d9", "a" * 100, "systems"])
def test_collections_that_can_be_used(name: str) -> None:
    assert is_collection_name(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "_", "..", "1a", "_a", ".a", "a b", "a$b", "a/b", "a\x00b", "a\n", "é", "٣a", "a٣", "system.users", "a" * 101],
)  # fmt: skip
def test_collections_that_mongodb_refuses_or_reserves(name: str) -> None:
    assert not is_collection_name(name)


@pytest.mark.parametrize("name", ["a.", "a..b", "pois.."])
def test_a_collection_name_with_a_dot_where_mongodb_refuses_one_is_refused_by_us(name: str) -> None:
    assert not is_collection_name(name)


@pytest.mark.parametrize("name", RESERVED_COLLECTIONS)
def test_collections_of_our_own_are_refused(name: str) -> None:
    with pytest.raises(BadSetting, match=f"^collection {name}: "):
        OCM.changed(collection=name)
