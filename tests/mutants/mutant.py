"""A program with one mechanism taken out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from streams_importer.adapters.lua_scripts import read_part

from .scenarios import World


@dataclass(frozen=True)
class Mutant:
    name: str
    scenario: Callable[[World], None]
    lua: tuple[str, str, str] | None = None
    """Part, text, and what stands there instead."""
    patch: Callable[[pytest.MonkeyPatch], None] | None = None

    def read(self, part: str) -> str:
        text = read_part(part)
        if self.lua is None or self.lua[0] != part:
            return text
        assert self.lua[1] in text, f"{self.name}: the mechanism is no longer where the mutant looks for it"
        return text.replace(self.lua[1], self.lua[2])


def replacing(*changes: tuple[object, str, Any]) -> Callable[[pytest.MonkeyPatch], None]:
    def patch(monkeypatch: pytest.MonkeyPatch) -> None:
        for target, name, value in changes:
            monkeypatch.setattr(target, name, value)

    return patch
