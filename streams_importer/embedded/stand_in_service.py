"""The local Open Charge Map without its sockets: a request in, a reply out, a line in the log."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from email.message import Message
from typing import Any

from .stand_in_faults import Faults, RateLimit, Reply, Rule, deform, replaced, status_reply
from .stand_in_odd import RECORD_KINDS, spoiled
from .stand_in_points import COUNTRIES, Point, read_points
from .stand_in_queries import Points, Query, parse_query, select

_ROBOTS = ("crawler", "robot", "spider")
_EMPTY_LISTS = (
    *("ChargerTypes", "ConnectionTypes", "CurrentTypes", "DataProviders", "Operators", "StatusTypes", "SubmissionStatusTypes"),
    *("UsageTypes", "UserCommentTypes", "CheckinStatusTypes", "DataTypes", "MetadataGroups"),
)


Headers = Mapping[str, str] | Message


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it was answered. `at` is monotonic, `wall` seconds since 1970; a key in `params` is masked."""

    at: float
    wall: float
    path: str
    params: dict[str, str]
    status: int
    rows: int
    first_id: int | None
    last_id: int | None
    user_agent: str
    key_in_header: bool
    fault: str | None


class Service:
    """Points, faults and log. Everything here may be called from any thread, and through `/_control` from another process."""

    def __init__(self, points: Iterable[Point], key: str | None = None) -> None:
        self.points = Points(points)
        self.faults = Faults()
        self._key = key
        self._rate = RateLimit()
        self._spoiled: dict[int, str] = {}
        self._log: list[Asked] = []
        self._lock = threading.Lock()

    # What a test or a demo can do to it.

    def add_fault(
        self, fault: str, value: Any = None, times: int | None = 1, path: str | None = "/poi", params: Any = None
    ) -> None:
        self.faults.add(fault, value, times=times, path=path, params=params)

    def clear_faults(self) -> None:
        self.faults.clear()

    def set_key(self, key: str | None) -> None:
        self._key = key

    def set_rate_limit(self, per_second: int | None, retry_after: str | None = None) -> None:
        """From now on, for everybody; None takes it away."""
        self._rate.set(per_second, retry_after)

    def spoil(self, kinds: Mapping[Any, str]) -> None:
        """Makes the records of these ids unfit, each in the named way. Replaces what was spoiled before; `{}` restores all."""
        for kind in kinds.values():
            if kind not in RECORD_KINDS:
                raise ValueError(f"record kind {kind!r}: must be one of {', '.join(RECORD_KINDS)}")
        self._spoiled = {int(identifier): kind for identifier, kind in kinds.items()}

    def update_points(self, pois: Iterable[Mapping[str, Any]]) -> None:
        """Replaces the points with these ids, or adds them."""
        with self._lock:
            self.points = self.points.changed(read_points(pois))

    def delete_points(self, ids: Iterable[int]) -> None:
        with self._lock:
            self.points = self.points.changed((), ids)

    def ids(self) -> list[int]:
        return list(self.points.ids)

    def poi(self, identifier: int) -> dict[str, Any]:
        """The record as served, unless it is spoiled."""
        poi: dict[str, Any] = json.loads(self.points.get(identifier).body)
        return poi

    def log(self) -> list[Asked]:
        with self._lock:
            return list(self._log)

    def clear_log(self) -> None:
        with self._lock:
            self._log.clear()

    # What the upstream does.

    def answer(self, path: str, params: Mapping[str, str], headers: Headers) -> Reply:
        """`path` is what follows `/v3`; the names of parameters are in lower case."""
        now = time.monotonic()
        rule: Rule | None = None
        reply = self._rate.refusal(now)
        if reply is None:
            rule = self.faults.take(path, params)
            reply = (replaced(rule) if rule else None) or self._refusal(params, headers) or self._route(path, params, rule)
            if rule is not None and reply.status == 200:
                deform(reply, rule)
        # Logged before it is sent: who has an answer in hand finds it in the log.
        self._note(now, path, params, headers, reply, rule)
        return reply

    def _refusal(self, params: Mapping[str, str], headers: Headers) -> Reply | None:
        agent = (headers.get("User-Agent") or "").lower()
        if any(word in agent for word in _ROBOTS):
            return status_reply({"code": 503, "body": "Service unavailable for robots"})
        if self._key is not None and self._key not in (headers.get("X-API-Key"), params.get("key")):
            return status_reply({"code": 403, "body": "You must specify a valid API key, as header X-API-Key or as key="})
        return None

    def _route(self, path: str, params: Mapping[str, str], rule: Rule | None) -> Reply:
        if path == "/poi":
            return self._poi(params, rule)
        if path == "/system/status":
            return Reply(body=json.dumps(_system_status(self.points)).encode())
        if path == "/referencedata":
            return Reply(body=_reference_data())
        return status_reply({"code": 404, "body": "Not found"})

    def _poi(self, params: Mapping[str, str], rule: Rule | None) -> Reply:
        fault = rule.fault if rule else None
        query = _ignoring(rule.value, params) if rule and fault == "filter_ignored" else parse_query(params)
        rows = select(self.points, query, creation_order=fault == "creation_order")
        if rule and fault == "repeat_poi":
            rows = _repeated(rows, int(rule.value or 1), query.limit)
        bodies = [row.body for row in rows]
        if kinds := self._spoiled:
            bodies = [spoiled(kinds[row.id], row.body) if row.id in kinds else row.body for row in rows]
        return Reply(body=b"[" + b",".join(bodies) + b"]", ids=[row.id for row in rows])

    def _note(self, now: float, path: str, params: Mapping[str, str], headers: Headers, reply: Reply, rule: Rule | None) -> None:
        shown = {name: "***" if name == "key" else value for name, value in params.items()}
        first, last = (reply.ids[0], reply.ids[-1]) if reply.ids else (None, None)
        agent, in_header = headers.get("User-Agent") or "", "X-API-Key" in headers
        status, fault = reply.status, rule.fault if rule else None
        asked = Asked(now, time.time(), path, shown, status, len(reply.ids), first, last, agent, in_header, fault)
        with self._lock:
            self._log.append(asked)


def as_json(log: list[Asked]) -> list[dict[str, Any]]:
    return [asdict(asked) for asked in log]


def _ignoring(names: Iterable[str] | None, params: Mapping[str, str]) -> Query:
    if names is None:
        return parse_query(params).whole_world()
    return parse_query({name: value for name, value in params.items() if name not in names})


def _repeated(rows: list[Point], times: int, limit: int) -> list[Point]:
    """The first `times` rows come twice in a row; the page keeps its size, so its last rows fall off."""
    return [row for index, row in enumerate(rows) for _ in range(2 if index < times else 1)][:limit]


def _system_status(points: Points) -> dict[str, Any]:
    modified = max((row.updated for row in points.rows if row.updated is not None), default=0.0)
    created = max((row.created for row in points.rows), default=0.0)
    newest = points.ids[-1] if points.ids else 0
    return {
        "SystemVersion": "3.0.2",
        "POIDataLastModified": _iso(modified),
        "POIDataLastCreated": _iso(created),
        "DataHash": hashlib.md5(f"{newest}.{len(points)}.{modified}".encode(), usedforsecurity=False).hexdigest(),
        "MaxPOIId": newest,
        "ServerTime": _iso(time.time()),
    }


def _reference_data() -> bytes:
    countries = [
        {"ID": country.id, "ISOCode": country.iso, "ContinentCode": country.continent, "Title": country.title}
        for country in COUNTRIES
    ]
    return json.dumps({**{name: [] for name in _EMPTY_LISTS}, "Countries": countries, "UserProfile": None}).encode()


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
