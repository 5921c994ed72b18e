"""Without configured servers: a person at a terminal gets the embedded pair, everybody else one line that says what to set."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streams_importer.domain.errors import BadSetting, ImporterError
from streams_importer.embedded.pair_file import Pair
from streams_importer.embedded.server_programs import last_words
from streams_importer.embedded.services import ServicesStatus
from streams_importer.settings import Servers, embedded_idle_s, servers
from tests.unit.command_line import CommandLine, FakeWiring

STARTERS = [["produce", "--id-range", "0..10"], ["setup"]]
READERS = [["status"], ["dlq", "list"], ["dlq", "replay", "openchargemap", "--all"], ["pause"], ["resume"]]
STARTED = "streams-importer: started the embedded Redis and MongoDB in ./.streams-importer (end them: services stop)\n"
USING = "streams-importer: using the embedded Redis and MongoDB in ./.streams-importer\n"


@dataclass
class FakePair:
    """Takes the place of `SharedServers`."""

    entered: list[dict[str, Any]] = field(default_factory=list)
    watched: int = 0
    left: int = 0
    problem: ImporterError | None = None

    def __call__(self, **options: Any) -> Any:
        if self.problem is not None:
            raise self.problem
        self.entered.append(options)
        return SimpleNamespace(
            started=options["creates"],
            folder="./.streams-importer",
            redis_url="unix:///pair/redis.sock",
            mongodb_uri="mongodb://pair",
            watch=self.watch,
            leave=self.leave,
        )

    def watch(self, say: Any) -> None:
        self.watched += 1

    def leave(self) -> None:
        self.left += 1


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    fake = FakePair()
    monkeypatch.setattr("streams_importer.embedded.shared.SharedServers", fake)
    return fake


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setattr("streams_importer.cli.options.sys", SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True)))


# The rule.


@pytest.mark.parametrize(("embedded", "at_terminal"), [(True, False), (False, True), (True, True)])
def test_without_urls_the_pair_is_for_those_who_ask_for_it_or_sit_at_a_terminal(embedded: bool, at_terminal: bool) -> None:
    assert servers(None, "", "full", None, embedded=embedded, at_terminal=at_terminal) is None


def test_configured_servers_win_at_a_terminal() -> None:
    assert servers("redis://h", "mongodb://h", "ca", "f", at_terminal=True) == Servers("redis://h", "mongodb://h", "ca", "f")


@pytest.mark.parametrize("at_terminal", [True, False])
def test_one_url_alone_is_a_mistake_at_a_terminal_too(at_terminal: bool) -> None:
    with pytest.raises(
        BadSetting, match=r"^MONGODB_URI not set: set both REDIS_URL and MONGODB_URI, or neither and add --embedded"
    ):
        servers("redis://h", None, "full", None, at_terminal=at_terminal)


@pytest.mark.parametrize(
    ("redis_url", "mongodb_uri", "named"),
    [
        ("redis://h", None, "REDIS_URL"),
        (None, "mongodb://h", "MONGODB_URI"),
        ("redis://h", "mongodb://h", "REDIS_URL and MONGODB_URI"),
    ],
)
def test_embedded_and_a_url_contradict_each_other(redis_url: str | None, mongodb_uri: str | None, named: str) -> None:
    with pytest.raises(BadSetting, match=f"^--embedded goes without {named}: leave out one or the other$"):
        servers(redis_url, mongodb_uri, "full", None, embedded=True)


@pytest.mark.parametrize(("text", "seconds"), [(None, 600.0), ("", 600.0), ("2s", 2.0), ("0s", 0.0), ("30d", 2_592_000.0)])
def test_how_long_the_pair_stays_unused_is_a_duration(text: str | None, seconds: float) -> None:
    assert embedded_idle_s({} if text is None else {"STREAMS_IMPORTER_EMBEDDED_IDLE": text}) == seconds


@pytest.mark.parametrize("text", ["soon", "-1s", "31d", "5"])
def test_a_bad_idle_time_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(BadSetting, match=r"^STREAMS_IMPORTER_EMBEDDED_IDLE"):
        embedded_idle_s({"STREAMS_IMPORTER_EMBEDDED_IDLE": text})


# The commands.


@pytest.mark.parametrize("arguments", STARTERS, ids=" ".join)
def test_commands_that_queue_or_work_start_the_pair_and_watch_over_it(
    command: CommandLine, wiring: FakeWiring, pair: FakePair, arguments: list[str]
) -> None:
    ended = command(*arguments, "--embedded", OCM_API_KEY="key", STREAMS_IMPORTER_EMBEDDED_IDLE="3s")
    assert (ended.code, ended.err) == (0, STARTED)
    assert pair.entered == [{"creates": True, "idle_s": 3.0}]
    assert (pair.watched, pair.left) == (1, 1)
    assert wiring.servers == Servers("unix:///pair/redis.sock", "mongodb://pair")


@pytest.mark.parametrize("arguments", READERS, ids=" ".join)
def test_commands_that_look_or_tell_only_join_it(
    command: CommandLine, wiring: FakeWiring, pair: FakePair, arguments: list[str]
) -> None:
    command("produce", "--id-range", "0..10", "--embedded", OCM_API_KEY="key")
    pair.entered.clear()
    ended = command(*arguments, STREAMS_IMPORTER_EMBEDDED="1")
    assert (ended.code, ended.err) == (0, USING)
    assert pair.entered == [{"creates": False, "idle_s": 600.0}]
    assert pair.left == 2


@pytest.mark.usefixtures("terminal", "wiring")
def test_at_a_terminal_it_is_the_default(command: CommandLine, pair: FakePair) -> None:
    assert command("status").code == 0
    assert len(pair.entered) == 1


@pytest.mark.usefixtures("terminal", "wiring")
@pytest.mark.parametrize("platform", ["DYNO", "KUBERNETES_SERVICE_HOST"])
def test_on_a_platform_it_is_not_even_with_a_terminal(command: CommandLine, pair: FakePair, platform: str) -> None:
    ended = command("status", **{platform: "x"})
    assert ended.code == 2
    assert ended.message.startswith("REDIS_URL and MONGODB_URI not set: ")
    assert "--embedded" in ended.message
    assert pair.entered == []
    assert command("status", "--embedded", **{platform: "x"}).code == 0


@pytest.mark.usefixtures("wiring", "pair")
def test_quiet_is_quiet_and_json_is_json(command: CommandLine) -> None:
    assert command("-q", "status", "--embedded").err == ""
    told = json.loads(command("--log-format", "json", "status", "--embedded").err)
    assert told["event"] == "using the embedded Redis and MongoDB in ./.streams-importer"


@pytest.mark.usefixtures("wiring")
def test_what_goes_wrong_is_one_line(command: CommandLine, pair: FakePair) -> None:
    for problem, code in ((ImporterError("too little room"), 1), (BadSetting("not a folder"), 2)):
        pair.problem = problem
        ended = command("setup", "--embedded")
        assert (ended.code, ended.message) == (code, str(problem))
    assert command("setup", "--embedded", STREAMS_IMPORTER_EMBEDDED_IDLE="soon").message.startswith(
        "STREAMS_IMPORTER_EMBEDDED_IDLE"
    )


def test_a_command_that_only_joins_finds_nothing_and_makes_nothing(command: CommandLine) -> None:
    for arguments in READERS:
        ended = command(*arguments, "--embedded")
        assert ended.code == 1
        assert ended.message.startswith("no embedded Redis and MongoDB run in this folder: produce, consume or setup start them")
    assert list(command.folder.iterdir()) == []


# services.


def test_services_with_nothing_running_say_so(command: CommandLine) -> None:
    for arguments in (["status"], ["stop"]):
        ended = command("services", *arguments)
        assert (ended.code, ended.out, ended.err) == (0, "no embedded Redis and MongoDB run in this folder\n", "")
    told = json.loads(command("services", "status", "--json").out)
    assert (told["state"], told["redis_url"], told["keeper_pid"]) == ("stopped", None, None)
    assert told["folder"] == str(command.folder / ".streams-importer")
    assert list(command.folder.iterdir()) == []


RUNNING = ServicesStatus(
    "running", True, 10, Pair("running", "/tmp/s", "2026-02-21T10:00:00Z", 600.0, {"redis": 11, "mongod": 12})
)


def test_services_tell_where_a_running_pair_answers(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams_importer.cli.services.services_status", lambda: RUNNING)
    told = json.loads(command("services", "status", "--json").out)
    assert told["redis_url"] == "unix:///tmp/s/redis.sock"
    assert (told["keeper_pid"], told["redis_pid"], told["mongod_pid"], told["in_use"], told["idle_s"]) == (10, 11, 12, True, 600)
    shown = command("services", "status").out
    assert "running, in use" in shown
    assert told["mongodb_uri"] in shown


def test_services_stop_says_that_others_were_using_it(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams_importer.cli.services.stop_services", lambda: RUNNING)
    ended = command("services", "stop")
    assert (ended.code, ended.out) == (0, "stopped the embedded Redis and MongoDB; their data stays in ./.streams-importer\n")
    assert ended.err.startswith("commands that were using them wait")


# The file reaches every command of every group.


def test_the_file_is_read_by_the_commands_of_every_group(command: CommandLine, wiring: FakeWiring) -> None:
    command.write_file('redis_url = "redis://file"\nmongodb_uri = "mongodb://file"\n')
    for arguments in (["status"], ["dlq", "list"], ["dlq", "replay", "openchargemap", "--all"]):
        wiring.servers = None
        assert command(*arguments).code == 0
        assert wiring.servers == Servers("redis://file", "mongodb://file")


# Why a server ended.


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", "its log is empty"),
        ("first\nout of luck\n", "first | out of luck"),
        (
            '{"s": "I", "msg": "starting"}\n{"s": "E", "msg": "no listener", "attr": {"error": {"errmsg": "denied"}}}\n',
            "no listener denied",
        ),
        ('{"s": "E", "msg": "WiredTiger", "attr": {"error": 28, "message": {"msg": "disk full"}}}\n', "WiredTiger 28 disk full"),
        ('{"s": "I", "msg": "starting"}\n', "starting"),
        ("[1, 2]\n{}\nnull\n", "[1, 2] | {} | null"),
    ],
)
def test_the_last_words_of_a_server_are_the_errors_in_its_log(tmp_path: Path, log: str, words: str) -> None:
    (tmp_path / "log").write_text(log)
    assert last_words(tmp_path / "log") == words
    assert last_words(tmp_path / "missing") == "its log is empty"
