"""Settings: a flag wins over the environment, which wins over the file; a bad one is named; a secret is never shown."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

from streams_importer.cli import consume as consume_module
from streams_importer.cli.main import cli
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import BadSetting
from streams_importer.embedded.servers import EmbeddedServers
from streams_importer.embedded.stand_in import StandIn
from streams_importer.settings import FILE_SETTINGS, Servers, Upstreams, definition_from_file, one_rate, read_file, worker_label
from tests.unit.command_line import UNREACHABLE, CommandLine, Ended, FakeWiring, clean_environment

SECRET = "hunter2"
BOTH = {"REDIS_URL": "redis://environment", "MONGODB_URI": "mongodb://environment", "OCM_API_KEY": "key"}


class Consumed:
    """What `consume` would have worked with."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}
        self.until_empty: bool | None = None

    def worker(self, wiring: object, stop: object, **options: Any) -> None:
        self.options = options

    def work(self, wiring: object, worker: object, stop: object, wanted: object, until_empty: bool) -> tuple[int, bool]:
        self.until_empty = until_empty
        return 0, True


@pytest.fixture
def consumed(monkeypatch: pytest.MonkeyPatch, wiring: FakeWiring) -> Consumed:
    """`consume` stops where its worker would start."""
    consumed = Consumed()
    monkeypatch.setattr(consume_module, "Worker", consumed.worker)
    monkeypatch.setattr(consume_module, "_work", consumed.work)
    monkeypatch.setattr("streams_importer.cli.consume.Shutdown.install", lambda self: None)
    return consumed


def parameters() -> Iterator[tuple[str, click.Option]]:
    """Every option of every command."""

    def of(name: str, command: click.Command) -> Iterator[tuple[str, click.Option]]:
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                yield name, parameter
        if isinstance(command, click.Group):
            for child, each in command.commands.items():
                yield from of(f"{name} {child}".strip(), each)

    yield from of("", cli)


# Precedence.


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        ([], {"REDIS_URL": "redis://plain"}, "redis://plain"),
        ([], {"REDIS_URL": "redis://plain", "REDIS_TLS_URL": "rediss://tls"}, "rediss://tls"),
        ([], {"REDIS_URL": "redis://plain", "REDIS_TLS_URL": "", "STREAMS_IMPORTER_REDIS_URL": ""}, "redis://plain"),
        ([], {"REDIS_TLS_URL": "rediss://tls", "STREAMS_IMPORTER_REDIS_URL": "redis://ours"}, "redis://ours"),
        (["--redis-url", "redis://flag"], {"STREAMS_IMPORTER_REDIS_URL": "redis://ours"}, "redis://flag"),
        ([], {}, "redis://file"),
    ],
)
def test_where_redis_is_comes_from_the_flag_then_the_environment_then_the_file(
    command: CommandLine, wiring: FakeWiring, arguments: list[str], variables: dict[str, str], expected: str
) -> None:
    command.write_file('redis_url = "redis://file"\nmongodb_uri = "mongodb://file"\n')
    assert command("status", *arguments, **variables).code == 0
    assert wiring.servers == Servers(expected, "mongodb://file")


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        ([], {}, "mongodb://file"),
        ([], {"MONGODB_URI": "mongodb://plain"}, "mongodb://plain"),
        ([], {"MONGODB_URI": "mongodb://plain", "STREAMS_IMPORTER_MONGODB_URI": "mongodb://ours"}, "mongodb://ours"),
        (["--mongodb-uri", "mongodb://flag"], {"STREAMS_IMPORTER_MONGODB_URI": "mongodb://ours"}, "mongodb://flag"),
    ],
)
def test_where_mongodb_is_comes_from_the_flag_then_the_environment_then_the_file(
    command: CommandLine, wiring: FakeWiring, arguments: list[str], variables: dict[str, str], expected: str
) -> None:
    command.write_file('redis_url = "redis://file"\nmongodb_uri = "mongodb://file"\n')
    assert command("status", *arguments, **variables).code == 0
    assert wiring.servers == Servers("redis://file", expected)


def test_the_check_of_redis_certificate_is_the_same_setting_for_every_command(command: CommandLine, wiring: FakeWiring) -> None:
    command.write_file('redis_tls_verify = "ca"\nredis_ca_file = "file.pem"\n')
    wiring.original.save(Definition("openchargemap"), "run")
    for arguments in (["status"], ["dlq", "list"], ["dlq", "replay", "openchargemap", "--all"], ["pause"], ["resume"], ["setup"]):
        assert command(*arguments, **BOTH).code == 0, arguments
        assert wiring.servers == Servers(BOTH["REDIS_URL"], BOTH["MONGODB_URI"], "ca", "file.pem"), arguments
        ended = command(*arguments, "--redis-ca-file", "flag.pem", **BOTH, STREAMS_IMPORTER_REDIS_TLS_VERIFY="none")
        assert ended.code == 0, arguments
        assert wiring.servers == Servers(BOTH["REDIS_URL"], BOTH["MONGODB_URI"], "none", "flag.pem"), arguments


@pytest.mark.parametrize(
    ("arguments", "variables", "file", "expected"),
    [
        ([], {}, "", "si"),
        ([], {}, 'namespace = "file"', "file"),
        ([], {"STREAMS_IMPORTER_NAMESPACE": "ours"}, 'namespace = "file"', "ours"),
        (["--namespace", "flag"], {"STREAMS_IMPORTER_NAMESPACE": "ours"}, 'namespace = "file"', "flag"),
    ],
)
def test_the_namespace_comes_from_the_flag_then_the_environment_then_the_file_then_the_default(
    command: CommandLine, wiring: FakeWiring, arguments: list[str], variables: dict[str, str], file: str, expected: str
) -> None:
    command.write_file(file)
    assert command(*arguments, "status", **BOTH, **variables).code == 0
    assert wiring.namespace == expected


@pytest.mark.parametrize(
    ("option", "flag", "variable", "setting", "values"),
    [
        ("concurrency", "--concurrency", "STREAMS_IMPORTER_CONCURRENCY", "concurrency", (4, 5, 6, 7)),
        (
            "shutdown_timeout_s",
            "--shutdown-timeout",
            "STREAMS_IMPORTER_SHUTDOWN_TIMEOUT",
            "shutdown_timeout",
            (25.0, 5.0, 6.0, 7.0),
        ),
        ("label", "--name", "STREAMS_IMPORTER_NAME", "name", ("host", "file", "ours", "flag")),
    ],
)
def test_settings_of_a_worker_come_from_the_flag_then_the_environment_then_the_file_then_the_default(
    command: CommandLine, consumed: Consumed, option: str, flag: str, variable: str, setting: str, values: tuple[Any, ...]
) -> None:
    def written(value: Any) -> str:
        return f"{value:.0f}s" if isinstance(value, float) else str(value)

    default, in_file, in_environment, as_flag = values
    found = []
    quoted = written(in_file) if isinstance(in_file, int) else f'"{written(in_file)}"'
    for file, variables, arguments in [
        ("", {}, []),
        (f"{setting} = {quoted}", {}, []),
        (f"{setting} = {quoted}", {variable: written(in_environment)}, []),
        (f"{setting} = {quoted}", {variable: written(in_environment)}, [flag, written(as_flag)]),
    ]:
        command.write_file(file)
        assert command("consume", *arguments, **BOTH, **variables, HOSTNAME="host").code == 0
        found.append(consumed.options[option])
    assert found == [default, in_file, in_environment, as_flag]


def test_a_definition_comes_from_the_flag_then_the_environment_then_the_file_then_what_is_stored_then_the_default(
    command: CommandLine, wiring: FakeWiring
) -> None:
    def sizes(*arguments: str, **variables: str) -> tuple[int, str, float]:
        assert command("produce", "--id-range", "0..10", *arguments, **BOTH, **variables).code == 0
        return wiring.definition.page_size, wiring.definition.rate, wiring.definition.lease_s

    assert sizes() == (1000, "1/s", 15.0)
    assert sizes("--page-size", "11", "--rate", "2/s", "--lease", "20s") == (11, "2/s", 20.0)
    assert sizes() == (11, "2/s", 20.0), "what is stored"
    command.write_file('[imports.openchargemap]\npage_size = 12\nrate = ["3/s"]\nlease = "30s"\n')
    assert sizes() == (12, "3/s", 30.0)
    ours = {"STREAMS_IMPORTER_PAGE_SIZE": "13", "STREAMS_IMPORTER_RATE": "4/s", "STREAMS_IMPORTER_LEASE": "40s"}
    assert sizes(**ours) == (13, "4/s", 40.0)
    assert sizes("--page-size", "14", "--rate", "5/s", "--lease", "50s", **ours) == (14, "5/s", 50.0)


def test_the_file_named_on_the_command_line_wins_over_the_one_in_the_environment(
    command: CommandLine, wiring: FakeWiring
) -> None:
    for name in ("flag", "environment", "streams-importer"):
        command.write_file(f'namespace = "{name}"', f"{name}.toml")
    command("status", **BOTH)
    assert wiring.namespace == "streams-importer"
    command("status", **BOTH, STREAMS_IMPORTER_CONFIG="environment.toml")
    assert wiring.namespace == "environment"
    command("--config", "flag.toml", "status", **BOTH, STREAMS_IMPORTER_CONFIG="environment.toml")
    assert wiring.namespace == "flag"


def test_the_default_label_of_a_worker_is_the_dyno_then_the_pod_then_the_host() -> None:
    assert worker_label({"DYNO": "worker.1", "HOSTNAME": "pod"}) == "worker.1"
    assert worker_label({"HOSTNAME": "pod"}) == "pod"
    assert worker_label({})


def test_every_setting_reads_its_own_variable_and_everything_else_reads_none() -> None:
    acts = {"again", "missing", "until_empty", "all_", "json_", "countries", "bbox", "grid", "id_range", "from_", "to",
            "window_s", "wait", "dry_run", "yes", "check", "max_dead", "limit", "reason", "verbose", "quiet",
            "states", "filters", "fix", "with_payload", "path", "version", "points", "workers", "seed"}  # fmt: skip
    for name, option in parameters():
        if option.name in acts or option.name == "help":
            assert option.envvar is None, (name, option.name)
            continue
        flag = max(option.opts, key=len)
        assert isinstance(option.envvar, list), (name, flag)
        assert option.envvar[0] == "STREAMS_IMPORTER_" + flag.removeprefix("--").replace("-", "_").upper()


# Lists.


def test_a_list_in_the_environment_is_separated_by_semicolons_and_not_by_blanks(command: CommandLine, wiring: FakeWiring) -> None:
    assert command("produce", "--id-range", "0..10", **BOTH, STREAMS_IMPORTER_RATE=" 10 / s ").code == 0
    assert wiring.definition.rate == "10 / s"
    ended = command("produce", "--id-range", "0..10", **BOTH, STREAMS_IMPORTER_RATE="10/s;1000/h")
    assert (ended.code, ended.message) == (2, "--rate 10/s; 1000/h: one limit an import for now, as in 10/s")


def test_a_list_of_limits_is_one_limit_for_now() -> None:
    assert one_rate([]) is None
    assert one_rate(("5/s",)) == "5/s"
    with pytest.raises(BadSetting, match="one limit an import"):
        one_rate(["5/s", "6/s"])


# What acts is not a setting.


def test_again_is_never_read_from_the_environment(command: CommandLine, wiring: FakeWiring) -> None:
    command("produce", "--id-range", "0..10", **BOTH)
    key = ("openchargemap", "ids:0..10")
    wiring.ledger.rows[key] = replace(wiring.ledger.rows[key], status="done")
    wiring.fake_queue.store.places.clear()
    ended = command("produce", "--id-range", "0..10", **BOTH, STREAMS_IMPORTER_AGAIN="1")
    assert "0 shards queued of 1, 1 done already (--again queues them)" in ended.out
    assert "1 shards queued of 1" in command("produce", "--id-range", "0..10", "--again", **BOTH).out


def test_missing_is_never_read_from_the_environment(command: CommandLine, wiring: FakeWiring) -> None:
    assert "3 shards queued of 3" in command("produce", **BOTH, STREAMS_IMPORTER_MISSING="1").out


def test_axes_are_never_read_from_the_environment(command: CommandLine, wiring: FakeWiring) -> None:
    ended = command("produce", **BOTH, STREAMS_IMPORTER_COUNTRY="DE", STREAMS_IMPORTER_ID_RANGE="0..1")
    assert "3 shards queued of 3" in ended.out


def test_all_is_never_read_from_the_environment(command: CommandLine, wiring: FakeWiring) -> None:
    ended = command("dlq", "replay", "openchargemap", **BOTH, STREAMS_IMPORTER_ALL="1")
    assert ended.code == 2
    assert ended.message == "say what to replay: name it, or choose with --filter, or give --all; dlq list shows what is there"


def test_until_empty_is_never_read_from_the_environment(command: CommandLine, consumed: Consumed) -> None:
    command("consume", **BOTH, STREAMS_IMPORTER_UNTIL_EMPTY="1")
    assert consumed.until_empty is False
    command("consume", "--until-empty", **BOTH)
    assert consumed.until_empty is True


def test_json_is_never_read_from_the_environment(command: CommandLine, wiring: FakeWiring) -> None:
    assert "No imports yet" in command("status", **BOTH, STREAMS_IMPORTER_JSON="1").out


# Bad values.


@pytest.mark.parametrize(
    ("arguments", "variables", "named"),
    [
        (["consume"], {"STREAMS_IMPORTER_CONCURRENCY": "many"}, ["--concurrency", "'many'", "integer"]),
        (["consume"], {"STREAMS_IMPORTER_CONCURRENCY": "0"}, ["--concurrency 0", "1 to 1000"]),
        (["consume"], {"STREAMS_IMPORTER_LEASE": "soon"}, ["--lease", "'soon'", "10s"]),
        (["consume"], {"STREAMS_IMPORTER_LEASE": "1ms"}, ["--lease 0.001s", "200ms to 1d"]),
        (["consume"], {"STREAMS_IMPORTER_SHUTDOWN_TIMEOUT": "later"}, ["--shutdown-timeout", "'later'", "10s"]),
        (["consume"], {"STREAMS_IMPORTER_MAX_ATTEMPTS": "0"}, ["--max-attempts 0", "1 to 1000"]),
        (["consume"], {"STREAMS_IMPORTER_RETRY_DELAY": "2d"}, ["--retry-delay 172800s", "0s to 1d"]),
        (["produce"], {"STREAMS_IMPORTER_RATE": "fast"}, ["--rate 'fast'", "10/s"]),
        (["produce"], {"STREAMS_IMPORTER_SHARD_SIZE": "0"}, ["--shard-size 0", "1 or more"]),
        (["produce"], {"STREAMS_IMPORTER_PAGE_SIZE": "0"}, ["--page-size 0", "1 to 10000"]),
        (["status"], {"STREAMS_IMPORTER_REDIS_TLS_VERIFY": "maybe"}, ["--redis-tls-verify", "'maybe'", "full", "ca", "none"]),
        (["status"], {"STREAMS_IMPORTER_LOG_FORMAT": "xml"}, ["--log-format", "'xml'", "text", "json"]),
        (["status"], {"STREAMS_IMPORTER_NAMESPACE": "No Name"}, ["--namespace 'No Name'", "a-z"]),
        (["status"], {"STREAMS_IMPORTER_CONFIG": "nowhere.toml"}, ["--config nowhere.toml", "No such file"]),
    ],
)
def test_a_bad_value_in_the_environment_names_the_setting_the_value_and_what_is_allowed(
    command: CommandLine, wiring: FakeWiring, arguments: list[str], variables: dict[str, str], named: list[str]
) -> None:
    ended = command(*arguments, **BOTH, **variables)
    assert ended.code == 2
    for part in named:
        assert part in ended.message


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("colour = 'blue'", ["unknown setting colour", "namespace", "[imports.NAME]"]),
        ("concurrency = 'four'", ["concurrency", "wrong type"]),
        ("concurrency = true", ["concurrency", "wrong type"]),
        ("concurrency = 0", ["--concurrency 0", "1 to 1000"]),
        ("namespace = 5", ["namespace", "wrong type"]),
        ("namespace = 'No Name'", ["--namespace 'No Name'"]),
        ("log_format = 'xml'", ["--log-format", "'xml'"]),
        ("shutdown_timeout = 'later'", ["shutdown", "'later'"]),
        ("redis_tls_verify = 'maybe'", ["--redis-tls-verify", "'maybe'"]),
        ("imports = 5", ["write imports as tables"]),
        ("[imports]\nopenchargemap = 5", ["write imports as tables"]),
        ("[imports.'No Name']", ["[imports.No Name]", "a-z"]),
        ("[imports.openchargemap]\ncolour = 'blue'", ["[imports.openchargemap]", "unknown colour", "page_size"]),
        ("[imports.openchargemap]\npage_size = '5'", ["[imports.openchargemap] page_size", "int"]),
        ("[imports.openchargemap]\nrate = '5/s'", ["[imports.openchargemap] rate", "list"]),
        ("[table]\nx = 1", ["unknown setting table"]),
        ("this is not TOML", ["--config streams-importer.toml", "cannot be read"]),
        ("namespace = 'a'\nnamespace = 'b'", ["--config streams-importer.toml", "cannot be read"]),
    ],
)
def test_a_bad_file_is_refused_with_one_line_that_names_what_is_wrong(
    command: CommandLine, consumed: Consumed, text: str, named: list[str]
) -> None:
    command.write_file(text)
    ended = command("consume", **BOTH)
    assert ended.code == 2
    for part in named:
        assert part in ended.message


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ("lease = 'soon'", "imports.openchargemap.lease: 'soon' is not a duration"),
        ("retry_delay = '-1s'", "imports.openchargemap.retry_delay: '-1s' is not a duration"),
        ("rate = ['fast']", "--rate 'fast'"),
        ("rate = ['1/s', '2/s']", "--rate 1/s; 2/s: one limit"),
        ("page_size = 0", "--page-size 0: must be 1 to 10000"),
        ("collection = 'imports'", "collection imports: must be"),
        ("source = 'rest'", "source rest: must be openchargemap"),
    ],
)
def test_a_bad_definition_in_the_file_is_refused_before_anything_is_stored(
    command: CommandLine, wiring: FakeWiring, table: str, named: str
) -> None:
    command.write_file(f"[imports.openchargemap]\n{table}\n")
    ended = command("produce", "--id-range", "0..10", **BOTH)
    assert ended.code == 2
    assert ended.message.startswith(named)
    assert wiring.original.stored == {}


def test_a_file_that_is_not_text_or_not_a_file_is_refused_with_one_line(command: CommandLine, wiring: FakeWiring) -> None:
    (command.folder / "binary.toml").write_bytes(b"\xff\xfe\x00")
    for path in ("binary.toml", ".", "nowhere.toml"):
        ended = command("--config", path, "status", **BOTH)
        assert ended.code == 2
        assert ended.message.startswith(f"--config {path}: cannot be read (")


def test_hostile_names_in_a_file_reach_the_terminal_as_text(command: CommandLine, wiring: FakeWiring) -> None:
    command.write_file('"\\u001b[2J\\nfake" = 1\n')
    assert "\x1b" not in command("status", **BOTH).message


def test_a_complete_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "all.toml"
    numbers = ("concurrency", "max_backlog", "shard_size")
    lines = [f"{name} = 3" if name in numbers else f'{name} = "x"' for name in FILE_SETTINGS]
    path.write_text("\n".join([*lines, "[imports.stations]", "max_attempts = 2"]))
    file = read_file(str(path))
    assert set(file.settings) == set(FILE_SETTINGS)
    assert file.imports == {"stations": {"max_attempts": 2}}


def test_without_a_file_there_is_nothing_in_it(command: CommandLine) -> None:
    file = read_file(None)
    assert (file.settings, file.imports) == ({}, {})


def test_a_table_of_the_file_changes_only_what_it_says() -> None:
    table = {"rate": ["9/m"], "lease": "1m", "retry_delay": "0s", "collection": "points"}
    assert definition_from_file(Definition("a"), table) == Definition(
        "a", rate="9/m", lease_s=60.0, retry_delay_s=0.0, collection="points"
    )


# Secrets.


@pytest.mark.parametrize(
    "line",
    [
        f'redis_url = "redis://:{SECRET}@host"',
        f'redis_url = "redis://user:{SECRET}@host:6379/0"',
        f'redis_url = "redis://host:6379/0?password={SECRET}"',
        f'redis_url = "unix:///run/redis.sock?password={SECRET}"',
        f'mongodb_uri = "mongodb://user:{SECRET}@host/db"',
        f'ocm_api_key = "{SECRET}"',
        f'OCM_API_KEY = "{SECRET}"',
        f'[imports.openchargemap]\napi_key = "{SECRET}"',
        f'[imports.openchargemap]\nauth = {{ header = "X-API-Key", value = "{SECRET}" }}',
        f'redis_url = "redis://:{SECRET}@host',
        f"redis_url = {SECRET}",
    ],
)
def test_a_secret_in_the_file_is_refused_and_not_repeated(command: CommandLine, wiring: FakeWiring, line: str) -> None:
    command.write_file(line)
    ended = command("status", **BOTH)
    assert ended.code == 2
    assert SECRET not in ended.message + ended.out


def test_objects_that_hold_secrets_do_not_show_them() -> None:
    servers = Servers(f"redis://:{SECRET}@host", f"mongodb://user:{SECRET}@host")
    upstreams = Upstreams.from_environment({"OCM_API_KEY": SECRET})
    assert upstreams.ocm_api_key == SECRET
    assert SECRET not in f"{servers!r} {servers} {upstreams!r} {upstreams}"


SECRET_REDIS_URLS = [
    f"redis://user:{SECRET}@127.0.0.1:1/0",
    f"rediss://:{SECRET}@127.0.0.1:1",
    f"redis://:{SECRET}@no-such-host.invalid",
    f"redis://user:{SECRET}@127.0.0.1:port",
    f"redis://user:{SECRET}@127.0.0.1:99999",
    f"redis://user:{SECRET}@127.0.0.1:1/database",
    f"redis://user:{SECRET}/x@127.0.0.1:1",
    f"redis://user:{SECRET}#x@127.0.0.1:1",
    f"redis://user:{SECRET}?x@127.0.0.1:1",
    f"redis://user:{SECRET}@[::1",
    f"redis://:{SECRET}",
    f"redis://127.0.0.1:1/0?password={SECRET}",
    f"redis://127.0.0.1:1/0?password={SECRET}&unknown=1",
    f"redis://127.0.0.1:1/0?password={SECRET}&db=x",
    f"unix:///nowhere.sock?password={SECRET}",
    f"http://user:{SECRET}@127.0.0.1:1",
    f"redis+sentinel://user:{SECRET}@127.0.0.1:1/master",
    f"user:{SECRET}@127.0.0.1:1",
    f"://{SECRET}",
    SECRET,
]
SECRET_MONGODB_URIS = [
    f"mongodb://user:{SECRET}@127.0.0.1:port/db",
    f"mongodb://user:{SECRET}@127.0.0.1:99999/db",
    f"mongodb://user:{SECRET}/x@127.0.0.1:1/db",
    f"mongodb://user:{SECRET}@x@127.0.0.1:1/db",
    f"mongodb://user:{SECRET}%@127.0.0.1:1/db",
    f"mongodb://user:{SECRET}:x@127.0.0.1:1/db",
    f"mongodb://user:{SECRET}",
    f"mongodb://user:{SECRET}@",
    f"mongodb://user:{SECRET}@[::1/db",
    f"mongodb://user:{SECRET}@127.0.0.1:1/bad db",
    f"mongodb://user:{SECRET}@127.0.0.1:1/db?w=0",
    f"mongodb://user:{SECRET}@127.0.0.1:1/db?authMechanism={SECRET}",
    f"mongodb://user:{SECRET}@127.0.0.1:1/db?unknown",
    f"http://user:{SECRET}@127.0.0.1:1",
    f"user:{SECRET}@127.0.0.1:1",
    SECRET,
]


def assert_no_secret(ended: Ended) -> None:
    assert ended.code in (1, 2)
    assert SECRET not in ended.err
    assert SECRET not in ended.out


@pytest.mark.parametrize("verbosity", [[], ["-v"]])
@pytest.mark.parametrize("url", SECRET_REDIS_URLS)
def test_no_error_about_redis_shows_its_password(command: CommandLine, url: str, verbosity: list[str]) -> None:
    assert_no_secret(command(*verbosity, "status", REDIS_URL=url, MONGODB_URI=UNREACHABLE["MONGODB_URI"]))


@pytest.mark.parametrize("verbosity", [[], ["-v"]])
@pytest.mark.parametrize("uri", SECRET_MONGODB_URIS)
def test_no_error_about_mongodb_shows_its_password(command: CommandLine, uri: str, verbosity: list[str]) -> None:
    assert_no_secret(command(*verbosity, "status", MONGODB_URI=uri, REDIS_URL=UNREACHABLE["REDIS_URL"]))


@pytest.mark.parametrize("arguments", [["produce"], ["consume"], ["status"], ["dlq", "list"], ["pause"], ["resume"], ["setup"]])
def test_neither_a_missing_server_nor_the_help_shows_a_secret(command: CommandLine, arguments: list[str]) -> None:
    secrets = {"OCM_API_KEY": SECRET, "STREAMS_IMPORTER_SECRET_STATIONS": SECRET}
    assert_no_secret(command(*arguments, **secrets, REDIS_URL=f"redis://:{SECRET}@127.0.0.1:1"))
    assert_no_secret(command(*arguments, **secrets, MONGODB_URI=f"mongodb://user:{SECRET}@127.0.0.1:1"))
    ended = command(*arguments, "--help", **secrets, REDIS_URL=f"redis://:{SECRET}@h", MONGODB_URI=f"mongodb://u:{SECRET}@h")
    assert ended.code == 0
    assert SECRET not in ended.out + ended.err


@pytest.mark.parametrize("arguments", [["produce", "--id-range", "0..10"], ["produce", "--missing"], ["setup"], ["pause"]])
def test_no_command_that_cannot_reach_its_server_shows_a_secret(command: CommandLine, arguments: list[str]) -> None:
    url = f"redis://user:{SECRET}@127.0.0.1:1"
    assert_no_secret(command(*arguments, REDIS_URL=url, MONGODB_URI=f"mongodb://user:{SECRET}@127.0.0.1:1", OCM_API_KEY=SECRET))


def run(arguments: list[str], folder: Path, **variables: str) -> Ended:
    command = [sys.executable, "-m", "streams_importer", "-v", *arguments]
    ended = subprocess.run(command, cwd=folder, env=clean_environment(**variables), capture_output=True, text=True, timeout=60)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def test_no_error_of_real_servers_and_upstreams_shows_a_secret(
    servers: EmbeddedServers, mongo_uri: str, stand_in: Callable[..., StandIn], tmp_path: Path
) -> None:
    upstream = stand_in(points=10, key="another")
    reachable = {"REDIS_URL": servers.redis_url, "MONGODB_URI": mongo_uri}
    for variables in (
        {"OCM_API_KEY": SECRET, "OCM_BASE_URL": upstream.base_url},
        {"OCM_API_KEY": SECRET + " and more", "OCM_BASE_URL": upstream.base_url},
        {"OCM_API_KEY": "key", "OCM_BASE_URL": f"https://user:{SECRET}@127.0.0.1:1/v3"},
        {"MONGODB_URI": f"mongodb://user:{SECRET}@127.0.0.1:1/db?serverSelectionTimeoutMS=100", "OCM_API_KEY": SECRET},
    ):
        ended = run(["produce", "--country", "DE"], tmp_path, **{**reachable, **variables})
        assert_no_secret(ended)
        assert ended.message
