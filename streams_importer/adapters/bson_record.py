"""One record as BSON, or why MongoDB would refuse it. A refused document would take its whole bulk along."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import bson
from bson.errors import BSONError
from bson.int64 import Int64
from bson.raw_bson import RawBSONDocument

from ..domain.model import Record
from ..domain.text import plain

MAX_DOCUMENT_BYTES = 16 * 1024 * 1024 - 1024
"""MongoDB's limit, less what it adds itself (`_id`) and what an update keeps (`firstImportedAt`)."""
MAX_DEPTH = 100
"""Levels that MongoDB promises to support."""
MAX_ID_BYTES = 1024
"""An id is sent with every find of its page; no real one is longer, and a page of them must fit into one command."""
MAX_REASON = 200

_ENDS_OF_NOT_FINITE = (b"\xf8\x7f", b"\xf8\xff", b"\xf0\x7f", b"\xf0\xff")
"""How NaN and the infinities end, as decoders make them. Other bytes may look so too; no such pair, no such number."""


class Refused(Exception):
    """MongoDB, or the reader of JSON behind it, could not take this record; the text says why."""


def check_id(external_id: str) -> None:
    try:
        size = len(external_id.encode())
    except UnicodeEncodeError:
        raise Refused("its id has a lone surrogate") from None
    if size > MAX_ID_BYTES:
        raise Refused(f"its id is longer than {MAX_ID_BYTES} bytes")


def encode_record(record: Record, source: str, order: int, now: datetime, *, new: bool) -> RawBSONDocument:
    """The stored fields of a record, encoded for the only time. A new one has the time of its first import too."""
    fields: dict[str, Any] = {
        "externalId": record.external_id,
        "source": source,
        "sourceId": record.source_id,
        "sourceUpdatedAt": record.updated_at,
    }
    if record.location is not None:
        fields["location"] = record.location
    fields |= {"data": record.data, "contentHash": record.content_hash, "order": Int64(order)}
    if new:
        fields["firstImportedAt"] = now
    fields["changedAt"] = now
    try:
        raw = bson.encode(fields)
    except (BSONError, OverflowError, RecursionError, UnicodeError, ValueError, TypeError) as error:
        raise Refused(_why(error)) from None
    _check(raw, record)
    return RawBSONDocument(raw)


def as_text(record: Record) -> str:
    """A refused record for people: JSON where that is possible. Escaped, so that a lone surrogate survives as text."""
    try:
        return json.dumps(record.data, default=str)
    except (ValueError, TypeError, RecursionError):
        return f"(cannot be written as JSON) {record.external_id}"


def _check(raw: bytes, record: Record) -> None:
    if len(raw) > MAX_DOCUMENT_BYTES:
        raise Refused("it is larger than 16 MB")
    # The searches run over bytes in C and find nothing in an ordinary record; only a suspect is walked through.
    nested = raw.count(b"\x03") + raw.count(b"\x04")
    if nested > MAX_DEPTH or any(end in raw for end in _ENDS_OF_NOT_FINITE):
        _walk(record.data)
        _walk(record.location)
        _walk(record.source_id)


def _walk(root: Any) -> None:
    """Level by level, without recursion: it looks at what may be nested too deep."""
    level = [root]
    for _ in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for value in level:
            if isinstance(value, float):
                if not math.isfinite(value):
                    raise Refused(f"it has a number that is not finite ({value})")
            elif isinstance(value, Mapping):
                below.extend(value.values())
            elif isinstance(value, list | tuple):
                below.extend(value)
        if not below:
            return
        level = below
    raise Refused(f"it is nested deeper than {MAX_DEPTH} levels")


def _why(error: Exception) -> str:
    if isinstance(error, UnicodeError) or "UTF-8" in str(error) or "surrogate" in str(error):
        return "it has text with a lone surrogate"
    if isinstance(error, OverflowError):
        return "it has an integer of more than 64 bits"
    if isinstance(error, RecursionError):
        return f"it is nested deeper than {MAX_DEPTH} levels"
    # pymongo quotes the document after its first sentence.
    return plain(f"MongoDB cannot store it: {str(error).partition(' | ')[0]}", MAX_REASON)
