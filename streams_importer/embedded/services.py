"""Looks at the shared pair of this folder, and stops it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass

from ..domain.errors import ImporterError
from .locks import EXCLUSIVE
from .pair_file import STOPPED, Pair
from .pair_folder import SHOWN, PairFolder, folder_errors


@dataclass(frozen=True, slots=True)
class ServicesStatus:
    """`state`: starting, running, stopping or stopped. The pair is the one that runs, or the one that ran last."""

    state: str = STOPPED
    in_use: bool = False
    keeper_pid: int | None = None
    pair: Pair | None = None


def services_status() -> ServicesStatus:
    with folder_errors():
        try:
            folder = PairFolder()
        except FileNotFoundError:
            return ServicesStatus()
        with folder:
            pair = folder.pair()
            if not folder.keeper.is_held():
                return ServicesStatus(pair=pair)
            state = "stopping" if pair is None or pair.state == STOPPED else pair.state
            return ServicesStatus(state, _in_use(folder), folder.keeper.read_pid(), pair)


def stop_services() -> ServicesStatus:
    """Returns when all is down; what was there before. A start that is under way is waited for, and then stopped."""
    with folder_errors():
        try:
            folder = PairFolder()
        except FileNotFoundError:
            return ServicesStatus()
        with folder, folder.alone():
            before = services_status()
            if before.state != STOPPED:
                _ask_to_stop(before.keeper_pid)
                folder.wait_until_stopped()
            return before


def _in_use(folder: PairFolder) -> bool:
    if not folder.users.take(EXCLUSIVE):
        return True
    folder.users.drop()
    return False


def _ask_to_stop(keeper_pid: int | None) -> None:
    if keeper_pid is None:
        raise ImporterError(f"the servers in {SHOWN} are just starting or stopping; try again")
    with suppress(ProcessLookupError):
        os.kill(keeper_pid, signal.SIGTERM)
