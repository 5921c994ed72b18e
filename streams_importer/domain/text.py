"""What comes from outside, made fit for one line of a terminal or a log."""

from __future__ import annotations

import re

_UNFIT = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")


def plain(text: str, most: int = 500) -> str:
    """One line without control characters, direction marks or lone surrogates, at most `most` characters."""
    if len(text) > 4 * most:
        text = text[: 4 * most]
    clean = _UNFIT.sub(" ", text).strip()
    return clean if len(clean) <= most else clean[: most - 1] + "…"
