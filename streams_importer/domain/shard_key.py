"""The readable, stable name of a shard, and what it asks for. The name is all that is stored: the rest is read from it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .axes import Box, IdRange, Window

MAX_KEY_LENGTH = 256
"""Longer than any key the planner makes; what comes back from Redis or MongoDB is held to it."""

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")
_COUNTRY = re.compile(r"[A-Z]{2}\Z")


def is_name(text: str) -> bool:
    """Whether text may name an import or a namespace."""
    return _NAME.match(text) is not None


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of a source that one shard covers: every part given narrows it."""

    country: str | None = None
    ids: IdRange | None = None
    box: Box | None = None
    window: Window | None = None

    @property
    def key(self) -> str:
        parts = ((axis, getattr(self, field)) for axis, field, _ in _AXES)
        return "|".join(f"{axis}:{part}" for axis, part in parts if part is not None)


def parse_key(key: str) -> Scope:
    """The scope that a shard key names. Raises ValueError, fit to print, for anything the planner would not write."""
    if not 0 < len(key) <= MAX_KEY_LENGTH:
        raise ValueError("a shard key has 1 to 256 characters")
    parts: dict[str, Any] = {}
    for text in key.split("|"):
        axis, _, value = text.partition(":")
        known = _BY_NAME.get(axis)
        if known is None:
            raise ValueError("not a shard key")
        field, parse = known
        parts[field] = parse(value)
    scope = Scope(**parts)
    if scope.key != key:  # order of the parts, a part given twice, a number written another way
        raise ValueError("not a shard key as the planner writes it")
    return scope


def is_key(key: str) -> bool:
    """Whether the planner would write it."""
    try:
        parse_key(key)
    except ValueError:
        return False
    return True


def _country(text: str) -> str:
    if not _COUNTRY.match(text):
        raise ValueError("not a country")
    return text


_AXES: tuple[tuple[str, str, Callable[[str], Any]], ...] = (
    ("country", "country", _country),
    ("bbox", "box", Box.parse),
    ("ids", "ids", IdRange.parse),
    ("window", "window", Window.parse),
)
"""Name in the key, field of the scope, and how it is read; in the order of the key."""

_BY_NAME = {axis: (field, parse) for axis, field, parse in _AXES}
