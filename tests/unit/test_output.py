"""The one way out of every command: no secret, no control character, and no module that goes another way."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.table import Table
from rich.text import Text

import streams_importer
from streams_importer.cli import output
from streams_importer.domain.redaction import MASK, SECRETS

from .command_line import CommandLine, clean_environment

CLI = Path(streams_importer.__path__[0]) / "cli"
SECRET = "canary+/=&<>\"'%key"
HOSTILE = "[/]\x1b[2J\nfake\u202e\x9b1m\x7f"

# Modules of cli/ that may print by themselves, and why.
MAY_PRINT: dict[str, str] = {"output.py": "it is the way out"}


PRINTERS = {"print", "echo", "secho", "echo_via_pager", "Console", "print_exc", "print_exception", "write", "writelines"}
PLACES = {"", "click", "rich", "rich.console", "traceback", "os", "sys.stdout", "sys.stderr"}


def ways_out(path: Path) -> list[str]:
    """Calls that reach a terminal by another way than output: Python's, click's and rich's, and the streams themselves."""
    calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    parts = [(call.lineno, *ast.unparse(call.func).rpartition(".")) for call in calls]
    return [f"{path.name}:{line} {place}.{name}" for line, place, _, name in parts if name in PRINTERS and place in PLACES]


@pytest.mark.parametrize("path", sorted(CLI.glob("*.py")), ids=lambda path: path.name)
def test_no_command_prints_by_itself(path: Path) -> None:
    assert path.name in MAY_PRINT or ways_out(path) == []


def test_the_test_itself_knows_a_print_when_it_sees_one() -> None:
    assert len(ways_out(CLI / "output.py")) >= 5


@pytest.fixture(autouse=True)
def known_secret(nothing_is_secret_yet: None) -> None:
    SECRETS.learn(SECRET)


def test_a_line_is_one_line_without_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    output.say(f"name {HOSTILE} {SECRET}")
    output.say("  indented")
    output.complain(f"broken: {HOSTILE}{SECRET}")
    out, err = capsys.readouterr()
    assert out.splitlines() == [f"name [/] [2J fake 1m  {MASK}", "  indented"]
    assert err.startswith("streams-importer: broken: ")
    assert err.removesuffix("\n").isprintable()
    assert SECRET not in err


def test_a_block_keeps_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    output.say_block(f"one\n  two {SECRET}\x1b[2J\n")
    assert capsys.readouterr().out == f"one\n  two {MASK} [2J\n\n"


def test_a_table_shows_hostile_cells_as_text_and_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("name")
    table.add_row(Text(HOSTILE))
    table.add_row(Text(SECRET))
    output.show(table, wide=True)
    out = capsys.readouterr().out
    assert "[/]" in out
    assert MASK in out
    assert SECRET not in out
    assert out.replace("\n", "").isprintable()


def test_a_wide_table_keeps_its_cells_whole_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("words")
    table.add_row(Text("word " * 40))
    output.show(table, wide=True)
    assert ("word " * 40).strip() in capsys.readouterr().out
    output.show(table)
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_a_live_view_and_a_printed_line_are_plain_too(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    screen = output.console()
    screen.print(Text(f"{SECRET}\x1b[2J"))
    bare = Console(file=stream)
    bare.print(output.Plain(Text(f"{SECRET}\x1b[2J")))
    assert stream.getvalue() == f"{MASK} [2J\n" * 2


@dataclass
class Row:
    name: str
    at: datetime
    rate: float


def test_json_is_ascii_and_valid_and_has_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    row = Row(HOSTILE + SECRET + "\ud800é", datetime(2026, 2, 21, tzinfo=UTC), float("inf"))
    output.show_json({SECRET: [row], "n": [1, 1.5, None, True]}, indent=2)
    output.show_json({"a": "b"})
    out = capsys.readouterr().out
    assert out.isascii()
    assert out.replace("\n", "").isprintable()
    first, _, second = out.rpartition("{")
    assert json.loads(first) == {
        MASK: [{"name": HOSTILE + MASK + "?é", "at": "2026-02-21T00:00:00Z", "rate": None}],
        "n": [1, 1.5, None, True],
    }
    assert "{" + second == '{"a":"b"}\n'


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec=None)), inner, max_size=3),
    max_leaves=10,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=VALUES)
def test_whatever_the_value_json_is_printable_ascii(value: object, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    output.show_json(value)
    out = capsys.readouterr().out
    json.loads(out)
    assert out.isascii()
    assert out.removesuffix("\n").isprintable()


def test_a_traceback_shows_no_secret(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        try:
            raise ValueError(f"inner {SECRET}")
        except ValueError as inner:
            raise RuntimeError(f"outer {SECRET}\x1b[2J") from inner
    except RuntimeError as error:
        output.show_traceback(error)
    err = capsys.readouterr().err
    assert "RuntimeError: outer" in err
    assert "ValueError: inner" in err
    assert SECRET not in err
    assert "\x1b" not in err


CRASHES = """
import sys, threading
from streams_importer.cli.output import guard_tracebacks
from streams_importer.domain.redaction import SECRETS
secret = sys.stdin.read()
SECRETS.learn(secret)
guard_tracebacks()
def crash(): raise ValueError("thread " + secret + "\\x1b[2J")
class Unraisable:
    def __del__(self): raise ValueError("unraisable " + secret)
Unraisable()
threads = [threading.Thread(target=crash), threading.Thread(target=sys.exit)]
for thread in threads: thread.start()
for thread in threads: thread.join()
raise RuntimeError("main " + secret)
"""


def test_what_python_would_print_by_itself_shows_no_secret() -> None:
    ended = subprocess.run([sys.executable, "-c", CRASHES], input=SECRET, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    for which in ("thread", "unraisable", "main"):
        assert f"{which} {MASK}" in ended.stderr
    assert SECRET not in ended.stderr
    assert "\x1b" not in ended.stderr
    assert "SystemExit" not in ended.stderr


STEM = "Kanari7"
KEY = f"{STEM}+/=&<>\"'%key"
LOGIN = f"redis://user:{STEM}%40redis@127.0.0.1:1/0"
TOLD = {
    "OCM_API_KEY": KEY,
    "REDIS_URL": LOGIN,
    "MONGODB_URI": f"mongodb://user:{STEM}%40mongo@127.0.0.1:1/db?tlsCertificateKeyFilePassword={STEM}%2Bfile",
    "STREAMS_IMPORTER_SECRET_STATIONS": f"Token\\{STEM}",
}


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", KEY],
        ["status", LOGIN],
        ["status", f"{STEM}@mongo"],
        ["status", f"{HOSTILE}{KEY}"],
        [KEY],
        [f"--bogus-{LOGIN}"],
        ["--namespace", f"Token\\{STEM}", "status"],
        ["--config", KEY, "status"],
        ["--log-format", KEY, "status"],
        ["status", "--redis-url", f"redys://:{STEM}flag@host"],
        ["status", "--mongodb-uri", f"mongodb://user:{STEM}flag@:/@host/db"],
        ["consume", "--data-dir", KEY],
        ["consume", "--lease", KEY],
        ["consume", "--concurrency", KEY],
        ["pause", KEY],
        ["produce", "--rate", KEY],
        ["produce", "--id-range", KEY],
        ["produce", "--bbox", KEY],
        ["produce", "--from", KEY],
        ["dlq", KEY],
    ],
)
def test_a_secret_in_the_wrong_place_of_a_command_line_is_not_repeated(command: CommandLine, arguments: list[str]) -> None:
    ended = command(*arguments, **TOLD)
    assert ended.code == 2
    assert STEM.lower() not in ended.message.lower()
    assert ended.message.isprintable()


@pytest.mark.parametrize("name", ["STREAMS_IMPORTER_HOSTS", "STREAMS_IMPORTER_DATA_DIR", "STREAMS_IMPORTER_LEASE"])
def test_a_secret_in_the_wrong_variable_is_not_repeated(command: CommandLine, name: str) -> None:
    ended = command("consume", "--until-empty", **TOLD | {name: f"https://user:{KEY}@host/{KEY} {HOSTILE}"})
    assert ended.code == 2
    assert STEM.lower() not in ended.message.lower()


def test_help_shows_defaults_of_a_file_as_text(command: CommandLine) -> None:
    command.write_file('namespace = "\\u001b[2J"\n')
    ended = command("--help")
    assert ended.code == 0
    assert "\x1b" not in ended.out
    assert ended.out.endswith("\n")


def test_as_a_process_a_defect_shows_where_but_no_secret(tmp_path: Path) -> None:
    code = (
        "import sys; from streams_importer.cli import main as m\n"
        "def broken(*a, **k): raise RuntimeError('it was ' + __import__('os').environ['OCM_API_KEY'])\n"
        "m.read_file = broken; sys.argv = ['streams-importer', '-v', 'status']; m.main()"
    )
    environment = clean_environment(OCM_API_KEY=SECRET)
    ended = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert ended.returncode == 1
    assert "Traceback" in ended.stderr
    assert f"RuntimeError: it was {MASK}" in ended.stderr
    assert SECRET not in ended.stdout + ended.stderr
