"""Which of two versions of a record is the newer one: the rule in Python and the same rule as a MongoDB filter, side by side.

`sourceUpdatedAt` decides when both versions have one that can be believed and they differ; otherwise the greater `order` wins.
A time more than a day after the version's own grant (its `order`, on Redis' clock) cannot be believed: it would keep every
later version out until that day came. Each version is held against its own grant, so the answer does not depend on which of
the two was stored first, and no worker's clock takes part.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from bson.datetime_ms import DatetimeMS
from bson.int64 import Int64

BELIEVABLE_US = 86_400_000_000
"""Microseconds: a day covers every time zone that a source may have forgotten to write."""


class Version(NamedTuple):
    """What decides: milliseconds since the epoch (as MongoDB keeps times) or None, and microseconds or None."""

    updated_ms: int | None
    order: int | float | None

    @property
    def believable(self) -> bool:
        return self.updated_ms is not None and self.order is not None and self.updated_ms * 1000 <= self.order + BELIEVABLE_US


def version(updated_at: datetime | None, order: int) -> Version:
    """Of a record that is about to be stored."""
    return Version(None if updated_at is None else int(DatetimeMS(updated_at)), order)


def stored_version(document: Any) -> Version:
    """Of a stored document. Whatever is not what we write counts as missing, as it does in the filter."""
    updated, order = document.get("sourceUpdatedAt"), document.get("order")
    milliseconds = int(DatetimeMS(updated)) if isinstance(updated, datetime) else None
    if isinstance(updated, DatetimeMS):
        milliseconds = int(updated)
    return Version(milliseconds, order if type(order) in (int, float, Int64) else None)


def is_newer(new: Version, stored: Version) -> bool:
    """Whether `new` may replace `stored`. Equal in all that decides: no."""
    if new.updated_ms != stored.updated_ms and new.believable and stored.believable:
        return (new.updated_ms or 0) > (stored.updated_ms or 0)
    return stored.order is None or not stored.order >= (new.order or 0)


def newer_than_stored(new: Version) -> dict[str, Any]:
    """The filter that matches exactly the stored versions which `new` may replace."""
    # Negated, so that it also matches an order that is missing or no number.
    lower_order = {"order": {"$not": {"$gte": Int64(new.order or 0)}}}
    if new.updated_ms is None or not new.believable:
        return lower_order
    at = DatetimeMS(new.updated_ms)
    return {
        "$or": [
            {**lower_order, "$nor": [{"sourceUpdatedAt": {"$gt": at}, **_STORED_IS_BELIEVABLE}]},
            {"sourceUpdatedAt": {"$lt": at}, **_STORED_IS_BELIEVABLE},
        ]
    }


def newer_at_first_sight(new: Version) -> dict[str, Any]:
    """Matches nearly all of them, and none that the exact filter would not: later order, and no later time.

    The exact one has an expression, which takes MongoDB as long to parse as the whole update takes it to do.
    """
    lower_order = {"order": {"$lt": Int64(new.order or 0)}}
    if new.updated_ms is None or not new.believable:
        return lower_order
    return {**lower_order, "sourceUpdatedAt": {"$not": {"$gt": DatetimeMS(new.updated_ms)}}}


def _as_number(field: str) -> dict[str, Any]:
    """Null instead of an error: an expression that fails would fail the whole bulk."""
    return {"$convert": {"input": field, "to": "long", "onError": None, "onNull": None}}


_STORED_IS_BELIEVABLE: dict[str, Any] = {
    "$expr": {
        "$lte": [
            {"$multiply": [_as_number("$sourceUpdatedAt"), 1000]},
            {"$add": [_as_number("$order"), BELIEVABLE_US]},
        ]
    }
}
