"""Calls over HTTP that can be ended from any thread, at any time.

1. `Call` is one request under way. It holds a duplicate of its connection's socket; `end` shuts that down from any thread,
   which wakes the thread that is blocked in connect, handshake, send or receive, TLS or not.
2. `_PlainConnection`, `_TlsConnection` hand their socket, new or re-used, to the call of the current thread.
   They ask the call whether they may: no request leaves, and no address is connected to, that its host rule does not allow.
3. `Watchdog` ends calls whose time is up: one thread for all calls of a client.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util.wait import wait_for_write

from ..domain.errors import ImportRefused
from ..domain.hosts import HostRule


class Call:
    """One request under way, that can be ended from any thread. `ended` says why it was."""

    def __init__(self, hosts: HostRule) -> None:
        self._hosts = hosts
        self.with_secret = True
        """Until somebody has looked."""
        self._lock = threading.Lock()
        self._handle: socket.socket | None = None
        self.ended: str | None = None
        self.woken = threading.Event()

    def check_place(self, url: str) -> None:
        refuse(self._hosts.refusal(url, with_secret=self.with_secret))

    def check_addresses(self, host: str, port: int, found: list[Any]) -> None:
        """All of them: a name that leads inside as well as outside is not to be trusted with the order."""
        for *_, address in found:
            refuse(self._hosts.address_refusal(host, port, str(address[0])))

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


def refuse(reason: str | None) -> None:
    """The import is paused over it: no shard can work, and none is burnt, until a person changes something."""
    if reason is not None:
        raise ImportRefused("host_refused", reason)


def _shut_down(handle: socket.socket) -> None:
    with contextlib.suppress(OSError):  # not connected any more
        handle.shutdown(socket.SHUT_RDWR)


class _Here(threading.local):
    call: Call
    """The call that this thread is making: a connection has no other way to learn whom it serves."""


here = _Here()


class _PlainConnection(HTTPConnection):
    protocol = "http"

    def request(self, *arguments: Any, **options: Any) -> None:
        here.call.check_place(self._place())
        if self.sock is not None:  # re-used, or connected for TLS
            here.call.watch(self.sock)
        super().request(*arguments, **options)

    def _new_conn(self) -> socket.socket:
        """As urllib3 does it, but looking up the name and connecting can be ended too."""
        here.call.check_place(self._place())
        seconds = self.timeout if isinstance(self.timeout, (int, float)) else None
        try:
            addresses = _look_up(self._dns_host, self.port, here.call)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from None
        here.call.check_addresses(self.host, self.port, addresses)
        slow = False
        for family, kind, protocol, _, address in addresses:
            if here.call.ended is not None:
                break
            sock = socket.socket(family, kind, protocol)
            try:
                _connect(sock, address, seconds, here.call)
                return sock
            except OSError as error:
                sock.close()
                slow = isinstance(error, TimeoutError)
        if slow:
            raise ConnectTimeoutError(self, "no address of the host answered in the time allowed")
        raise NewConnectionError(self, "no address of the host could be connected to")

    def _place(self) -> str:
        """Where this connection really leads, whatever the URL looked like to those who read it before."""
        host = self.host.strip("[]")
        return f"{self.protocol}://{f'[{host}]' if ':' in host else host}:{self.port}"


class _TlsConnection(_PlainConnection, HTTPSConnection):
    protocol = "https"


def _look_up(host: str, port: int, call: Call) -> list[Any]:
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


def _connect(sock: socket.socket, address: Any, seconds: float | None, call: Call) -> None:
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


class Adapter(HTTPAdapter):
    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _PlainPool, "https": _TlsPool}


class Session(requests.Session):
    def get_redirect_target(self, resp: Any) -> None:
        """None: requests reads the whole body of a redirect, without bound, even when told not to follow it."""


class Watchdog:
    """Ends the calls that take longer than `seconds`, however steadily their bytes drip in."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due: dict[Call, float] = {}  # all are given equally long, so the order of insertion is that of the deadlines
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, call: Call) -> None:
        with self._lock:
            self._due[call] = time.monotonic() + self._seconds
            if self._thread is None or not self._thread.is_alive():  # not alive: this process was forked off
                self._thread = threading.Thread(target=self._run, name="http-watchdog", daemon=True)
                self._thread.start()

    def remove(self, call: Call) -> None:
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
