"""What an answer means: one table from what came back (or did not) to one of five classes. Pure: no clock, no socket.

GOOD            the body may be read
TRANSIENT       try again: the upstream or the way to it had a bad moment
WEATHER         the upstream asks everybody to wait
SHARD_REFUSED   this request will never be answered, whoever asks
IMPORT_REFUSED  no request will be answered until a person changes something

A code is a short word that people filter dead letters by: it never changes. A text never carries what the upstream wrote,
nor a query: an upstream may well repeat a key in its complaint.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import Enum
from urllib.parse import urlsplit

from .errors import ImportRefused, ShardRefused, Transient, UpstreamError, Weather

MAX_WAIT_S = 3600.0
"""An upstream that asks for more than an hour is asked again after one: a typing error there must not stop us for a year."""

_SECONDS = re.compile(r"\d{1,12}(\.\d{1,9})?\Z", re.ASCII)
_HOST = re.compile(r"[a-z0-9_.:\[\]-]{1,253}\Z")


class Kind(Enum):
    GOOD = "good"
    TRANSIENT = "transient"
    WEATHER = "weather"
    SHARD_REFUSED = "shard refused"
    IMPORT_REFUSED = "import refused"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The class of an answer, with the words for it. `wait_s` is None when the upstream did not say how long."""

    kind: Kind
    code: str = "ok"
    message: str = ""
    wait_s: float | None = None


_REDIRECTS = (301, 302, 303, 307, 308)

_BY_STATUS = {
    401: Verdict(Kind.IMPORT_REFUSED, "key_refused", "answered 401: the API key is missing or refused; set OCM_API_KEY"),
    403: Verdict(Kind.IMPORT_REFUSED, "key_refused", "answered 403: the API key is missing, refused or banned; set OCM_API_KEY"),
    407: Verdict(Kind.IMPORT_REFUSED, "http_407", "answered 407: a proxy in between wants a password"),
    408: Verdict(Kind.TRANSIENT, "http_408", "answered 408: it gave up waiting for our request"),
    421: Verdict(Kind.TRANSIENT, "http_421", "answered 421: the connection led to the wrong server"),
    425: Verdict(Kind.TRANSIENT, "http_425", "answered 425: too early"),
}
"""Statuses that are not what their hundred says."""

_WITHOUT_STATUS: dict[str, tuple[type[Transient] | type[ShardRefused], str]] = {
    # The way there and back.
    "dns": (Transient, "the name of the host could not be looked up"),
    "connect": (Transient, "no connection could be made"),
    "tls": (Transient, "the TLS handshake failed (a certificate, or something that is not TLS)"),
    "timeout": (Transient, "no complete answer in the time allowed"),
    "reset": (Transient, "the connection was closed before an answer came"),
    "cut_off": (Transient, "the connection was closed in the middle of the answer"),
    "bad_encoding": (Transient, "the compressed answer cannot be unpacked"),
    "not_http": (Transient, "the request could not be made, or the answer is not HTTP"),
    "too_large": (ShardRefused, "the answer is larger than allowed"),
    # What a 200 carried.
    "empty_body": (Transient, "200 with an empty body"),
    "null_body": (Transient, "200 with null in place of data"),
    "html_body": (Transient, "200 with a web page in place of data"),
    "cut_json": (Transient, "200 with JSON that ends too early"),
    "not_json": (Transient, "200 with something that is not JSON"),
    "not_a_list": (Transient, "200 with something else than a list of records"),
    "bad_status": (Transient, "200 without a usable highest id"),
    "bad_countries": (Transient, "200 without a usable list of countries"),
    # What a list held.
    "wrong_order": (Transient, "the records are not in order of id above the cursor"),
    "foreign_rows": (Transient, "the page holds records that were not asked for: the filter was dropped"),
    "no_progress": (Transient, "no record of the page has an id to go on from"),
    "unknown_country": (ShardRefused, "the upstream does not know this country"),
    "bad_cursor": (ShardRefused, "the stored cursor is not an id"),
}


def failure(code: str, where: str, detail: str = "") -> UpstreamError:
    """The exception for something that went wrong without a telling status."""
    kind, text = _WITHOUT_STATUS[code]
    return kind(code, f"{where}: {text}{detail and ': ' + detail}")


def classify(status: int, headers: Mapping[str, str]) -> Verdict:
    """What an answer with this status and these headers is. A good one may still disappoint once its body is read."""
    seen = {name.lower(): value for name, value in headers.items()}
    content_type = seen.get("content-type", "").partition(";")[0].strip().lower()
    if status == 200:
        return _html_body() if content_type == "text/html" else Verdict(Kind.GOOD)
    if status == 429 or (status == 503 and "retry-after" in seen):
        wait_s = retry_after_seconds(seen.get("retry-after"), seen.get("date"))
        return Verdict(Kind.WEATHER, f"http_{status}", f"answered {status}: asks us to wait", wait_s)
    if status in _REDIRECTS:
        return _redirect(status, seen.get("location", ""))
    if status == 403 and content_type == "text/html":
        # The API itself refuses a key in plain text; a web page comes from the proxy in front of it.
        return Verdict(Kind.IMPORT_REFUSED, "forbidden", "answered 403 with a web page: a proxy in front of the API refuses us")
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if 400 <= status < 500:
        return Verdict(Kind.SHARD_REFUSED, f"http_{status}", f"answered {status}")
    wait_s = retry_after_seconds(seen.get("retry-after"), seen.get("date"))
    return Verdict(Kind.TRANSIENT, f"http_{status}", f"answered {status}", wait_s)


def error_of(verdict: Verdict, status: int, where: str) -> UpstreamError | None:
    """The exception that says the same as the verdict, or None for a good answer."""
    message = f"{where}: {verdict.message}"
    match verdict.kind:
        case Kind.GOOD:
            return None
        case Kind.TRANSIENT:
            return Transient(verdict.code, message, status, verdict.wait_s)
        case Kind.WEATHER:
            return Weather(verdict.code, message, status, verdict.wait_s)
        case Kind.SHARD_REFUSED:
            return ShardRefused(verdict.code, message, status)
        case Kind.IMPORT_REFUSED:
            return ImportRefused(verdict.code, message, status)


def retry_after_seconds(value: str | None, date_header: str | None) -> float | None:
    """Seconds to wait, from 0 to an hour; None when the header is absent or means nothing.

    A date counts from the answer's own `Date`, never from our clock: the two may be minutes apart.
    """
    if value is None:
        return None
    value = value.strip()
    if _SECONDS.match(value):
        return min(float(value), MAX_WAIT_S)
    until, since = _http_date(value), _http_date(date_header)
    if until is None or since is None:
        return None
    return min(max((until - since).total_seconds(), 0.0), MAX_WAIT_S)


def _http_date(text: str | None) -> datetime | None:
    try:
        parsed = parsedate_to_datetime(text or "")
        # Without a zone ("-0000") it is UTC by the rules of HTTP.
        return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _html_body() -> Verdict:
    return Verdict(Kind.TRANSIENT, "html_body", _WITHOUT_STATUS["html_body"][1])


def _redirect(status: int, location: str) -> Verdict:
    """Never followed: it would carry the key, and our requests, to a host that nobody named."""
    try:
        host = urlsplit(location).netloc.rpartition("@")[2].lower()
    except ValueError:
        host = "?"
    shown = host if _HOST.match(host) else "an unreadable address"
    target = shown if host else "another path of the same host"
    message = f"answered {status}, a redirect to {target}, which is never followed; if the API moved, set OCM_BASE_URL"
    return Verdict(Kind.IMPORT_REFUSED, "redirect", message)
