"""A request to stop that can be waited on, reacted to, and handed down."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..domain.errors import Cancelled

UNSURE_S = 0.02


class CancelToken:
    """Implements ports.Cancel. The first reason stays."""

    def __init__(self, parent: CancelToken | None = None) -> None:
        self._event = threading.Event()
        self._lock = threading.Lock()
        self._actions: list[Callable[[], None]] = []
        self._is_unsure: Callable[[], bool] = lambda: False
        self.reason: str | None = None
        self._forget_parent = parent.on_cancel(lambda: self.cancel(parent.reason or "stop")) if parent else None

    @property
    def cancelled(self) -> bool:
        return self._event.is_set()

    def cancel(self, reason: str) -> None:
        with self._lock:
            if self._event.is_set():
                return
            self.reason = reason
            self._event.set()
            actions, self._actions = self._actions, []
        for action in actions:
            action()

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)

    def unsure_while(self, is_unsure: Callable[[], bool]) -> None:
        """While this holds, nobody knows whether the work is still ours: nothing is sent."""
        self._is_unsure = is_unsure

    def may_send(self) -> bool:
        was_sure = True
        while self._is_unsure() and not self.cancelled:
            was_sure = False
            self.wait(UNSURE_S)
        if self.cancelled:
            raise Cancelled("cancelled just before a request")
        return was_sure

    def on_cancel(self, action: Callable[[], None]) -> Callable[[], None]:
        with self._lock:
            if not self._event.is_set():
                self._actions.append(action)
                return lambda: self._forget(action)
        action()
        return lambda: None

    def close(self) -> None:
        """The work is over: the parent need not tell us any more."""
        if self._forget_parent is not None:
            self._forget_parent()

    def _forget(self, action: Callable[[], None]) -> None:
        with self._lock:
            if action in self._actions:
                self._actions.remove(action)
