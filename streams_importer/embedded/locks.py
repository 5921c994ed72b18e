"""Locks that the kernel drops when their holder dies, however it died: a lock file that was left behind locks nothing.

From the standard library only.
"""

from __future__ import annotations

import fcntl
import os
import time

USERS_LOCK = "users.lock"
"""Shared by all commands that use the pair. The keeper takes it when it decides to stop."""
START_LOCK = "start.lock"
"""Of the command that starts or stops the pair."""
KEEPER_LOCK = "keeper.lock"
"""Of the keeper, for its life."""
SERVERS_LOCK = "servers.lock"
"""Of the keeper and of both servers: when it is free, nobody writes to the data."""

SHARED, EXCLUSIVE = fcntl.LOCK_SH, fcntl.LOCK_EX
LOOK_EVERY_S = 0.02


class Lock:
    """One holder's hand on a lock file, from construction to `close()`. No program that is started inherits it unasked."""

    def __init__(self, name: str, folder: int | None = None) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self.descriptor = os.open(name, flags, 0o600, dir_fd=folder)

    def take(self, how: int, within_s: float = 0.0) -> bool:
        """Whether it could be had in that time."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                fcntl.flock(self.descriptor, how | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(LOOK_EVERY_S)
            else:
                return True

    def wait_until_free(self) -> None:
        """Returns when nobody holds it exclusively, as soon as that is so."""
        fcntl.flock(self.descriptor, SHARED)
        self.drop()

    def is_held(self) -> bool:
        """Whether somebody else holds it exclusively."""
        if not self.take(SHARED):
            return True
        self.drop()
        return False

    def drop(self) -> None:
        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def write_pid(self) -> None:
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, str(os.getpid()).encode(), 0)

    def read_pid(self) -> int | None:
        """The holder's, as long as the lock is held."""
        try:
            return int(os.pread(self.descriptor, 32, 0))
        except ValueError:
            return None

    def close(self) -> None:
        os.close(self.descriptor)
