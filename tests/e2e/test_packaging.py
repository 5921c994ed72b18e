"""What is published: the wheel and the sdist carry the Lua scripts, and an import runs from an installation elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = {path.name for path in (ROOT / "lua").glob("*.lua")}


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist, built from what git knows, so that nothing of this machine's checkout can help."""
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    run(sys.executable, "-m", "build", "--outdir", dist, source, cwd=source)
    return dist


@pytest.mark.slow
def test_wheel_and_sdist_carry_every_lua_script_and_the_type_marker(built: Path) -> None:
    [wheel], [sdist] = built.glob("*.whl"), built.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {f"streams_importer/lua/{name}" for name in SCRIPTS} <= names
    assert "streams_importer/py.typed" in names
    assert not any(name.startswith(("tests", "scripts")) for name in names)
    packages = {str(path.parent.relative_to(ROOT)) for path in (ROOT / "streams_importer").rglob("__init__.py")}
    assert packages == {name.rpartition("/")[0] for name in names if name.endswith("/__init__.py")}
    with tarfile.open(sdist) as archive_:
        assert {Path(name).name for name in archive_.getnames() if name.endswith(".lua")} == SCRIPTS


@pytest.mark.slow
def test_a_demo_runs_from_a_wheel_installed_elsewhere(built: Path, tmp_path: Path) -> None:
    [wheel] = built.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[embedded]", cwd=tmp_path)
    # Not through PATH, as pipx and uvx do it.
    output = run(tmp_path / "venv" / "bin" / "streams-importer", "demo", "--points", "3000", cwd=tmp_path, PATH="/usr/bin:/bin")
    assert "3,000 = 3,000" in output
    assert "NOT AS IT SHOULD BE" not in output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["venv"]  # nothing is left behind
