"""GET with the manners that requests lacks: a deadline for the whole call, a call that can be cancelled, a bounded body.

1. `_Call` is one request under way. It holds a duplicate of its connection's socket; `end` shuts that down from any thread,
   which wakes the thread that is blocked in connect, handshake, send or receive, TLS or not.
2. `_PlainConnection`, `_TlsConnection` hand their socket, new or re-used, to the call of the current thread.
3. `_Watchdog` ends calls whose time is up: one thread for all calls of a client.
4. `HttpClient` puts them together and says in our own words what went wrong: requests' texts carry the whole URL.

Nothing is sent twice: one call of `get` is at most one request, because the caller took one token for it.
"""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError, ReadTimeoutError
from urllib3.util.wait import wait_for_write

from .. import __version__
from ..domain.answers import failure
from ..domain.errors import Cancelled
from ..ports import Cancel

USER_AGENT = f"streams-importer/{__version__}"
"""Who we are. Open Charge Map answers 503 for ever to a name with crawler, robot or spider in it."""

MAX_BODY_BYTES = 64 * 1024 * 1024
"""A page of 10,000 records is 8 MB; what is eight times that is no page."""

MAX_ERROR_BODY_BYTES = 64 * 1024
"""Read of an answer that is not 200, only so that its connection can be used again."""

_CHUNK_BYTES = 64 * 1024
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


class _Call:
    """One request under way, that can be ended from any thread. `ended` says why it was."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handle: socket.socket | None = None
        self.ended: str | None = None
        self.woken = threading.Event()

    def watch(self, sock: socket.socket) -> None:
        # A duplicate, because TLS detaches the socket that it wraps, http.client closes it before the body is read, and the
        # number of a closed one may belong to somebody else by the time we shut it down.
        handle = socket.fromfd(sock.fileno(), sock.family, sock.type)
        with self._lock:
            before, self._handle = self._handle, handle
            if self.ended is not None:
                _shut_down(handle)
        if before is not None:
            before.close()

    def end(self, reason: str) -> None:
        with self._lock:
            if self.ended is None:
                self.ended = reason
            if self._handle is not None:
                _shut_down(self._handle)
        self.woken.set()

    def finish(self) -> None:
        """From now on `end` touches no socket: the connection may serve another call already."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle is not None:
            handle.close()


def _shut_down(handle: socket.socket) -> None:
    with contextlib.suppress(OSError):  # not connected any more
        handle.shutdown(socket.SHUT_RDWR)


class _Here(threading.local):
    call: _Call
    """The call that this thread is making: a connection has no other way to learn whom it serves."""


_here = _Here()


class _PlainConnection(HTTPConnection):
    def request(self, *arguments: Any, **options: Any) -> None:
        if self.sock is not None:  # re-used, or connected for TLS
            _here.call.watch(self.sock)
        super().request(*arguments, **options)

    def _new_conn(self) -> socket.socket:
        """As urllib3 does it, but looking up the name and connecting can be ended too."""
        seconds = self.timeout if isinstance(self.timeout, (int, float)) else None
        try:
            addresses = _look_up(self._dns_host, self.port, _here.call)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from None
        slow = False
        for family, kind, protocol, _, address in addresses:
            if _here.call.ended is not None:
                break
            sock = socket.socket(family, kind, protocol)
            try:
                _connect(sock, address, seconds, _here.call)
                return sock
            except OSError as error:
                sock.close()
                slow = isinstance(error, TimeoutError)
        if slow:
            raise ConnectTimeoutError(self, "no address of the host answered in the time allowed")
        raise NewConnectionError(self, "no address of the host could be connected to")


class _TlsConnection(_PlainConnection, HTTPSConnection):
    pass


def _look_up(host: str, port: int, call: _Call) -> list[Any]:
    """The addresses of a name. The system's resolver cannot be ended, so it is left behind in a thread of its own."""
    host = host.strip("[]")
    try:
        ipaddress.ip_address(host)
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except ValueError:
        pass
    found: list[Any] = []

    def look() -> None:
        with contextlib.suppress(OSError, UnicodeError):
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        call.woken.set()

    threading.Thread(target=look, name="look-up", daemon=True).start()
    call.woken.wait()  # for the addresses or for the end of the call, which the watchdog brings about at the latest
    if not found:
        raise socket.gaierror("no address")
    return found


def _connect(sock: socket.socket, address: Any, seconds: float | None, call: _Call) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setblocking(False)
    sock.connect_ex(address)
    call.watch(sock)  # only now: shutting down a socket that does not connect yet would be without effect
    if not wait_for_write(sock, seconds):
        raise TimeoutError
    if call.ended is not None or sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) != 0:
        raise ConnectionError
    sock.settimeout(seconds)


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _TlsPool}


class _Session(requests.Session):
    def get_redirect_target(self, resp: Any) -> None:
        """None: requests reads the whole body of a redirect, without bound, even when told not to follow it."""


class _Watchdog:
    """Ends the calls that take longer than `seconds`, however steadily their bytes drip in."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[_Call, float] = {}  # all are given equally long, so the order of insertion is that of the deadlines
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, call: _Call) -> None:
        with self._lock:
            self._due[call] = time.monotonic() + self._seconds
            if self._thread is None or not self._thread.is_alive():  # not alive: this process was forked off
                self._thread = threading.Thread(target=self._run, name="http-watchdog", daemon=True)
                self._thread.start()

    def remove(self, call: _Call) -> None:
        with self._lock:
            self._due.pop(call, None)

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        # Nobody needs to wake it for a new call: that one's deadline is later than any it sleeps towards.
        while not self._closed.wait(self._end_overdue()):
            pass

    def _end_overdue(self) -> float:
        """Ends what is overdue; seconds until the next deadline."""
        now = time.monotonic()
        with self._lock:
            for call, due in list(self._due.items()):
                if due > now:
                    return due - now
                del self._due[call]
                call.end("timeout")
        return self._seconds


class HttpClient:
    """For any number of threads; up to `pool_size` connections a host are kept open."""

    def __init__(
        self,
        *,
        pool_size: int = 16,
        connect_s: float = 10.0,
        read_s: float = 30.0,
        total_s: float = 60.0,
        max_bytes: int = MAX_BODY_BYTES,
        ca_file: str | None = None,
    ) -> None:
        self._timeouts = (connect_s, read_s)
        self._max_bytes = max_bytes
        self._watchdog = _Watchdog(total_s)
        self._session = _Session()
        # Nothing from the environment: HTTP_PROXY would catch loopback too and see the key, ~/.netrc would put its own
        # Authorization header in the place of ours.
        self._session.trust_env = False
        self._session.verify = ca_file or True
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self._session.headers.update({"User-Agent": USER_AGENT, "Accept": "application/json", "Accept-Encoding": "gzip, deflate"})
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, _Adapter(pool_connections=4, pool_maxsize=pool_size))

    def close(self) -> None:
        self._watchdog.close()
        self._session.close()

    def get(self, url: str, params: Mapping[str, str], headers: Mapping[str, str], cancel: Cancel) -> HttpAnswer:
        """One request, never repeated, no redirect followed. Raises Cancelled, Transient, or ShardRefused (too_large)."""
        call = _here.call = _Call()
        take_back = cancel.on_cancel(lambda: call.end("cancelled"))
        self._watchdog.add(call)
        answer, code = None, ""
        try:
            if call.ended is None:
                answer = self._exchange(url, params, headers)
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

    def _exchange(self, url: str, params: Mapping[str, str], headers: Mapping[str, str]) -> HttpAnswer:
        response = self._session.get(
            url, params=dict(params), headers=dict(headers), timeout=self._timeouts, allow_redirects=False, stream=True
        )
        try:
            body = _read(response, self._max_bytes) if response.status_code == 200 else _read_if_small(response)
            return HttpAnswer(response.status_code, response.headers, body)
        finally:
            response.close()  # a connection whose body was read is back in the pool already; any other is closed


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
