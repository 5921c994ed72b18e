"""What of a shard Open Charge Map can be asked for, and which rows of its answers are the shard's. Pure.

It is asked for a little too much, and we cut: a box by its planar half-open edges, since the server's edges are great circles;
a window by both its ends, since the server has no upper one and its lower one counts in minutes. What lies far outside of what
was asked for is a sign that the server dropped a filter that it could not read, and with it sends the whole world.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from math import atan, cos, radians, tan
from math import degrees as in_degrees
from typing import Any

from ..domain.axes import Box, Window
from ..domain.shard_key import Scope
from .ocm_records import row_country_id, row_place, row_updated_at

PAD_DEGREES = 0.05
"""Asked for on every side, so that no edge of the server's is ours: five kilometres, whatever its rounding."""
FAR_DEGREES = 1.0
"""This far outside of what was asked for, nothing is left of the filter."""
FAR_TIME = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Selection:
    """One shard's question, and its rows among the answers."""

    scope: Scope
    country_id: int | None = None

    @property
    def params(self) -> dict[str, str]:
        params = {}
        if self.country_id is not None:
            params["countryid"] = str(self.country_id)
        if self.scope.box is not None:
            south, west, north, east = padded(self.scope.box)
            params["boundingbox"] = f"({south:.6f},{west:.6f}),({north:.6f},{east:.6f})"
        if self.scope.window is not None:
            params["modifiedsince"] = f"{self.scope.window.start:%Y-%m-%dT%H:%M}"
        return params

    def is_foreign(self, row: Any) -> bool:
        """Whether the row is one that the server would not send if it had read the whole question."""
        if self.country_id is not None and row_country_id(row) != self.country_id:
            return True
        box, window = self.scope.box, self.scope.window
        return (box is not None and _is_far(row, box)) or (window is not None and _is_long_before(row, window))

    def is_ours(self, row: Any) -> bool:
        """A row without a place is in no box, one without a time in no window."""
        box, window = self.scope.box, self.scope.window
        if box is not None:
            place = row_place(row)
            if place is None or not box.contains(*place):
                return False
        if window is not None:
            at = row_updated_at(row)
            return at is not None and window.contains(at)
        return True


def padded(box: Box) -> tuple[float, float, float, float]:
    """South, west, north, east of a box whose great circles enclose the planar one.

    An edge bulges towards its pole between the corners. Where that is outwards it encloses more by itself; where it is inwards
    (the edge nearer to the equator) the corners move back until the middle of the edge is where it should be.
    """
    west, east = max(box.west - PAD_DEGREES, -180.0), min(box.east + PAD_DEGREES, 180.0)
    bulge = cos(radians((east - west) / 2))
    south = _moved(box.south, bulge) if box.south > 0 else box.south
    north = _moved(box.north, bulge) if box.north < 0 else box.north
    return max(south - PAD_DEGREES, -90.0), west, min(north + PAD_DEGREES, 90.0), east


@lru_cache(maxsize=256)
def _enclosing(box: Box) -> tuple[float, float, float, float]:
    """The planar box around all that the padded one can bring."""
    south, west, north, east = padded(box)
    bulge = 1 / cos(radians((east - west) / 2))
    return (_moved(south, bulge) if south < 0 else south), west, (_moved(north, bulge) if north > 0 else north), east


def _moved(latitude: float, bulge: float) -> float:
    return in_degrees(atan(tan(radians(latitude)) * bulge)) if abs(latitude) < 90 else latitude


def _is_far(row: Any, box: Box) -> bool:
    place = row_place(row)
    if place is None:
        return False
    (latitude, longitude), (south, west, north, east) = place, _enclosing(box)
    return not (south - FAR_DEGREES <= latitude <= north + FAR_DEGREES and west - FAR_DEGREES <= longitude <= east + FAR_DEGREES)


def _is_long_before(row: Any, window: Window) -> bool:
    at = row_updated_at(row)
    return at is not None and at < window.start - FAR_TIME
