"""The readable, stable name of a shard, and what it asks for. The name is all that is stored: the rest is read from it."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_KEY_LENGTH = 256
"""Longer than any key the planner makes; what comes back from Redis or MongoDB is held to it."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")
_COUNTRY = re.compile(r"[A-Z]{2}\Z")
_IDS = re.compile(r"(0|[1-9]\d{0,17})\.\.(0|[1-9]\d{0,17})\Z")


def is_name(text: str) -> bool:
    """Whether text may name an import or a namespace."""
    return _NAME.match(text) is not None


@dataclass(frozen=True, slots=True)
class IdRange:
    """Ids greater than `low`, up to and including `high`."""

    low: int
    high: int

    def __contains__(self, identifier: int) -> bool:
        return self.low < identifier <= self.high


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of a source that one shard covers: every part given narrows it."""

    country: str | None = None
    ids: IdRange | None = None

    @property
    def key(self) -> str:
        parts = []
        if self.country is not None:
            parts.append(f"country:{self.country}")
        if self.ids is not None:
            parts.append(f"ids:{self.ids.low}..{self.ids.high}")
        return "|".join(parts)


def parse_key(key: str) -> Scope:
    """The scope that a shard key names. Raises ValueError, fit to print, for anything the planner would not write."""
    if not 0 < len(key) <= MAX_KEY_LENGTH:
        raise ValueError("a shard key has 1 to 256 characters")
    country: str | None = None
    ids: IdRange | None = None
    for part in key.split("|"):
        axis, _, value = part.partition(":")
        if axis == "country" and _COUNTRY.match(value):
            country = value
        elif axis == "ids" and (match := _IDS.match(value)):
            ids = IdRange(int(match[1]), int(match[2]))
            if ids.low >= ids.high:
                raise ValueError("an id range goes upwards")
        else:
            raise ValueError("not a shard key")
    scope = Scope(country, ids)
    if scope.key != key:  # order of the parts, a part given twice
        raise ValueError("not a shard key as the planner writes it")
    return scope
