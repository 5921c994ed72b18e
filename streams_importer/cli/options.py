"""Options that several commands share, and the types behind them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from ..adapters.data_files import DataFolder
from ..adapters.log_events import LogEvents
from ..domain.durations import parse_duration
from ..domain.errors import BadSetting
from ..domain.shard_key import is_name
from ..settings import ENV_PREFIX, ImportFile, Servers, Upstreams, embedded_idle_s, servers
from ..wiring import Wiring
from . import output

F = TypeVar("F", bound=Callable[..., Any])


class Duration(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class ImportName(click.ParamType[str]):
    name = "import"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not is_name(str(value)):
            self.fail(f"{value!r} is not a name: a-z, then up to 62 of a-z 0-9 _ -", param, ctx)
        return str(value)


class ListItem(click.ParamType[str]):
    """A repeatable text whose environment variable is separated by `;` (click would split at blanks)."""

    name = "text"
    envvar_list_splitter = ";"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return str(value).strip()


def setting(flag: str, *names: str, also: tuple[str, ...] = (), **options: Any) -> Callable[[F], F]:
    """An option that also reads `STREAMS_IMPORTER_<FLAG>`, then the variables of `also`. Options that act do not use this."""
    variables = [ENV_PREFIX + flag.removeprefix("--").replace("-", "_").upper(), *also]
    return click.option(flag, *names, envvar=variables, **options)


_SERVER_OPTIONS = (
    setting("--redis-url", also=("REDIS_TLS_URL", "REDIS_URL"), metavar="URL", help="Redis: redis://, rediss:// or unix://."),
    setting("--redis-tls-verify", type=click.Choice(["full", "ca", "none"]), default="full", show_default=True,
            help="How Redis' certificate is checked."),
    setting("--redis-ca-file", metavar="FILE", help="Certificate authority for Redis."),
    setting("--mongodb-uri", also=("MONGODB_URI",), metavar="URI", help="MongoDB; the database comes from the URI."),
    setting("--embedded", is_flag=True, help="Private servers in this folder; the default on a terminal when none are set."),
)  # fmt: skip


def with_servers(command: F) -> F:
    for option in reversed(_SERVER_OPTIONS):
        command = option(command)
    return command


with_data_dir = setting(
    "--data-dir", default=".", metavar="FOLDER", help="Where files that an import names are read [the working folder]."
)


class Globals:
    """What was given before the command's name."""

    def __init__(self, namespace: str, log_format: str, verbosity: int, file: ImportFile) -> None:
        if not is_name(namespace):
            raise BadSetting(f"--namespace {namespace!r}: must be a-z, then up to 62 of a-z 0-9 _ -")
        self.namespace = namespace
        self.verbosity = verbosity
        self.file = file
        self._log_format = log_format
        self.events = LogEvents(log_format, {0: "info", -1: "warning"}.get(verbosity, "debug" if verbosity > 0 else "error"))

    def wiring(self, environment: dict[str, str], *, creates: bool = False, needs_key: bool = False, **given: Any) -> Wiring:
        """`creates`: without servers of the user's own, this command starts the embedded pair when it does not run;
        `needs_key`: but not for a command that cannot go on without the upstream's key."""
        data_dir = given.get("data_dir", ".")
        DataFolder(data_dir)
        chosen = servers(
            given["redis_url"],
            given["mongodb_uri"],
            given["redis_tls_verify"],
            given["redis_ca_file"],
            embedded=given["embedded"],
            at_terminal=_at_terminal(environment),
        )
        upstreams = Upstreams.from_environment(environment)
        if needs_key:
            upstreams.require_key()
        chosen = chosen or self._embedded(environment, creates)
        wiring = Wiring(chosen, upstreams, self.namespace, self.events, data_dir=data_dir)
        click.get_current_context().call_on_close(wiring.close)
        return wiring

    def _embedded(self, environment: dict[str, str], creates: bool) -> Servers:
        from ..embedded.shared import SharedServers  # late: most commands have servers of their own

        pair = SharedServers(creates=creates, idle_s=embedded_idle_s(environment))
        click.get_current_context().call_on_close(pair.leave)
        if creates:
            pair.watch(lambda text: self.events(text, level="warning"))
        said = f"{'started' if pair.started else 'using'} the embedded Redis and MongoDB in {pair.folder}"
        if self._log_format == "json":
            self.events(said)
        elif self.verbosity >= 0:
            output.complain(f"{said} (end them: services stop)" if pair.started else said)
        return Servers(pair.redis_url, pair.mongodb_uri)


_PLATFORMS = ("DYNO", "KUBERNETES_SERVICE_HOST")


def _at_terminal(environment: Mapping[str, str]) -> bool:
    """A person looks on. On a platform nobody does, even where there is a terminal: a missing URL is a mistake there."""
    return sys.stderr.isatty() and not any(environment.get(name) for name in _PLATFORMS)
