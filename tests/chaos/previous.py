"""The worker of the version before this one, out of the project's own history."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

COMMIT = "cae6e00"
"""The last one in which crashes were not counted and a flushed Redis was healed by hand."""
PREVIOUS = "old"
"""Begins the names of its workers."""
ROOT = Path(__file__).resolve().parents[2]


class MissingHistory(Exception):
    """A clone without the past, as a platform or an archive has it."""


class PreviousVersion:
    """Its code in a folder, and how it is run from there."""

    def __init__(self, folder: Path) -> None:
        archive = subprocess.run(["git", "archive", COMMIT, "streams_importer", "lua"], cwd=ROOT, capture_output=True)
        if archive.returncode != 0:
            why = archive.stderr.decode(errors="replace").strip()
            raise MissingHistory(f"the previous version, {COMMIT}, is not in this clone: {why}")
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        self.folder = folder
        # -P: the working folder holds this version, and would come first.
        self.command = [sys.executable, "-P", "-m", "streams_importer"]
        self.environment = {"PYTHONPATH": str(folder)}

    def loaded_from(self) -> list[Path]:
        """Where a process of its finds its code and its scripts."""
        code = "import streams_importer; from streams_importer.adapters.lua_scripts import lua_folder"
        shown = "print(streams_importer.__file__, lua_folder(), sep='\\n')"
        done = subprocess.run(
            [sys.executable, "-P", "-c", f"{code}; {shown}"], env=self.environment, capture_output=True, text=True, check=True
        )
        return [Path(line) for line in done.stdout.split("\n") if line]
