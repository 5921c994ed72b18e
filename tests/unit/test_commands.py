"""The commands: each explains itself, and bad input is one line and never a traceback."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import click
import pytest

from streams_importer import __version__
from streams_importer.cli.main import cli
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import TooNew, Transient, Unavailable
from streams_importer.domain.model import STORED_VERSION
from streams_importer.embedded.servers import EmbeddedServers
from streams_importer.ports import Pause
from tests.unit.command_line import UNREACHABLE, CommandLine, Ended, FakeWiring, clean_environment
from tests.unit.test_snapshot import BUSY

BOTH = {"REDIS_URL": "redis://environment", "MONGODB_URI": "mongodb://environment", "OCM_API_KEY": "key"}
NEED_SERVERS = [
    ["produce"],
    ["produce", "--missing"],
    ["consume"],
    ["status"],
    ["status", "--json"],
    ["shards", "list"],
    ["shards", "show", "ids:0..10"],
    ["shards", "cancel", "openchargemap", "--all"],
    ["dlq", "list"],
    ["dlq", "replay", "openchargemap", "--all"],
    ["pause"],
    ["resume"],
    ["setup"],
]


def commands() -> Iterator[tuple[str, click.Command]]:
    def of(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
        yield name, command
        if isinstance(command, click.Group):
            for child, each in command.commands.items():
                yield from of(f"{name} {child}".strip(), each)

    yield from of("", cli)


COMMANDS = dict(commands())


def refused(ended: Ended) -> str:
    """The message of a command that was given something bad."""
    assert ended.code == 2, ended
    assert ended.out == ""
    return ended.message


# They explain themselves.


def test_the_commands_of_this_issue_are_there() -> None:
    assert set(COMMANDS) == {
        "", "produce", "consume", "status", "pause", "resume", "setup", "doctor", "demo",
        "dlq", "dlq list", "dlq show", "dlq replay", "dlq purge", "dlq export",
        "shards", "shards list", "shards show", "shards cancel", "services", "services status", "services stop",
    }  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_text_and_an_example(command: CommandLine, name: str) -> None:
    ended = command(*name.split(), "--help")
    assert (ended.code, ended.err) == (0, "")
    assert COMMANDS[name].help
    assert f"streams-importer {name}".strip() in " ".join((COMMANDS[name].epilog or "").split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_help_text(name: str) -> None:
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            assert parameter.help, parameter.name


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"], ["dlq"], ["dlq", "-h"]])
def test_help_comes_without_servers_or_settings(command: CommandLine, arguments: list[str]) -> None:
    ended = command(*arguments)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("Usage: ")


def test_help_is_there_even_when_the_file_is_broken(command: CommandLine) -> None:
    command.write_file("this is not TOML")
    assert command("--help").code == 0


def test_the_version_is_told(command: CommandLine) -> None:
    ended = command("--version")
    assert (ended.code, ended.err) == (0, "")
    assert __version__ in ended.out


# Bad usage.


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["produce", "--shard-size", "0"], "--shard-size 0: must be 1 or more"),
        (["produce", "--shard-size", "-5"], "--shard-size -5: must be 1 or more"),
        (["produce", "--shard-size", "0", "--id-range", "0..10"], "--shard-size 0: must be 1 or more"),
        (["produce", "--shard-size", "many"], "'--shard-size': 'many'"),
        (["produce", "--id-range", "10..0"], "--id-range 10..0: must go upwards"),
        (["produce", "--id-range", "5..5"], "--id-range 5..5: must go upwards"),
        (["produce", "--id-range", "garbage"], "--id-range 'garbage': write it as LO..HI"),
        (["produce", "--id-range", ""], "--id-range '': write it as LO..HI"),
        (["produce", "--id-range", "1-5"], "--id-range '1-5'"),
        (["produce", "--id-range", "-1..5"], "--id-range '-1..5'"),
        (["produce", "--id-range", "0..1e9"], "--id-range '0..1e9'"),
        (["produce", "--id-range", "0.." + "9" * 400], "--id-range '0..999"),
        (["produce", "--id-range", "0..5\x1b[2J\n"], "--id-range '0..5\\x1b[2J\\n'"),
        (["produce", "--country", ""], "--country: name at least one country"),
        (["produce", "--country", ",,"], "--country: name at least one country"),
        (["produce", "--country", "XX,DE"], "--country XX"),
        (["produce", "--missing", "--country", "DE"], "--missing goes alone"),
        (["produce", "--missing", "--id-range", "0..5"], "--missing goes alone"),
        (["produce", "--missing", "--again"], "--missing goes alone"),
        (["produce", "--rate", "fast"], "--rate 'fast': write a number and a unit"),
        (["produce", "--rate", "0/s"], "--rate '0/s'"),
        (["produce", "--rate", "1/s", "--rate", "2/s"], "--rate 1/s; 2/s: one limit"),
        (["produce", "--page-size", "0"], "--page-size 0: must be 1 to 10000"),
        (["produce", "--page-size", "10001"], "--page-size 10001"),
        (["produce", "--lease", "1ms"], "--lease 0.001s: must be 200ms to 1d"),
        (["produce", "--lease", "soon"], "'--lease': 'soon' is not a duration"),
        (["produce", "--retry-delay", "-1s"], "'--retry-delay': '-1s' is not a duration"),
        (["produce", "--max-attempts", "0"], "--max-attempts 0: must be 1 to 1000"),
        (["produce", "--max-crashes", "0"], "--max-crashes 0: must be 1 to 1000"),
        (["produce", "Bad Name"], "'Bad Name' is not a name"),
        (["produce", "nothere"], "import nothere: not defined"),
        (["produce", "openchargemap", "extra"], "extra"),
        (["produce", "--bogus"], "--bogus"),
        (["produce", "--country"], "--country"),
        (["consume", "--concurrency", "-1"], "--concurrency -1: must be 1 to 1000"),
        (["consume", "-c", "0"], "--concurrency 0: must be 1 to 1000"),
        (["consume", "-c", "1001"], "--concurrency 1001"),
        (["consume", "-c", "four"], "'four'"),
        (["consume", "--lease", "1w"], "'--lease': '1w' is not a duration"),
        (["consume", "--lease", "2d"], "--lease 172800s: must be 200ms to 1d"),
        (["consume", "--max-attempts", "0"], "--max-attempts 0"),
        (["consume", "--retry-delay", "2d"], "--retry-delay 172800s"),
        (["consume", "--shutdown-timeout", "never"], "'--shutdown-timeout': 'never'"),
        (["consume", "ocm", "Bad Name"], "'Bad Name' is not a name"),
        (["status", "UPPER"], "'UPPER' is not a name"),
        (["status", "x" * 64], "is not a name"),
        (["status", "nothere"], "there is no import 'nothere'"),
        (["status", "--check-mate"], "--check-mate"),
        (["shards", "list", "--limit", "0"], "'--limit': 0"),
        (["shards", "list", "--status", "pending"], "'--status': 'pending'"),
        (["shards", "list", "--filter", "shard"], "write it as field=value, with one of: shard, run, worker, error, attempts"),
        (["shards", "list", "--filter", "owner=x"], "the fields are: shard, run, worker, error, attempts"),
        (["shards", "list", "--filter", "attempts=many"], "attempts is a number"),
        (["shards", "list", "nothere"], "there is no import 'nothere' (known: none yet; produce makes one)"),
        (["shards", "show"], "SHARD"),
        (["shards", "show", "a", "b", "ids:0..10"], "takes an import and one shard"),
        (["shards", "show", "Bad Name", "ids:0..10"], "takes an import and one shard"),
        (["shards", "cancel"], "IMPORT"),
        (["shards", "cancel", "openchargemap"], "say which shards to cancel"),
        (["shards", "cancel", "openchargemap", "ids:0..1", "--all"], "say which shards to cancel"),
        (["shards", "cancel", "openchargemap", "--all", "--status", "queued"], "say which shards to cancel"),
        (["shards", "cancel", "openchargemap", "--status", "done"], "'--status': 'done'"),
        (["shards", "cancel", "openchargemap", "--filter", "owner=x"], "there is no field 'owner'"),
        (["dlq", "list", "--limit", "0"], "'--limit': 0"),
        (["dlq", "list", "--limit", "-1"], "'--limit': -1"),
        (["dlq", "bogus"], "bogus"),
        (["dlq", "replay"], "IMPORT"),
        (["dlq", "replay", "openchargemap"], "say what to replay: name it, or choose with --filter, or give --all"),
        (["dlq", "replay", "openchargemap", "ids:0..1", "--all"], "say what to replay"),
        (["pause", "nothere"], "there is no import 'nothere'"),
        (["resume", "nothere"], "there is no import 'nothere'"),
        (["setup", "extra"], "extra"),
        (["demo", "--points", "0"], "'--points': 0"),
        (["demo", "--workers", "17"], "'--workers': 17"),
        (["demo", "--seed", "x"], "'--seed': 'x'"),
        (["bogus"], "bogus"),
        (["--bogus"], "--bogus"),
        (["--namespace", "Bad}", "status"], "--namespace 'Bad}': must be a-z"),
        (["--namespace", "", "status"], "--namespace ''"),
        (["--namespace", "x" * 64, "status"], "--namespace"),
        (["--log-format", "xml", "status"], "'--log-format': 'xml'"),
        (["--config", "nowhere.toml", "status"], "--config nowhere.toml: cannot be read"),
        (["--config"], "--config"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_bad_usage_is_exit_2_and_one_line_that_says_what_to_change(
    command: CommandLine, wiring: FakeWiring, arguments: list[str], named: str
) -> None:
    assert named in refused(command(*arguments, **BOTH))
    assert wiring.original.stored == {}
    assert wiring.fake_queue.store.entries == {}


@pytest.mark.parametrize(
    "arguments",
    [
        ["produce", "--rate", "fast"],
        ["produce", "--page-size", "0"],
        ["produce", "--max-attempts", "0"],
        ["produce", "--lease", "1ms"],
        ["produce", "--id-range", "9..0"],
        ["produce", "--shard-size", "0"],
        ["consume", "--lease", "1ms"],
    ],
    ids=" ".join,
)
def test_bad_usage_is_told_before_any_server_is_asked(command: CommandLine, arguments: list[str]) -> None:
    assert arguments[1] in refused(command(*arguments, **UNREACHABLE, OCM_API_KEY="key"))


@pytest.mark.parametrize("text", ["999999999d", "200000d"])
def test_a_shutdown_timeout_longer_than_a_timer_can_wait_is_refused(command: CommandLine, text: str) -> None:
    assert "--shutdown-timeout" in refused(command("consume", "--shutdown-timeout", text))


def test_hostile_arguments_reach_the_terminal_as_text(command: CommandLine, wiring: FakeWiring) -> None:
    hostile = "\x1b[2J\nfake\u202e[/]"
    for arguments in (
        [hostile],
        ["--" + hostile],
        ["produce", "--" + hostile],
        ["produce", hostile],
        ["produce", "--country", hostile],
        ["produce", "--rate", hostile],
        ["produce", "--lease", hostile],
        ["--namespace", hostile, "status"],
        ["--config", hostile, "status"],
        ["dlq", "replay", "openchargemap", hostile],
        ["shards", "show", hostile],
        ["shards", "cancel", "openchargemap", hostile],
        ["shards", "list", "--filter", hostile],
        ["shards", "list", "--filter", "shard=" + hostile],
    ):
        ended = command(*arguments, **BOTH)
        assert ended.code == 2
        assert ended.err.removesuffix("\n").isprintable(), arguments


@pytest.mark.parametrize("arguments", NEED_SERVERS, ids=" ".join)
def test_without_servers_it_is_exit_2_and_says_what_to_set(command: CommandLine, arguments: list[str]) -> None:
    for variables, missing in (
        ({}, "REDIS_URL and MONGODB_URI"),
        ({"REDIS_URL": "redis://h"}, "MONGODB_URI"),
        ({"REDIS_TLS_URL": "rediss://h"}, "MONGODB_URI"),
        ({"MONGODB_URI": "mongodb://h"}, "REDIS_URL"),
        ({"REDIS_URL": "", "MONGODB_URI": "mongodb://h"}, "REDIS_URL"),
    ):
        message = refused(command(*arguments, **variables))
        assert message.startswith(f"{missing} not set: set both REDIS_URL and MONGODB_URI")


@pytest.mark.parametrize("arguments", [["produce"], ["consume"]], ids=" ".join)
def test_without_a_key_the_real_upstream_is_not_even_asked(
    command: CommandLine, wiring: FakeWiring, arguments: list[str]
) -> None:
    assert refused(command(*arguments, **{**BOTH, "OCM_API_KEY": ""})).startswith("OCM_API_KEY is not set")


@pytest.mark.parametrize(
    "url",
    [
        "localhost:6379",
        "http://localhost",
        "redis:/localhost",
        "//localhost",
        "redis://[::1",
        "redis://localhost:port",
        "redis://localhost:99999",
        "redis://localhost?db=x",
        "redis://localhost?socket_timeout=soon",
        "redis://localhost?unknown=1",
        "rediss://localhost?ssl_cert_reqs=maybe",
        "redis+sentinel://localhost/master",
    ],
)
def test_a_malformed_redis_url_is_exit_2_and_names_the_setting(command: CommandLine, url: str) -> None:
    assert "--redis-url" in refused(command("status", REDIS_URL=url, MONGODB_URI=UNREACHABLE["MONGODB_URI"]))


@pytest.mark.parametrize(
    "uri",
    [
        "http://localhost",
        "mongodb://",
        "mongodb://localhost:port",
        "mongodb://localhost:99999",
        "mongodb://localhost/?w=0",
        "mongodb://localhost/?serverSelectionTimeoutMS=soon",
        "mongodb://localhost/bad db",
        "mongodb://user@:pass@localhost",
        "mongodb://[::1",
    ],
)
def test_a_malformed_mongodb_uri_is_exit_2_and_names_the_setting(command: CommandLine, uri: str) -> None:
    assert "--mongodb-uri" in refused(command("status", REDIS_URL=UNREACHABLE["REDIS_URL"], MONGODB_URI=uri))


# Servers that are away.


@pytest.mark.parametrize("arguments", [one for one in NEED_SERVERS if one[0] != "consume"], ids=" ".join)
@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "unix:///nowhere/redis.sock"])
def test_a_redis_that_cannot_be_reached_is_exit_1_and_one_line(command: CommandLine, arguments: list[str], url: str) -> None:
    ended = command(*arguments, **{**UNREACHABLE, "REDIS_URL": url}, OCM_API_KEY="key")
    assert ended.code == 1
    assert ended.message.startswith("Redis: ")


def test_a_certificate_authority_that_is_not_there_is_a_setting_to_change_and_not_an_outage(command: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"rediss://127.0.0.1:{listener.getsockname()[1]}"
        ended = command("status", "--redis-ca-file", "nowhere.pem", **{**UNREACHABLE, "REDIS_URL": url})
    assert "--redis-ca-file" in refused(ended)


def test_something_that_is_not_redis_is_exit_1_and_one_line(command: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n\x1b[2J")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}"
        ended = command("status", **{**UNREACHABLE, "REDIS_URL": url})
        thread.join(10)
    assert ended.code == 1
    assert ended.message.startswith("Redis: ")
    assert ended.message.isprintable()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unavailable("MongoDB", "no primary"), 1),
        (TooNew("import openchargemap: a newer version defined it"), 2),
        (Transient("http_502", "api.example: answered 502", 502), 1),
    ],
)
def test_every_error_of_ours_is_one_line_and_its_own_exit_status(
    command: CommandLine, wiring: FakeWiring, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    def fail(wanted: object = ()) -> None:
        raise error

    monkeypatch.setattr(wiring, "snapshot", fail)
    ended = command("status", **BOTH)
    assert (ended.code, ended.message) == (code, str(error))


def test_a_defect_is_one_line_and_only_a_verbose_run_shows_where(
    command: CommandLine, wiring: FakeWiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(wanted: object = ()) -> None:
        raise ZeroDivisionError("oh\n\x1b[2J")

    monkeypatch.setattr(wiring, "snapshot", fail)
    ended = command("status", **BOTH)
    assert ended.code == 1
    assert ended.message == "a defect in streams-importer: ZeroDivisionError: oh [2J (-v shows where)"
    for verbose in ("-v", "--verbose", "-vv"):
        assert "Traceback" in command(verbose, "status", **BOTH).err, verbose


def test_an_interrupted_command_leaves_with_130(
    command: CommandLine, wiring: FakeWiring, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(wanted: object = ()) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(wiring, "snapshot", fail)
    ended = command("status", **BOTH)
    assert ended.code == 130
    assert "Traceback" not in ended.err


# What they do and print.


def test_produce_prints_the_run_and_what_became_of_the_shards(command: CommandLine, wiring: FakeWiring) -> None:
    ended = command("produce", "--id-range", "0..25", "--shard-size", "10", **BOTH)
    assert (ended.code, ended.err) == (0, "")
    run = wiring.original.runs["openchargemap"]
    assert ended.out == f"openchargemap: run {run}: 3 shards queued of 3\n"
    again = command("produce", "--id-range", "0..25", "--shard-size", "10", **BOTH).out
    assert again.endswith(": 0 shards queued of 3, 3 in flight already\n")


def test_produce_without_axes_plans_the_whole_source(command: CommandLine, wiring: FakeWiring) -> None:
    assert "3 shards queued of 3" in command("produce", **BOTH).out
    assert [key for _, key in wiring.ledger.rows] == ["ids:0..10000", "ids:10000..20000", "ids:20000..25000"]


def test_produce_takes_countries_repeated_or_by_commas_each_once(command: CommandLine, wiring: FakeWiring) -> None:
    assert command("produce", "--country", "de, FR", "--country", "DE", **BOTH).code == 0
    assert [key for _, key in wiring.ledger.rows] == ["country:DE", "country:FR"]


def test_produce_missing_needs_neither_axes_nor_a_key(command: CommandLine, wiring: FakeWiring) -> None:
    command("produce", "--id-range", "0..10", **BOTH)
    wiring.fake_queue.store.places.clear()
    ended = command("produce", "--missing", **{**BOTH, "OCM_API_KEY": ""})
    assert "1 shards queued of 1" in ended.out


def test_produce_takes_the_only_import_of_the_file(command: CommandLine, wiring: FakeWiring) -> None:
    command.write_file('[imports.stations]\ncollection = "stations"\n')
    assert command("produce", "--id-range", "0..10", **BOTH).out.startswith("stations: run ")
    assert wiring.original.get("stations") == Definition("stations", collection="stations")


def test_produce_leaves_a_definition_of_a_newer_version_alone(command: CommandLine, wiring: FakeWiring) -> None:
    wiring.original.save(Definition("openchargemap"), "run")
    wiring.original.stored["openchargemap"]["v"] = STORED_VERSION + 1
    assert "a newer version of streams-importer defined it" in refused(command("produce", "--id-range", "0..10", **BOTH))
    assert wiring.ledger.rows == {}


def test_pause_and_resume_say_what_they_did(command: CommandLine, wiring: FakeWiring) -> None:
    wiring.original.save(Definition("stations"), "run")
    ended = command("pause", "--reason", "key is\x1b[2J renewed", **BOTH)
    assert ended.out == "stations is paused; go on with: streams-importer resume stations\n"
    assert wiring.original.paused()["stations"].reason == "key is [2J renewed"
    assert command("resume", **BOTH).out == "stations goes on\n"
    assert wiring.original.paused() == {}


def test_status_is_a_table_or_the_json_of_the_contract(command: CommandLine, wiring: FakeWiring) -> None:
    assert "No imports yet" in command("status", **BOTH).out
    wiring.statuses["openchargemap"] = replace(BUSY, paused=Pause("why", "who", "when"))
    assert "PAUSED" in command("status", "openchargemap", **BOTH).out
    ended = command("status", "--json", **BOTH)
    assert (ended.code, ended.err) == (0, "")
    shown = json.loads(ended.out)
    assert shown["imports"]["openchargemap"]["done"] == 412
    assert shown["imports"]["openchargemap"]["paused"] == {"reason": "why", "by": "who", "since": "when"}


def test_setup_tells_what_is_ready_and_may_be_repeated(command: CommandLine, wiring: FakeWiring) -> None:
    command.write_file('[imports.stations]\ncollection = "stations"\n')
    for _ in range(2):
        ended = command("setup", **BOTH)
        assert ended.out == "openchargemap: ready, stores into pois\nstations: ready, stores into stations\n"


# The same as a process.


def run(*arguments: str, folder: Path, **variables: str) -> Ended:
    command = [sys.executable, "-m", "streams_importer", *arguments]
    ended = subprocess.run(command, cwd=folder, env=clean_environment(**variables), capture_output=True, text=True, timeout=60)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def test_as_a_process_bad_usage_is_exit_2_and_one_line(tmp_path: Path) -> None:
    assert "--concurrency -1" in refused(run("consume", "-c", "-1", folder=tmp_path))


def test_as_a_process_a_mongodb_that_cannot_be_reached_is_exit_1_and_one_line(servers: EmbeddedServers, tmp_path: Path) -> None:
    ended = run("setup", folder=tmp_path, **{**UNREACHABLE, "REDIS_URL": servers.redis_url}, STREAMS_IMPORTER_NAMESPACE="nobody")
    assert ended.code == 1
    assert ended.message.startswith("MongoDB: ")


def test_as_a_process_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    command = f"exec {sys.executable} -m streams_importer --help | true"
    ended = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=clean_environment(), capture_output=True, text=True, timeout=60
    )
    assert "Traceback" not in ended.stderr
