"""The grammar of limits: `10/s`, `1000/h`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .errors import BadSetting

_LIMIT = re.compile(r"\s*([1-9]\d{0,8})\s*/\s*([smhd])\s*\Z")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `amount` grants in any window of `seconds`."""

    amount: int
    seconds: int

    @property
    def spacing_us(self) -> int:
        """Microseconds between two grants, rounded up so that no window ever holds more than `amount`."""
        return -(-self.seconds * 1_000_000 // self.amount)

    def __str__(self) -> str:
        unit = next(name for name, seconds in _UNIT_SECONDS.items() if seconds == self.seconds)
        return f"{self.amount}/{unit}"


def parse_limit(text: str) -> Limit:
    match = _LIMIT.match(text)
    if match is None:
        raise BadSetting(f"--rate {text!r}: write a number and a unit, as in 10/s, 600/m, 1000/h or 5000/d")
    return Limit(int(match[1]), _UNIT_SECONDS[match[2]])
