"""`--filter field=value`: `*` stands for any text, everything else for itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from .errors import BadSetting

MAX_VALUE = 256
"""No shard key, run, worker or error code is longer."""
MAX_WILDCARDS = 4
"""Each multiplies what a matcher has to try."""


@dataclass(frozen=True, slots=True)
class Filter:
    field: str
    pattern: str

    @property
    def is_exact(self) -> bool:
        return "*" not in self.pattern

    @property
    def regex(self) -> str:
        """For a matcher that searches, with `.` matching any character. A literal beginning stays one, so an index serves it."""
        return "^" + ".*".join(re.escape(part) for part in self.pattern.split("*")) + "$"

    def matches(self, value: str) -> bool:
        """Part by part, each at the first place where it fits: a long text cannot make this slow, as it can a regex."""
        first, *middle = self.pattern.split("*")
        if not middle:
            return value == first
        last = middle.pop()
        if not value.startswith(first):
            return False
        at = len(first)
        for part in middle:
            at = value.find(part, at)
            if at < 0:
                return False
            at += len(part)
        return len(value) - len(last) >= at and value.endswith(last)


def parse_filter(text: str, fields: Sequence[str]) -> Filter:
    """A filter on one of `fields`; BadSetting says what to change."""
    field, is_given, value = text.partition("=")
    known = ", ".join(fields)
    if not is_given or not value:
        raise BadSetting(f"--filter {text!r}: write it as field=value, with one of: {known}")
    if field not in fields:
        raise BadSetting(f"--filter {text!r}: there is no field {field!r}; the fields are: {known}")
    if len(value) > MAX_VALUE or not value.isprintable():
        raise BadSetting(f"--filter {field}: a value has at most {MAX_VALUE} characters, all of them printable")
    pattern = re.sub(r"\*+", "*", value)
    if pattern.count("*") > MAX_WILDCARDS:
        raise BadSetting(f"--filter {field}: at most {MAX_WILDCARDS} times *")
    return Filter(field, pattern)
