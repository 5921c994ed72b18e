"""What a person sees of dead letters: every name whole, in eighty columns, and nothing that data could do to the terminal."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from streams_importer.console.letter_view import render_letter, render_letters
from streams_importer.domain.definition import Definition
from streams_importer.domain.model import STORED_VERSION, Checkpoint, Counts
from streams_importer.ports import DeadLetter, LedgerRow
from tests.unit.test_view import HOSTILE, assert_harmless, shown, words

LONG = "country:DE|window:2026-02-21T00:00:00Z..2026-02-21T01:00:00Z"
LETTER = DeadLetter("1771668000000-0", "ids:0..10000", "http_400", "api.example: answered 400", "400", "5", "1", "7", "w:1",
                    "2026-02-21T10:00:00Z", "2026-02-21T10:05:00Z", '{"v":"1"}', "job1")  # fmt: skip
GARBAGE = replace(LETTER, shard_key="", error="garbage", message="the message has no shard", status="", crashes="", job="")
ROW = LedgerRow(
    LETTER.shard_key, "job1", "run1", "failed", 5, Checkpoint(2, 4711, Counts(inserted=1234)), None, None, STORED_VERSION
)
EMPTY = DeadLetter(*[""] * len(fields(DeadLetter)))


@pytest.mark.parametrize("key", ["ids:0..10", "ids:100000000..100010000", LONG])
def test_a_list_fits_eighty_columns_and_every_name_is_whole(key: str) -> None:
    text = shown(render_letters([replace(LETTER, shard_key=key), GARBAGE]))
    assert max(map(len, text.splitlines())) <= 80
    assert key in text
    assert GARBAGE.entry in text, "garbage goes by its entry"


@pytest.mark.parametrize("key", ["ids:0..10", LONG])
@pytest.mark.parametrize("width", [80, 240])
def test_a_list_says_when_why_and_what_was_spent(key: str, width: int) -> None:
    text = words(render_letters([replace(LETTER, shard_key=key), GARBAGE]), width)
    parts = ["http_400", "api.example: answered 400", "2026-02-21T10:05:00Z", "garbage", "the message has no shard"]
    for part in [*parts, "tries 5 crashes 1" if width == 80 else "10:05:00Z 5 1 http_400"]:
        assert part in text, part


def test_where_there_is_room_a_letter_is_one_line() -> None:
    lines = shown(render_letters([replace(LETTER, shard_key=LONG), GARBAGE]), 240).splitlines()
    assert sum(LETTER.died_at in line and "http_400" in line and LONG in line for line in lines) == 1


@pytest.mark.parametrize("colours", [False, True])
def test_hostile_letters_reach_the_terminal_as_text(colours: bool) -> None:
    hostile = DeadLetter(*[HOSTILE] * len(fields(DeadLetter)))
    assert_harmless(shown(render_letters([hostile, LETTER]), colours=colours))
    row = replace(ROW, run=HOSTILE, checkpoint=Checkpoint(1, HOSTILE))
    assert_harmless(shown(render_letter("ocm", hostile, row, None, with_payload=True), colours=colours))


def test_huge_letters_are_cut_and_fit_the_terminal() -> None:
    huge = DeadLetter(*["x" * 8192] * len(fields(DeadLetter)))
    lines = shown(render_letters([huge])).splitlines()
    assert len(lines) < 30
    assert max(map(len, lines)) <= 80
    assert max(map(len, shown(render_letter("ocm", huge, None, None, with_payload=True)).splitlines())) <= 80


def test_letters_without_any_field_are_shown_all_the_same() -> None:
    assert shown(render_letters([EMPTY, EMPTY]))
    assert "garbage" in shown(render_letter("ocm", EMPTY, None, None, with_payload=True))


def test_everything_about_one_letter_is_shown() -> None:
    what = render_letter("ocm", LETTER, ROW, Definition("ocm", max_attempts=5, max_crashes=3), with_payload=False)
    assert max(map(len, shown(what).splitlines())) <= 80
    text = words(what)
    for part in (
        "shard ids:0..10000",
        "entry 1771668000000-0",
        "error http_400 (HTTP 400)",
        "message api.example: answered 400",
        "attempts 5 of 5",
        "crashes 1 of 3",
        "cursor 7",
        "worker w:1",
        "first seen 2026-02-21T10:00:00Z",
        "died 2026-02-21T10:05:00Z",
        "job job1",
        "ledger failed, run run1",
        "checkpoint 2 pages stored, goes on after 4711",
        "seen 1,234 inserted 1,234",
        "streams-importer dlq replay ocm 'ids:0..10000'",
    ):
        assert part in text, part
    assert "payload" not in text


def test_a_payload_is_shown_when_it_is_asked_for() -> None:
    assert 'payload {"v":"1"}' in words(render_letter("ocm", LETTER, ROW, None, with_payload=True))


def test_garbage_has_no_way_back() -> None:
    text = words(render_letter("ocm", GARBAGE, None, None, with_payload=False))
    assert "none: this is garbage" in text
    assert "replay" not in text
