"""Durations as people type them: `250ms 10s 5m 1h 1d`."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d)\Z")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Seconds. Raises ValueError with a sentence that says what is allowed."""
    match = _DURATION.match(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a duration; write 250ms, 10s, 5m, 1h or 1d")
    return float(match[1]) * _UNIT_SECONDS[match[2]]
