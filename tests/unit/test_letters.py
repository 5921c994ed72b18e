"""Dead letters chosen by filters, written as JSON, and thrown away."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import pytest

from streams_importer.application.letters import FILTER_FIELDS, Purger, PurgeReport, as_json, letter_filter, matching
from streams_importer.cli import output
from streams_importer.domain.errors import BadSetting, Unavailable
from streams_importer.ports import DeadLetter
from tests.fakes.letters import FakeLetters
from tests.fakes.queue import FakeQueue
from tests.unit.test_letter_view import EMPTY, GARBAGE, LETTER

OTHER = replace(
    LETTER, entry="2-0", shard_key="country:DE", error="http_500", status="500", attempts="3", crashes="0", worker="w:2"
)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ([], [LETTER, OTHER, GARBAGE]),
        (["shard=ids:*"], [LETTER]),
        (["error=http_*"], [LETTER, OTHER]),
        (["error=http_*", "status=500"], [OTHER]),
        (["worker=w:2"], [OTHER]),
        (["attempts=3"], [OTHER]),
        (["crashes=1"], [LETTER]),
        (["message=*answered 400"], [LETTER, OTHER]),
        (["message=*no shard*"], [GARBAGE]),
        (["status=4*", "error=http_500"], []),
    ],
)
def test_filters_choose_by_every_field_and_all_must_hold(filters: list[str], found: list[DeadLetter]) -> None:
    assert list(matching([[LETTER], [OTHER, GARBAGE]], [letter_filter(one) for one in filters])) == found


@pytest.mark.parametrize("text", ["attempts=many", "crashes=1*", "attempts=" + "9" * 10, "payload=x", "cursor=1", "shard"])
def test_a_filter_that_cannot_be_meant_is_refused(text: str) -> None:
    with pytest.raises(BadSetting) as refusal:
        letter_filter(text)
    assert len(str(refusal.value)) < 300


def test_a_hostile_message_cannot_make_a_filter_slow() -> None:
    letter = replace(LETTER, message="a" * 8192)
    assert list(matching([[letter] * 200], [letter_filter("message=*a*a*ab*a")])) == []


def test_a_letter_as_json_has_numbers_and_null_and_no_payload_unless_asked() -> None:
    row = as_json("ocm", LETTER)
    assert row == {
        "import": "ocm",
        "entry": "1771668000000-0",
        "shard": "ids:0..10000",
        "error": "http_400",
        "message": "api.example: answered 400",
        "status": 400,
        "attempts": 5,
        "crashes": 1,
        "cursor": 7,
        "worker": "w:1",
        "first_seen": "2026-02-21T10:00:00Z",
        "died_at": "2026-02-21T10:05:00Z",
        "job": "job1",
    }
    assert as_json("ocm", LETTER, with_payload=True) == {**row, "payload": '{"v":"1"}'}
    empty = as_json("ocm", EMPTY)
    assert {empty[name] for name in ("status", "attempts", "crashes", "cursor", "job")} == {None}


@pytest.mark.parametrize(
    ("stored", "cursor"),
    [
        ("7", 7),
        ('"opaque=/+"', "opaque=/+"),
        ("", None),
        ("null", "null"),
        ("true", "true"),
        ("[" * 8000, "[" * 8000),
        ("{", "{"),
    ],
)
def test_a_cursor_is_what_it_was_or_the_text_that_is_stored(stored: str, cursor: object) -> None:
    assert as_json("ocm", replace(LETTER, cursor=stored))["cursor"] == cursor


@pytest.mark.parametrize("text", ["\x1b[2J", "٣", "9" * 5000, "-1", "1.5", "\ud800", "\x7f\x9b"])
def test_hostile_fields_are_one_line_of_ascii(text: str) -> None:
    letter = DeadLetter(*[text] * len(fields(DeadLetter)))
    line = output.json_text(as_json("ocm", letter, with_payload=True))
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["attempts"] is None


@pytest.fixture
def purger() -> Purger:
    queue = FakeQueue()
    queue.store.letters = [("ocm", LETTER), ("ocm", OTHER), ("ocm", replace(GARBAGE, entry="3-0")), ("other", LETTER)]
    return Purger(FakeLetters(queue))


def there(purger: Purger) -> list[str]:
    return [letter.entry for batch in purger.letters.newest_first("ocm") for letter in batch]


def test_named_letters_are_purged_and_unknown_ones_told(purger: Purger) -> None:
    report = purger.purge_named("ocm", ["country:DE", "3-0", "nothing", "country:DE", "2-0"], dry_run=False)
    assert report == PurgeReport(shards=1, garbage=1, unknown=["nothing"])
    assert there(purger) == [LETTER.entry]


def test_a_filter_or_all_purges_what_it_finds_and_twice_is_once(purger: Purger) -> None:
    assert purger.purge_found("ocm", [letter_filter("error=garbage")], dry_run=False) == PurgeReport(garbage=1)
    assert purger.purge_found("ocm", [], dry_run=False) == PurgeReport(shards=2)
    assert purger.purge_found("ocm", [], dry_run=False) == PurgeReport()
    assert [letter for batch in purger.letters.newest_first("other") for letter in batch] == [LETTER]


def test_a_dry_run_says_the_same_and_changes_nothing(purger: Purger) -> None:
    assert purger.purge_found("ocm", [], dry_run=True) == PurgeReport(shards=2, garbage=1)
    assert len(there(purger)) == 3


def test_what_was_replayed_meanwhile_is_left(purger: Purger) -> None:
    class Late(FakeLetters):
        def purge(self, import_name: str, entries: object) -> list[bool]:
            self.store.remove_letter("ocm", "2-0")
            return super().purge(import_name, entries)  # type: ignore[arg-type]

    assert isinstance(purger.letters, FakeLetters)
    late = Late(purger.letters._queue)
    assert Purger(late).purge_found("ocm", [], dry_run=False) == PurgeReport(shards=1, garbage=1, left=1)


@pytest.mark.parametrize("fault", ["away", "reply lost"])
def test_a_purge_cut_short_can_be_repeated(purger: Purger, fault: str) -> None:
    assert isinstance(purger.letters, FakeLetters)
    purger.letters._queue.faults["purge"] = [fault]
    with pytest.raises(Unavailable):
        purger.purge_found("ocm", [], dry_run=False)
    purger.purge_found("ocm", [], dry_run=False)
    assert there(purger) == []


def test_the_fields_of_filters_are_those_that_the_help_names() -> None:
    assert FILTER_FIELDS == ("shard", "error", "status", "worker", "attempts", "crashes", "message")
