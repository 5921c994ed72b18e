"""The imports there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..domain.definition import Definition


@dataclass(frozen=True, slots=True)
class Pause:
    reason: str
    by: str
    since: str


class Catalogue(Protocol):
    """The imports there are: definition, pause and newest run."""

    def save(self, definition: Definition, run: str) -> None: ...
    def get(self, name: str) -> Definition | None: ...
    def names(self) -> list[str]: ...
    def pause(self, name: str, pause: Pause | None) -> bool:
        """False when there is no such import."""

    def paused(self) -> dict[str, Pause]: ...
