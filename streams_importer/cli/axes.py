"""How a user says which part of a source: options, what they mean together, and the same in words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, TypeVar

import click

from ..domain.axes import degrees, moment, parse_moment
from ..domain.errors import BadSetting
from ..domain.planner import DEFAULT_SHARD_SIZE, Countries, Grid, IdRanges, Plan, Windows
from ..ports import Cancel, Source
from .options import Duration, setting

F = TypeVar("F", bound=Callable[..., Any])

_RANGE = re.compile(r"(\d{1,15})\.\.(\d{1,15})\Z", re.ASCII)

_DEGREES = re.compile(r"[-+]?\d{1,3}(\.\d{1,20})?\Z", re.ASCII)

_OPTIONS = (
    click.option("--country", "countries", multiple=True, metavar="CC", help="Countries; repeat, or separate by commas."),
    click.option("--bbox", metavar="S,W,N,E", help="A box in degrees, as in 47,5,55,15; over 180° when W is east of E."),
    click.option("--grid", metavar="DEG", help="Cuts the box into smaller ones of so many degrees. [not cut]"),
    click.option("--id-range", metavar="LO..HI", help="Ids greater than LO, up to HI."),
    setting("--shard-size", type=int, default=DEFAULT_SHARD_SIZE, show_default=True, help="Ids in a shard."),
    click.option("--from", "from_", metavar="T", help="Changed at this time (UTC) or later, as in 2026-02-21T10:00:00Z."),
    click.option("--to", metavar="T", help="Changed before this time."),
    click.option("--window", "window_s", type=Duration(), metavar="DUR", help="Cuts the time into windows of 1h, 1d … [not cut]"),
)


def with_axes(command: F) -> F:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class Axes:
    countries: Countries | None = None
    grid: Grid | None = None
    ids: IdRanges | None = None
    windows: Windows | None = None
    shard_size: int = DEFAULT_SHARD_SIZE

    @property
    def is_whole_source(self) -> bool:
        return all(axis is None for axis in (self.countries, self.grid, self.ids, self.windows))

    def plan(self, source: Source, cancel: Cancel) -> Plan:
        """The shards, once the upstream has said that it knows the countries, or where its ids end."""
        if self.countries is not None:
            source.check_countries(self.countries.codes, cancel)
        if self.is_whole_source:
            return Plan(ids=IdRanges(0, source.highest_id(cancel), self.shard_size))
        return Plan(self.countries, self.grid, self.ids, self.windows)

    def in_words(self, source: Source) -> Iterator[str]:
        """What was understood where that is easily got wrong, and what it costs where that is easily overlooked."""
        if self.grid is not None:
            grid = self.grid
            corners = f"from {_place(grid.south, grid.west)} to {_place(grid.north, grid.east)}"
            cut = "" if grid.count == 1 else f", cut into {grid.count:,} boxes"
            yield f"the box {corners}{' over 180°' if grid.west > grid.east else ''}{cut}"
        if self.windows is not None:
            windows = self.windows
            yield f"changed from {moment(windows.start)} on, until before {moment(windows.end)}"
            if windows.count > 1 and not source.has_upper_time_bound:
                yield (
                    f"{windows.count:,} windows: this upstream cannot be asked for an end of time, so each window downloads all"
                    " that is newer, too; instead, leave out --window and cut by ids: --id-range 0..500000"
                )


def read_axes(
    countries: tuple[str, ...],
    bbox: str | None,
    grid: str | None,
    id_range: str | None,
    shard_size: int,
    from_: str | None,
    to: str | None,
    window_s: float | None,
) -> Axes:
    if shard_size < 1:
        raise BadSetting(f"--shard-size {shard_size}: must be 1 or more")
    return Axes(
        _countries(countries),
        _grid(bbox, grid),
        None if id_range is None else _ids(id_range, shard_size),
        _windows(from_, to, window_s),
        shard_size,
    )


def _countries(countries: tuple[str, ...]) -> Countries | None:
    codes = tuple(code.strip().upper() for text in countries for code in text.split(",") if code.strip())
    if countries and not codes:
        raise BadSetting("--country: name at least one country, as in --country DE")
    return Countries(codes) if codes else None


def _grid(bbox: str | None, grid: str | None) -> Grid | None:
    if bbox is None:
        if grid is not None:
            raise BadSetting("--grid cuts a box: give --bbox too, as in --bbox 47,5,55,15 --grid 1")
        return None
    edges = bbox.split(",")
    if len(edges) != 4:
        raise BadSetting(f"--bbox {bbox!r}: is S,W,N,E in degrees, as in 47,5,55,15")
    step = None if grid is None else _decimal("--grid", grid, "degrees, as in 10 or 0.5")
    south, west, north, east = (_decimal("--bbox", edge, "S,W,N,E in degrees, as in 47,5,55,15") for edge in edges)
    return Grid(south, west, north, east, step)


def _decimal(option: str, text: str, what: str) -> Decimal:
    if not _DEGREES.match(text.strip()):
        raise BadSetting(f"{option} {text!r}: is {what}")
    return Decimal(text.strip())


def _ids(id_range: str, size: int) -> IdRanges:
    match = _RANGE.match(id_range.strip())
    if match is None:
        raise BadSetting(f"--id-range {id_range!r}: write it as LO..HI, as in 0..500000")
    return IdRanges(int(match[1]), int(match[2]), size)


def _windows(from_: str | None, to: str | None, window_s: float | None) -> Windows | None:
    if from_ is None and to is None and window_s is None:
        return None
    if from_ is None and to is None:
        raise BadSetting("--window cuts a time into parts: give --from and --to too, as in --from 2026-02-21 --to 2026-02-22")
    if from_ is None or to is None:
        raise BadSetting("--from and --to go together, so that the same plan gives the same shards whenever it is made")
    if window_s is not None and window_s != int(window_s):
        raise BadSetting("--window: must be whole seconds, 1s or more, as in 1h or 1d")
    return Windows(_moment("--from", from_), _moment("--to", to), None if window_s is None else int(window_s))


def _moment(option: str, text: str) -> datetime:
    try:
        return parse_moment(text)
    except ValueError as error:
        raise BadSetting(f"{option} {text!r}: {error}") from None


def _place(latitude: Decimal, longitude: Decimal) -> str:
    north, east = "S" if latitude < 0 else "N", "W" if longitude < 0 else "E"
    return f"{degrees(abs(float(latitude)))}°{north} {degrees(abs(float(longitude)))}°{east}"
