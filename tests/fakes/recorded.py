"""Tools that watch: events as they are told, and calls in the order in which they are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Events:
    """Implements ports.EventSink: keeps what is told, and calls `on_told` after each."""

    def __init__(self, on_told: Callable[[], None] = lambda: None) -> None:
        self.on_told = on_told
        self.told: list[tuple[str, str, dict[str, Any]]] = []

    def __call__(self, event: str, *, level: str = "info", **details: Any) -> None:
        self.told.append((event, level, details))
        self.on_told()

    @property
    def names(self) -> list[str]:
        return [event for event, _, _ in self.told]

    def details(self, event: str) -> list[dict[str, Any]]:
        return [details for name, _, details in self.told if name == event]


class Recorded:
    """Passes every call on to `target` and notes it as "<label>.<method>" in `calls`."""

    def __init__(self, label: str, target: object, calls: list[str]) -> None:
        self._label = label
        self._target = target
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)
        if not callable(method):
            return method

        def call(*arguments: Any, **options: Any) -> Any:
            self._calls.append(f"{self._label}.{name}")
            return method(*arguments, **options)

        return call
