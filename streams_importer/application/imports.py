"""Which imports a process serves: the named ones, or all there are. MongoDB has the original, Redis the copy that is read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from ..domain.definition import Definition
from ..domain.errors import BadSetting, TooNew, Unavailable
from ..domain.model import Failure
from ..ports import Catalogue, EventSink, Pause


class Imports:
    def __init__(self, original: Catalogue, copy: Catalogue, events: EventSink) -> None:
        self._original = original
        self._copy = copy
        self._events = events
        self.left_alone: dict[str, str] = {}
        """Imports that were told of because they cannot be used, and why."""

    def save(self, definition: Definition, run: str) -> None:
        self._original.save(definition, run)
        self._copy.save(definition, run)

    def find(self, name: str) -> Definition | None:
        """The copy, or the original when the copy is gone (a flushed Redis); the copy is then made again."""
        try:
            definition = self._copy.get(name)
        except BadSetting:
            definition = None  # broken by somebody; the original decides
        if definition is None:
            definition = self._original.get(name)
            if definition is not None:
                self._copy.save(definition, "")
        return definition

    def names(self) -> list[str]:
        """All there are: after a flush the copy may have only some of them again."""
        try:
            return sorted({*self._copy.names(), *self._original.names()})
        except Unavailable:
            return self._copy.names()

    def check_original(self) -> None:
        """Raises Unavailable when MongoDB, which has the original, cannot be reached."""
        self._original.names()

    def undefined(self, wanted: Sequence[str]) -> list[str]:
        """Those that are defined nowhere. One that is there but cannot be used is defined."""
        missing = []
        for name in wanted:
            try:
                if self.find(name) is None:
                    missing.append(name)
            except (TooNew, BadSetting):
                continue
        return missing

    def pause(self, name: str, pause: Pause | None) -> None:
        if not self._original.pause(name, pause):
            known = ", ".join(self._original.names()) or "none yet; produce makes one"
            raise BadSetting(f"there is no import {name!r} (known: {known})")
        self._copy.pause(name, pause)

    def refuse(self, name: str, why: Failure, by: str) -> None:
        """Nothing of the import can work: no shard is burnt on that; a person changes something and resumes."""
        if name in self.paused():
            return
        self.pause(name, Pause(why.message, by, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")))
        what_to_do = f"fix it, then: streams-importer resume {name}"
        self._events("import paused", level="error", import_name=name, reason=why.message, what_to_do=what_to_do)

    def paused(self) -> dict[str, Pause]:
        return self._copy.paused()

    def restore_pauses(self) -> None:
        """After a flushed Redis: what is paused stays paused."""
        there = self._copy.paused()
        for name, pause in self._original.paused().items():
            if name not in there:
                self._copy.pause(name, pause)
                if name not in self._original.paused():  # resumed in the meantime
                    self._copy.pause(name, None)

    def served(self, wanted: Sequence[str]) -> dict[str, Definition]:
        """Definitions of the wanted imports, or of all; one that cannot be used is told of once and left out."""
        served = {}
        for name in wanted or self.names():
            try:
                definition = self.find(name)
            except (TooNew, BadSetting) as error:
                if name not in self.left_alone:
                    self._events("import left alone", level="error", import_name=name, reason=str(error))
                self.left_alone[name] = str(error)
                continue
            self.left_alone.pop(name, None)
            if definition is not None:
                served[name] = definition
        return served
