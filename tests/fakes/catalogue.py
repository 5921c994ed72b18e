"""A catalogue in memory."""

from __future__ import annotations

from typing import Any

from streams_importer.domain.definition import Definition, read_definition
from streams_importer.domain.errors import TooNew, Unavailable
from streams_importer.domain.model import STORED_VERSION
from streams_importer.ports import Pause


class FakeCatalogue:
    """`stored` is open to tests, by name. While `away` is True every call fails as in an outage."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.runs: dict[str, str] = {}
        self.pauses: dict[str, Pause] = {}
        self.away = False

    def save(self, definition: Definition, run: str) -> None:
        self._refuse_newer(definition.name)
        self.stored[definition.name] = definition.stored()
        self.runs[definition.name] = run

    def get(self, name: str) -> Definition | None:
        self._reach()
        return read_definition(name, self.stored[name]) if name in self.stored else None

    def names(self) -> list[str]:
        self._reach()
        return sorted(self.stored)

    def pause(self, name: str, pause: Pause | None) -> bool:
        self._refuse_newer(name)
        if name not in self.stored:
            return False
        self.pauses.pop(name, None)
        if pause is not None:
            self.pauses[name] = pause
        return True

    def paused(self) -> dict[str, Pause]:
        self._reach()
        return dict(self.pauses)

    def _refuse_newer(self, name: str) -> None:
        self._reach()
        if self.stored.get(name, {}).get("v", 0) > STORED_VERSION:
            raise TooNew(f"import {name}: a newer version of streams-importer defined it; update this one")

    def _reach(self) -> None:
        if self.away:
            raise Unavailable("MongoDB", "away")
