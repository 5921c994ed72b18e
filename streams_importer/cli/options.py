"""Options that several commands share, and the types behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..adapters.log_events import LogEvents
from ..domain.durations import parse_duration
from ..domain.errors import BadSetting
from ..domain.shard_key import is_name
from ..settings import ENV_PREFIX, ImportFile, Upstreams, servers
from ..wiring import Wiring

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
)  # fmt: skip


def with_servers(command: F) -> F:
    for option in reversed(_SERVER_OPTIONS):
        command = option(command)
    return command


class Globals:
    """What was given before the command's name."""

    def __init__(self, namespace: str, log_format: str, verbosity: int, file: ImportFile) -> None:
        if not is_name(namespace):
            raise BadSetting(f"--namespace {namespace!r}: must be a-z, then up to 62 of a-z 0-9 _ -")
        self.namespace = namespace
        self.verbosity = verbosity
        self.file = file
        self.events = LogEvents(log_format, {0: "info", -1: "warning"}.get(verbosity, "debug" if verbosity > 0 else "error"))

    def wiring(self, environment: dict[str, str], **given: Any) -> Wiring:
        chosen = servers(given["redis_url"], given["mongodb_uri"], given["redis_tls_verify"], given["redis_ca_file"])
        wiring = Wiring(chosen, Upstreams.from_environment(environment), self.namespace, self.events)
        click.get_current_context().call_on_close(wiring.close)
        return wiring
