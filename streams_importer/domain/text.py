"""What comes from outside, made fit for a terminal or a log: no control characters, and none of our secrets."""

from __future__ import annotations

import re

from .redaction import SECRETS

_UNFIT_FOR_A_BLOCK = re.compile(
    r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_UNFIT = re.compile(rf"(?:\n|{_UNFIT_FOR_A_BLOCK.pattern})+")


def plain(text: str, most: int = 500) -> str:
    """One line without secrets, control characters, direction marks or lone surrogates, at most `most` characters."""
    # Secrets first: a cut must not leave half of one. And once more when blanks took the place of control characters.
    open_text = SECRETS.redacted(text, 4 * most)
    clean = _UNFIT.sub(" ", open_text)
    return _cut(clean if clean == open_text else SECRETS.redacted(clean), most)


def one_line(text: str, most: int = 500) -> str:
    """The same with secrets left in: for names that are compared with others, and are printed by way of `plain`."""
    return _cut(_UNFIT.sub(" ", text[: 4 * most]), most)


def plain_block(text: str) -> str:
    """The same for lines that stay lines, each character at its place but for secrets: help, tracebacks, tables."""
    return SECRETS.redacted(_UNFIT_FOR_A_BLOCK.sub(" ", SECRETS.redacted(text)))


def _cut(text: str, most: int) -> str:
    text = text.strip()
    return text if len(text) <= most else text[: most - 1] + "…"
