"""The mapping on real data: 9,107 charge points with all their oddities, 3,545 verbose ones, and 15,394 versions over time."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streams_importer.domain.axes import IdRange
from streams_importer.domain.model import Record
from streams_importer.domain.shard_key import Scope
from streams_importer.sources.ocm_records import decode_rows, decode_rows_one_by_one, to_record
from streams_importer.sources.ocm_selection import Selection
from streams_importer.sources.openchargemap import page_of

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "ocm"
COMPUTED = ("DateLastVerified", "IsRecentlyVerified")

pytestmark = pytest.mark.skipif(
    not DATA.is_dir(), reason="the real records may not be copied into the project; they lie in ../shared/data/ocm"
)


def lines_of(name: str) -> list[bytes]:
    return gzip.decompress((DATA / name).read_bytes()).splitlines()


def record_of(row: dict[str, Any]) -> Record:
    record = to_record(row)
    assert isinstance(record, Record)
    return record


@pytest.fixture(scope="module")
def compact() -> list[bytes]:
    return lines_of("ocm-sample.compact.ndjson.gz")


@pytest.fixture(scope="module")
def history() -> list[list[dict[str, Any]]]:
    """The versions of each charge point, oldest first."""
    versions: dict[int, list[dict[str, Any]]] = {}
    for line in lines_of("ocm-sample-history.ndjson.gz"):
        poi = msgspec.json.decode(line)["poi"]
        versions.setdefault(poi["ID"], []).append(poi)
    return list(versions.values())


def content(row: dict[str, Any]) -> str:
    """What must decide the hash, written down in the slowest and plainest way."""

    def without_nulls(value: Any) -> Any:
        return {key: item for key, item in value.items() if item is not None} if isinstance(value, dict) else value

    plain = without_nulls({key: value for key, value in row.items() if key not in COMPUTED})
    info = {key: value for key, value in (plain.get("AddressInfo") or {}).items() if key != "Distance"}
    plain["AddressInfo"] = without_nulls(info) if "AddressInfo" in plain else "absent"
    plain["Connections"] = [without_nulls(one) for one in plain["Connections"]] if "Connections" in plain else "absent"
    return json.dumps(plain, sort_keys=True)


def test_every_real_record_is_mapped(compact: list[bytes]) -> None:
    records = [record_of(msgspec.json.decode(line)) for line in compact]
    assert len(records) == len({record.external_id for record in records}) == 9107
    assert all(record.external_id == f"openchargemap:{record.source_id}" for record in records)
    assert sum(record.updated_at is None for record in records) == 28


def test_every_real_version_has_a_place_or_no_location(history: list[list[dict[str, Any]]]) -> None:
    """The odd rows are among the older versions: null coordinates, (0, 0), and one without an address."""
    without = 0
    for poi in (poi for versions in history for poi in versions):
        info = poi.get("AddressInfo") or {}
        place: Any = (info.get("Longitude"), info.get("Latitude"))
        location = record_of(poi).location
        if location is None:
            without += 1
            assert None in place or place == (0, 0)
        else:
            assert location == {"type": "Point", "coordinates": [place[0], place[1]]}
            assert abs(place[0]) <= 180
            assert abs(place[1]) <= 90
            assert place != (0, 0)
    assert without > 0


def test_what_is_stored_is_what_was_answered_but_for_the_distance(compact: list[bytes]) -> None:
    for line in compact:
        answered = msgspec.json.decode(line)
        del answered["AddressInfo"]["Distance"]
        assert record_of(msgspec.json.decode(line)).data == answered


def pages(lines: list[bytes], size: int = 1000) -> Iterator[bytes]:
    ordered = sorted(lines, key=lambda line: int(msgspec.json.decode(line)["ID"]))
    for start in range(0, len(ordered), size):
        yield b"[" + b",".join(ordered[start : start + size]) + b"]"


def test_real_pages_pass_the_checks_and_read_the_same_one_by_one(compact: list[bytes]) -> None:
    scope, cursor, seen = Scope(ids=IdRange(0, 1_000_000)), 0, 0
    for body in pages(compact):
        rows = decode_rows(body)
        assert decode_rows_one_by_one(body) == rows
        page = page_of(rows, Selection(scope), cursor, 1)
        assert isinstance(page.next_cursor, int)
        cursor, seen = page.next_cursor, seen + len(page.records)
        assert page.rejects == []
    assert seen == 9107


def test_hashes_of_real_versions_differ_exactly_when_their_content_differs(history: list[list[dict[str, Any]]]) -> None:
    by_hash: dict[str, str] = {}
    hashes: set[str] = set()
    texts: set[str] = set()
    for versions in history:
        for poi in versions:
            text = content(poi)
            hashed = record_of(poi).content_hash
            assert by_hash.setdefault(hashed, text) == text
            hashes.add(hashed)
            texts.add(text)
    assert len(hashes) == len(texts)


def test_real_changes_without_a_newer_timestamp_are_noticed(history: list[list[dict[str, Any]]]) -> None:
    """The two facts that decide how versions are ordered: changes from no timestamp to one, and changes that kept theirs."""
    changes: Counter[str] = Counter()
    for versions in history:
        for old, new in pairwise([record_of(poi) for poi in versions]):
            if old.content_hash == new.content_hash:
                changes["none"] += 1
            elif old.updated_at == new.updated_at:
                changes["kept its timestamp"] += 1
            elif old.updated_at is None:
                changes["got its first timestamp"] += 1
            else:
                assert new.updated_at is not None
                assert new.updated_at > old.updated_at
                changes["newer"] += 1
    assert changes == {"none": 2420, "newer": 2030, "kept its timestamp": 705, "got its first timestamp": 373}


def test_verbose_and_compact_answers_of_the_same_charge_point_hash_the_same(compact: list[bytes]) -> None:
    hashes = {record.source_id: record.content_hash for record in (record_of(msgspec.json.decode(line)) for line in compact)}
    verbose = [record_of(msgspec.json.decode(line)) for line in lines_of("ocm-sample-2020.verbose.ndjson.gz")]
    assert len(verbose) == 3545
    different = [record.source_id for record in verbose if hashes[record.source_id] != record.content_hash]
    # 4638 changed between the two samples; the others have their PowerKW written 3.0 in one and 3 in the other.
    assert different == [4343, 4638, 5053]
