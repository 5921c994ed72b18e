"""A file that is there when it is complete, and not at all otherwise."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, TextIO

from ..domain.errors import BadSetting

PRIVATE = 0o600


@contextmanager
def new_file(option: str, path: str) -> Iterator[TextIO]:
    """For the user's eyes only, and never in the place of another file. Removed again when it could not be finished; `option` is
    what an error names."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    except FileExistsError:
        raise BadSetting(f"{option} {path}: there is such a file already, and it is not overwritten") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadSetting(f"{option} {path}: cannot be made ({reason})") from None
    try:
        with _signals_raise(), open(handle, "w", encoding="ascii", newline="\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


@contextmanager
def _signals_raise() -> Iterator[None]:
    """SIGTERM, or a terminal that is closed, would end the process where it stands."""

    def leave(number: int, _: Any) -> NoReturn:
        raise SystemExit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
