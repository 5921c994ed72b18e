"""Takes secrets out of texts by their values, in every spelling in which programs pass values on.

1. `Redactor.learn` is told a secret; `secrets_in_url` finds those of a server's address.
2. `Redactor.redacted` blanks what it was told: as it is, all in one case, percent-encoded (again and again), escaped as in
   JSON, HTML and Python, in base64 wherever it begins there, and in hex.
3. `SECRETS` is what this process knows. `plain()` stands in front of every terminal, log and store, and asks it.
"""

from __future__ import annotations

import re
import threading
from base64 import b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote, unquote_plus

MASK = "***"
SHORTEST = 4
"""Characters. What is shorter would blank ordinary words; the mask is shorter still, so that blanking comes to an end."""
SHORTEST_IN_ANY_CASE = 8
"""Host names come back in small letters. A shorter secret would blank words that only begin a sentence."""

_RUN = re.compile(r"[A-Za-z0-9]*")
_UNITS = re.compile(r"\\+|[^\\]")
"""Characters, but backslashes in a row as one: apart, there would be no end of ways to share out those of a text."""
_SAFE = re.compile(r"[A-Za-z0-9._-]\Z")
"""What no encoder touches."""
_ENTITIES = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
_ESCAPES = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_BASE64 = {"+": r"(?:[+-]|%(?:25){0,3}2[bB])", "/": r"(?:\\{0,8}/|_|%(?:25){0,3}2[fF])"}
_STRETCH = 48
"""One character is never spelt with more than that many: the bounds in the patterns see to it."""


@dataclass(frozen=True, slots=True)
class _Spelling:
    """A pattern, and a text that is in everything that matches it: looking for that first costs next to nothing."""

    core: str
    pattern: re.Pattern[str]


@dataclass(frozen=True, slots=True)
class _Known:
    values: frozenset[str] = frozenset()
    spellings: tuple[_Spelling, ...] = ()
    shortest: int = 0
    reach: int = 0
    """No spelling is longer."""


class Redactor:
    """For any number of threads."""

    def __init__(self) -> None:
        self._known = _Known()
        self._lock = threading.Lock()

    def learn(self, *secrets: str) -> None:
        with self._lock:
            new = {secret for secret in secrets if len(secret) >= SHORTEST} - self._known.values
            if not new:
                return
            values = self._known.values | new
            found = {spelling.pattern.pattern: spelling for value in sorted(values) for spelling in _spellings(value)}
            lengths = [len(value) for value in values]
            self._known = _Known(values, tuple(found.values()), min(lengths), max(lengths) * _STRETCH)

    def redacted(self, text: str, most: int | None = None) -> str:
        """The text, or its first `most` characters, without any secret. One that the cut goes through is blanked whole."""
        known = self._known
        end = len(text) if most is None else min(most, len(text))
        if len(text) > end + known.reach:
            text = text[: end + known.reach]
        # Again, because what stands left and right of a mask may be a secret together with it.
        while spans := _spans(text, known):
            text = _blanked(text, spans, end)
            end = len(text)
        return text[:end]


SECRETS = Redactor()


def secrets_in_url(url: str) -> Iterator[str]:
    """The log-ins in the address of a Redis, a Sentinel or a MongoDB, as written and as meant, however malformed it is."""
    rest = url.partition("://")[2]
    for part in (rest, rest.partition("?")[0]):
        user, colon, password = part.rpartition("@")[0].partition(":")
        if colon:
            yield from _meant(password)
            if user:
                yield from _meant(f"{user}:{password}")
    for option in re.split("[&;]", rest.partition("?")[2]):
        name, _, value = option.partition("=")
        yield from _in_option(unquote(name), value)


def _in_option(name: str, value: str) -> Iterator[str]:
    if re.search("pass|secret|token|credential", name, re.IGNORECASE):
        yield from _meant(value)
    elif name.lower() == "authmechanismproperties":
        for one in (*value.split(","), *unquote(value).split(",")):
            key, _, word = one.partition(":")
            yield from _in_option(key, word)


def _meant(value: str) -> Iterable[str]:
    return {value, unquote(value), unquote_plus(value)} - {""}


def _spans(text: str, known: _Known) -> list[tuple[int, int]]:
    """Where secrets are, those that touch or overlap as one: blanking the first alone would leave half of the second."""
    if len(text) < known.shortest or not known.spellings:
        return []
    found = [match.span() for each in known.spellings if each.core in text for match in each.pattern.finditer(text)]
    merged: list[tuple[int, int]] = []
    for start, end in sorted(found):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def _blanked(text: str, spans: list[tuple[int, int]], end: int) -> str:
    pieces, at = [], 0
    for start, stop in spans:
        if start >= end:
            break
        pieces += [text[at:start], MASK]
        at = stop
    return "".join((*pieces, text[at:end]))


def _spellings(value: str) -> Iterator[_Spelling]:
    cases = {value.lower(), value.upper()} if len(value) >= SHORTEST_IN_ANY_CASE else set()
    for written in sorted({value} | cases):
        yield _Spelling(_longest_run(written), re.compile("".join(map(_spelt, _UNITS.findall(written)))))
    raw = value.encode("utf-8", "surrogatepass")
    for digits in (raw.hex(), raw.hex().upper()):
        yield _Spelling(digits, re.compile(digits))
    for shift in range(3):
        yield _in_base64(raw, shift)


def _spelt(unit: str) -> str:
    """A pattern for one character (or a row of backslashes), however it is escaped."""
    if _SAFE.match(unit):
        return re.escape(unit)
    number = len(unit)
    as_it_is = rf"\\{{{number},{8 * number}}}" if unit[0] == "\\" else rf"\\{{0,8}}{re.escape(unit)}"
    return rf"(?:{as_it_is}|(?:{'|'.join(_encoded(unit[0]))}){{{number}}})"


def _encoded(character: str) -> Iterator[str]:
    code, raw = ord(character), character.encode("utf-8", "surrogatepass")
    units = character.encode("utf-16-be", "surrogatepass").hex()
    yield "".join(rf"%(?:25){{0,3}}{_any_case(f'{byte:02x}')}" for byte in raw)
    yield "".join(rf"\\{{1,8}}x{_any_case(f'{byte:02x}')}" for byte in raw)
    yield "".join(rf"\\{{1,8}}u{_any_case(units[at : at + 4])}" for at in range(0, len(units), 4))
    yield rf"\\{{1,8}}(?:U{_any_case(f'{code:08x}')}|x{_any_case(f'{code:02x}')})"
    yield rf"&(?:amp;){{0,3}}#(?:0{{0,4}}{code}|[xX]0{{0,4}}{_any_case(f'{code:x}')});"
    if character in _ENTITIES:
        yield rf"&(?:amp;){{0,3}}{_ENTITIES[character]};"
    if character in _ESCAPES:
        yield rf"\\{{1,8}}{_ESCAPES[character]}"
    if character == " ":
        yield r"\+"


def _in_base64(raw: bytes, shift: int) -> _Spelling:
    """With `shift` bytes before it: what is surely the secret's, and the letters that it shares with its neighbours."""
    letters = b64encode(bytes(shift) + raw).decode()
    first, last = -(-shift * 8 // 6), (shift + len(raw)) * 8 // 6
    inner = letters[first:last]
    shared = "[A-Za-z0-9+/_-]?"
    before, after = shared if shift else "", shared if (shift + len(raw)) * 8 % 6 else ""
    pattern = "".join(_BASE64.get(letter, letter) for letter in inner)
    return _Spelling(_longest_run(inner), re.compile(before + pattern + after))


def _longest_run(text: str) -> str:
    runs: list[str] = _RUN.findall(text)
    return max(runs, key=len)


def _any_case(digits: str) -> str:
    return "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)
