"""GET with the manners that requests lacks: a deadline for the whole call, a call that can be cancelled, a bounded body.

Nothing is sent twice: one call of `get` is at most one request, because the caller took one token for it. What went wrong is
said in our own words: requests' texts carry the whole URL. Nothing is sent where the host rule does not allow it.
"""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError, ReadTimeoutError

from .. import __version__
from ..domain.answers import failure
from ..domain.errors import Cancelled
from ..domain.hosts import HostRule
from ..domain.redaction import SECRETS
from ..ports import Cancel
from .http_calls import Adapter, Call, Session, Watchdog, here, refuse

USER_AGENT = f"streams-importer/{__version__}"
"""Who we are. Open Charge Map answers 503 for ever to a name with crawler, robot or spider in it."""

MAX_BODY_BYTES = 64 * 1024 * 1024
"""A page of 10,000 records is 8 MB; what is eight times that is no page."""

MAX_ERROR_BODY_BYTES = 64 * 1024
"""Read of an answer that is not 200, only so that its connection can be used again."""

_CHUNK_BYTES = 64 * 1024
_OPEN_HEADERS = frozenset(
    ("user-agent", "accept", "accept-encoding", "connection", "range", "if-none-match", "if-modified-since")
)
"""Headers that say nothing secret. Whatever else a caller sends counts as a secret."""
_NO_ANSWER = (requests.RequestException, urllib3.exceptions.HTTPError, http.client.HTTPException, OSError, ValueError)
"""Everything that requests and what is below it are known to let through; ValueError for names that are no host names."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """`headers` are looked up in any case. The body is complete for status 200, and of no importance for any other."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _TooLarge(Exception):
    """The body has more bytes than allowed."""


class HttpClient:
    """For any number of threads; up to `pool_size` connections a host are kept open. Without `hosts` nobody is trusted: then
    it does public https without secrets."""

    def __init__(
        self,
        *,
        hosts: HostRule | None = None,
        pool_size: int = 16,
        connect_s: float = 10.0,
        read_s: float = 30.0,
        total_s: float = 60.0,
        max_bytes: int = MAX_BODY_BYTES,
        ca_file: str | None = None,
    ) -> None:
        self._hosts = hosts or HostRule()
        self._timeouts = (connect_s, read_s)
        self._max_bytes = max_bytes
        self._watchdog = Watchdog(total_s)
        self._session = Session()
        # Nothing from the environment: HTTP_PROXY would catch loopback too and see the key, ~/.netrc would put its own
        # Authorization header in the place of ours.
        self._session.trust_env = False
        self._session.verify = ca_file or True
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._session.headers.update({"User-Agent": USER_AGENT, "Accept": "application/json", "Accept-Encoding": "gzip, deflate"})
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, Adapter(pool_connections=4, pool_maxsize=pool_size))

    def close(self) -> None:
        self._watchdog.close()
        self._session.close()

    def check(self, url: str, headers: Mapping[str, str]) -> None:
        """Raises ImportRefused when `get` would refuse to send this: for those who take a token first."""
        refuse(self._hosts.refusal(url, with_secret=_has_secret(url, headers)))

    def get(self, url: str, params: Mapping[str, str], headers: Mapping[str, str], cancel: Cancel) -> HttpAnswer:
        """One request, never repeated, no redirect followed. Raises Cancelled, Transient, ShardRefused (too_large), or
        ImportRefused (host_refused)."""
        call = here.call = Call(self._hosts)
        take_back = cancel.on_cancel(lambda: call.end("cancelled"))
        self._watchdog.add(call)
        answer, code = None, ""
        try:
            if call.ended is None:
                answer = self._exchange(call, url, params, headers)
        except _TooLarge:
            code = "too_large"
        except _NO_ANSWER as error:
            code = _code_of(error)
        finally:
            call.finish()
            self._watchdog.remove(call)
            take_back()
        # Raised here, outside of the handlers, so that no exception of requests with its URL hangs on ours.
        if call.ended == "cancelled":
            raise Cancelled("the request was cancelled")
        if call.ended is not None or answer is None:
            # Also when the body seems complete: one that only ends with its connection looks so when we shut that down.
            raise failure(call.ended or code, _host(url))
        return answer

    def _exchange(self, call: Call, url: str, params: Mapping[str, str], headers: Mapping[str, str]) -> HttpAnswer:
        request = self._session.prepare_request(requests.Request("GET", url, dict(headers), params=dict(params)))
        call.with_secret = _has_secret(request.url or "", request.headers)
        response = self._session.send(request, timeout=self._timeouts, allow_redirects=False, stream=True)
        try:
            body = _read(response, self._max_bytes) if response.status_code == 200 else _read_if_small(response)
            return HttpAnswer(response.status_code, response.headers, body)
        finally:
            response.close()  # a connection whose body was read is back in the pool already; any other is closed


def _has_secret(url: str, headers: Mapping[str, str]) -> bool:
    return any(name.lower() not in _OPEN_HEADERS for name in headers) or SECRETS.redacted(url) != url


def _read(response: requests.Response, max_bytes: int) -> bytes:
    length = response.headers.get("Content-Length", "")
    if length.isdecimal() and len(length) < 20 and int(length) > max_bytes:
        raise _TooLarge
    chunks, size = [], 0
    for chunk in response.iter_content(_CHUNK_BYTES):  # unpacked: a small gzip can hold a large body
        size += len(chunk)
        if size > max_bytes:
            raise _TooLarge
        chunks.append(chunk)
    return b"".join(chunks)


def _read_if_small(response: requests.Response) -> bytes:
    try:
        return _read(response, MAX_ERROR_BODY_BYTES)
    except (_TooLarge, *_NO_ANSWER):
        return b""  # the status has said enough


def _code_of(error: Exception) -> str:
    """What happened, by the class of the exception and of the reasons within it; its text is never passed on."""
    reason: Any = error.args[0] if error.args else None
    reasons = (error, reason, getattr(reason, "reason", None))

    def met(*classes: type[BaseException]) -> bool:
        return any(isinstance(one, classes) for one in reasons)

    if met(requests.Timeout, ReadTimeoutError, TimeoutError) or (met(ConnectTimeoutError) and not met(NewConnectionError)):
        return "timeout"
    if met(requests.exceptions.SSLError, urllib3.exceptions.SSLError):
        return "tls"
    if met(NameResolutionError):
        return "dns"
    if met(NewConnectionError):
        return "connect"
    if met(requests.exceptions.ContentDecodingError):
        return "bad_encoding"
    if met(requests.exceptions.ChunkedEncodingError):
        return "cut_off"
    # What is left: a connection that broke, an answer that is not HTTP, or a request that could not even be made.
    within = (error, *getattr(reason, "args", ()))
    broke = any(isinstance(one, OSError) and not isinstance(one, requests.RequestException) for one in within)
    return "reset" if broke else "not_http"


def _host(url: str) -> str:
    try:
        return urlsplit(url).netloc.rpartition("@")[2] or "the upstream"
    except ValueError:
        return "the upstream"
