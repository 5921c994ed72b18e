"""Odd rows as they exist upstream, and records that no database should take: each by name."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

HUGE_RECORD_BYTES = 17 * 1024 * 1024
"""More than the 16 MB that MongoDB takes."""
DEEP_LEVELS = 250


def odd_point(poi: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """The same POI made odd in one of the ways of FACTS: all of these can be stored."""
    dice.choice(_ODDITIES)(poi)
    return poi


def _null_place(poi: dict[str, Any]) -> None:
    poi["AddressInfo"].update(Latitude=None, Longitude=None)


def _zero_place(poi: dict[str, Any]) -> None:
    poi["AddressInfo"].update(Latitude=0.0, Longitude=0.0)


def _no_address(poi: dict[str, Any]) -> None:
    del poi["AddressInfo"]


def _no_country(poi: dict[str, Any]) -> None:
    poi["AddressInfo"]["CountryID"] = None


def _line_breaks(poi: dict[str, Any]) -> None:
    poi["AddressInfo"]["AccessComments"] = "Open daily\r\n\tring the bell\n"


def _negative_counts(poi: dict[str, Any]) -> None:
    poi["NumberOfPoints"] = -1


def _many_connections(poi: dict[str, Any]) -> None:
    poi["Connections"] = [{"ID": poi["ID"] * 4 + index, "ConnectionTypeID": 25, "Quantity": 1} for index in range(84)]


def _empty_strings(poi: dict[str, Any]) -> None:
    poi.update(UsageCost="", GeneralComments="", OperatorsReference="")
    poi["AddressInfo"].update(AddressLine2="", StateOrProvince="", ContactTelephone1="", RelatedURL="")


_ODDITIES: tuple[Callable[[dict[str, Any]], None], ...] = (
    _null_place,
    _zero_place,
    _no_address,
    _no_country,
    _line_breaks,
    _negative_counts,
    _many_connections,
    _empty_strings,
)


def spoiled(kind: str, body: bytes) -> bytes:
    """An encoded record (ID first) made unfit in the named way. What it says beside that stays."""
    return _SPOILERS[kind](body)


def _with_field(field: bytes) -> Callable[[bytes], bytes]:
    return lambda body: body[:-1] + b"," + field + b"}"


def _without_id(body: bytes) -> bytes:
    return b"{" + body[body.index(b",") + 1 :]


_SPOILERS: Mapping[str, Callable[[bytes], bytes]] = {
    "nan": _with_field(b'"Odd":NaN'),
    "infinity": _with_field(b'"Odd":1e999'),
    "surrogate": _with_field(b'"Odd":"cut \\ud83d off"'),
    "no_id": _without_id,
    "null_id": lambda body: b'{"ID":null,' + _without_id(body)[1:],
    "huge": lambda body: _with_field(b'"Odd":"' + b"x" * HUGE_RECORD_BYTES + b'"')(body),
    "nul_key": _with_field(b'"O\\u0000dd":1'),
    "big_int": _with_field(b'"Odd":18446744073709551616'),
    "deep": _with_field(b'"Odd":' + b"[" * DEEP_LEVELS + b"]" * DEEP_LEVELS),
    "not_an_object": lambda body: b'"a text where a record should be"',
}
RECORD_KINDS = tuple(_SPOILERS)
