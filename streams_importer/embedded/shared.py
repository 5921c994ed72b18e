"""The embedded pair that the commands of a working folder share: any number of them, in several terminals.

Commands that queue or work start it when it is not running; commands that look join it, and create nothing.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType

from ..domain.errors import ImporterError
from .locks import SHARED
from .pair_file import STOPPED, Pair
from .pair_folder import ENOUGH_S, SHOWN, PairFolder, folder_errors
from .server_programs import mongodb_uri, redis_url
from .starting import join, start

_LOOK_EVERY_S = 1.0
"""While it is stopped, whether somebody has started it again."""


class NotRunning(ImporterError):
    """There is nothing to join."""

    def __init__(self, pair: Pair | None) -> None:
        why = f" ({pair.why})" if pair is not None and pair.why is not None else ""
        super().__init__(
            f"no embedded Redis and MongoDB run in this folder{why}: produce, consume or setup start them;"
            " for other servers set REDIS_URL and MONGODB_URI"
        )


class SharedServers:
    """This command's share in the pair, from construction to `leave()`: as long as somebody has one, the pair stays."""

    def __init__(self, *, creates: bool, idle_s: float) -> None:
        self._idle_s = idle_s
        self._left = threading.Event()
        with folder_errors():
            try:
                self._folder = PairFolder(creates=creates)
            except FileNotFoundError:
                if creates:
                    raise
                raise NotRunning(None) from None
            try:
                self._enter(creates)
            except BaseException:
                self._folder.close()
                raise
        self.folder = SHOWN
        self.redis_url = redis_url(self.pair.sockets)
        self.mongodb_uri = mongodb_uri(self.pair.sockets)

    def _enter(self, creates: bool) -> None:
        # A keeper that has decided to stop holds it until all is down.
        if not self._folder.users.take(SHARED, ENOUGH_S):
            raise ImporterError(f"the embedded servers in {SHOWN} do not stop; end them with: streams-importer services stop")
        os.utime(self._folder.users.descriptor)
        with self._folder.alone():
            joined = join(self._folder)
            if joined is None and not creates:
                raise NotRunning(self._folder.pair())
            self.started = joined is None
            self.pair = joined if joined is not None else start(self._folder, self._idle_s)

    def watch(self, say: Callable[[str], None]) -> None:
        """From now on a pair whose keeper was killed is started again, at the same address. Says so when it was stopped."""
        with folder_errors():
            folder = PairFolder()
        threading.Thread(target=self._watch, args=(folder, say), name="embedded-watch", daemon=True).start()

    def leave(self) -> None:
        self._left.set()
        self._folder.close()

    def __enter__(self) -> SharedServers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.leave()

    def _watch(self, folder: PairFolder, say: Callable[[str], None]) -> None:
        with folder:
            try:
                with folder_errors():
                    self._keep_alive(folder, say)
            except ImporterError as error:
                say(str(error))

    def _keep_alive(self, folder: PairFolder, say: Callable[[str], None]) -> None:
        while True:
            folder.keeper.wait_until_free()
            if self._left.is_set():
                return
            pair = folder.pair()
            if pair is not None and pair.state != STOPPED:  # killed
                with folder.alone():
                    if join(folder) is None:
                        start(folder, self._idle_s)
                continue
            reason = pair.why if pair is not None and pair.why is not None else "streams-importer services stop"
            say(f"the embedded servers were stopped: {reason}")
            while not folder.keeper.is_held():
                if self._left.wait(_LOOK_EVERY_S):
                    return
