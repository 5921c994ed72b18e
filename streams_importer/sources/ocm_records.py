"""From the bytes of a page to records. Pure: what cannot be stored becomes a reject, its neighbours go on.

1. `decode_rows` reads a page the fast way, and fails as a whole when anything in it is odd.
2. `decode_rows_one_by_one` reads a page that failed so: it cuts the list at its commas and decodes each record alone, so that
   one NaN or one lone surrogate costs one record.
3. `to_record` maps one row, and owns it from then on.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

import msgspec

from ..domain.answers import failure
from ..domain.model import Record, Reject

WHERE = "Open Charge Map"

MAPPING_VERSION = b"ocm-1:"
"""Part of every content hash: raise it when the mapping changes, and every record is written anew once."""

MAX_ID = 10**18 - 1
"""What a shard key can name, and what 64 bits hold."""

MAX_REJECT_CHARACTERS = 64 * 1024
_MAX_DEPTH = 400
"""Brackets within brackets in one record: beyond this the decoders give up, and MongoDB long before."""

_MAX_DIGITS = 4000
"""Python refuses to convert longer integers."""

_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
"""Older times are not times: the year 1 is how the upstream's platform writes that there is none."""

_encode = msgspec.json.Encoder(order="sorted").encode
_decode = msgspec.json.Decoder().decode
_CANNOT_DECODE = (msgspec.MsgspecError, ValueError, RecursionError)  # ValueError: bad UTF-8


@dataclass(frozen=True, slots=True)
class BadRow:
    """A record that no strict decoder reads. `row` is what a lenient one makes of it, for its id and its country only."""

    reason: str
    text: str
    row: Any


def decode_document(body: bytes) -> Any:
    """The JSON value of an answer. Raises Transient with a code for each way in which a 200 can be none."""
    start = body[:64].lstrip()
    if not start and not body.strip():
        raise failure("empty_body", WHERE)
    if start.startswith(b"<"):
        raise failure("html_body", WHERE)
    try:
        value = _decode(body)
    except _CANNOT_DECODE as error:
        code = "cut_json" if "truncated" in str(error) else "not_json"
    else:
        if value is None:
            raise failure("null_body", WHERE)
        return value
    raise failure(code, WHERE)


def decode_rows(body: bytes) -> list[Any]:
    rows = decode_document(body)
    if not isinstance(rows, list):
        raise failure("not_a_list", WHERE)
    return rows


def decode_rows_one_by_one(body: bytes) -> list[Any] | None:
    """Each record as decoded, or a BadRow. None when this is no complete list, or a record is no JSON to anybody."""
    pieces = _split_list(body)
    if pieces is None:
        return None
    rows: list[Any] = []
    for piece, depth in pieces:
        try:
            rows.append(_decode(piece))
        except _CANNOT_DECODE:
            bad = _bad_row(piece, depth)
            if bad is None:
                return None
            rows.append(bad)
    return rows


_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|["\[\]{},]', re.DOTALL)


def _split_list(body: bytes) -> list[tuple[bytes, int]] | None:
    """The elements of a JSON list with how deeply each is nested, cut at the commas between them."""
    pieces: list[tuple[bytes, int]] = []
    depth = deepest = start = 0
    for token in _TOKEN.finditer(body):
        mark = body[token.start() : token.start() + 1]
        if mark in b"[{":
            depth += 1
            deepest = max(deepest, depth)
            if depth == 1:
                if mark == b"{" or body[: token.start()].strip() not in (b"", b"\xef\xbb\xbf"):
                    return None
                start = token.end()
        elif mark in b"]}":
            depth -= 1
            if depth == 0:
                pieces.append((body[start : token.start()], deepest - 1))
                return pieces if mark == b"]" and not body[token.end() :].strip() else None
        elif mark == b"," and depth == 1:
            pieces.append((body[start : token.start()], deepest - 1))
            start, deepest = token.end(), 1
        elif token.group() == b'"':
            return None  # a string that never ends
    return None


def _bad_row(piece: bytes, depth: int) -> BadRow | None:
    """Why a record that msgspec refuses cannot be stored. None when it is not even JSON to the lenient decoder."""
    text = piece.strip().decode("utf-8", "replace")
    if depth > _MAX_DEPTH:
        return BadRow("too_deep", text, _first_id(text))
    reasons: list[str] = []

    def number(value: float, reason: str, good: bool) -> float:
        if not good:
            reasons.append(reason)
        return value

    try:
        row = json.JSONDecoder(
            strict=False,
            parse_constant=lambda _: number(0.0, "not_finite", False),
            parse_float=lambda digits: number(float(digits), "not_finite", abs(float(digits)) != float("inf")),
            parse_int=lambda digits: number(*_integer(digits)),
        ).decode(text)
    except (ValueError, RecursionError):
        return None
    if not reasons:
        reasons.append(_reason_in_text(piece, row))
    return BadRow(reasons[0], text, row)


def _integer(digits: str) -> tuple[int, str, bool]:
    fits = len(digits) <= _MAX_DIGITS
    return (int(digits) if fits else 0), "huge_number", fits


def _reason_in_text(piece: bytes, row: Any) -> str:
    try:
        piece.decode()
    except UnicodeDecodeError:
        return "bad_utf8"
    try:
        _encode(row)
    except UnicodeEncodeError:
        return "lone_surrogate"
    return "control_character"  # the one thing left that only the lenient decoder takes


def _first_id(text: str) -> dict[str, int] | None:
    """The id of a record too deep to decode: Open Charge Map writes it first, and the first key is surely not a nested one."""
    match = re.match(r'\{\s*"ID"\s*:\s*(\d{1,18})\s*[,}]', text, re.ASCII)
    return {"ID": int(match[1])} if match else None


def row_id(row: Any) -> int | None:
    """The id of a row, if it has one that can be used."""
    identifier = row.get("ID") if isinstance(row, dict) else None
    return identifier if type(identifier) is int and 0 < identifier <= MAX_ID else None


def row_country_id(row: Any) -> Any:
    info = row.get("AddressInfo") if isinstance(row, dict) else None
    return info.get("CountryID") if isinstance(info, dict) else None


def row_place(row: Any) -> tuple[float, float] | None:
    """Latitude and longitude as they are written, if they are on the globe."""
    info = row.get("AddressInfo") if isinstance(row, dict) else None
    if not isinstance(info, dict):
        return None
    latitude: Any = info.get("Latitude")
    longitude: Any = info.get("Longitude")
    if type(latitude) not in (int, float) or type(longitude) not in (int, float):
        return None
    return (latitude, longitude) if -90 <= latitude <= 90 and -180 <= longitude <= 180 else None


def to_record(row: Any) -> Record | Reject:
    """Maps one row. It takes the row over: what is computed at answer time is removed in place, not from a copy."""
    if isinstance(row, BadRow):
        return Reject(row.reason, row.text[:MAX_REJECT_CHARACTERS])
    if not isinstance(row, dict):
        return _reject("not_an_object", row)
    identifier = row_id(row)
    if identifier is None:
        return _reject("no_id" if row.get("ID") is None else "bad_id", row)
    row.pop("IsRecentlyVerified", None)
    info = row.get("AddressInfo")
    if isinstance(info, dict):
        info.pop("Distance", None)
    try:
        hashed = content_hash(row)
    except (ValueError, OverflowError, RecursionError):
        return _reject("not_encodable", row)
    return Record(f"openchargemap:{identifier}", identifier, row_updated_at(row), _location(row), row, hashed)


def _reject(reason: str, row: Any) -> Reject:
    try:
        text = _encode(row).decode()
    except (ValueError, OverflowError, RecursionError):
        text = ascii(type(row))
    return Reject(reason, text[:MAX_REJECT_CHARACTERS])


# Expanded reference objects, with the field that names the same thing by its id. They say nothing about the charge point.
_POI_REFERENCES = {
    "DataProvider": "DataProviderID",
    "OperatorInfo": "OperatorID",
    "UsageType": "UsageTypeID",
    "StatusType": "StatusTypeID",
    "SubmissionStatus": "SubmissionStatusTypeID",
}
_ADDRESS_REFERENCES = {"Country": "CountryID"}
_CONNECTION_REFERENCES = {
    "ConnectionType": "ConnectionTypeID",
    "StatusType": "StatusTypeID",
    "Level": "LevelID",
    "CurrentType": "CurrentTypeID",
}


def content_hash(data: dict[str, Any]) -> str:
    """The same for the same content, whether the answer was verbose or compact, and wrote nulls or left them out."""
    content = _own_fields(data, _POI_REFERENCES)
    content.pop("DateLastVerified", None)
    info = content.get("AddressInfo")
    if isinstance(info, dict):
        content["AddressInfo"] = _own_fields(info, _ADDRESS_REFERENCES)
    connections = content.get("Connections")
    if isinstance(connections, list):
        content["Connections"] = [
            _own_fields(one, _CONNECTION_REFERENCES) if isinstance(one, dict) else one for one in connections
        ]
    provider = content.get("DataProvider")
    if isinstance(provider, dict):
        content["DataProvider"] = {key: value for key, value in provider.items() if key != "DateLastImported"}
    return blake2b(MAPPING_VERSION + _encode(content), digest_size=16).hexdigest()


def _own_fields(fields: dict[str, Any], references: dict[str, str]) -> dict[str, Any]:
    """Without nulls, and without the objects whose id stands beside them; one that stands alone is content."""
    return {
        key: value
        for key, value in fields.items()
        if value is not None and (key not in references or fields.get(references[key]) is None)
    }


def row_updated_at(row: Any) -> datetime | None:
    text = row.get("DateLastStatusUpdate") if isinstance(row, dict) else None
    if not isinstance(text, str):
        return None
    try:
        parsed = datetime.fromisoformat(text)
        at = parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    # To the millisecond, which is what MongoDB keeps: otherwise a record would look newer than its own stored copy.
    return at.replace(microsecond=at.microsecond // 1000 * 1000) if at >= _EARLIEST else None


def _location(row: dict[str, Any]) -> dict[str, Any] | None:
    """A GeoJSON point, or None. Exactly (0, 0) is no place: it lies in the Atlantic, and is what an empty form saves as."""
    place = row_place(row)
    if place is None or place == (0, 0):
        return None
    latitude, longitude = place
    return {"type": "Point", "coordinates": [float(longitude), float(latitude)]}
