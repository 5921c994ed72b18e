"""Events: one line each, for people or as JSON, whatever they carry and however many threads tell them."""

from __future__ import annotations

import io
import json
import re
import sys
import threading
from typing import Any

import pytest

from streams_importer.adapters.log_events import LogEvents
from streams_importer.domain.redaction import SECRETS
from streams_importer.ports import EventSink

HOSTILE = "two\nlines\x1b[2J\u202e \ud800"


def told(form: str = "text", least: str = "info", event: str = "shard done", **details: Any) -> str:
    stream = io.StringIO()
    LogEvents(form, least, stream)(event, **details)
    return stream.getvalue()


def test_it_is_an_event_sink() -> None:
    sink: EventSink = LogEvents(stream=io.StringIO())
    sink("hello")


def test_a_text_line_has_time_level_event_and_details() -> None:
    line = told(import_name="openchargemap", shard="ids:0..10", attempts=3)
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info    shard done  import=openchargemap shard=ids:0\.\.10 attempts=3\n", line
    )


def test_an_event_without_details_has_nothing_after_it() -> None:
    assert told().endswith(" info    shard done\n")


def test_a_value_with_blanks_or_none_at_all_is_quoted() -> None:
    assert told(reason="key refused", by="").endswith('reason="key refused" by=""\n')


def test_a_json_line_has_the_same_as_fields() -> None:
    line = told("json", level="warning", import_name="openchargemap", attempts=3, seconds=1.5)
    event = json.loads(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", event.pop("time"))
    assert event == {"level": "warning", "event": "shard done", "import": "openchargemap", "attempts": 3, "seconds": 1.5}
    assert line.count("\n") == 1


@pytest.mark.parametrize("form", ["text", "json"])
def test_whatever_comes_from_outside_is_one_plain_line(form: str) -> None:
    line = told(form, reason=HOSTILE, message="x" * 100_000)
    assert line.count("\n") == 1
    assert line.removesuffix("\n").isprintable()
    assert len(line) < 2_000


def test_a_value_cannot_pass_for_another_detail() -> None:
    line = told(reason='x" error="key_refused" y="z', attempts=1)
    assert ' error="key_refused" ' not in line


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("value", [None, True, 3, 1.5, ["a", "b"], {"a": 1}, ("x",)])
def test_other_values_than_text_are_told_too(form: str, value: Any) -> None:
    assert told(form, value=value).count("\n") == 1


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    "value",
    [
        "canary-key",
        ["canary-key"],
        {"a": {"canary-key": ("canary%2Dkey", {"canary-key"})}},
        ValueError("canary-key"),
        b"canary-key",
        [[[[[["canary-key"]]]]]],
    ],
)
def test_no_value_however_deep_shows_a_secret_or_drives_a_terminal(form: str, value: Any) -> None:
    SECRETS.learn("canary-key")
    line = told(form, event=f"shard {HOSTILE}", value=value, other=[HOSTILE, {HOSTILE: HOSTILE}, ValueError(HOSTILE)])
    assert "canary-key" not in line
    assert line.count("\n") == 1
    assert line.removesuffix("\n").isprintable()


@pytest.mark.parametrize(
    ("least", "heard"),
    [
        ("debug", ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"]),
        ("warning", ["warning", "error"]),
        ("error", ["error"]),
    ],
)
def test_what_is_below_the_least_level_is_not_told(least: str, heard: list[str]) -> None:
    assert [level for level in ("debug", "info", "warning", "error") if told(least=least, level=level)] == heard


def test_events_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    LogEvents()("hello")
    assert capsys.readouterr().out == ""
    LogEvents()("hello")
    assert "hello" in capsys.readouterr().err


def test_standard_error_is_looked_up_for_every_event(monkeypatch: pytest.MonkeyPatch) -> None:
    events, later = LogEvents(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", later)
    events("hello")
    assert "hello" in later.getvalue()


def test_lines_of_many_threads_do_not_mix() -> None:
    stream = io.StringIO()
    events, start = LogEvents("json", stream=stream), threading.Barrier(8)

    def tell(number: int) -> None:
        start.wait(10)
        for turn in range(50):
            events("turn", number=number, turn=turn, filler="x" * 200)

    threads = [threading.Thread(target=tell, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert sorted((line["number"], line["turn"]) for line in lines) == [(n, t) for n in range(8) for t in range(50)]
