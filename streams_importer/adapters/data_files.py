"""Files that a definition names: below one folder of the operator's choice, and nowhere else.

A definition lies where others can write. It can name a file of the folder, however deep; it can name neither another place,
nor something that only looks like a file and would hang or leak (a pipe, a device, a link that leads out).
"""

from __future__ import annotations

import os
from pathlib import Path

from ..domain.errors import BadSetting
from ..domain.text import plain

SETTING = "--data-dir"


class DataFolder:
    def __init__(self, folder: str | Path) -> None:
        try:
            self.folder = Path(folder).resolve(strict=True)
            is_folder = self.folder.is_dir() and os.access(self.folder, os.R_OK | os.X_OK)
        except (OSError, ValueError, RuntimeError):  # ValueError: a NUL; RuntimeError: links in a circle
            is_folder = False
        if not is_folder:
            raise BadSetting(f"{SETTING} {plain(str(folder), 200)}: must be a folder that can be read")

    def path(self, name: str) -> Path:
        """Where the file is, with all links followed. Raises BadSetting for anything but a readable file below the folder."""
        if not name or Path(name).is_absolute():
            raise self._refusal(name, "must be relative to it")
        try:
            path = (self.folder / name).resolve(strict=True)
            is_file = path.is_file() and os.access(path, os.R_OK)
        except (OSError, ValueError, RuntimeError):
            raise self._refusal(name, "there is no such file") from None
        if not path.is_relative_to(self.folder):
            raise self._refusal(name, "leads out of it")
        if not is_file:
            raise self._refusal(name, "is not a file that can be read")
        return path

    def _refusal(self, name: str, why: str) -> BadSetting:
        return BadSetting(f"file {plain(name, 200)!r} in {SETTING} {plain(str(self.folder), 200)}: {why}")
