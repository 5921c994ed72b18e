"""What Open Charge Map answers to a query: pure. What it cannot parse it drops without a word, and what it does not know too."""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import islice
from operator import attrgetter
from typing import TypeVar

from .stand_in_points import COUNTRIES, Point

DEFAULT_MAX_RESULTS = 100
_BOX = re.compile(r"\(([^,()]+),([^,()]+)\),\(([^,()]+),([^,()]+)\)")
_COUNTRY_BY_CODE = {country.iso: country.id for country in COUNTRIES}
_T = TypeVar("_T")
Box = tuple[float, float, float, float]
"""South, west, north, east."""


class Points:
    """An unchangeable set of points with the orders in which queries walk it. Ids are unique: the last one given counts."""

    def __init__(self, points: Iterable[Point]) -> None:
        by_id = {point.id: point for point in points}
        self.rows = [by_id[identifier] for identifier in sorted(by_id)]
        self.ids = [point.id for point in self.rows]
        self.by_country: dict[int | None, list[Point]] = defaultdict(list)
        for point in self.rows:
            self.by_country[point.country].append(point)

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def by_creation(self) -> list[Point]:
        return sorted(self.rows, key=attrgetter("created", "id"))

    def get(self, identifier: int) -> Point:
        index = bisect_right(self.ids, identifier) - 1
        if index < 0 or self.ids[index] != identifier:
            raise KeyError(identifier)
        return self.rows[index]

    def changed(self, new: Iterable[Point], gone: Iterable[int] = ()) -> Points:
        without = set(gone)
        return Points([*(point for point in self.rows if point.id not in without), *new])


@dataclass(frozen=True, slots=True)
class Query:
    """What is left of a query string once everything unknown and unparsable is dropped."""

    countries: frozenset[int] | None = None
    greater_than: int | None = None
    modified_since: float | None = None
    box: Box | None = None
    near: tuple[float, float] | None = None
    id_ascending: bool = False
    limit: int = DEFAULT_MAX_RESULTS

    def whole_world(self) -> Query:
        """Without the filters that name a part of the world or of time; the keyset stays."""
        return replace(self, countries=None, modified_since=None, box=None)


def parse_query(params: Mapping[str, str]) -> Query:
    limit = _parsed(int, params.get("maxresults"))
    return Query(
        countries=_countries(params),
        greater_than=_parsed(int, params.get("greaterthanid")),
        modified_since=_parsed(_moment, params.get("modifiedsince")),
        box=_parsed(_box, params.get("boundingbox")),
        near=_parsed(_place, f"{params.get('latitude', '')},{params.get('longitude', '')}"),
        id_ascending=params.get("sortby", "").lower() == "id_asc",
        limit=DEFAULT_MAX_RESULTS if limit is None or limit < 0 else limit,
    )


def select(points: Points, query: Query, *, creation_order: bool = False) -> list[Point]:
    """The rows of one page. `creation_order`: as with a cold cache, which knows no `id_asc`."""
    rows = _walk(points, query, creation_order)
    if query.near is not None:  # nearest first, whatever was asked for
        latitude, longitude = query.near
        placed = [row for row in rows if row.latitude is not None and row.longitude is not None]
        placed.sort(key=lambda row: math.hypot((row.latitude or 0.0) - latitude, (row.longitude or 0.0) - longitude))
        return placed[: query.limit]
    return list(islice(rows, query.limit))


def least_requests(ids: Sequence[int], ranges: Iterable[tuple[int, int]], page_size: int) -> int:
    """The fewest keyset requests that read every shard `(low, high]` completely.

    Each page starts above its cursor and knows nothing of `high`. A shard is finished by a page that reaches `high` or is
    empty: a short page proves nothing. `ids` are ascending.
    """
    requests = 0
    for low, high in ranges:
        cursor = low
        while True:
            requests += 1
            start = bisect_right(ids, cursor)
            page_end = min(start + page_size, len(ids))
            if page_end == start or ids[page_end - 1] >= high:
                break
            cursor = ids[page_end - 1]
    return requests


def least_requests_of_countries(points: Points, countries: Iterable[int], page_size: int) -> int:
    """The same for country shards: nothing but an empty page says that a country is finished."""
    return sum(-(-len(points.by_country.get(country, ())) // page_size) + 1 for country in countries)


def _walk(points: Points, query: Query, creation_order: bool) -> Iterator[Point]:
    """All rows that match, in the order of the answer."""
    rows, countries = points.rows, query.countries
    if countries is not None and len(countries) == 1:
        rows, countries = points.by_country.get(next(iter(countries)), []), None
    start = 0 if query.greater_than is None else bisect_right(rows, query.greater_than, key=attrgetter("id"))
    order: Iterable[Point]
    if creation_order:
        order = (row for row in points.by_creation if query.greater_than is None or row.id > query.greater_than)
        countries = query.countries
    elif query.id_ascending:
        order = (rows[index] for index in range(start, len(rows)))
    elif query.box is not None:  # unspecified upstream: an order that nobody can mistake for a useful one
        order = sorted(rows[start:], key=lambda row: row.id * 2654435761 & 0xFFFFFFFF)
    else:
        order = (rows[index] for index in range(len(rows) - 1, start - 1, -1))
    since, box = query.modified_since, query.box
    if countries is None and since is None and box is None:
        return iter(order)
    return (
        row
        for row in order
        if (countries is None or row.country in countries)
        and (since is None or (row.updated is not None and row.updated >= since))
        and (box is None or _inside(row, box))
    )


def _inside(row: Point, box: Box) -> bool:
    """North and south edges are great circles: they bulge towards the pole between the corners."""
    if row.latitude is None or row.longitude is None:
        return False
    south, west, north, east = box
    if not west <= row.longitude <= east:
        return False
    middle, half = (west + east) / 2, math.radians((east - west) / 2)
    bulge = math.cos(math.radians(row.longitude - middle)) / math.cos(half) if half < math.pi / 2 else 1.0
    return _bulged(south, bulge) <= row.latitude <= _bulged(north, bulge)


def _bulged(latitude: float, bulge: float) -> float:
    return math.degrees(math.atan(math.tan(math.radians(latitude)) * bulge)) if abs(latitude) < 90 else latitude


def _parsed(parse: Callable[[str], _T], text: str | None) -> _T | None:
    try:
        return None if text is None else parse(text)
    except (ValueError, OverflowError):
        return None


def _countries(params: Mapping[str, str]) -> frozenset[int] | None:
    by_id = _parsed(lambda text: frozenset(int(part) for part in text.split(",")), params.get("countryid"))
    if by_id is not None:
        return by_id
    code = _COUNTRY_BY_CODE.get(params.get("countrycode", "").upper())
    return None if code is None else frozenset((code,))


def _moment(text: str) -> float:
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _place(text: str) -> tuple[float, float]:
    latitude, longitude = map(float, text.split(","))
    return latitude, longitude


def _box(text: str) -> Box:
    match = _BOX.fullmatch(text.replace(" ", ""))
    if match is None:
        raise ValueError(text)
    latitude, longitude, latitude2, longitude2 = map(float, match.groups())
    return min(latitude, latitude2), min(longitude, longitude2), max(latitude, latitude2), max(longitude, longitude2)
