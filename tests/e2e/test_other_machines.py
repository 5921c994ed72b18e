"""Machines that are not ours: what their environment says, where their folders are, and which Python they have."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.machines import bare_path, find_python, fresh_clone

from .fleet import COMMAND, Fleet, Process

MakeFleet = Callable[..., Fleet]
AS_MODULE = [sys.executable, "-m", "streams_importer"]
NO_COMPILER = {"CC": "/bin/false", "CXX": "/bin/false"}


@pytest.fixture
def closed_port() -> Iterator[int]:
    """Bound, so that nobody else gets it, and never listening: every connection is refused."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """A home and a temporary folder with paths of 150 characters and more; in the home a password for the API's host."""
    made = {name: tmp_path.joinpath(name.lower() * 20, "x" * 100) for name in ("HOME", "TMPDIR")}
    for folder in made.values():
        folder.mkdir(parents=True)
        assert len(str(folder)) >= 150
    netrc = made["HOME"] / ".netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\ndefault login anybody password other\n")
    netrc.chmod(0o600)
    return made


@pytest.fixture
def unkind(closed_port: int, folders: dict[str, Path], tmp_path: Path) -> dict[str, str]:
    """What a machine may have in its environment, all at once: one at a time would take six times as long."""
    proxies = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
    return {
        **dict.fromkeys(proxies, f"http://127.0.0.1:{closed_port}"),
        **dict.fromkeys(("NO_PROXY", "no_proxy"), ""),
        **{name: str(folder) for name, folder in folders.items()},
        # As for a command that pipx or a service manager runs by its full name.
        "PATH": str(tmp_path / "nothing"),
        "LC_ALL": "C",
        # Else Python takes UTF-8 all the same.
        **dict.fromkeys(("PYTHONCOERCECLOCALE", "PYTHONUTF8"), "0"),
    }


def run(command: list[str], environment: dict[str, str]) -> str:
    process = Process(command, environment)
    code = process.wait()
    assert code == 0, process.output
    return process.output


def test_an_import_is_complete_with_dead_proxies_a_netrc_long_folders_no_path_and_no_utf8(
    fleet: MakeFleet, unkind: dict[str, str]
) -> None:
    one = fleet(points=300)
    environment = {**one.environment, **unkind}
    run([COMMAND, "produce", "--rate", "100/s"], environment)
    run([*AS_MODULE, "consume", "--until-empty"], environment)
    one.expect_everything_once()
    assert all(asked.key_in_header and asked.status == 200 for asked in one.upstream.log)


@pytest.mark.slow
def test_the_demo_runs_with_all_of_that_too_and_leaves_nothing(unkind: dict[str, str], folders: dict[str, Path]) -> None:
    output = run([*AS_MODULE, "demo", "--points", "300"], {**os.environ, **unkind})
    assert "300 = 300" in output
    assert "NOT AS IT SHOULD BE" not in output
    assert [path.name for path in folders["HOME"].iterdir()] == [".netrc"]
    assert list(folders["TMPDIR"].iterdir()) == []


def run_demo(clone: Path, path: Path, points: int, **environment: str) -> str:
    """`scripts/demo` without a compiler and without anybody's server on PATH."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("STREAMS_IMPORTER_")}
    done = subprocess.run(
        [clone / "scripts" / "demo", "--points", str(points)],
        env={**kept, **NO_COMPILER, "PATH": str(path), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert f"{points:,} = {points:,}" in done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_a_fresh_clone_runs_the_demo_without_a_compiler_and_installs_once(version: str, tmp_path: Path) -> None:
    python, path = find_python(version), bare_path(tmp_path / "bin")
    clone = fresh_clone(tmp_path / "a clone")
    assert f"Making .venv with python{version} ({version}." in run_demo(clone, path, 2000, PYTHON=python)
    again = run_demo(clone, path, 100)
    assert "Making" not in again
    assert "Installing" not in again


@pytest.mark.slow
def test_without_ensurepip_a_fresh_clone_gets_a_venv_that_works(tmp_path: Path) -> None:
    base = Path(sys.base_prefix, "bin", f"python3.{sys.version_info[1]}")
    python, path = tmp_path / "python3", bare_path(tmp_path / "bin")
    # As on Debian without python3-venv.
    refuse = 'case "$*" in "-m venv .venv") echo "ensurepip is not available"; exit 1 ;; esac'
    python.write_text(f'#!/bin/sh\n{refuse}\nexec {base} "$@"\n')
    python.chmod(0o755)
    clone = fresh_clone(tmp_path / "clone")
    run_demo(clone, path, 100, PYTHON=str(python))
    version = subprocess.run([clone / ".venv" / "bin" / "python", "-m", "pip", "--version"], capture_output=True, text=True)
    assert str(clone / ".venv") in version.stdout
