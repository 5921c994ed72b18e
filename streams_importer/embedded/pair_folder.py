"""`./.streams-importer`: the data, the logs, the locks and the pointer of the pair that the commands of a working folder share.

It may lie where others can write: what is in it is reached through a descriptor of the folder, after a look at whose it is.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from ..domain.errors import BadSetting, ImporterError
from .keeper import STOP_GRACE_S
from .locks import EXCLUSIVE, KEEPER_LOCK, SHARED, START_LOCK, USERS_LOCK, Lock
from .pair_file import RUNNING, Pair, read_pair
from .readiness import READY_TIMEOUT_S
from .server_programs import MONGOD, NAMES

NAME = ".streams-importer"
SHOWN = f"./{NAME}"
ENOUGH_S = 2 * READY_TIMEOUT_S + STOP_GRACE_S
"""For others to start or stop the pair, whichever they are at."""
NEEDED_MB = {"new": 400, "kept": 150}
"""Free space to start with: mongod takes 300 MB at once for a new set of data."""

_ELSE = "run it in a folder of your own, or set REDIS_URL and MONGODB_URI"


class PairFolder:
    """Opened and checked, from construction to `close()`. Raises FileNotFoundError when there is none and none is to be made."""

    def __init__(self, *, creates: bool = False) -> None:
        if creates:
            with suppress(FileExistsError):
                os.mkdir(NAME, 0o700)
        self.descriptor = _opened()
        try:
            self.users, self._start, self.keeper = (Lock(name, self.descriptor) for name in (USERS_LOCK, START_LOCK, KEEPER_LOCK))
        except BaseException:
            os.close(self.descriptor)
            raise

    def __enter__(self) -> PairFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for lock in (self.users, self._start, self.keeper):
            lock.close()
        os.close(self.descriptor)

    @property
    def logs(self) -> Path:
        return Path(NAME)

    def pair(self) -> Pair | None:
        return read_pair(self.descriptor)

    def running(self) -> Pair | None:
        """The pair, when there is one that can be joined."""
        pair = self.pair()
        return pair if pair is not None and pair.state == RUNNING and self.keeper.is_held() else None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else starts or stops the pair meanwhile."""
        if not self._start.take(EXCLUSIVE, ENOUGH_S):
            raise ImporterError(
                f"another command is busy with the servers in {SHOWN} for {ENOUGH_S:g} s; try again when it is done"
            )
        try:
            yield
        finally:
            self._start.drop()

    def wait_until_stopped(self) -> None:
        if not self.keeper.take(SHARED, ENOUGH_S):
            pid = self.keeper.read_pid()
            raise ImporterError(f"the servers in {SHOWN} do not stop; end them with: kill -KILL {pid}")
        self.keeper.drop()

    def prepare(self) -> None:
        """Room for data. Raises ImporterError when there is too little."""
        for name in NAMES:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=self.descriptor)
        needed = NEEDED_MB["kept" if self._has_data() else "new"]
        free = self.free_mb()
        if free < needed:
            raise ImporterError(
                f"too little room for the embedded servers: {free} MB free in {SHOWN}, {needed} MB needed; make room, or {_ELSE}"
            )

    def free_mb(self) -> int:
        space = os.fstatvfs(self.descriptor)
        return space.f_bavail * space.f_frsize // 1_000_000

    def _has_data(self) -> bool:
        descriptor = os.open(MONGOD, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=self.descriptor)
        try:
            return bool(os.listdir(descriptor))
        finally:
            os.close(descriptor)


@contextmanager
def folder_errors() -> Iterator[None]:
    """Whatever the system refuses becomes one line."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ImporterError(f"{SHOWN}: {reason}; make room, or {_ELSE}") from None
        raise BadSetting(f"{SHOWN} cannot be used ({reason}): {_ELSE}") from None


def _opened() -> int:
    """A descriptor of the folder, when it is one that only we can write to."""
    try:
        descriptor = os.open(NAME, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise BadSetting(f"{SHOWN} is a link or a file, not a folder: remove it, or {_ELSE}") from None
        raise
    found = os.fstat(descriptor)
    whose = "belongs to another user" if found.st_uid != os.geteuid() else None
    if whose is None and found.st_mode & 0o022:
        whose = "can be written to by others (chmod 700 ends that)"
    if whose is not None:
        os.close(descriptor)
        raise BadSetting(f"{SHOWN} {whose}: {_ELSE}")
    return descriptor
