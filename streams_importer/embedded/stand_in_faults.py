"""What can be made to go wrong, switched at run time: rules that match requests, and a rate limit.

| fault | value | what happens |
|---|---|---|
| `status` | code, or `{"code", "retry_after", "retry_after_date_s", "body"}` | that status; Retry-After verbatim or as a date |
| `empty_body`, `null`, `html`, `error_body` | | 200 with that instead of the rows |
| `cut_json` | share kept (0.5) | 200 with a body that ends early, its length as announced |
| `cut_body` | share kept (0.5) | the connection closes before the announced length |
| `creation_order` | | a cold cache: order of creation instead of `id_asc` |
| `filter_ignored` | parameters (all but the keyset) | they are dropped, and the whole world answers |
| `repeat_poi` | how many (1) | so many rows come twice, within the page's size |
| `slow` | seconds | before the first byte |
| `drip` | bytes a second | the body trickles |
| `reset` | | the connection is reset instead of an answer |
| `redirect` | URL | 302 to there |
| `huge_body` | bytes (64 MiB) | white space before the rows, length announced |
| `endless_body` | bytes (64 MiB) | the same, length not announced |
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

FAULTS = (
    *("status", "empty_body", "null", "html", "error_body", "cut_json", "cut_body", "creation_order", "filter_ignored"),
    *("repeat_poi", "slow", "drip", "reset", "redirect", "huge_body", "endless_body"),
)
HUGE_BODY_BYTES = 64 * 1024 * 1024
_HTML = b"<!DOCTYPE html><html><head><title>Just a moment...</title></head><body>Checking your browser</body></html>"


@dataclass(slots=True)
class Reply:
    """An answer and the way it is sent."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json; charset=utf-8"
    headers: dict[str, str] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    wait_s: float = 0.0
    bytes_per_s: float | None = None
    send_only: int | None = None
    """Close the connection after so many bytes of the body."""
    announce_length: bool = True
    reset: bool = False


@dataclass(slots=True)
class Rule:
    """Applies to the next `times` requests (None: all) with this path and, among others, these parameters."""

    fault: str
    value: Any = None
    times: int | None = 1
    path: str | None = "/poi"
    params: dict[str, str] = field(default_factory=dict)

    def matches(self, path: str, params: Mapping[str, str]) -> bool:
        return self.path in (None, path) and all(params.get(name) == value for name, value in self.params.items())


class Faults:
    """The rules in force. The first that matches a request is used up by it; the others wait for their turn."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[Rule] = []

    def add(
        self,
        fault: str,
        value: Any = None,
        *,
        times: int | None = 1,
        path: str | None = "/poi",
        params: Mapping[str, Any] | None = None,
    ) -> None:
        if fault not in FAULTS:
            raise ValueError(f"fault {fault!r}: must be one of {', '.join(FAULTS)}")
        wanted = {name.lower(): str(value) for name, value in (params or {}).items()}
        with self._lock:
            self._rules.append(Rule(fault, value, times, path, wanted))

    def clear(self) -> None:
        with self._lock:
            self._rules.clear()

    @property
    def rules(self) -> list[Rule]:
        """Those that are not used up."""
        with self._lock:
            return list(self._rules)

    def take(self, path: str, params: Mapping[str, str]) -> Rule | None:
        with self._lock:
            for rule in self._rules:
                if rule.matches(path, params):
                    if rule.times is not None:
                        rule.times -= 1
                        if rule.times <= 0:
                            self._rules.remove(rule)
                    return rule
        return None


class RateLimit:
    """At most so many requests in any second; what comes on top gets a 429 and does not count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._per_second: int | None = None
        self._retry_after: str | None = None
        self._granted: deque[float] = deque()

    def set(self, per_second: int | None, retry_after: str | None = None) -> None:
        with self._lock:
            self._per_second, self._retry_after = per_second, retry_after
            self._granted.clear()

    def refusal(self, now: float) -> Reply | None:
        with self._lock:
            if self._per_second is None:
                return None
            while self._granted and now - self._granted[0] >= 1.0:
                self._granted.popleft()
            if len(self._granted) < self._per_second:
                self._granted.append(now)
                return None
            return status_reply({"code": 429, "retry_after": self._retry_after})


def status_reply(value: Any) -> Reply:
    details = value if isinstance(value, Mapping) else {"code": value}
    code = int(details["code"])
    reply = Reply(code, str(details.get("body", f"{code} as ordered")).encode(), "text/plain; charset=utf-8")
    if details.get("retry_after") is not None:
        reply.headers["Retry-After"] = str(details["retry_after"])
    elif details.get("retry_after_date_s") is not None:
        reply.headers["Retry-After"] = formatdate(time.time() + float(details["retry_after_date_s"]), usegmt=True)
    return reply


def replaced(rule: Rule) -> Reply | None:
    """The answer that a rule gives in place of the rows; None for rules that only deform them."""
    match rule.fault:
        case "status":
            return status_reply(rule.value)
        case "empty_body":
            return Reply()
        case "null":
            return Reply(body=b"null")
        case "html":
            return Reply(body=_HTML, content_type="text/html; charset=utf-8")
        case "error_body":
            return Reply(body=b'{"error":{"code":500,"message":"An error has occurred."}}')
        case "reset":
            return Reply(reset=True)
        case "redirect":
            return Reply(302, headers={"Location": str(rule.value or "https://elsewhere.invalid/v3/poi")})
    return None


def deform(reply: Reply, rule: Rule) -> None:
    """Changes how a good answer looks or travels."""
    kept = int(len(reply.body) * float(rule.value or 0.5)) if rule.fault in ("cut_json", "cut_body") else 0
    match rule.fault:
        case "cut_json":
            reply.body = reply.body[:kept]
        case "cut_body":
            reply.send_only = kept
        case "slow":
            reply.wait_s = float(rule.value)
        case "drip":
            reply.bytes_per_s = float(rule.value)
        case "huge_body" | "endless_body":
            reply.body = b" " * int(rule.value or HUGE_BODY_BYTES) + reply.body
            reply.announce_length = rule.fault == "huge_body"
