"""Long work whose end is not known beforehand shows how far it is: in place on a terminal, a line a second elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from . import output

LINE_EVERY_S = 1.0


@contextmanager
def counting(what: str) -> Iterator[Callable[[int], None]]:
    """`what` follows the number, as in "shards cancelled"."""
    console = output.console(stderr=True)
    if console.is_terminal:
        with console.status(f"0 {what}") as line:
            yield lambda number: line.update(f"{number:,} {what}")
        return
    last = time.monotonic()

    def say(number: int) -> None:
        nonlocal last
        if time.monotonic() - last >= LINE_EVERY_S:
            last = time.monotonic()
            output.say(f"{number} {what} so far", err=True)

    yield say
