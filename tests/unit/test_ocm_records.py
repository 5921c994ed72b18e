"""Rows to records: what is kept, what is left out of the hash, and what becomes of rows that cannot be stored."""

from __future__ import annotations

import contextlib
import copy
import json
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_importer.domain.errors import Transient
from streams_importer.domain.model import Record, Reject
from streams_importer.sources.ocm_records import (
    BadRow,
    content_hash,
    decode_document,
    decode_rows,
    decode_rows_one_by_one,
    row_id,
    to_record,
)


def poi(identifier: int = 1, **changes: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "ID": identifier,
        "UUID": "A",
        "DataProviderID": 1,
        "OperatorID": 5,
        "StatusTypeID": 50,
        "UsageCost": None,
        "AddressInfo": {"Title": "T", "CountryID": 87, "Latitude": 52.5, "Longitude": 13.4, "Distance": None},
        "Connections": [{"ID": 7, "ConnectionTypeID": 33, "LevelID": 3, "PowerKW": 50.0, "Comments": None}],
        "DateLastStatusUpdate": "2026-02-20T10:05:00Z",
        "DateLastVerified": "2026-02-20T10:05:00Z",
        "IsRecentlyVerified": True,
    }
    return {**row, **changes}


def record_of(row: dict[str, Any]) -> Record:
    record = to_record(copy.deepcopy(row))
    assert isinstance(record, Record)
    return record


def hash_of(row: dict[str, Any]) -> str:
    return record_of(row).content_hash


def test_a_row_becomes_a_record_without_what_is_computed_at_answer_time() -> None:
    record = record_of(poi(459874))
    assert record.external_id == "openchargemap:459874"
    assert record.source_id == 459874
    assert record.updated_at == datetime(2026, 2, 20, 10, 5, tzinfo=UTC)
    assert record.location == {"type": "Point", "coordinates": [13.4, 52.5]}
    expected = poi(459874)
    del expected["IsRecentlyVerified"], expected["AddressInfo"]["Distance"]
    assert record.data == expected


def test_what_changes_without_the_charge_point_changing_is_not_in_the_hash() -> None:
    plain = hash_of(poi())
    assert hash_of(poi(IsRecentlyVerified=False)) == plain
    assert hash_of(poi(DateLastVerified="2026-02-21T00:00:00Z")) == plain
    assert hash_of(poi(AddressInfo={**poi()["AddressInfo"], "Distance": 3.2})) == plain


def test_a_verbose_row_hashes_like_the_compact_one() -> None:
    verbose = poi(
        DataProvider={"ID": 1, "DateLastImported": "2026-01-01T00:00:00Z"},
        OperatorInfo={"ID": 5, "Title": "Renamed yesterday"},
        StatusType={"ID": 50},
        UsageType=None,
        UserComments=None,
    )
    verbose["AddressInfo"]["Country"] = {"ID": 87, "ISOCode": "DE"}
    verbose["Connections"][0] |= {"ConnectionType": {"ID": 33}, "Level": {"ID": 3}, "CurrentType": None}
    assert hash_of(verbose) == hash_of(poi())


def test_nulls_written_or_left_out_hash_the_same() -> None:
    without = poi()
    del without["UsageCost"], without["Connections"][0]["Comments"]
    assert hash_of(without) == hash_of(poi())


def test_a_reference_object_without_its_id_is_content_but_for_the_time_of_its_import() -> None:
    def with_provider(**provider: Any) -> dict[str, Any]:
        return poi(DataProviderID=None, DataProvider=provider)

    assert hash_of(with_provider(Title="A")) != hash_of(with_provider(Title="B"))
    assert hash_of(with_provider(Title="A", DateLastImported="x")) == hash_of(with_provider(Title="A", DateLastImported="y"))


@pytest.mark.parametrize(
    "change",
    [
        {"ID": 2},
        {"OperatorID": 6},
        {"OperatorID": None},
        {"UsageCost": ""},
        {"AddressInfo": None},
        {"AddressInfo": {**poi()["AddressInfo"], "Title": "U"}},
        {"Connections": []},
        {"Connections": [*poi()["Connections"], {"ID": 8}]},
        {"Connections": [{**poi()["Connections"][0], "PowerKW": 51.0}]},
        {"DateLastStatusUpdate": "2026-02-20T10:06:00Z"},
        {"SomethingNew": 1},
    ],
)
def test_every_change_of_content_changes_the_hash(change: dict[str, Any]) -> None:
    assert hash_of(poi(**change)) != hash_of(poi())


def test_the_order_of_keys_does_not_matter_and_the_hash_is_the_same_in_every_process() -> None:
    expected = blake2b(b'ocm-1:{"a":2,"b":1}', digest_size=16).hexdigest()
    assert content_hash({"b": 1, "a": 2}) == content_hash({"a": 2, "b": 1}) == expected


def test_hashing_changes_nothing() -> None:
    row = poi(DataProvider={"DateLastImported": "x"}, DataProviderID=None)
    before = copy.deepcopy(row)
    content_hash(row)
    assert row == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-02-20T10:05:00Z", datetime(2026, 2, 20, 10, 5, tzinfo=UTC)),
        ("2026-02-20T10:05:00", datetime(2026, 2, 20, 10, 5, tzinfo=UTC)),
        ("2026-02-20T12:05:00+02:00", datetime(2026, 2, 20, 10, 5, tzinfo=UTC)),
        ("2026-02-20T10:05:00.1239999Z", datetime(2026, 2, 20, 10, 5, 0, 123000, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", None),
        ("0001-01-01T00:00:00+14:00", None),
        ("9999-12-31T23:59:59-14:00", None),
        ("10000-01-01T00:00:00Z", None),
        ("yesterday", None),
        ("", None),
        (None, None),
        (1771581900, None),
    ],
)
def test_the_time_of_an_update_is_utc_to_the_millisecond_or_none(text: Any, expected: datetime | None) -> None:
    assert record_of(poi(DateLastStatusUpdate=text)).updated_at == expected


@pytest.mark.parametrize(
    "info",
    [
        None,
        "here",
        {},
        {"Latitude": None, "Longitude": 1.0},
        {"Latitude": "52.5", "Longitude": "13.4"},
        {"Latitude": True, "Longitude": 1.0},
        {"Latitude": 0, "Longitude": 0.0},
        {"Latitude": 90.1, "Longitude": 0.5},
        {"Latitude": 1.0, "Longitude": -180.1},
        {"Latitude": float("nan"), "Longitude": 1.0},
        {"Latitude": 1.0, "Longitude": float("inf")},
        {"Latitude": 10**400, "Longitude": 1},
    ],
)
def test_a_place_that_is_none_is_no_location(info: Any) -> None:
    assert record_of(poi(AddressInfo=info)).location is None


@pytest.mark.parametrize(("latitude", "longitude"), [(0, 9.5), (51.5, 0), (90, 180), (-90.0, -180.0)])
def test_edges_and_meridians_are_places(latitude: float, longitude: float) -> None:
    record = record_of(poi(AddressInfo={"Latitude": latitude, "Longitude": longitude}))
    assert record.location == {"type": "Point", "coordinates": [float(longitude), float(latitude)]}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"Title": "x"}, "no_id"),
        ({"ID": None}, "no_id"),
        ({"ID": "5"}, "bad_id"),
        ({"ID": 5.0}, "bad_id"),
        ({"ID": True}, "bad_id"),
        ({"ID": 0}, "bad_id"),
        ({"ID": -3}, "bad_id"),
        ({"ID": 10**18}, "bad_id"),
        (None, "not_an_object"),
        ([1], "not_an_object"),
        ("text", "not_an_object"),
    ],
)
def test_a_row_without_a_usable_id_is_rejected_with_its_text(row: Any, reason: str) -> None:
    assert to_record(row) == Reject(reason, msgspec.json.encode(row).decode())


def test_a_row_too_deep_to_be_hashed_is_rejected() -> None:
    nested: dict[str, Any] = {}
    for _ in range(100_000):
        nested = {"a": nested}
    rejected = to_record(poi(Deep=nested))
    assert isinstance(rejected, Reject)
    assert rejected.reason == "not_encodable"
    while nested:  # taken apart by hand: freeing it in one go would recurse as deeply
        nested = nested.pop("a", {})


def test_the_text_of_a_reject_is_bounded() -> None:
    rejected = to_record({"Title": "x" * 1_000_000})
    assert isinstance(rejected, Reject)
    assert len(rejected.record) == 64 * 1024


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=15,
)
KNOWN_FIELDS = st.sampled_from([*sorted(poi()), "DataProvider", "OperatorInfo"])


@given(st.dictionaries(KNOWN_FIELDS | st.text(), JSON_VALUES, max_size=12))
def test_any_object_is_a_record_or_a_reject(row: dict[str, Any]) -> None:
    mapped = to_record(copy.deepcopy(row))
    if row_id(row) is None:
        assert isinstance(mapped, Reject)
    else:
        assert isinstance(mapped, Record)
        assert mapped.content_hash == record_of(row).content_hash
        assert mapped.location is None or all(abs(number) <= 180 for number in mapped.location["coordinates"])


# Bodies.


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "empty_body"),
        (b" \r\n" * 100, "empty_body"),
        (b"null", "null_body"),
        (b"<!DOCTYPE html>", "html_body"),
        (b"\n  <html></html>", "html_body"),
        (b'[{"ID":1},{"ID"', "cut_json"),
        (b'[{"ID":1}', "cut_json"),
        (b"Service unavailable", "not_json"),
        (b"[1] [2]", "not_json"),
        (b"[NaN]", "not_json"),
        (b'["\xff"]', "not_json"),
        (b"[" * 100_000, "not_json"),
        (b"[" + b"9" * 5000 + b"]", "not_json"),
        (b'{"error": "no"}', "not_a_list"),
        (b'"text"', "not_a_list"),
    ],
)
def test_a_body_that_is_no_list_is_transient_with_a_code_of_its_own(body: bytes, code: str) -> None:
    with pytest.raises(Transient) as raised:
        decode_rows(body)
    assert raised.value.code == code


def test_a_document_may_be_an_object() -> None:
    assert decode_document(b'{"MaxPOIId": 5}') == {"MaxPOIId": 5}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b'{"ID":2,"x":NaN}', "not_finite"),
        (b'{"ID":2,"x":[-Infinity]}', "not_finite"),
        (b'{"ID":2,"x":1e999}', "not_finite"),
        (b'{"ID":2,"x":"\\ud800"}', "lone_surrogate"),
        (b'{"ID":2,"\\udfff":1}', "lone_surrogate"),
        (b'{"ID":2,"x":"\\ud800 and more"}', "lone_surrogate"),
        (b'{"ID":2,"x":"\xff"}', "bad_utf8"),
        (b'{"ID":2,"x":"a\nb"}', "control_character"),
        (b'{"ID":2,"x":' + b"9" * 5000 + b"}", "huge_number"),
        (b'{"ID":2,"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}", "too_deep"),
    ],
)
def test_one_bad_record_costs_one_record(bad: bytes, reason: str) -> None:
    rows = decode_rows_one_by_one(b'[{"ID":1,"t":"], {\\""} , ' + bad + b', {"ID":3}]\n')
    assert rows is not None
    assert rows[0] == {"ID": 1, "t": '], {"'}
    assert isinstance(rows[1], BadRow)
    assert rows[1].reason == reason
    assert row_id(rows[1].row) == 2
    assert rows[2] == {"ID": 3}
    rejected = to_record(rows[1])
    assert isinstance(rejected, Reject)
    rejected.record.encode()  # fit to be stored


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[",
        b"[1",
        b"[NaN,",
        b"[NaN,]",
        b"[NaN}",
        b"[NaN] x",
        b"{}",
        b"x[NaN]",
        b'["abc',
        b"[{]}",
        b"[<html>]",
        b'[{"a" NaN}]',
    ],
)
def test_a_cut_or_foreign_body_is_not_read_one_by_one_either(body: bytes) -> None:
    assert decode_rows_one_by_one(body) is None


@given(st.lists(JSON_VALUES, min_size=1, max_size=6), st.sampled_from([None, 2]), st.booleans())
def test_one_by_one_reads_every_good_list_as_the_fast_way_does(values: list[Any], indent: int | None, plain: bool) -> None:
    body = json.dumps(values, indent=indent, ensure_ascii=plain).encode()
    assert decode_rows_one_by_one(body) == decode_rows(body)


@given(st.binary(max_size=60) | st.text(alphabet='[]{},:"\\ 1aN', max_size=40).map(str.encode))
def test_no_bytes_crash_either_decoder(body: bytes) -> None:
    decode_rows_one_by_one(body)
    with contextlib.suppress(Transient):
        decode_rows(body)
