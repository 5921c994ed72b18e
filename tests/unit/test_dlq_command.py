"""`dlq list`, `show`, `replay`, `purge` and `export` as they are typed, on stores in memory."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from streams_importer.application.letters import FILTER_FIELDS
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import Unavailable
from streams_importer.domain.model import Checkpoint, Counts, Failure
from streams_importer.ports import DeadLetter, QueuedShard
from tests.fakes.letters import FakeLetters
from tests.fakes.queue import Entry
from tests.unit.command_line import CommandLine, FakeWiring

BOTH = {"REDIS_URL": "redis://environment", "MONGODB_URI": "mongodb://environment"}
NOON = datetime(2026, 2, 21, 12, tzinfo=UTC)
KEYS = ["ids:0..10", "ids:10..20", "country:DE"]
SOME = Checkpoint(2, 7, Counts(inserted=3))
VERBS = ("list", "show", "replay", "purge", "export")


@pytest.fixture
def stations(wiring: FakeWiring) -> FakeWiring:
    """One import with three dead shards and, as the newest letter, garbage."""
    wiring.original.save(Definition("stations", max_attempts=5), "run")
    wiring.counters.fields["stations"] = {"since": "now"}
    rows, _ = wiring.ledger.plan("stations", KEYS, "run")
    queue = wiring.fake_queue
    queue.enqueue("stations", [QueuedShard(key, rows[key].job) for key in KEYS], "run")
    for lease, code in zip(queue.claim(["stations"], 3).leases, (400, 500, 500), strict=True):
        why = Failure(f"http_{code}", f"answered {code}\x1b[2J", code)
        wiring.ledger.start([lease], NOON)
        wiring.ledger.finish([(lease, SOME, "failed", 5, why)])
        queue.dead_letter(lease, SOME, why, 5)
        wiring.ledger.counted([(lease, "failed")])
    queue.put(Entry("stations", "", "", "", problem="no shard"))
    queue.dead_letter(queue.claim(["stations"], 1).garbage[0], Checkpoint(), Failure("garbage", "no shard"), 0)
    return wiring


def rows_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def there(wiring: FakeWiring) -> list[str]:
    return [letter.shard_key for letter in wiring.fake_queue.dead_letters("stations", 100)]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_an_example_and_all_filters_in_its_help(command: CommandLine, verb: str) -> None:
    ended = command("dlq", verb, "--help")
    assert ended.code == 0
    assert f"Example: streams-importer dlq {verb}" in " ".join(ended.out.split())
    if verb != "show":
        assert all(field in ended.out for field in FILTER_FIELDS)


# list


def test_a_list_is_a_table_or_one_json_object_a_line(command: CommandLine, stations: FakeWiring) -> None:
    ended = command("dlq", "list", **BOTH)
    assert (ended.code, ended.err) == (0, "")
    assert all(key in ended.out for key in KEYS)
    assert "http_500 answered 500 [2J" in " ".join(ended.out.split())
    assert "\x1b" not in ended.out
    rows = rows_of(command("dlq", "list", "stations", "--json", **BOTH).out)
    assert [(row["shard"], row["error"], row["status"], row["attempts"]) for row in rows] == [
        ("", "garbage", None, 0),
        (KEYS[2], "http_500", 500, 5),
        (KEYS[1], "http_500", 500, 5),
        (KEYS[0], "http_400", 400, 5),
    ]
    assert all("payload" not in row for row in rows)


def test_a_list_is_narrowed_by_filters_and_limit(command: CommandLine, stations: FakeWiring) -> None:
    def keys(*options: str) -> list[str]:
        return [row["shard"] for row in rows_of(command("dlq", "list", "--json", *options, **BOTH).out)]

    assert keys("--filter", "error=http_5*") == [KEYS[2], KEYS[1]]
    assert keys("--filter", "error=http_5*", "--filter", "shard=ids:*") == [KEYS[1]]
    assert keys("--limit", "1") == [""]
    ended = command("dlq", "list", "--limit", "3", **BOTH)
    assert ended.err == "3 shown, there are more: see --limit and --filter\n"
    assert command("dlq", "list", "--filter", "worker=nobody", **BOTH).out == "stations: no such dead letters\n"
    assert command("dlq", "list", "other", **BOTH).out == "other: no dead letters\n"


def test_a_list_reads_no_more_batches_than_it_shows(
    command: CommandLine, stations: FakeWiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_batch(self: FakeLetters, import_name: str) -> Iterator[list[DeadLetter]]:
        yield self._of(import_name)
        raise AssertionError("nobody asked for more")

    monkeypatch.setattr(FakeLetters, "newest_first", one_batch)
    assert len(rows_of(command("dlq", "list", "--json", "--limit", "2", **BOTH).out)) == 2


@pytest.mark.parametrize("verb", ["list", "export"])
def test_letters_that_were_dropped_are_told_on_stderr(command: CommandLine, stations: FakeWiring, verb: str) -> None:
    stations.fake_queue.store.dropped["stations"] = 12
    ended = command("dlq", verb, **BOTH)
    assert ended.err == (
        "stations: 12 older letters were dropped so far (at most 10000 are kept): shards list --status failed shows all that"
        " failed, and dlq replay takes it\n"
    )


# show


def test_show_says_everything_of_one_letter(command: CommandLine, stations: FakeWiring) -> None:
    ended = command("dlq", "show", KEYS[0], **BOTH)
    text = " ".join(ended.out.split())
    for part in (
        KEYS[0],
        "http_400 (HTTP 400)",
        "attempts 5 of 5",
        "crashes 0 of 3",
        "cursor 7",
        "2 pages stored, goes on after 7",
    ):
        assert part in text, part
    assert "payload" not in text
    assert "\x1b" not in ended.out
    assert "payload" in command("dlq", "show", "stations", KEYS[0], "--payload", **BOTH).out


def test_show_as_json_has_the_ledgers_row(command: CommandLine, stations: FakeWiring) -> None:
    shown = json.loads(command("dlq", "show", "stations", KEYS[0], "--json", **BOTH).out)
    assert (shown["shard"], shown["cursor"], shown["attempts"], shown["crashes"]) == (KEYS[0], 7, 5, 0)
    ledger = shown["ledger"]
    assert (ledger["status"], ledger["page"], ledger["cursor"], ledger["counts"]["inserted"]) == ("failed", 2, 7, 3)
    assert "payload" not in shown
    assert "payload" in json.loads(command("dlq", "show", KEYS[0], "--json", "--payload", **BOTH).out)


def test_garbage_is_shown_by_its_entry(command: CommandLine, stations: FakeWiring) -> None:
    entry = stations.fake_queue.dead_letters("stations", 1)[0].entry
    assert "this is garbage" in command("dlq", "show", entry, **BOTH).out
    assert json.loads(command("dlq", "show", entry, "--json", **BOTH).out)["ledger"] is None


@pytest.mark.parametrize("name", ["ids:77..78", "1-1", "\x1b[2J", "x" * 5000, ""])
def test_an_unknown_name_is_exit_2_with_one_line(command: CommandLine, stations: FakeWiring, name: str) -> None:
    ended = command("dlq", "show", "stations", name, **BOTH)
    assert ended.code == 2
    assert "stations has no dead letter" in ended.message
    assert "\x1b" not in ended.err


def test_show_takes_one_name(command: CommandLine, stations: FakeWiring) -> None:
    assert command("dlq", "show", "a", "b", "c", **BOTH).message.startswith("dlq show takes an import and one shard or entry")


# replay and purge


@pytest.mark.parametrize("verb", ["replay", "purge"])
@pytest.mark.parametrize("choice", [[], ["--all", KEYS[0]], ["--all", "--filter", "error=x"], [KEYS[0], "--filter", "error=x"]])
def test_nothing_is_chosen_without_a_choice(command: CommandLine, stations: FakeWiring, verb: str, choice: list[str]) -> None:
    ended = command("dlq", verb, "stations", *choice, **BOTH)
    assert (ended.code, len(there(stations))) == (2, 4)
    assert ended.message == f"say what to {verb}: name it, or choose with --filter, or give --all; dlq list shows what is there"


@pytest.mark.parametrize("verb", ["list", "replay", "purge", "export"])
@pytest.mark.parametrize("bad", ["payload=x", "attempts=many", "error"])
def test_a_bad_filter_is_exit_2_before_anything_is_done(command: CommandLine, stations: FakeWiring, verb: str, bad: str) -> None:
    ended = command("dlq", verb, "stations", "--filter", bad, **BOTH)
    assert ended.code == 2
    assert "--filter" in ended.message
    assert len(there(stations)) == 4


def test_named_shards_are_replayed(command: CommandLine, stations: FakeWiring) -> None:
    ended = command("dlq", "replay", "stations", KEYS[0], "country:XX", **BOTH)
    assert (ended.code, ended.out) == (2, "stations: 1 shards replayed\n")
    assert ended.message == "stations has no dead letter 'country:XX'; see dlq list, and shards list --status failed"
    assert there(stations) == ["", KEYS[2], KEYS[1]]


def test_a_filter_or_all_is_replayed_and_a_dry_run_changes_nothing(command: CommandLine, stations: FakeWiring) -> None:
    by_error = ["dlq", "replay", "stations", "--filter", "error=http_5*"]
    assert command(*by_error, "--dry-run", **BOTH).out == "stations: would replay 2 shards\n"
    assert len(there(stations)) == 4
    assert command(*by_error, **BOTH).out == "stations: 2 shards replayed\n"
    assert command("dlq", "replay", "stations", "--all", **BOTH).out == "stations: 1 shards replayed, 1 left alone (1 garbage)\n"
    ended = command("dlq", "replay", "stations", "--all", "--json", **BOTH)
    assert json.loads(ended.out) == {
        "import": "stations",
        "dry_run": False,
        "replayed": 0,
        "without_letter": 0,
        "left": {"garbage": 1},
        "unknown": [],
    }


def test_purged_letters_stay_failed_in_the_ledger_and_can_still_be_replayed(command: CommandLine, stations: FakeWiring) -> None:
    kept = "the ledger keeps the shards as failed, and dlq replay still takes them"
    ended = command("dlq", "purge", "stations", KEYS[0], **BOTH)
    assert ended.out == f"stations: 1 letters purged (1 of shards, 0 garbage); {kept}\n"
    assert stations.ledger.rows["stations", KEYS[0]].status == "failed"
    assert ("stations", KEYS[0]) not in stations.fake_queue.store.places
    would = command("dlq", "purge", "stations", "--all", "--dry-run", **BOTH)
    assert would.out == f"stations: would purge 3 letters (2 of shards, 1 garbage); {kept}\n"
    ended = command("dlq", "purge", "stations", "--filter", "error=garbage", **BOTH)
    assert ended.out == "stations: 1 letters purged (0 of shards, 1 garbage)\n"
    ended = command("dlq", "replay", "stations", "--all", **BOTH)
    assert ended.out == "stations: 3 shards replayed (1 without a letter)\n"
    assert command("dlq", "purge", "stations", "--all", **BOTH).out == "stations: 0 letters purged\n"


def test_garbage_is_purged_by_its_entry(command: CommandLine, stations: FakeWiring) -> None:
    entry = stations.fake_queue.dead_letters("stations", 1)[0].entry
    ended = command("dlq", "purge", "stations", entry, "1-1", "--json", **BOTH)
    assert ended.code == 2
    shown = json.loads(ended.out)
    assert (shown["purged"], shown["garbage"], shown["unknown"]) == (1, 1, ["1-1"])
    assert "" not in there(stations)


def test_a_server_that_is_away_is_exit_1_and_one_line(command: CommandLine, stations: FakeWiring) -> None:
    stations.fake_queue.away = True
    for arguments in (["list"], ["show", KEYS[0]], ["replay", "stations", "--all"], ["purge", "stations", "--all"], ["export"]):
        ended = command("dlq", *arguments, **BOTH)
        assert (ended.code, ended.message) == (1, "Redis: away")


# export


def test_an_export_is_json_lines_without_payloads_unless_asked(command: CommandLine, stations: FakeWiring) -> None:
    ended = command("dlq", "export", "--filter", "error=http_*", **BOTH)
    rows = rows_of(ended.out)
    assert [row["shard"] for row in rows] == KEYS[::-1]
    assert all("payload" not in row for row in rows)
    assert "\x1b" not in ended.out
    assert all("payload" in row for row in rows_of(command("dlq", "export", "--payload", **BOTH).out))


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_file_is_for_its_owner_only(command: CommandLine, stations: FakeWiring, umask: int) -> None:
    before = os.umask(umask)
    try:
        ended = command("dlq", "export", "stations", "--output", "letters.jsonl", **BOTH)
    finally:
        os.umask(before)
    assert (ended.code, ended.out) == (0, "stations: 4 letters exported to letters.jsonl\n")
    path = command.folder / "letters.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(rows_of(path.read_text("ascii"))) == 4


@pytest.mark.parametrize("kind", ["file", "link", "dangling link", "folder"])
def test_nothing_that_is_there_is_overwritten(command: CommandLine, stations: FakeWiring, kind: str) -> None:
    path, target = command.folder / "letters.jsonl", command.folder / "precious"
    if kind != "dangling link":
        target.write_text("precious")
    if kind == "file":
        path.write_text("precious")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(target)
    ended = command("dlq", "export", "--output", str(path), **BOTH)
    assert ended.code == 2
    assert ended.message == f"--output {path}: there is such a file already, and it is not overwritten"
    assert target.exists() == (kind != "dangling link")
    assert kind == "dangling link" or target.read_text() == "precious"
    assert path.is_symlink() or path.exists()


@pytest.mark.parametrize("path", ["no/such/folder/x", "x" * 300, "nul\0byte"])
def test_a_file_that_cannot_be_made_is_exit_2_and_one_line(command: CommandLine, stations: FakeWiring, path: str) -> None:
    ended = command("dlq", "export", "--output", path, **BOTH)
    assert ended.code == 2
    assert "cannot be made" in ended.message


def break_off(monkeypatch: pytest.MonkeyPatch, what: object) -> None:
    def two_letters(self: FakeLetters, import_name: str) -> Iterator[list[DeadLetter]]:
        yield self._of(import_name)[:2]
        if isinstance(what, BaseException):
            raise what
        os.kill(os.getpid(), signal.SIGTERM)
        yield []

    monkeypatch.setattr(FakeLetters, "newest_first", two_letters)


@pytest.mark.parametrize(
    ("what", "code"),
    [
        (Unavailable("Redis", "away"), 1),
        (OSError(28, "No space left on device"), 1),
        (KeyboardInterrupt(), 130),
        ("SIGTERM", 143),
    ],
    ids=["away", "disk full", "interrupted", "terminated"],
)
def test_a_file_that_cannot_be_finished_is_removed(
    command: CommandLine, stations: FakeWiring, monkeypatch: pytest.MonkeyPatch, what: object, code: int
) -> None:
    break_off(monkeypatch, what)
    handler = signal.getsignal(signal.SIGTERM)
    assert command("dlq", "export", "--output", "letters.jsonl", **BOTH).code == code
    assert list(command.folder.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is handler
