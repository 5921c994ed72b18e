"""`pair.json`: where the shared pair of a folder answers, and what became of it. Written by its keeper alone.

From the standard library only.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, field

from ..domain.errors import TooNew

NAME = "pair.json"
VERSION = 1
STARTING, RUNNING, STOPPED = "starting", "running", "stopped"


@dataclass(frozen=True, slots=True)
class Pair:
    """`state` is what the keeper last wrote: a pair that is `running` without a keeper was killed."""

    state: str
    sockets: str
    started: str
    idle_s: float
    pids: dict[str, int] = field(default_factory=dict)
    why: str | None = None
    """Why it was stopped, when nobody asked for that."""

    def write(self) -> None:
        """Into the working folder; a reader finds the old one or the new one."""
        new = f"{NAME}.new"
        try:
            with open(new, "w", encoding="utf-8") as file:
                json.dump({"v": VERSION, **asdict(self)}, file)
            os.replace(new, NAME)
        except OSError:
            with suppress(OSError):
                os.unlink(new)
            raise


def read_pair(folder: int) -> Pair | None:
    """What lies in the folder, or None when there is nothing that makes sense. Raises TooNew."""
    try:
        descriptor = os.open(NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
        with open(descriptor, encoding="utf-8") as file:
            content = json.load(file)
        if int(content["v"]) > VERSION:
            raise TooNew("the embedded servers of this folder were made by a newer version of streams-importer: use that one")
        pids = {str(name): int(pid) for name, pid in content["pids"].items()}
        why = content["why"]
        return Pair(
            state=str(content["state"]),
            sockets=str(content["sockets"]),
            started=str(content["started"]),
            idle_s=float(content["idle_s"]),
            pids=pids,
            why=str(why) if why is not None else None,
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
