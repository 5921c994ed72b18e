"""Cuts a source into shards. Pure and lazy: the same question gives the same shards in the same order, in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .errors import BadSetting
from .shard_key import IdRange, Scope

DEFAULT_SHARD_SIZE = 10_000
"""Ids in a shard: about five pages of Open Charge Map at 1,000 a page, since half of its ids are holes."""


def plan_id_ranges(low: int, high: int, size: int) -> Iterator[Scope]:
    """Ranges `(low, low+size]`, `(low+size, low+2*size]` … that meet exactly; the last one ends at `high`."""
    if size < 1:
        raise BadSetting(f"--shard-size {size}: must be 1 or more")
    if low < 0 or low >= high:
        raise BadSetting(f"--id-range {low}..{high}: must go upwards from 0 or more, as in 0..500000")
    return (Scope(ids=IdRange(start, min(start + size, high))) for start in range(low, high, size))


def count_id_ranges(low: int, high: int, size: int) -> int:
    return -((low - high) // size)


def plan_countries(codes: Iterable[str]) -> Iterator[Scope]:
    """One shard a country, in the order given, each once."""
    return (Scope(country=code) for code in dict.fromkeys(codes))
