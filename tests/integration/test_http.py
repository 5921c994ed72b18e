"""The HTTP client and the upstream against small servers on loopback: deadlines, cancelling, bounds, and where the key goes."""

from __future__ import annotations

import contextlib
import gzip
import logging
import os
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from urllib3.util.wait import wait_for_write

from streams_importer.adapters.http import USER_AGENT, HttpAnswer, HttpClient
from streams_importer.adapters.upstream import HttpUpstream
from streams_importer.application.cancellation import CancelToken
from streams_importer.domain.errors import BadSetting, Cancelled, ImportRefused, ShardRefused, Transient, UpstreamError, Weather
from streams_importer.domain.hosts import HostRule
from streams_importer.ports import Cancel, Upstream

KEY = "a-secret-key-0123456789"
TRUSTED = HostRule.of("127.0.0.1;api.example;nowhere.invalid")
"""Hosts that these tests may send the key to, in the clear."""
SOON_S = 10.0
"""Nothing here takes that long unless it hangs."""

# For these tests only: trusted by nobody, good for 127.0.0.1 until 2120.
CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBtzCCAV6gAwIBAgIUKQ8uyvEQsrZzPEcxoWlTqqXQl/owCgYIKoZIzj0EAwIw
IDEeMBwGA1UEAwwVc3RyZWFtcy1pbXBvcnRlciB0ZXN0MCAXDTIwMDEwMTAwMDAw
MFoYDzIxMjAwMTAxMDAwMDAwWjAgMR4wHAYDVQQDDBVzdHJlYW1zLWltcG9ydGVy
IHRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQKgRfiN7KsXc2Xeqz14W0T
UYV110TAjL2rL7rD4qaQCGQgYNLVy5ZLdKTl1ffeQMXQ5SCxPTLh5i0aB/bazmwz
o3QwcjAPBgNVHRMBAf8EBTADAQH/MA4GA1UdDwEB/wQEAwIChDAPBgNVHREECDAG
hwR/AAABMB0GA1UdDgQWBBQaI21uhkoaxT25HRktPQ79VcBKeTAfBgNVHSMEGDAW
gBQaI21uhkoaxT25HRktPQ79VcBKeTAKBggqhkjOPQQDAgNHADBEAiAA1p8rRoAs
RoZ7iT8aCuAIjOhF9kEIQ7Yr1qYl6exiPgIgVuWso2OGZCChMU51XOSipgg0GMkP
KwrEU0DyqUpgEPA=
-----END CERTIFICATE-----
"""
PRIVATE_KEY = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgKH++WyBIGCILnNiJ
c+Zxbt1ta/2gNTCmeZlpRP+t8GGhRANCAAQKgRfiN7KsXc2Xeqz14W0TUYV110TA
jL2rL7rD4qaQCGQgYNLVy5ZLdKTl1ffeQMXQ5SCxPTLh5i0aB/bazmwz
-----END PRIVATE KEY-----
"""

Script = Callable[["Visit"], None]


class Visit:
    """One connection, seen from the server."""

    def __init__(self, server: Loopback, connection: socket.socket) -> None:
        self.server = server
        self.connection = connection

    def read_request(self) -> bytes:
        """The head of the next request, b"" when the client is gone."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            data = self.connection.recv(1)
            if not data:
                return b""
            head += data
        self.server.requests.append(head)
        self.server.asked.set()
        return head

    def send(self, *parts: bytes) -> None:
        self.connection.sendall(b"".join(parts))

    def wait_until_left(self) -> None:
        with contextlib.suppress(OSError):
            while self.connection.recv(4096):
                pass
        self.server.left.set()

    def drip(self, byte: bytes = b"x") -> None:
        """A byte every 20 ms for as long as the client listens."""
        with contextlib.suppress(OSError):
            while not self.server.closing.wait(0.02):
                self.connection.sendall(byte)
        self.server.left.set()


class Loopback:
    """A server on 127.0.0.1 that plays a script for each connection and remembers what it was asked."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.asked = threading.Event()
        self.accepted = threading.Event()
        self.left = threading.Event()
        self.closing = threading.Event()
        self._script = script
        self._tls = tls
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}/v3"
        self._start(self._accept)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                self._open.append(connection)
                self.accepted.set()
                self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection:
                self._script(Visit(self, connection))

    def close(self) -> None:
        self.closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        for thread in self._threads:
            thread.join(SOON_S)


def respond(body: bytes = b"[]", status: str = "200 OK", *headers: str) -> Script:
    """A script that answers every request of a connection with the same."""
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]).encode()

    def script(visit: Visit) -> None:
        while visit.read_request():
            visit.send(head, body)

    return script


def silent(visit: Visit) -> None:
    visit.read_request()
    visit.wait_until_left()


def chunked_without_end(visit: Visit) -> None:
    visit.read_request()
    visit.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    with contextlib.suppress(OSError):
        while not visit.server.closing.is_set():
            visit.send(b"10000\r\n", b"x" * 65536, b"\r\n")
    visit.server.left.set()


@pytest.fixture
def serve() -> Iterator[Callable[..., Loopback]]:
    servers: list[Loopback] = []

    def start(script: Script, tls: ssl.SSLContext | None = None) -> Loopback:
        servers.append(Loopback(script, tls))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def client() -> Iterator[Callable[..., HttpClient]]:
    clients: list[HttpClient] = []

    def make(**options: object) -> HttpClient:
        clients.append(HttpClient(**{"hosts": TRUSTED, **options}))  # type: ignore[arg-type]
        return clients[-1]

    yield make
    for one in clients:
        one.close()


@pytest.fixture
def tls_files(tmp_path: Path) -> tuple[ssl.SSLContext, str]:
    certificate, both = tmp_path / "ca.pem", tmp_path / "server.pem"
    certificate.write_text(CERTIFICATE)
    both.write_text(PRIVATE_KEY + CERTIFICATE)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    return context, str(certificate)


Serve = Callable[..., Loopback]
MakeClient = Callable[..., HttpClient]


def get(client: HttpClient, url: str, cancel: CancelToken | None = None) -> HttpAnswer:
    return client.get(url, {"greaterthanid": "query-5"}, {"X-API-Key": KEY}, cancel or CancelToken())


def cancelled_after(event: threading.Event, call: Callable[[CancelToken], object]) -> float:
    """Cancels a running call from another thread once the event is there; seconds from then until it came back."""
    token = CancelToken()
    times: list[float] = []

    def cancel() -> None:
        assert event.wait(SOON_S)
        times.append(time.monotonic())
        token.cancel("stop")

    thread = threading.Thread(target=cancel)
    thread.start()
    with pytest.raises(Cancelled):
        call(token)
    took = time.monotonic() - times[0]
    thread.join()
    return took


def test_an_answer_has_status_headers_in_any_case_and_body(serve: Serve, client: MakeClient) -> None:
    server = serve(respond(b'[{"ID":1}]', "200 OK", "Content-Type: application/json"))
    answer = get(client(), server.url)
    assert (answer.status, answer.headers["content-type"], answer.body) == (200, "application/json", b'[{"ID":1}]')


def test_the_request_is_honest_and_the_key_is_in_its_header_only(serve: Serve, client: MakeClient) -> None:
    server = serve(respond())
    get(client(), server.url)
    head = server.requests[0].decode()
    assert head.startswith("GET /v3?greaterthanid=query-5 HTTP/1.1\r\n")
    assert f"\r\nUser-Agent: {USER_AGENT}\r\n" in head
    assert head.count(KEY) == 1
    assert f"\r\nX-API-Key: {KEY}\r\n" in head
    assert not any(word in USER_AGENT.lower() for word in ("crawler", "robot", "spider"))


def test_a_connection_is_used_again_and_no_cookie_comes_back(serve: Serve, client: MakeClient) -> None:
    server = serve(respond(b"[]", "200 OK", "Set-Cookie: a=b"))
    one = client()
    for _ in range(3):
        get(one, server.url)
    assert server.connections == 1
    assert len(server.requests) == 3
    assert not any(b"cookie" in head.lower() for head in server.requests)


def test_many_threads_share_a_client(serve: Serve, client: MakeClient) -> None:
    server = serve(respond(b"[7]"))
    one = client(pool_size=8)
    bodies: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: bodies.extend(get(one, server.url).body for _ in range(20)), daemon=True)
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON_S)
    assert bodies == [b"[7]"] * 160
    assert server.connections <= 8


# Deadlines.


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nX-Header: ", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n"]
)
def test_the_total_deadline_holds_however_steadily_the_bytes_drip(head: bytes, serve: Serve, client: MakeClient) -> None:
    def script(visit: Visit) -> None:
        visit.read_request()
        visit.send(head)
        visit.drip()

    server = serve(script)
    started = time.monotonic()
    with pytest.raises(Transient) as raised:
        get(client(total_s=0.4, read_s=SOON_S), server.url)
    assert raised.value.code == "timeout"
    assert 0.35 <= time.monotonic() - started < 2.0
    assert server.left.wait(SOON_S), "the connection must be gone too"


def test_the_deadlines_of_later_calls_hold_too(serve: Serve, client: MakeClient) -> None:
    """The watchdog sleeps towards the deadline of the first call while the second one begins."""
    good, bad = serve(respond()), serve(silent)
    one = client(total_s=0.4, read_s=SOON_S)
    for _ in range(2):
        get(one, good.url)
        started = time.monotonic()
        with pytest.raises(Transient):
            get(one, bad.url)
        assert 0.35 <= time.monotonic() - started < 2.0


def test_a_silent_server_is_left_after_the_read_timeout(serve: Serve, client: MakeClient) -> None:
    with pytest.raises(Transient) as raised:
        get(client(read_s=0.1), serve(silent).url)
    assert raised.value.code == "timeout"


def test_silence_in_the_middle_of_a_body_is_a_timeout_too(serve: Serve, client: MakeClient) -> None:
    def script(visit: Visit) -> None:
        visit.read_request()
        visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n[")
        visit.wait_until_left()

    with pytest.raises(Transient) as raised:
        get(client(read_s=0.1), serve(script).url)
    assert raised.value.code == "timeout"


# Cancelling.


def test_a_call_waiting_for_its_first_byte_is_cancelled_at_once(serve: Serve, client: MakeClient) -> None:
    server = serve(silent)
    one = client()
    assert cancelled_after(server.asked, lambda token: get(one, server.url, token)) < 0.2
    assert server.left.wait(SOON_S)


def test_a_re_used_connection_can_be_cancelled_and_is_not_used_again(serve: Serve, client: MakeClient) -> None:
    second = threading.Event()

    def script(visit: Visit) -> None:
        visit.read_request()
        visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
        if visit.server.connections == 1 and visit.read_request():
            second.set()
            visit.wait_until_left()

    server = serve(script)
    one = client()
    get(one, server.url)
    assert cancelled_after(second, lambda token: get(one, server.url, token)) < 0.2
    assert server.connections == 1
    assert get(one, server.url).body == b"[]"
    assert server.connections == 2


def test_a_dripping_body_is_cancelled_at_once(serve: Serve, client: MakeClient) -> None:
    started = threading.Event()

    def script(visit: Visit) -> None:
        visit.read_request()
        visit.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[")
        started.set()
        visit.drip()

    server = serve(script)
    one = client()
    assert cancelled_after(started, lambda token: get(one, server.url, token)) < 0.2


def test_a_call_is_cancelled_while_it_connects(client: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as full, contextlib.ExitStack() as waiting:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for _ in range(4):  # more than the queue of the listener holds: the next one gets no answer at all
            other = waiting.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(full.getsockname())
        one = client(connect_s=0.2)
        with pytest.raises(Transient) as raised:
            get(one, f"http://127.0.0.1:{full.getsockname()[1]}/")
        assert raised.value.code == "timeout"
        connecting = threading.Event()

        def wait(sock: socket.socket, seconds: float) -> bool:
            connecting.set()
            return wait_for_write(sock, seconds)

        monkeypatch.setattr("streams_importer.adapters.http_calls.wait_for_write", wait)
        patient = client(connect_s=SOON_S)
        url = f"http://127.0.0.1:{full.getsockname()[1]}/"
        assert cancelled_after(connecting, lambda token: get(patient, url, token)) < 0.2


def test_a_call_is_cancelled_while_its_host_is_looked_up(client: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    looking, go_on = threading.Event(), threading.Event()

    def never_answers(*_: object, **__: object) -> list[object]:
        looking.set()
        go_on.wait(SOON_S)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", never_answers)
    one = client()
    assert cancelled_after(looking, lambda token: get(one, "http://api.example/", token)) < 0.2
    go_on.set()


def test_a_call_is_cancelled_in_the_middle_of_the_tls_handshake(serve: Serve, client: MakeClient) -> None:
    server = serve(lambda visit: visit.wait_until_left())
    one = client()
    url = server.url.replace("http:", "https:")
    assert cancelled_after(server.accepted, lambda token: get(one, url, token)) < 0.2
    assert server.left.wait(SOON_S)


def test_a_call_over_tls_is_cancelled_at_once(serve: Serve, client: MakeClient, tls_files: tuple[ssl.SSLContext, str]) -> None:
    server = serve(silent, tls_files[0])
    one = client(ca_file=tls_files[1])
    assert cancelled_after(server.asked, lambda token: get(one, server.url, token)) < 0.2
    assert server.left.wait(SOON_S)


def test_a_call_cancelled_beforehand_sends_nothing(serve: Serve, client: MakeClient) -> None:
    server = serve(respond())
    token = CancelToken()
    token.cancel("stop")
    with pytest.raises(Cancelled):
        get(client(), server.url, token)
    assert server.connections == 0


def test_cancelling_after_the_answer_disturbs_nobody(serve: Serve, client: MakeClient) -> None:
    server = serve(respond())
    one, token = client(), CancelToken()
    get(one, server.url, token)
    token.cancel("stop")
    get(one, server.url)
    assert server.connections == 1


def test_no_descriptor_is_left_open(serve: Serve, client: MakeClient) -> None:
    server = serve(respond())
    one = client()
    get(one, server.url)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        get(one, server.url)
    assert len(os.listdir("/proc/self/fd")) == before


# Bounds.


def test_a_body_announced_as_too_large_is_not_even_read(serve: Serve, client: MakeClient) -> None:
    def script(visit: Visit) -> None:
        visit.read_request()
        visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n")
        visit.wait_until_left()

    server = serve(script)
    with pytest.raises(ShardRefused) as raised:
        get(client(max_bytes=1000), server.url)
    assert raised.value.code == "too_large"
    assert server.left.wait(SOON_S)


def test_a_body_without_end_is_left_at_the_bound(serve: Serve, client: MakeClient) -> None:
    server = serve(chunked_without_end)
    with pytest.raises(ShardRefused) as raised:
        get(client(max_bytes=1_000_000), server.url)
    assert raised.value.code == "too_large"
    assert server.left.wait(SOON_S)


def test_a_small_gzip_with_a_huge_body_never_fills_the_memory(serve: Serve, client: MakeClient) -> None:
    bomb = gzip.compress(b"x" * 200_000_000)
    assert len(bomb) < 1_000_000
    server = serve(respond(bomb, "200 OK", "Content-Encoding: gzip"))
    tracemalloc.start()
    try:
        with pytest.raises(ShardRefused) as raised:
            get(client(max_bytes=1_000_000), server.url)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert raised.value.code == "too_large"
    assert peak < 20_000_000


def test_a_body_of_exactly_the_bound_is_fine_packed_or_not(serve: Serve, client: MakeClient) -> None:
    body = b"x" * 1000
    assert get(client(max_bytes=1000), serve(respond(body)).url).body == body
    packed = serve(respond(gzip.compress(body), "200 OK", "Content-Encoding: gzip"))
    assert get(client(max_bytes=1000), packed.url).body == body


# What goes wrong, in our words.


def closes(visit: Visit) -> None:
    visit.read_request()


def cuts(visit: Visit) -> None:
    visit.read_request()
    visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n[")


def cuts_chunks(visit: Visit) -> None:
    visit.read_request()
    visit.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n[1,2,")


def speaks_otherwise(visit: Visit) -> None:
    visit.read_request()
    visit.send(b"SSH-2.0-OpenSSH_9.2\r\n")


FAILURES: list[tuple[Script, str]] = [
    (closes, "reset"),
    (cuts, "cut_off"),
    (cuts_chunks, "cut_off"),
    (speaks_otherwise, "not_http"),
    (respond(b"not gzip", "200 OK", "Content-Encoding: gzip"), "bad_encoding"),
    (silent, "timeout"),
    (chunked_without_end, "too_large"),
]


def everything_said(error: BaseException | None) -> str:
    """The texts of an exception and of all that hangs on it."""
    said = ""
    while error is not None:
        said += f"{error} {error!r} {error.args!r} {vars(error)!r}"
        error = error.__cause__ or error.__context__
    return said


@pytest.mark.parametrize(("script", "code"), FAILURES)
def test_a_failure_has_its_code_and_tells_neither_key_nor_query(
    script: Script, code: str, serve: Serve, client: MakeClient, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(script)
    with caplog.at_level(logging.DEBUG), pytest.raises(UpstreamError) as raised:
        get(client(read_s=0.2, max_bytes=100_000), server.url)
    assert raised.value.code == code
    assert raised.value.message.startswith(f"127.0.0.1:{server.port}: ")
    said = everything_said(raised.value)
    assert KEY not in said + caplog.text
    assert "query-5" not in said


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://127.0.0.1:1/", "connect"),
        ("http://nowhere.invalid/", "dns"),
        ("http://[::1/", "not_http"),
        ("ftp://127.0.0.1/", "not_http"),
        ("nonsense", "not_http"),
    ],
)
def test_a_host_that_cannot_be_reached_is_told_in_our_words(
    url: str, code: str, client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = socket.getaddrinfo

    def look_up(host: str, *arguments: object, **options: object) -> object:
        if host == "nowhere.invalid":
            raise socket.gaierror
        return real(host, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    with pytest.raises(Transient) as raised:
        get(client(), url)
    assert raised.value.code == code
    assert "query-5" not in everything_said(raised.value)


def test_a_header_that_cannot_be_sent_is_not_repeated_in_the_text(client: MakeClient) -> None:
    with pytest.raises(Transient) as raised:
        client().get("http://127.0.0.1:1/", {}, {"X-API-Key": f"{KEY}\r\n"}, CancelToken())
    assert KEY not in everything_said(raised.value)


def test_a_certificate_that_nobody_trusts_is_a_tls_failure(
    serve: Serve, client: MakeClient, tls_files: tuple[ssl.SSLContext, str]
) -> None:
    server = serve(respond(), tls_files[0])
    assert get(client(ca_file=tls_files[1]), server.url).body == b"[]"
    with pytest.raises(Transient) as raised:
        get(client(), server.url)
    assert raised.value.code == "tls"
    assert len(server.requests) == 1


def test_a_kept_connection_that_the_server_closes_is_a_reset_and_the_request_is_not_sent_twice(
    serve: Serve, client: MakeClient
) -> None:
    def script(visit: Visit) -> None:
        visit.read_request()
        visit.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]")
        visit.read_request()

    server = serve(script)
    one = client()
    get(one, server.url)
    with pytest.raises(Transient) as raised:
        get(one, server.url)
    assert raised.value.code == "reset"
    assert len(server.requests) == 2
    assert server.connections == 1


def test_proxies_and_netrc_of_the_environment_are_ignored(
    serve: Serve, client: MakeClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    proxy, server = serve(respond()), serve(respond())
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login somebody password else\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(netrc))
    get(client(), server.url)
    assert proxy.connections == 0
    assert b"authorization" not in server.requests[0].lower()


# The upstream: a token for every request, weather for everybody, the key for one host.


class FakeBudget:
    def __init__(self) -> None:
        self.taken = 0
        self.holds: list[float] = []

    def take(self, cancel: Cancel) -> int:
        self.taken += 1
        return 1_000_000 + self.taken

    def hold(self, seconds: float) -> None:
        self.holds.append(seconds)


def upstream_of(client: HttpClient, server: Loopback, budget: FakeBudget, dice: float = 0.0) -> Upstream:
    return HttpUpstream(client, server.url + "/", budget, KEY, dice=lambda: dice)


def test_every_request_takes_a_token_and_the_answer_carries_its_time(serve: Serve, client: MakeClient) -> None:
    server, budget = serve(respond(b"[1]")), FakeBudget()
    upstream = upstream_of(client(), server, budget)
    answers = [upstream.get("system/status", {"a": "b"}, CancelToken()) for _ in range(2)]
    assert [(answer.body, answer.granted_us) for answer in answers] == [(b"[1]", 1_000_001), (b"[1]", 1_000_002)]
    assert server.requests[0].startswith(b"GET /v3/system/status?a=b HTTP/1.1\r\n")
    assert f"X-API-Key: {KEY}\r\n".encode() in server.requests[0]


def test_a_request_that_had_to_wait_after_its_grant_takes_another_token(serve: Serve, client: MakeClient) -> None:
    server, budget, cancel = serve(respond(b"[1]")), FakeBudget(), CancelToken()
    answers = iter([True, False, False])
    cancel.unsure_while(lambda: next(answers))
    assert upstream_of(client(), server, budget).get("poi", {}, cancel).granted_us == 1_000_002
    assert (budget.taken, len(server.requests)) == (2, 1)


def test_work_that_turns_out_to_be_lost_between_grant_and_request_sends_nothing(serve: Serve, client: MakeClient) -> None:
    server, budget, cancel = serve(respond(b"[1]")), FakeBudget(), CancelToken()

    def is_unsure() -> bool:
        cancel.cancel("lease lost")
        return True

    cancel.unsure_while(is_unsure)
    with pytest.raises(Cancelled):
        upstream_of(client(), server, budget).get("poi", {}, cancel)
    assert server.requests == []


def test_a_failure_that_says_when_to_come_back_holds_nobody_else(serve: Serve, client: MakeClient) -> None:
    server, budget = serve(respond(b"", "500 Oh", "Retry-After: 7200")), FakeBudget()
    with pytest.raises(Transient) as raised:
        upstream_of(client(), server, budget).get("poi", {}, CancelToken())
    assert raised.value.wait_s == 3600.0
    assert budget.holds == []


def test_without_a_key_no_key_is_sent(serve: Serve, client: MakeClient) -> None:
    server = serve(respond())
    HttpUpstream(client(), server.url, FakeBudget()).get("poi", {}, CancelToken())
    assert b"x-api-key" not in server.requests[0].lower()


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "307 Temporary", "308 Permanent"])
def test_a_redirect_is_not_followed_and_the_key_goes_nowhere_else(status: str, serve: Serve, client: MakeClient) -> None:
    elsewhere, budget = serve(respond()), FakeBudget()
    server = serve(respond(b"", status, f"Location: {elsewhere.url}/poi?key=x"))
    with pytest.raises(ImportRefused) as raised:
        upstream_of(client(), server, budget).get("poi", {}, CancelToken())
    assert raised.value.code == "redirect"
    assert f"127.0.0.1:{elsewhere.port}" in raised.value.message
    assert "OCM_BASE_URL" in raised.value.message
    assert elsewhere.connections == 0
    assert (len(server.requests), budget.taken) == (1, 1)


@pytest.mark.parametrize("status", ["302 Found\r\nLocation: /x", "429 Slow down", "403 Forbidden", "500 Oh"])
def test_an_error_with_a_body_without_end_is_still_what_its_status_says(status: str, serve: Serve, client: MakeClient) -> None:
    def script(visit: Visit) -> None:
        visit.read_request()
        visit.send(b"HTTP/1.1 ", status.encode(), b"\r\n\r\n")
        with contextlib.suppress(OSError):
            while not visit.server.closing.is_set():
                visit.send(b"x" * 65536)
        visit.server.left.set()

    server = serve(script)
    with pytest.raises(UpstreamError) as raised:
        upstream_of(client(), server, FakeBudget()).get("poi", {}, CancelToken())
    assert raised.value.status == int(status[:3])
    assert server.left.wait(SOON_S)


def test_a_429_holds_the_budget_for_as_long_as_it_says_and_a_little_more(serve: Serve, client: MakeClient) -> None:
    server, budget = serve(respond(b"", "429 Slow down", "Retry-After: 3")), FakeBudget()
    with pytest.raises(Weather) as raised:
        upstream_of(client(), server, budget, dice=0.5).get("poi", {}, CancelToken())
    assert raised.value.wait_s == 3.0
    assert budget.holds == [pytest.approx(3.15)]


def test_retry_after_zero_is_not_a_loop_without_a_pause(serve: Serve, client: MakeClient) -> None:
    server, budget = serve(respond(b"", "503 Busy", "Retry-After: 0")), FakeBudget()
    with pytest.raises(Weather):
        upstream_of(client(), server, budget).get("poi", {}, CancelToken())
    assert budget.holds == [1.0]


def test_holds_grow_while_the_upstream_repeats_itself_and_start_anew_after_a_good_answer(
    serve: Serve, client: MakeClient
) -> None:
    statuses = iter(["429 No"] * 3 + ["200 OK"] + ["429 No"])

    def script(visit: Visit) -> None:
        while visit.read_request():
            visit.send(f"HTTP/1.1 {next(statuses)}\r\nContent-Length: 2\r\n\r\n[]".encode())

    budget = FakeBudget()
    upstream = upstream_of(client(), serve(script), budget)
    for _ in range(5):
        with contextlib.suppress(Weather):
            upstream.get("poi", {}, CancelToken())
    assert budget.holds == [10.0, 20.0, 40.0, 10.0]


def test_requests_that_were_refused_together_are_one_repetition(serve: Serve, client: MakeClient) -> None:
    together = threading.Barrier(4)

    def script(visit: Visit) -> None:
        visit.read_request()
        together.wait(SOON_S)
        visit.send(b"HTTP/1.1 429 No\r\nContent-Length: 0\r\n\r\n")

    budget = FakeBudget()
    upstream = upstream_of(client(), serve(script), budget)

    def ask() -> None:
        with contextlib.suppress(Weather):
            upstream.get("poi", {}, CancelToken())

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON_S)
    assert budget.holds == [10.0] * 4


@pytest.mark.parametrize(
    "base",
    [
        "",
        "api.example/v3",
        "ftp://a/",
        "https://",
        "https://u:secret@a/",
        "https://a/?key=secret",
        "http://a b/",
        "http://a:99999/",
    ],
)
def test_a_base_url_that_is_none_is_a_bad_setting_and_never_repeated(base: str, client: MakeClient) -> None:
    with pytest.raises(BadSetting, match="OCM_BASE_URL") as raised:
        HttpUpstream(client(), base, FakeBudget(), KEY)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("key", ["with blank", "line\nbreak", "ümlaut", "x" * 257])
def test_a_key_that_fits_no_header_is_a_bad_setting_and_never_repeated(key: str, client: MakeClient) -> None:
    with pytest.raises(BadSetting, match="OCM_API_KEY") as raised:
        HttpUpstream(client(), "https://api.example/v3", FakeBudget(), key)
    assert key not in str(raised.value)


@pytest.mark.parametrize("path", ["", "/poi", "../admin", "poi?key=x", "//evil.example/", "poi#", "poi\r\nX: y"])
def test_a_path_cannot_lead_away_from_the_base_url(path: str, serve: Serve, client: MakeClient) -> None:
    server, budget = serve(respond()), FakeBudget()
    with pytest.raises(ValueError, match="path"):
        upstream_of(client(), server, budget).get(path, {}, CancelToken())
    assert budget.taken == 0
