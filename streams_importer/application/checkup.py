"""What an examination finds, in words a person can act on. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ..domain.text import plain

T = TypeVar("T")

OK, WRONG, UNKNOWN = "ok", "wrong", "unknown"
REDIS, MONGODB, IMPORT, FLEET = "Redis", "MongoDB", "import", "fleet"
MAX_EXAMPLES = 5
MAX_EXAMPLE = 120


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found at one check. `unknown` says why it cannot be seen: that is neither right nor wrong."""

    state: str
    found: str
    to_do: str = ""
    examples: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One row: a verdict, and what it is about."""

    area: str
    check: str
    verdict: Verdict
    import_name: str | None = None
    fixed: str = ""
    """What --fix did about it."""

    @property
    def subject(self) -> str:
        return f"{self.import_name or self.area}: {self.check}"

    def after(self, done: str) -> Finding:
        return replace(self, fixed=done)


@dataclass(frozen=True, slots=True)
class Hidden:
    """In place of what could not be looked at: the reason."""

    reason: str


@dataclass(slots=True)
class Sample:
    """How many there are, and a few of them: memory does not follow their number."""

    number: int = 0
    examples: list[str] = field(default_factory=list)
    """Fit to be shown."""
    first: str = ""
    """As it is, unless it is long."""

    def add(self, names: Iterable[str]) -> None:
        for name in names:
            self.first = self.first or (name if len(name) <= MAX_EXAMPLE else "")
            self.number += 1
            if len(self.examples) < MAX_EXAMPLES and (shown := plain(name, MAX_EXAMPLE)) not in self.examples:
                self.examples.append(shown)


@dataclass(frozen=True, slots=True)
class Facts:
    """What a server told of itself; and, by the command that would have told more, why it did not."""

    told: Mapping[str, Any] = field(default_factory=dict)
    hidden: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str | None:
        value = self.told.get(name)
        return None if value is None else plain(str(value), 120)

    def number(self, name: str) -> float | None:
        value = self.told.get(name)
        try:
            number = None if value is None or isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            return None
        return number if number is not None and math.isfinite(number) else None

    def untold(self, what: str) -> Verdict:
        reasons = "; ".join(f"{command}: {plain(reason, 160)}" for command, reason in self.hidden.items())
        return unknown(f"the server does not tell {what}" + (f" ({reasons})" if reasons else ""))


def ok(found: str) -> Verdict:
    return Verdict(OK, found)


def wrong(found: str, to_do: str = "", sample: Sample | None = None) -> Verdict:
    return Verdict(WRONG, found, to_do, tuple(sample.examples) if sample else ())


def unknown(reason: str) -> Verdict:
    return Verdict(UNKNOWN, reason)


def judged(looked_at: T | Hidden, judge: Callable[[T], Verdict]) -> Verdict:
    return unknown(looked_at.reason) if isinstance(looked_at, Hidden) else judge(looked_at)


def many(number: int, what: str, whats: str | None = None) -> str:
    return f"{number:,} {what if number == 1 else whats or what + 's'}"
