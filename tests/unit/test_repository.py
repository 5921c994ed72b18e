"""The shape of the repository: what platforms and people look for is where they look for it."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ASKED_FOR = {"setup.cfg", "pyproject.toml", "streams_importer", "scripts", "lua", "tests", "Procfile", "README.md"}
BESIDE = {".ci", ".gitignore", "LICENSE", "CHANGELOG.md", "docs", "requirements.txt", ".python-version"}


def test_the_top_level_holds_what_was_asked_for_and_nothing_else() -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    top = {name.partition("/")[0] for name in listed}
    assert top >= ASKED_FOR
    assert top <= ASKED_FOR | BESIDE


def test_the_procfile_sets_up_on_release_and_scales_workers() -> None:
    assert (ROOT / "Procfile").read_text().splitlines() == [
        "release: streams-importer setup",
        "worker: streams-importer consume",
    ]
    assert (ROOT / "requirements.txt").read_text().splitlines()[-1] == "."
    assert (ROOT / ".python-version").read_text().strip() in ("3.11", "3.12")


def test_running_it_needs_only_the_packages_that_were_asked_for() -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    wanted = [line.strip() for line in config["options"]["install_requires"].splitlines() if line.strip()]
    names = {line.partition(" ")[0] for line in wanted if not line.startswith("#")}
    # urllib3 comes with requests; it is named for its version.
    assert names == {"redis[hiredis]", "requests", "urllib3", "pymongo", "click", "msgspec", "rich"}
    assert "sys_platform" in config["options.extras_require"]["embedded"]


def test_the_scripts_can_be_run() -> None:
    for name in ("scripts/demo", "scripts/test", "scripts/check", "scripts/picture", ".ci/run"):
        assert os.access(ROOT / name, os.X_OK), name
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-2:] == ["./scripts/check", "./scripts/test --all"]


def test_every_folder_of_tests_is_run() -> None:
    """In one half or the other: nothing falls between the two."""
    folders = {path.parent.name for path in (ROOT / "tests").rglob("test_*.py")}
    script = (ROOT / "scripts" / "test").read_text(encoding="utf-8").partition("in_halves() {")[2].partition("\n}")[0]
    assert set(re.findall(r"tests/(\w+)", script)) == folders
