"""The first lines that run: a machine that will not do is told so in one line, before anything that would fail there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streams_importer.__main__ import why_not_here
from tests.machines import ROOT, find_python

PRETEND = """
import sys
sys.{name} = {value!r}
from streams_importer.__main__ import main
try:
    main()
finally:
    print(sorted(name for name in sys.modules if name.startswith("streams_importer") or name == "click"))
"""
LOADED = "['streams_importer', 'streams_importer.__main__']\n"


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [("platform", "win32", ["Linux and macOS", "WSL"]), ("version_info", (3, 10, 1, "final", 0), ["3.11 or newer", "3.10"])],
)
def test_a_machine_that_will_not_do_is_told_in_one_line_before_anything_is_loaded(
    name: str, value: object, told: list[str], tmp_path: Path
) -> None:
    done = run(sys.executable, "-c", PRETEND.format(name=name, value=value), folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, LOADED)
    [line] = done.stderr.splitlines()
    assert all(text in line for text in told)


@pytest.mark.parametrize("version", ["3.6", "3.8", "3.9", "3.10"])
def test_an_old_python_says_so_in_one_line(version: str, tmp_path: Path) -> None:
    done = run(find_python(version), "-m", "streams_importer", "demo", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (f"streams-importer: needs Python 3.11 or newer, and this is {version}: run it with a newer one\n")


@pytest.mark.parametrize("platform", ["linux", "darwin"])
@pytest.mark.parametrize("python", [(3, 11), (3, 12), (3, 13), (3, 14)])
def test_linux_and_macos_with_a_new_enough_python_will_do(platform: str, python: tuple[int, int]) -> None:
    assert why_not_here(platform, python) == ""
