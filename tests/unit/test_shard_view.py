"""What a person sees of single shards: every key whole, in eighty columns, and nothing that data could do to the terminal."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from streams_importer.application.shards import STATES, ShardState
from streams_importer.console.shard_view import render_shard, render_shards
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Counts, Failure
from streams_importer.ports import LedgerRow, ShardRecord
from tests.unit.test_view import HOSTILE, assert_harmless, shown, words

TIME = datetime(2026, 2, 21, 10, 5, 7, tzinfo=UTC)
LONG = "country:DE|window:2026-02-21T00:00:00Z..2026-02-21T01:00:00Z"


def shard(status: str, key: str = "ids:100000000..100010000", failure: Failure | None = None) -> ShardState:
    checkpoint = Checkpoint(12, 4711, Counts(1_234_567, 1, 1, 1, 1, 40, 2, 1))
    row = LedgerRow(key, "job", "20260221T100000Z-3f", status, 3, checkpoint, None, failure, STORED_VERSION)
    record = ShardRecord(row, TIME, TIME, TIME)
    if status == "leased":
        return ShardState("ocm", record, status, "worker.1:ab12cd34", 12.3)
    return ShardState("ocm", record, status, comes_back_s=4.9 if status == "delayed" else None)


def every_state(key: str) -> list[ShardState]:
    return [shard(status, key, Failure("http_502", "answered 502", 502)) for status in STATES]


@pytest.mark.parametrize("key", ["ids:0..10", "ids:100000000..100010000", "bbox:50.0,-10.0,60.0,0.0", LONG])
def test_a_list_fits_eighty_columns_and_every_key_is_whole(key: str) -> None:
    lines = shown(render_shards(every_state(key))).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(key in line for line in lines) == len(STATES)
    assert [status for line in lines for status in STATES if f" {status} " in f"{line} "] == list(STATES)


def test_a_key_longer_than_the_terminal_is_folded_and_not_cut() -> None:
    key = "country:DE|" + "x" * 100
    assert key in shown(render_shards([shard("queued", key)])).replace("\n", "")


@pytest.mark.parametrize("key", ["ids:0..10", LONG])
def test_a_list_says_what_matters_in_each_state(key: str) -> None:
    text = words(render_shards(every_state(key)), 120)
    for part in ("worker.1:ab12cd34, 12 s left", "back in 5 s http_502", "1,234,571", "2026-02-21T10:05:07Z", "http_502"):
        assert part in text, part
    nowhere = replace(shard("queued", key), is_nowhere=True)
    assert "not in Redis" in words(render_shards([nowhere]))


@pytest.mark.parametrize("status", STATES)
def test_everything_about_one_shard_fits_eighty_columns(status: str) -> None:
    what = render_shard(shard(status, LONG, Failure("http_502", "answered " + "502 " * 50, 502)))
    assert max(map(len, shown(what).splitlines())) <= 80
    text = words(what, 120)
    for part in (
        LONG,
        status,
        "attempts 3",
        "12 stored",
        "cursor 4711",
        "seen 1,234,571",
        "made 43",
        "http_502 (HTTP 502)",
        "job",
    ):
        assert part in text, part


def test_the_way_back_of_a_shard_is_told() -> None:
    assert f"dlq replay ocm '{LONG}'" in words(render_shard(shard("failed", LONG)), 160)
    assert "produce --again" in words(render_shard(shard("cancelled")))
    assert "way back" not in words(render_shard(shard("done")))


@pytest.mark.parametrize("colours", [False, True])
def test_hostile_shards_reach_the_terminal_as_text(colours: bool) -> None:
    bad = shard("leased", HOSTILE, Failure(HOSTILE, HOSTILE, None))
    row = replace(bad.record.row, run=HOSTILE, job=HOSTILE, checkpoint=Checkpoint(1, HOSTILE))
    bad = replace(bad, worker=HOSTILE, import_name=HOSTILE, record=ShardRecord(row))
    for status in STATES:
        for what in (render_shards([replace(bad, status=status)]), render_shard(replace(bad, status=status))):
            assert_harmless(shown(what, colours=colours))
    long = replace(bad, record=ShardRecord(replace(row, shard_key=HOSTILE * 9)))
    assert_harmless(shown(render_shards([long]), colours=colours))
