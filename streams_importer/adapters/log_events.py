"""One line an event on stderr: for people, or as JSON."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from ..domain.text import plain

MAX_DEPTH = 4
MAX_ITEMS = 50
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class LogEvents:
    """Implements ports.EventSink. Whatever comes from outside is made one plain line."""

    def __init__(self, form: str = "text", least: str = "info", stream: TextIO | None = None) -> None:
        self._form = form
        self._least = LEVELS[least]
        self._stream = stream
        self._lock = threading.Lock()

    def __call__(self, event: str, *, level: str = "info", **details: Any) -> None:
        if LEVELS[level] < self._least:
            return
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
        event = plain(event)
        clean = {plain(name.removesuffix("_name")): _clean(value) for name, value in details.items()}
        if self._form == "json":
            line = msgspec.json.encode({"time": time, "level": level, "event": event, **clean}).decode()
        else:
            words = " ".join(f"{name}={_quoted(value)}" for name, value in clean.items())
            line = f"{time} {level:7} {event}{'  ' + words if words else ''}"
        with self._lock:
            print(line, file=self._stream or sys.stderr, flush=True)


def _clean(value: Any, depth: int = 0) -> Any:
    """Every text within it plain, and nothing else in it than what JSON knows."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        return {plain(str(key)): _clean(item, depth + 1) for key, item in list(value.items())[:MAX_ITEMS]}
    if isinstance(value, list | tuple | set | frozenset) and depth < MAX_DEPTH:
        return [_clean(item, depth + 1) for item in list(value)[:MAX_ITEMS]]
    return plain(str(value))


def _quoted(value: Any) -> str:
    """Quoted whenever it could pass for something else."""
    text = str(value)
    return (
        text if text and not any(mark in text for mark in ' "=\\') else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    )
