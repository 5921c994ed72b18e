"""A private folder with a short plain path, for sockets: beyond 107 bytes mongod refuses, and Redis binds a cut path.

From the standard library only.
"""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from contextlib import suppress

from ..domain.errors import BadSetting
from .server_programs import NAMES, socket_path

MAX_SOCKET_PATH = 100
"""Bytes."""
PREFIX = "streams-importer-"

_LONGEST_NAME = "mongodb-27017.sock"
"""mongod makes this one too while it starts."""
_PLAIN_PATH = re.compile(r"/[A-Za-z0-9/_.+-]*\Z")
"""Redis splits its arguments at blanks and mongod at commas."""


def short_parent() -> str:
    """Where a folder's sockets have short plain paths: the user's temporary folder if it will do, else /tmp."""
    for parent in (tempfile.gettempdir(), "/tmp"):
        if _fits(f"{parent}/{PREFIX}{'x' * 8}") and os.access(parent, os.W_OK | os.X_OK):
            return parent
    raise BadSetting(
        "TMPDIR: must name a writable folder with a short plain path (60 characters or fewer) for the server sockets"
    )


class SocketFolder:
    """Locked for as long as its holder lives: no other pair uses it, and programs that tidy up /tmp leave it alone."""

    def __init__(self, wanted: str | None, parent: str) -> None:
        """`wanted` again if it is, or can be, a folder of ours that nobody uses; else a new one below `parent`."""
        lock = _locked(wanted) if wanted is not None else None
        self.path = wanted if wanted is not None and lock is not None else tempfile.mkdtemp(dir=parent, prefix=PREFIX)
        self._lock = lock if lock is not None else _locked(self.path)

    def remove(self) -> None:
        with suppress(OSError):
            for path in (*(socket_path(self.path, name) for name in NAMES), f"{self.path}/{_LONGEST_NAME}"):
                with suppress(FileNotFoundError):
                    os.unlink(path)
            os.rmdir(self.path)


def _locked(path: str) -> int | None:
    """A descriptor that holds the folder's lock, or None. The path comes from a file: it is not believed."""
    if not _fits(path) or not os.path.basename(path).startswith(PREFIX):
        return None
    try:
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    found = os.fstat(descriptor)
    try:
        if found.st_uid != os.geteuid() or found.st_mode & 0o777 != 0o700:
            raise PermissionError
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _fits(path: str) -> bool:
    return bool(_PLAIN_PATH.match(path)) and len(os.fsencode(f"{path}/{_LONGEST_NAME}")) <= MAX_SOCKET_PATH
