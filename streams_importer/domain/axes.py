"""The parts of a source that a shard can name: ranges of ids, boxes on the map, windows of time. Neighbours meet exactly.

Each is written as it stands in a shard key, and reads back from that alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal

WIDEST_BOX = 90.0
"""Degrees. The edges of a box are great circles, which between points more than half the globe apart run the other way round;
and the wider the box, the more of what lies beside it must be asked for along with it."""

_IDS = re.compile(r"(0|[1-9]\d{0,17})\.\.(0|[1-9]\d{0,17})\Z", re.ASCII)
_DEGREES = re.compile(r"-?\d{1,3}\.\d{1,7}\Z", re.ASCII)
_SECOND = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class IdRange:
    """Ids greater than `low`, up to and including `high`."""

    low: int
    high: int

    def __contains__(self, identifier: int) -> bool:
        return self.low < identifier <= self.high

    def __str__(self) -> str:
        return f"{self.low}..{self.high}"

    @classmethod
    def parse(cls, text: str) -> IdRange:
        match = _IDS.match(text)
        if match is None:
            raise ValueError("not an id range")
        ids = cls(int(match[1]), int(match[2]))
        if ids.low >= ids.high:
            raise ValueError("an id range goes upwards")
        return ids


@dataclass(frozen=True, slots=True)
class Box:
    """Degrees. The south and west edges belong to it; the north and east edges do not, except at the world's own edge."""

    south: float
    west: float
    north: float
    east: float

    def contains(self, latitude: float, longitude: float) -> bool:
        return (
            self.south <= latitude
            and (latitude < self.north or latitude == self.north == 90.0)
            and self.west <= longitude
            and (longitude < self.east or longitude == self.east == 180.0)
        )

    def __str__(self) -> str:
        return ",".join(map(degrees, (self.south, self.west, self.north, self.east)))

    @classmethod
    def parse(cls, text: str) -> Box:
        edges = text.split(",")
        if len(edges) != 4 or not all(map(_DEGREES.match, edges)):
            raise ValueError("not a box")
        box = cls(*map(float, edges))
        if not (-90 <= box.south < box.north <= 90 and -180 <= box.west < box.east <= 180):
            raise ValueError("a box goes from south-west to north-east")
        if box.east - box.west > WIDEST_BOX:
            raise ValueError(f"a box is at most {WIDEST_BOX:g} degrees wide")
        return box


@dataclass(frozen=True, slots=True)
class Window:
    """From `start` on, until before `end`: both UTC, whole seconds."""

    start: datetime
    end: datetime

    def contains(self, at: datetime) -> bool:
        return self.start <= at < self.end

    def __str__(self) -> str:
        return f"{moment(self.start)}..{moment(self.end)}"

    @classmethod
    def parse(cls, text: str) -> Window:
        parts = text.split("..")
        if len(parts) != 2 or not all(map(_SECOND.match, parts)):
            raise ValueError("not a window")
        window = cls(*map(datetime.fromisoformat, parts))
        if window.start >= window.end:
            raise ValueError("a window goes forwards")
        return window


def degrees(value: float) -> str:
    """Without an exponent, with at least one digit after the point: `50.0`, `-0.0000001`."""
    return f"{Decimal(repr(value + 0.0)):f}"  # there is no -0.0


def moment(at: datetime) -> str:
    return at.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def parse_moment(text: str) -> datetime:
    """What people type: a date or a time in ISO 8601, UTC unless it says otherwise. ValueError says what is allowed."""
    try:
        at = datetime.fromisoformat(text.strip())
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        at = None
    if at is None or at.microsecond or at.year < 1970:
        raise ValueError("write a time from 1970 on in whole seconds, as in 2026-02-21 or 2026-02-21T10:00:00Z")
    return at
