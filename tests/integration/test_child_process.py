"""A real child process: what it says and is told, and every way in which it can end."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streams_importer.adapters import child_process
from streams_importer.adapters.child_process import MAX_LINE, ChildProcess, dump_outcome
from streams_importer.domain.model import (
    Abandoned,
    Checkpoint,
    Completed,
    Counts,
    Crashed,
    Dead,
    Failure,
    Outcome,
    Released,
    Retry,
)
from tests.fakes.recorded import Events

CHILD = """
import json, os, sys, signal

out = os.fdopen(os.dup(1), "wb")
job = json.loads(sys.stdin.buffer.readline())
for line in job.get("say", []):
    out.write(line.encode("latin-1"))
out.flush()
if "kill" in job:
    os.kill(os.getpid(), job["kill"])
if "listen" in job:
    for line in sys.stdin.buffer:
        heard = json.loads(line)
        told = {"event": "heard", "level": "warning", "details": {"line": line.decode().strip()}}
        out.write(json.dumps(told).encode() + b"\\n")
        out.flush()
        if heard == {"cancel": "stop"}:
            out.write(job["last"].encode() + b"\\n")
            out.flush()
            break
    else:
        os._exit(7)
if "deaf" in job:
    signal.pause()
os._exit(job.get("status", 0))
"""
PAGE = Checkpoint(3, 2**60, Counts(1, 2, 3, 4, 5, 6, 7, 8))
WHY = Failure("http_502", "answered 502", 502)
DONE = dump_outcome(Completed(PAGE))


def line(said: object) -> str:
    return json.dumps(said) + "\n"


class Nursery:
    """Starts children of the tiny module above, and ends them with the test."""

    def __init__(self, folder: Path) -> None:
        self.events = Events()
        self._folder = folder
        self._children: list[ChildProcess] = []
        folder.joinpath("tiny_child.py").write_text(CHILD, encoding="utf-8")

    def __call__(self, **job: Any) -> ChildProcess:
        child = ChildProcess("tiny_child", job, {"PYTHONPATH": str(self._folder)}, self.events)
        self._children.append(child)
        return child

    def close(self) -> None:
        for child in self._children:
            child.close()


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Callable[..., ChildProcess]]:
    nursery = Nursery(tmp_path)
    yield nursery
    nursery.close()


@pytest.fixture
def events(child: Nursery) -> Events:
    return child.events


# What it says.


@pytest.mark.parametrize(
    "outcome",
    [
        Completed(PAGE),
        Retry(Checkpoint(1, "next=é"), WHY, 7.5),
        Dead(PAGE, Failure("bad", "no")),
        Crashed(PAGE, WHY, 2),
        Released(PAGE, WHY),
        Released(Checkpoint()),
        Abandoned(),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_every_outcome_comes_back_as_it_was(child: Nursery, outcome: Outcome) -> None:
    assert child(say=[line(dump_outcome(outcome))]).outcome() == outcome


def test_events_are_passed_on_with_their_level_and_details(child: Nursery, events: Events) -> None:
    told = {"event": "outage", "level": "warning", "details": {"server": "Redis", "seconds": 1.5}}
    assert child(say=[line(told), line({"event": "bare"}), line(DONE)]).outcome() == Completed(PAGE)
    assert events.told == [("outage", "warning", {"server": "Redis", "seconds": 1.5}), ("bare", "info", {})]


GARBAGE = {
    "no JSON": "hello\n",
    "binary": "\xff\xfe\x00\n",
    "no object": "[1, 2]\n",
    "nothing of ours": line({"x": 1}),
    "an unknown kind": line({"kind": "Exploded", "outcome": {}}),
    "a line without an end": '{"kind": "Completed"',
    "a very long line": "x" * (2 * MAX_LINE) + "\n",
    "a number for an event": line({"event": 7}),
    "an outcome is missing": line({"kind": "Completed"}),
    "an outcome is of another shape": line({"kind": "Completed", "outcome": {"checkpoint": "x"}}),
    "a kind is a list": line({"kind": ["Completed"], "outcome": {}}),
    "details are a list": line({"event": "odd", "details": [1]}),
    "details hide the event": line({"event": "odd", "details": {"event": "x", "level": "y"}}),
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_on_its_output_is_no_word_and_stops_nobody(child: Nursery, garbage: str) -> None:
    assert child(say=[garbage]).outcome() is None
    assert child(say=[garbage.rstrip("\n") + "\n", line(DONE)]).outcome() == Completed(PAGE)


# How it ends.


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_child_that_is_killed_says_nothing_and_its_end_is_told(child: Nursery, number: signal.Signals) -> None:
    one = child(kill=int(number))
    assert one.outcome() is None
    assert one.how_it_ended == f"by {number.name}"


def test_a_child_that_gives_up_is_told_by_its_status(child: Nursery) -> None:
    one = child(status=3)
    assert one.outcome() is None
    assert one.how_it_ended == "with status 3"


def test_a_child_that_cannot_even_begin_is_a_child_without_a_word(tmp_path: Path) -> None:
    tmp_path.joinpath("broken_child.py").write_text("raise SystemExit(9)", encoding="utf-8")
    one = ChildProcess("broken_child", {"x": "y" * 1_000_000}, {"PYTHONPATH": str(tmp_path)}, Events())
    assert one.outcome() is None
    assert one.how_it_ended == "with status 9"
    one.close()


def test_what_it_said_before_it_was_killed_counts(child: Nursery) -> None:
    assert child(say=[line(DONE)], kill=int(signal.SIGKILL)).outcome() == Completed(PAGE)


# What it is told.


def test_it_hears_the_control_channel_and_why_it_is_cancelled(child: Nursery, events: Events) -> None:
    one = child(listen=True, last=json.dumps(dump_outcome(Released(PAGE))))
    one.hear("hold:x")
    one.cancel("stop")
    assert one.outcome() == Released(PAGE)
    assert [json.loads(details["line"]) for details in events.details("heard")] == [{"heard": "hold:x"}, {"cancel": "stop"}]


def test_telling_a_child_that_has_ended_is_no_error(child: Nursery) -> None:
    one = child()
    assert one.outcome() is None
    one.cancel("stop")
    one.hear("work")
    one.close()
    one.cancel("stop")
    one.close()


def test_when_its_parent_lets_go_its_input_ends_and_so_does_it(child: Nursery) -> None:
    one = child(listen=True)
    one.close()
    assert one.how_it_ended == "with status 7"


def test_a_child_that_does_not_end_by_itself_is_killed(child: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "LAST_WORDS_S", 0.01)
    one = child(deaf=True)
    one.close()
    assert one.how_it_ended == "by SIGKILL"


def test_nothing_of_its_job_is_among_its_arguments(child: Nursery) -> None:
    one = child(listen=True, secret="hunter2-hunter2")
    arguments = Path(f"/proc/{one._process.pid}/cmdline")
    if arguments.exists():
        assert b"hunter2" not in arguments.read_bytes()
    assert "hunter2" not in str(one._process.args)


def test_a_child_that_does_not_listen_is_not_waited_for_and_is_killed_when_cancelled(child: Nursery) -> None:
    """Whoever tells it renews the leases of all the others."""
    deaf = child(deaf=True)
    for _ in range(20_000):
        deaf.hear("hold:" + "x" * 100)
    deaf.cancel("lease lost")
    assert deaf.outcome() is None
    assert deaf.how_it_ended == "by SIGKILL"


def test_a_child_that_does_not_obey_is_killed(child: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(child_process, "OBEYS_S", 0.05)
    deaf = child(deaf=True)
    deaf.cancel("stop")
    assert deaf.outcome() is None
    assert deaf.how_it_ended == "by SIGKILL"


def test_what_went_wrong_is_told_in_one_short_line() -> None:
    told = dump_outcome(Retry(PAGE, Failure("internal_error", "x" * 2_000_000 + "\ud800\x1b[2J")))
    assert len(json.dumps(told)) < 2000
