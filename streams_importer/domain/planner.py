"""Cuts a source into shards. Pure and lazy: the same question gives the same shards in the same order, in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Protocol, TypeVar

from .axes import WIDEST_BOX, Box, IdRange, Window, moment
from .errors import BadSetting
from .shard_key import Scope

DEFAULT_SHARD_SIZE = 10_000
"""Ids in a shard: about five pages of Open Charge Map at 1,000 a page, since half of its ids are holes."""

_FINEST = Decimal("0.0000001")
"""Degrees, a centimetre: the digits that a shard key has."""

T_co = TypeVar("T_co", covariant=True)
Number = TypeVar("Number", int, Decimal)


class Axis(Protocol[T_co]):
    """One way to cut a source. Can be gone through any number of times."""

    @property
    def count(self) -> int: ...
    def __iter__(self) -> Iterator[T_co]: ...


@dataclass(frozen=True, slots=True)
class Countries:
    """One part a country, in the order given, each once."""

    codes: tuple[str, ...]

    @property
    def count(self) -> int:
        return len(dict.fromkeys(self.codes))

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(self.codes))


@dataclass(frozen=True, slots=True)
class IdRanges:
    """`(low, low+size]`, `(low+size, low+2*size]` … that meet exactly; the last one ends at `high`."""

    low: int
    high: int
    size: int = DEFAULT_SHARD_SIZE

    def __post_init__(self) -> None:
        if self.size < 1:
            raise BadSetting(f"--shard-size {self.size}: must be 1 or more")
        if not 0 <= self.low < self.high:
            raise BadSetting(f"--id-range {self.low}..{self.high}: must go upwards from 0 or more, as in 0..500000")

    @property
    def count(self) -> int:
        return _steps(self.high - self.low, self.size)

    def __iter__(self) -> Iterator[IdRange]:
        return (IdRange(start, min(start + self.size, self.high)) for start in range(self.low, self.high, self.size))


@dataclass(frozen=True, slots=True)
class Windows:
    """`[start, start+length)`, … that meet exactly; the last one ends at `end`. Without a length it is one window."""

    start: datetime
    end: datetime
    length_s: int | None = None

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise BadSetting(f"--from {moment(self.start)} --to {moment(self.end)}: --to must be later than --from")
        if self.length_s is not None and self.length_s < 1:
            raise BadSetting("--window: must be whole seconds, 1s or more, as in 1h or 1d")

    @property
    def count(self) -> int:
        return 1 if self.length_s is None else _steps(self._seconds, self.length_s)

    @property
    def _seconds(self) -> int:
        return (self.end - self.start) // timedelta(seconds=1)

    def __iter__(self) -> Iterator[Window]:
        length = self._seconds if self.length_s is None else self.length_s
        for begin in range(0, self._seconds, length):
            until = min(begin + length, self._seconds)
            yield Window(self.start + timedelta(seconds=begin), self.start + timedelta(seconds=until))


@dataclass(frozen=True, slots=True)
class Grid:
    """Boxes from an area's south-west corner on, rows northwards; the last of a row or column ends at the area's edge.

    West may be east of east: then the area goes over 180°, and is split there. Edges are decimal, so that they meet exactly.
    """

    south: Decimal
    west: Decimal
    north: Decimal
    east: Decimal
    step: Decimal | None = None

    def __post_init__(self) -> None:
        edges = (self.south, self.west, self.north, self.east)
        if not all(map(_is_written_out, edges)):
            raise BadSetting(f"{self._name}: edges are numbers with up to 7 digits after the point, as in 50,-10,60,0")
        if not -90 <= self.south < self.north <= 90:
            raise BadSetting(f"{self._name}: is S,W,N,E; the south edge must be below the north edge, both within -90 to 90")
        if not self._spans or not all(-180 <= edge <= 180 for edge in (self.west, self.east)):
            raise BadSetting(f"{self._name}: is S,W,N,E; west and east must differ, both within -180 to 180")
        if self.step is not None and not (_is_written_out(self.step) and self.step > 0):
            raise BadSetting(f"--grid {self.step}: must be degrees above 0, with up to 7 digits after the point, as in 10 or 0.5")
        widest = max(min(east - west, self.step or east - west) for west, east in self._spans)
        if widest > WIDEST_BOX:
            raise BadSetting(f"{self._name}: {widest:f} degrees wide is too much for one box; cut it: --grid 10")

    @property
    def _name(self) -> str:
        return f"--bbox {self.south},{self.west},{self.north},{self.east}"

    @property
    def _spans(self) -> list[tuple[Decimal, Decimal]]:
        """From west to east: one, or two that meet at 180°."""
        if self.west == self.east:
            return []
        if self.west < self.east:
            return [(self.west, self.east)]
        both = (self.west, Decimal(180)), (Decimal(-180), self.east)
        return [(west, east) for west, east in both if west < east]

    @property
    def count(self) -> int:
        columns = sum(_steps(east - west, self.step or east - west) for west, east in self._spans)
        return columns * _steps(self.north - self.south, self.step or self.north - self.south)

    def __iter__(self) -> Iterator[Box]:
        for south, north in _cut(self.south, self.north, self.step):
            for span in self._spans:
                for west, east in _cut(*span, self.step):
                    yield Box(south, west, north, east)


@dataclass(frozen=True, slots=True)
class Plan:
    """Every combination of the axes that are given: by country, then by box, then by ids, then by time."""

    countries: Axis[str] | None = None
    boxes: Axis[Box] | None = None
    ids: Axis[IdRange] | None = None
    windows: Axis[Window] | None = None

    @property
    def count(self) -> int:
        count = 1
        for axis in (self.countries, self.boxes, self.ids, self.windows):
            count *= 1 if axis is None else axis.count
        return count

    def __iter__(self) -> Iterator[Scope]:
        # Not itertools.product, which makes lists of its arguments first.
        for country in _each(self.countries):
            for box in _each(self.boxes):
                for ids in _each(self.ids):
                    for window in _each(self.windows):
                        yield Scope(country, ids, box, window)


def _each(axis: Iterable[T_co] | None) -> Iterable[T_co | None]:
    return (None,) if axis is None else axis


def _cut(low: Decimal, high: Decimal, step: Decimal | None) -> Iterator[tuple[float, float]]:
    step = high - low if step is None else step
    for number in range(_steps(high - low, step)):
        yield float(low + number * step), float(min(low + (number + 1) * step, high))


def _steps(width: Number, step: Number) -> int:
    """How many steps cover the width; the last one may be shorter."""
    whole, rest = divmod(width, step)
    return int(whole) + (1 if rest else 0)


def _is_written_out(degrees: Decimal) -> bool:
    """Whether a shard key can name it."""
    return degrees.is_finite() and abs(degrees) <= 1000 and degrees % _FINEST == 0
