"""What this process was told: flags, then the environment, then `streams-importer.toml`, then defaults.

click resolves flags and environment; this module reads the file and the secrets, which come from the environment only.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .domain.definition import Definition, checked
from .domain.durations import parse_duration
from .domain.errors import BadSetting
from .domain.hosts import SETTING as HOSTS
from .domain.hosts import HostRule
from .domain.redaction import SECRETS, secrets_in_url
from .domain.shard_key import is_name
from .domain.text import plain

DEFAULT_FILE = "streams-importer.toml"
DEFAULT_IMPORT = "openchargemap"
OCM_BASE_URL = "https://api.openchargemap.io/v3"
ENV_PREFIX = "STREAMS_IMPORTER_"
SECRET_PREFIX = "STREAMS_IMPORTER_SECRET_"
LONGEST_IDLE_S = 30 * 86400.0

_TEXT_SETTINGS = ("namespace", "log_format", "redis_url", "redis_tls_verify", "redis_ca_file", "mongodb_uri", "name", "data_dir")
_NUMBER_SETTINGS = ("concurrency", "max_backlog", "shard_size")
FILE_SETTINGS = (*_TEXT_SETTINGS, *_NUMBER_SETTINGS, "shutdown_timeout")
_IMPORT_SETTINGS = {
    "source": str,
    "collection": str,
    "rate": list,
    "page_size": int,
    "lease": str,
    "max_attempts": int,
    "max_crashes": int,
    "retry_delay": str,
}
_DURATIONS = ("lease", "retry_delay")


def learn_secrets(environment: Mapping[str, str], arguments: Sequence[str] = ()) -> None:
    """From now on `plain()` blanks every secret that this process was told, in its environment or on its command line."""
    for name, value in environment.items():
        if name == "OCM_API_KEY" or name.startswith(SECRET_PREFIX):
            SECRETS.learn(value)
        elif name.startswith(("REDIS_", "MONGODB_", "OCM_", ENV_PREFIX)):
            SECRETS.learn(*secrets_in_url(value))
    for argument in arguments:
        SECRETS.learn(*secrets_in_url(argument))


@dataclass(frozen=True, slots=True)
class ImportFile:
    """`streams-importer.toml`: settings at the top, import definitions below `[imports.NAME]`."""

    settings: dict[str, Any] = field(default_factory=dict)
    imports: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Upstreams:
    """Where requests may go, and the secrets for it: from this process' environment, never from a stored definition."""

    ocm_api_key: str | None = field(default=None, repr=False)
    ocm_base_url: str = OCM_BASE_URL
    hosts: HostRule = field(default_factory=HostRule)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Upstreams:
        base_url = environment.get("OCM_BASE_URL") or OCM_BASE_URL
        return cls(environment.get("OCM_API_KEY") or None, base_url, HostRule.of(environment.get(HOSTS, ""), [base_url]))

    def require_key(self) -> None:
        """Without a key the upstream refuses every call, and one worker without it would pause the import for all."""
        if self.ocm_api_key is None and self.ocm_base_url == OCM_BASE_URL:
            raise BadSetting("OCM_API_KEY is not set: get a key at openchargemap.org and set it in the environment")


@dataclass(frozen=True, slots=True)
class Servers:
    """How to reach Redis and MongoDB."""

    redis_url: str = field(repr=False)
    mongodb_uri: str = field(repr=False)
    redis_tls_verify: str = "full"
    redis_ca_file: str | None = None


def servers(
    redis_url: str | None,
    mongodb_uri: str | None,
    tls_verify: str,
    ca_file: str | None,
    *,
    embedded: bool = False,
    at_terminal: bool = False,
) -> Servers | None:
    """None: the embedded pair, asked for or for a person who configured none. Nobody loses an import to a server not meant."""
    if embedded and (redis_url or mongodb_uri):
        given = " and ".join(name for name, value in (("REDIS_URL", redis_url), ("MONGODB_URI", mongodb_uri)) if value)
        raise BadSetting(f"--embedded goes without {given}: leave out one or the other")
    if redis_url and mongodb_uri:
        return Servers(redis_url, mongodb_uri, tls_verify, ca_file)
    if not redis_url and not mongodb_uri and (embedded or at_terminal):
        return None
    missing = " and ".join(name for name, value in (("REDIS_URL", redis_url), ("MONGODB_URI", mongodb_uri)) if not value)
    raise BadSetting(
        f"{missing} not set: set both REDIS_URL and MONGODB_URI, or neither and add --embedded for private servers in this folder"
    )


def embedded_idle_s(environment: Mapping[str, str]) -> float:
    """After how long without a command that uses it the embedded pair stops."""
    name = f"{ENV_PREFIX}EMBEDDED_IDLE"
    text = environment.get(name) or "10m"
    idle_s = duration(name, text)
    if idle_s > LONGEST_IDLE_S:
        raise BadSetting(f"{name}={text}: must be 0s to 30d")
    return idle_s


def read_file(path: str | None) -> ImportFile:
    """The named file, or `streams-importer.toml` here if there is one."""
    location = Path(path or DEFAULT_FILE)
    if path is None and not location.is_file():
        return ImportFile()
    try:
        content = tomllib.loads(location.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise BadSetting(f"--config {location}: cannot be read ({plain(reason, 120)})") from None
    imports = content.pop("imports", {})
    for name, value in content.items():
        _check_setting(str(location), name, value)
    if not isinstance(imports, dict) or not all(isinstance(table, dict) for table in imports.values()):
        raise BadSetting(f"{location}: write imports as tables, as in [imports.openchargemap]")
    for name, table in imports.items():
        _check_import(str(location), name, table)
    return ImportFile(content, imports)


def definition_from_file(base: Definition, table: Mapping[str, Any]) -> Definition:
    """The definition with what the file's table for it says."""
    changes = dict(table)
    if "rate" in changes:
        changes["rate"] = one_rate(changes["rate"])
    for name in _DURATIONS:
        if name in changes:
            changes[f"{name}_s"] = duration(f"imports.{base.name}.{name}", changes.pop(name))
    return checked(base.changed(**changes))


def one_rate(limits: list[str] | tuple[str, ...]) -> str | None:
    limits = [limit for limit in limits if str(limit).strip()]
    if len(limits) > 1:
        raise BadSetting(f"--rate {'; '.join(map(str, limits))}: one limit an import for now, as in 10/s")
    return str(limits[0]) if limits else None


def duration(setting: str, text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise BadSetting(f"{setting}: {error}") from None


def worker_label(environment: Mapping[str, str] = os.environ) -> str:
    """The dyno, the pod or the host."""
    return environment.get("DYNO") or environment.get("HOSTNAME") or os.uname().nodename


def _check_setting(file: str, name: str, value: object) -> None:
    if name not in FILE_SETTINGS:
        raise BadSetting(f"{file}: unknown setting {plain(name, 60)}; known are {', '.join(FILE_SETTINGS)} and [imports.NAME]")
    if type(value) is not (int if name in _NUMBER_SETTINGS else str):
        raise BadSetting(f"{file}: {name} has the wrong type; write it as you would on the command line")
    if name in ("redis_url", "mongodb_uri") and ("@" in str(value) or "password" in str(value).lower()):
        raise BadSetting(f"{file}: {name} holds a log-in; secrets stay out of files: set {name.upper()} in the environment")


def _check_import(file: str, name: str, table: dict[str, Any]) -> None:
    if not is_name(name):
        raise BadSetting(f"{file}: [imports.{plain(name, 60)}]: a name is a-z, then up to 62 of a-z 0-9 _ -")
    for key, value in table.items():
        wanted = _IMPORT_SETTINGS.get(key)
        if wanted is None:
            raise BadSetting(f"{file}: [imports.{name}] has an unknown {plain(key, 60)}; known are {', '.join(_IMPORT_SETTINGS)}")
        if type(value) is not wanted:
            raise BadSetting(f"{file}: [imports.{name}] {key} has the wrong type; it is a {wanted.__name__}")
