"""Joins the shared pair of a folder, or starts it. Both under the folder's start lock, so that there is one start at a time."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ..domain.errors import ImporterError
from .json_lines import JsonLines
from .keeper import STOP_GRACE_S, TAKE_OVER_S
from .pair_file import Pair
from .pair_folder import PairFolder
from .readiness import LOOK_EVERY_S, READY_TIMEOUT_S, Readiness
from .server_programs import find_programs, last_words
from .socket_folder import short_parent

_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH")
"""Of the environment, to processes that outlive the command: its secrets are none of their business."""
_RUN_KEEPER = "import sys; sys.path.append(sys.argv.pop(1)); from streams_importer.embedded.keeper import main; main()"
_ROOT = str(Path(__file__).resolve().parents[2])
"""So that an uninstalled checkout finds itself too."""


def join(folder: PairFolder) -> Pair | None:
    """The running pair, when it answers; None when there is none."""
    pair = folder.running()
    if pair is None:
        return None
    try:
        Readiness(pair.sockets, folder.logs, lambda name, wait_s: _is_gone(folder, wait_s)).wait()
    except ImporterError:
        if folder.running() is not None:
            raise
        return None
    return pair


def start(folder: PairFolder, idle_s: float) -> Pair:
    """Returns when both are ready. When that fails, nothing is left running."""
    folder.wait_until_stopped()
    programs, parent, before = find_programs(), short_parent(), folder.pair()
    folder.prepare()
    order = {
        "folder": folder.descriptor,
        "programs": programs,
        "parent": parent,
        "sockets": before.sockets if before is not None else None,
        "idle_s": idle_s,
    }
    try:
        _Start(folder, order).run()
    except ImporterError:
        if folder.free_mb() == 0:  # what a server says on a full disk is hard to understand, or could not be written
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        raise
    pair = folder.running()
    if pair is None:
        raise ImporterError("the embedded servers were stopped while they were starting")
    return pair


class _Start:
    """One keeper, from its first word to its last: from then on it is on its own."""

    def __init__(self, folder: PairFolder, order: dict[str, Any]) -> None:
        self._folder = folder
        self._order = order
        self._heard: dict[str, Any] = {}

    def run(self) -> None:
        process = self._start_keeper()
        self._lines = JsonLines(process)
        try:
            process.wait()  # the keeper is its child
            self._bring_up()
        except BaseException:  # Ctrl-C too
            self._lines.finish(STOP_GRACE_S)  # a keeper that has not heard that all is ready stops everything
            raise
        finally:
            self._lines.close()

    def _bring_up(self) -> None:
        sockets = str(self._wait_for("sockets", TAKE_OVER_S + READY_TIMEOUT_S))
        Readiness(sockets, self._folder.logs, self._ended).wait()
        self._lines.tell(ready=True)
        self._wait_for("ready", READY_TIMEOUT_S)

    def _start_keeper(self) -> subprocess.Popen[bytes]:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
        with open(os.open("keeper.log", flags, 0o600, dir_fd=self._folder.descriptor), "wb") as log:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _RUN_KEEPER, _ROOT, json.dumps(self._order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={name: os.environ[name] for name in _PASSED_ON if name in os.environ},
                pass_fds=(self._folder.descriptor,),
                start_new_session=True,
                bufsize=0,
            )

    def _wait_for(self, word: str, within_s: float) -> Any:
        deadline = time.monotonic() + within_s
        while word not in self._heard:
            if time.monotonic() > deadline:
                raise ImporterError(f"the keeper of the embedded servers is not ready after {within_s:g} s; try again")
            self._hear(LOOK_EVERY_S)
        return self._heard[word]

    def _ended(self, _name: str, wait_s: float) -> bool:
        self._hear(wait_s)
        return False

    def _hear(self, wait_s: float) -> None:
        """Raises what the keeper complains of."""
        try:
            for message in self._lines.hear(wait_s):
                self._heard |= message
        except EOFError:
            raise ImporterError(f"the keeper of the embedded servers ended: {self._last_words('keeper')}") from None
        if "ended" in self._heard:
            name = self._heard["ended"]
            raise ImporterError(f"the embedded {name} ended while starting: {self._last_words(name)}")
        if "failed" in self._heard:
            raise ImporterError(f"the embedded servers cannot be started: {self._heard['failed']}")

    def _last_words(self, name: str) -> str:
        return last_words(self._folder.logs / f"{name}.log")


def _is_gone(folder: PairFolder, wait_s: float) -> bool:
    time.sleep(wait_s)
    return folder.running() is None
