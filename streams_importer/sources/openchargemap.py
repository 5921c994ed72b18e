"""Open Charge Map as it really is: pages by id, filters that vanish without a word, and 200s that carry nothing.

A page is progress only when it proves itself: its ids ascend above the cursor (a cold cache answers in another order, and
going on from there would lose records) and its records belong to the shard (a filter that the server cannot read is dropped,
and the whole world comes back). Anything else is transient. Only an empty list, or an id at the upper end, ends a shard.
"""

from __future__ import annotations

import difflib
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from ..domain.answers import failure
from ..domain.errors import BadSetting, Cancelled, Transient
from ..domain.model import Cursor, Page, Record, Reject
from ..domain.shard_key import Scope
from ..ports import Answer, Cache, Cancel, Upstream
from .ocm_records import (
    MAX_ID,
    WHERE,
    BadRow,
    decode_document,
    decode_rows,
    decode_rows_one_by_one,
    row_id,
    to_record,
)
from .ocm_selection import Selection

COUNTRIES_CACHE = "openchargemap:countries"
COUNTRIES_CACHE_S = 86_400
COUNTRIES_MEMO_S = 3_600.0
"""How long a process trusts its own copy, so that not every page of a country costs a look into the cache."""

MAX_COUNTRIES = 1_000
_CODE = re.compile(r"[A-Z]{2}\Z")
_HABITS = {"UK": "GB", "EL": "GR"}
"""What people type for what the standard says."""


class OpenChargeMap:
    """`fetch` may be called by many threads at once."""

    has_upper_time_bound = False

    def __init__(self, upstream: Upstream, cache: Cache, page_size: int = 1000) -> None:
        self._upstream = upstream
        self._page_size = page_size
        self._countries = _Countries(upstream, cache)
        self._failed = _FailedPages()

    def check_countries(self, codes: Sequence[str], cancel: Cancel) -> None:
        known = self._countries.by_code(cancel)
        unknown = [code for code in dict.fromkeys(codes) if code not in known]
        if unknown:
            raise BadSetting(_unknown_countries(unknown, known))

    def highest_id(self, cancel: Cancel) -> int:
        status = decode_document(self._upstream.get("system/status", {}, cancel).body)
        highest = status.get("MaxPOIId") if isinstance(status, dict) else None
        if type(highest) is not int or not 0 < highest <= MAX_ID:
            raise failure("bad_status", WHERE)
        return highest

    def fetch(self, scope: Scope, cursor: Cursor | None, cancel: Cancel) -> Page:
        after = start_of(scope, cursor)
        if scope.ids is not None and after >= scope.ids.high:
            return Page([], [], None, 0)
        country_id = None if scope.country is None else self._country_id(scope.country, cancel)
        selection = Selection(scope, country_id)
        params = {"compact": "true", "verbose": "false", "sortby": "id_asc", **selection.params}
        params |= {"greaterthanid": str(after), "maxresults": str(self._page_size)}
        answer = self._upstream.get("poi", params, cancel)
        rows = self._decode(answer, (scope.key, after))
        return page_of(rows, selection, after, answer.granted_us)

    def _country_id(self, code: str, cancel: Cancel) -> int:
        country_id = self._countries.by_code(cancel).get(code)
        if country_id is None:
            raise failure("unknown_country", WHERE, code if _CODE.match(code) else "")
        return country_id

    def _decode(self, answer: Answer, place: tuple[str, int]) -> list[Any]:
        """A page that cannot be read is asked for again. The same bytes a second time are not an accident of the way here:
        then the records are taken one by one, and the odd ones among them rejected."""
        try:
            return decode_rows(answer.body)
        except Transient as error:
            if error.code not in ("cut_json", "not_json") or not self._failed.again(place, answer.body):
                raise
            rows = decode_rows_one_by_one(answer.body)
            if rows is None:
                raise
            return rows


def start_of(scope: Scope, cursor: Cursor | None) -> int:
    """The id after which to go on. The cursor was stored where others can write: it never leads out of the shard."""
    low = 0 if scope.ids is None else scope.ids.low
    if cursor is None:
        return low
    if isinstance(cursor, str) and cursor.isascii() and cursor.isdecimal() and len(cursor) <= 18:
        cursor = int(cursor)
    if type(cursor) is not int or not 0 <= cursor <= MAX_ID:
        raise failure("bad_cursor", WHERE)
    return max(cursor, low)


def page_of(rows: Iterable[Any], selection: Selection, after: int, order: int) -> Page:
    """Checks the rows of one answer against what was asked for and maps the shard's own. Raises Transient when they are no
    progress."""
    records: list[Record] = []
    rejects: list[Reject] = []
    ids = selection.scope.ids
    high = MAX_ID if ids is None else ids.high
    seen: set[int] = set()
    last = after
    empty = True
    for row in rows:
        empty = False
        plain = row.row if isinstance(row, BadRow) else row
        identifier = row_id(plain)
        if identifier is not None:
            if identifier > last:
                last = identifier
            elif identifier not in seen:  # seen: the same POI twice in a page, which happens; the sink keeps one
                raise failure("wrong_order", WHERE, f"{identifier} after {last}")
            seen.add(identifier)
            if not _is_stub(row) and selection.is_foreign(plain):
                raise failure("foreign_rows", WHERE)
        if last > high or not (_cannot_tell(row, plain) or selection.is_ours(plain)):
            continue  # another shard's
        match to_record(row):
            case Record() as record:
                records.append(record)
            case Reject() as reject:
                rejects.append(reject)
    if not empty and last == after:
        raise failure("no_progress", WHERE)
    return Page(records, rejects, None if empty or last >= high else last, order)


def _is_stub(row: Any) -> bool:
    """Of a record too deep to decode only the id is known."""
    return isinstance(row, BadRow) and row.reason == "too_deep"


def _cannot_tell(row: Any, plain: Any) -> bool:
    """Where it belongs: it is rejected wherever it is met, so that it is not passed over in silence."""
    return not isinstance(plain, dict) or _is_stub(row)


class _FailedPages:
    """Digests of the last pages that could not be read, by place. Small: a page forgotten costs one more request."""

    LIMIT = 256

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._digests: OrderedDict[tuple[str, int], bytes] = OrderedDict()

    def again(self, place: tuple[str, int], body: bytes) -> bool:
        """Whether this very body failed at this place before."""
        digest = blake2b(body, digest_size=16).digest()
        with self._lock:
            before = self._digests.pop(place, None)
            self._digests[place] = digest
            if len(self._digests) > self.LIMIT:
                self._digests.popitem(last=False)
        return before == digest


class _Countries:
    """Codes and ids by the upstream's own list: asked for once a day by the whole fleet, once an hour read by a process."""

    def __init__(self, upstream: Upstream, cache: Cache) -> None:
        self._upstream = upstream
        self._cache = cache
        self._asking = threading.Lock()
        self._memo: dict[str, int] = {}
        self._memo_until = 0.0

    def by_code(self, cancel: Cancel) -> dict[str, int]:
        # One thread asks and the others wait for it: equal requests at the same time are what gets a key banned.
        while not self._asking.acquire(timeout=0.1):
            if cancel.cancelled:
                raise Cancelled("waiting for the list of countries was cancelled")
        try:
            if not self._memo or time.monotonic() >= self._memo_until:
                self._memo = self._cached() or self._asked(cancel)
                self._memo_until = time.monotonic() + COUNTRIES_MEMO_S
            return self._memo
        finally:
            self._asking.release()

    def _cached(self) -> dict[str, int] | None:
        stored = self._cache.get(COUNTRIES_CACHE)
        try:
            return None if stored is None else checked_countries(msgspec.json.decode(stored))
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None

    def _asked(self, cancel: Cancel) -> dict[str, int]:
        reference = decode_document(self._upstream.get("referencedata", {}, cancel).body)
        listed = reference.get("Countries") if isinstance(reference, dict) else None
        rows = [row for row in listed if isinstance(row, dict)] if isinstance(listed, list) else []
        coded = {row["ISOCode"]: row.get("ID") for row in rows if _is_code(row.get("ISOCode"))}
        countries = checked_countries(coded)
        if countries is None:
            raise failure("bad_countries", WHERE)
        self._cache.put(COUNTRIES_CACHE, msgspec.json.encode(countries), COUNTRIES_CACHE_S)
        return countries


def _is_code(code: Any) -> bool:
    return isinstance(code, str) and _CODE.match(code) is not None


def checked_countries(value: Any) -> dict[str, int] | None:
    """The value itself if it is a plausible map of codes to different ids. The cache is a place where others can write."""
    if not isinstance(value, dict) or not 0 < len(value) <= MAX_COUNTRIES:
        return None
    good = all(_is_code(code) and type(number) is int and 0 < number < 10**6 for code, number in value.items())
    return value if good and len(set(value.values())) == len(value) else None


def _unknown_countries(unknown: Sequence[str], known: dict[str, int]) -> str:
    """One line: which, how codes look, and what may have been meant."""
    shown = ", ".join(ascii(code[:20])[1:-1] for code in unknown[:10]) + (" …" if len(unknown) > 10 else "")
    near = dict.fromkeys(code for wrong in unknown[:10] for code in _near(wrong.upper()[:20], known))
    hint = f"; near: {', '.join(list(near)[:5])}" if near else ""
    return f"--country {shown}: {WHERE} does not know it; a code has two capital letters, as in DE, GB or US{hint}"


def _near(code: str, known: dict[str, int]) -> list[str]:
    likely = [one for one in (code, _HABITS.get(code, ""), code[::-1]) if one in known]
    return likely or difflib.get_close_matches(code, sorted(known), n=3, cutoff=0.5)
