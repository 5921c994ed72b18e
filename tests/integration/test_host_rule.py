"""The host rule where it counts: on the connection itself, whatever the caller believed the URL to be."""

from __future__ import annotations

import socket
import threading
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from streams_importer.adapters.http import HttpClient
from streams_importer.adapters.upstream import HttpUpstream
from streams_importer.application.cancellation import CancelToken
from streams_importer.domain.errors import BadSetting, ImportRefused, Transient
from streams_importer.domain.hosts import SETTING, HostRule
from streams_importer.domain.redaction import MASK, SECRETS
from streams_importer.embedded.stand_in import StandIn
from streams_importer.ports import Cancel

KEY = "canary+/=&<>\"'%key"
MakeStandIn = Callable[..., StandIn]


class Listener:
    """Counts who comes, and reads what they say."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.heard: list[bytes] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                with connection:
                    self.heard.append(connection.recv(4096))

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    one = Listener()
    yield one
    one.close()


@pytest.fixture
def client() -> Iterator[Callable[[str], HttpClient]]:
    clients: list[HttpClient] = []

    def make(hosts: str = "") -> HttpClient:
        clients.append(HttpClient(hosts=HostRule.of(hosts)))
        return clients[-1]

    yield make
    for one in clients:
        one.close()


MakeClient = Callable[..., HttpClient]


@pytest.fixture
def leads_to(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes every name lead to these addresses."""

    def lead(*addresses: str) -> None:
        def look_up(host: str, port: int, *_: object, **__: object) -> list[Any]:
            families = [socket.AF_INET6 if ":" in address else socket.AF_INET for address in addresses]
            return [(family, 1, 6, "", (address, port)) for family, address in zip(families, addresses, strict=True)]

        monkeypatch.setattr(socket, "getaddrinfo", look_up)

    return lead


class Tokens:
    def __init__(self) -> None:
        self.taken = 0

    def take(self, cancel: Cancel) -> int:
        self.taken += 1
        return self.taken

    def hold(self, seconds: float) -> None: ...


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(ImportRefused) as raised:
        call()
    assert raised.value.code == "host_refused"
    assert raised.value.__cause__ is None
    assert len(str(raised.value).splitlines()) == 1
    return str(raised.value)


def get(client: HttpClient, url: str, headers: dict[str, str] | None = None, params: dict[str, str] | None = None) -> object:
    return client.get(url, params or {}, headers or {}, CancelToken())


def test_without_a_rule_a_client_trusts_nobody(listener: Listener) -> None:
    client = HttpClient()
    assert SETTING in refused(lambda: get(client, f"http://127.0.0.1:{listener.port}/"))
    refused(lambda: get(client, f"https://127.0.0.1:{listener.port}/"))
    client.close()
    assert listener.heard == []


@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "169.254.169.254", "10.0.0.1", "0.0.0.0", "::1"])
def test_a_public_name_that_leads_inside_is_not_connected_to(
    address: str, listener: Listener, client: MakeClient, leads_to: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    leads_to(address)
    monkeypatch.setattr("streams_importer.adapters.http_calls._connect", None)  # whoever calls it fails
    message = refused(lambda: get(client(), f"https://public.example:{listener.port}/"))
    assert "public.example" in message
    assert address in message
    assert listener.heard == []


def test_one_inner_address_among_public_ones_is_enough_to_refuse(
    listener: Listener, client: MakeClient, leads_to: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    leads_to("8.8.8.8", "127.0.0.1")
    monkeypatch.setattr("streams_importer.adapters.http_calls._connect", None)
    refused(lambda: get(client(), f"https://public.example:{listener.port}/"))


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "0177.0.0.1", "127.0.0.1.", "[::ffff:7f00:1]", "localhost"])
def test_no_spelling_of_loopback_is_connected_to(host: str, listener: Listener, client: MakeClient) -> None:
    refused(lambda: get(client(), f"https://{host}:{listener.port}/"))
    assert listener.heard == []


def test_a_named_host_may_be_inside(listener: Listener, client: MakeClient, leads_to: Callable[..., None]) -> None:
    leads_to("127.0.0.1")
    trusting = client(f"inner.example:{listener.port}")
    with pytest.raises(Transient):  # the listener hangs up; what counts is that it was asked
        get(trusting, f"http://INNER.example.:{listener.port}/", {"X-API-Key": KEY})
    assert KEY.encode() in listener.heard[0]
    refused(lambda: get(trusting, f"http://other.example:{listener.port}/"))


@pytest.mark.parametrize("headers", [{"X-API-Key": KEY}, {"Authorization": "Token x"}, {"Cookie": "a=b"}, {"x-whatever": "1"}])
def test_a_secret_goes_to_no_host_that_is_not_named(
    headers: dict[str, str], client: MakeClient, leads_to: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    leads_to("8.8.8.8")
    monkeypatch.setattr("streams_importer.adapters.http_calls._connect", None)
    assert "a secret" in refused(lambda: get(client(), "https://public.example/", headers))


@pytest.mark.parametrize(
    ("url", "params"),
    [
        ("https://public.example/", {"key": KEY}),
        ("https://public.example/", {KEY: "x"}),
        ("https://public.example/canary+%2F=%26%3C%3E%22'%25key", {}),
        ("https://user:password@public.example/", {}),
    ],
)
def test_a_secret_in_the_url_counts_too(
    url: str, params: dict[str, str], client: MakeClient, leads_to: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    SECRETS.learn(KEY)
    leads_to("8.8.8.8")
    monkeypatch.setattr("streams_importer.adapters.http_calls._connect", None)
    message = refused(lambda: get(client(), url, params=params))
    assert "canary" not in message
    assert "password" not in message


def test_public_https_without_secrets_is_tried(
    client: MakeClient, leads_to: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []

    def connect(sock: socket.socket, address: object, *_: object) -> None:
        tried.append(address)
        raise OSError

    leads_to("8.8.8.8", "2606:4700::1")
    monkeypatch.setattr("streams_importer.adapters.http_calls._connect", connect)
    with pytest.raises(Transient):
        get(client(), "https://public.example/", {"Range": "bytes=0-9", "If-None-Match": "x"}, {"page": "2"})
    assert tried == [("8.8.8.8", 443), ("2606:4700::1", 443)]


def test_a_kept_connection_is_held_to_the_rule_as_well(stand_in: MakeStandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = stand_in(points=10)
    client = HttpClient(hosts=HostRule.of("", [upstream.base_url]))
    get(client, f"{upstream.base_url}/poi")
    monkeypatch.setattr(client, "_hosts", HostRule())
    refused(lambda: get(client, f"{upstream.base_url}/poi"))
    client.close()
    assert len(upstream.log) == 1


def test_a_refused_upstream_costs_no_token_and_no_request(stand_in: MakeStandIn, client: MakeClient) -> None:
    upstream, tokens = stand_in(points=10), Tokens()
    source = HttpUpstream(client(), upstream.base_url, tokens, KEY)
    message = refused(lambda: source.get("poi", {}, CancelToken()))
    assert SETTING in message
    assert tokens.taken == 0
    assert upstream.log == []


# An upstream that repeats the key.


@pytest.mark.parametrize("spelt", [KEY, "canary%2b%2f%3d%26%3c%3e%22%27%25key", b64encode(KEY.encode()).decode().rstrip("=")])
def test_an_answer_that_repeats_the_key_reaches_nobody(spelt: str, stand_in: MakeStandIn) -> None:
    poi = {"ID": 1, "Title": f"asked with {spelt}", "AddressInfo": {"Title": "x"}}
    upstream = stand_in(pois=[poi], key=KEY)
    client = HttpClient(hosts=HostRule.of("", [upstream.base_url]))
    body = HttpUpstream(client, upstream.base_url, Tokens(), KEY).get("poi", {}, CancelToken()).body
    client.close()
    assert f"asked with {MASK}".encode() in body


def test_a_short_key_may_be_a_word_of_the_data_and_stays(stand_in: MakeStandIn) -> None:
    upstream = stand_in(pois=[{"ID": 1, "Title": "charger"}], key="charger")
    client = HttpClient(hosts=HostRule.of("", [upstream.base_url]))
    body = HttpUpstream(client, upstream.base_url, Tokens(), "charger").get("poi", {}, CancelToken()).body
    client.close()
    assert b"charger" in body


@pytest.mark.parametrize("url", ["http://a b/", "http://x\\@127.0.0.1/", "http://256.1.1.1/", "http://-a/", "ftp://h/"])
def test_a_base_that_not_everybody_reads_in_the_same_way_is_refused(url: str, client: MakeClient) -> None:
    with pytest.raises(BadSetting):
        HttpUpstream(client(), url, Tokens())
