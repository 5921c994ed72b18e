"""Other machines, as far as they can be had here: other Pythons, a PATH with next to nothing on it, a fresh clone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOLS = ("bash", "cat", "chmod", "cksum", "cp", "dirname", "mkdir", "rm", "sed")
"""All that the scripts may use; and `flock`, where it is there."""
ABOUT = "import sys; print(*sys.version_info[:2], sep='.'); print(sys.executable); print(sys.prefix == sys.base_prefix)"


def find_python(version: str) -> str:
    """The path of a Python of that version, as `3.11`, that is no virtual environment's. Skips the test when there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    folders = [*os.environ["PATH"].split(os.pathsep), *map(str, sorted(pyenv.glob(f"versions/{version}*/bin")))]
    for folder in folders:
        program = Path(folder, f"python{version}")
        if program.is_file():
            # A pyenv shim may be there and not run.
            said = subprocess.run([program, "-c", ABOUT], capture_output=True, text=True, timeout=60, check=False)
            found, _, rest = said.stdout.partition("\n")
            path, _, is_base = rest.partition("\n")
            if found == version and is_base.strip() == "True":
                return path
    pytest.skip(f"no Python {version} on this machine")


def bare_path(folder: Path) -> Path:
    """A folder to be the whole PATH: the tools of the scripts, and neither Python nor compiler nor server."""
    folder.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        assert found, name
        folder.joinpath(name).symlink_to(found)
    if flock := shutil.which("flock"):
        folder.joinpath("flock").symlink_to(flock)
    return folder


def fresh_clone(folder: Path) -> Path:
    """What git knows, or would with the next `git add`, so that nothing of this checkout can help."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    for name in listed:
        if ROOT.joinpath(name).is_file():
            folder.joinpath(name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder
