"""An upstream that follows a script."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from streams_importer.domain.errors import BadSetting, Cancelled
from streams_importer.domain.model import Cursor, Page, Record
from streams_importer.domain.shard_key import Scope
from streams_importer.ports import Cancel

Step = Page | Exception | Callable[[Cancel], Page]
PATIENCE_S = 10.0
"""How long a test waits for something that comes at once; only a broken program waits that long."""


def record(number: int, text: str = "") -> Record:
    return Record(f"openchargemap:{number}", number, None, None, {"ID": number, "text": text}, f"hash {number} {text}")


def page(*numbers: int, then: Cursor | None = None, order: int = 1) -> Page:
    """A page with these records; `then` is where the next one starts, None at the end."""
    return Page([record(number) for number in numbers], [], then, order)


class Gate:
    """A step that says when it is asked for, and answers when it is opened or cancelled."""

    def __init__(self, answer: Page) -> None:
        self._answer = answer
        self._turn = threading.Event()
        self.asked = threading.Event()
        self.left = threading.Event()
        """Set once the call is over, by an answer or by a cancellation."""

    def open(self) -> None:
        self._turn.set()

    def __call__(self, cancel: Cancel) -> Page:
        forget = cancel.on_cancel(self._turn.set)
        self.asked.set()
        try:
            assert self._turn.wait(PATIENCE_S), "nobody opened the gate"
            if cancel.cancelled:
                raise Cancelled("cut short")
            return self._answer
        finally:
            forget()
            self.left.set()


class ScriptedSource:
    """Takes one step a call, in order: answers with a page, raises an error, or calls a function. `asked` holds the cursors."""

    has_upper_time_bound = False

    def __init__(self, *steps: Step, highest: int = 100, countries: Sequence[str] = ("DE", "FR")) -> None:
        self.steps = list(steps)
        self.asked: list[Cursor | None] = []
        self.scopes: list[Scope] = []
        self._highest = highest
        self._countries = countries
        self._lock = threading.Lock()

    def check_countries(self, codes: Sequence[str], cancel: Cancel) -> None:
        unknown = [code for code in codes if code not in self._countries]
        if unknown:
            raise BadSetting(f"--country {', '.join(unknown)}: not known")

    def highest_id(self, cancel: Cancel) -> int:
        return self._highest

    def fetch(self, scope: Scope, cursor: Cursor | None, cancel: Cancel) -> Page:
        with self._lock:
            self.asked.append(cursor)
            self.scopes.append(scope)
            step = self.steps.pop(0)
        if isinstance(step, Page):
            return step
        if isinstance(step, Exception):
            raise step
        return step(cancel)
