"""A child process that follows a script."""

from __future__ import annotations

import threading
from collections.abc import Callable

from streams_importer.domain.model import Outcome
from tests.fakes.source import PATIENCE_S


class FakeChild:
    """Implements ports.Child. Ends with `outcome`, at once or, with `waits`, when it is told to: by `end` or by a cancellation.

    `on_run` is called while it runs, `told` holds what it was told, and `ran` is set once it runs.
    """

    def __init__(
        self,
        outcome: Outcome | None = None,
        *,
        waits: bool = False,
        how: str = "by SIGKILL",
        on_run: Callable[[], None] = lambda: None,
        on_cancel: Outcome | None = None,
    ) -> None:
        self.how_it_ended = how
        self.ran = threading.Event()
        self.told: list[str] = []
        self.is_closed = False
        self._outcome = outcome
        self._on_run = on_run
        self._on_cancel = on_cancel
        self._end = threading.Event()
        if not waits:
            self._end.set()

    def outcome(self) -> Outcome | None:
        self.ran.set()
        self._on_run()
        assert self._end.wait(PATIENCE_S), "nobody ended the child"
        return self._outcome

    def end(self) -> None:
        self._end.set()

    def cancel(self, reason: str) -> None:
        self.told.append(f"cancel {reason}")
        self._outcome = self._on_cancel
        self._end.set()

    def hear(self, message: str) -> None:
        self.told.append(message)

    def close(self) -> None:
        self.is_closed = True
