"""Where a process may send what: the host rule. Pure: it looks nothing up.

A secret, plain http, and anything for an address that is not public go only to hosts that the process' own environment names.
Everything else is public https without secrets, and goes anywhere. The rule is asked twice: about a request before it is
made, and about every address that its host name turned out to have, for a name can lead anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from .errors import BadSetting
from .text import plain

SETTING = "STREAMS_IMPORTER_HOSTS"
_PORTS = {"http": 80, "https": 443}
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\Z")
_NUMBER = re.compile(r"(0x[0-9a-f]*|[0-9]+)\Z")
_ENTRY = re.compile(r"(\[[^]]*\]|[^:]*)(?::([0-9]{1,5}))?\Z")
_AMBIGUOUS = re.compile(r"[\s\\\x00-\x20\x7f]")
_DEVIATIONS = re.compile("[ßς\u200c\u200d]")
"""Letters that older and newer rules for international names turn into different hosts."""
_GLOBAL_UNICAST = IPv6Network("2000::/3")
_NAT64 = IPv6Network("64:ff9b::/96")
_EXAMPLE = "as in api.example.org;10.0.0.5:8080"


@dataclass(frozen=True, slots=True)
class HostRule:
    """Hosts as `normal_host` writes them, each with a port, or None for all of its ports. Named means trusted."""

    named: frozenset[tuple[str, int | None]] = frozenset()

    @classmethod
    def of(cls, setting: str, urls: Iterable[str] = ()) -> HostRule:
        """The hosts of the setting, separated by `;`, and the host and port of each of these URLs that has one."""
        listed = {_named(part.strip()) for part in setting.split(";") if part.strip()}
        return cls(frozenset(listed | {(place.host, place.port) for place in map(place_of, urls) if place is not None}))

    def refusal(self, url: str, *, with_secret: bool) -> str | None:
        """Why this request must not be made, in one line that says what to change; None when it may be made."""
        place = place_of(url)
        if place is None:
            return "the address of the upstream is not http(s)://host/path"
        if self._names(place.host, place.port):
            return None
        if with_secret:
            return _only_to_named(place.shown, "a secret goes")
        if place.scheme != "https":
            return _only_to_named(place.shown, "plain http goes")
        return self.address_refusal(place.host, place.port, place.host) if _is_address(place.host) else None

    def address_refusal(self, host: str, port: int, address: str) -> str | None:
        """The same about one of the addresses that the host's name has."""
        if is_public(address):
            return None
        try:
            host = normal_host(host)
        except ValueError:
            return "the host of the upstream is not a name"
        if self._names(host, port):
            return None
        return _only_to_named(host, f"its address {plain(address, 60)} is not public, and such requests go")

    def _names(self, host: str, port: int) -> bool:
        return (host, port) in self.named or (host, None) in self.named


@dataclass(frozen=True, slots=True)
class Place:
    scheme: str
    host: str
    port: int

    @property
    def shown(self) -> str:
        return self.host if self.port == _PORTS[self.scheme] else f"{self.host}:{self.port}"


def place_of(url: str) -> Place | None:
    """Where a URL leads; None when it is no URL of ours, or one that not every program reads in the same way."""
    if _AMBIGUOUS.search(url):
        return None
    try:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname or parts.port == 0:
            return None
        return Place(parts.scheme, normal_host(parts.hostname), parts.port or _PORTS[parts.scheme])
    except ValueError:
        return None


def normal_host(host: str) -> str:
    """One spelling for every host: small ASCII letters, no dot at the end, addresses as the system reads them. ValueError if
    it is none."""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if ":" in host:
        return str(_address(host))
    if not host.isascii():
        if _DEVIATIONS.search(host):
            raise ValueError("ambiguous")
        host = host.encode("idna").decode()  # UnicodeError is a ValueError
    host = host.lower().removesuffix(".")
    if _NUMBER.match(host.rpartition(".")[2]):
        return str(_old_style_address(host))
    if len(host) > 253 or not all(_LABEL.match(label) for label in host.split(".")):
        raise ValueError("not a host name")
    return host


def is_public(address: str) -> bool:
    """Whether an address is one of the open internet. What cannot be read is not."""
    try:
        parsed = _address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address):
        inner = _inner_address(parsed)
        if inner is not None:
            return is_public(str(inner))
        return parsed in _GLOBAL_UNICAST and parsed.is_global
    return parsed.is_global and not parsed.is_multicast and not parsed.is_reserved


def _inner_address(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that packets for this one end up at: mapped, by NAT64, or 6to4."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def _address(text: str) -> IPv4Address | IPv6Address:
    return ip_address(text.partition("%")[0])  # without the interface of a link-local one


def _is_address(host: str) -> bool:
    try:
        _address(host)
    except ValueError:
        return False
    return True


def _old_style_address(text: str) -> IPv4Address:
    """As inet_aton, and so every resolver, reads numbers: 127.1, 0x7f.1, 0177.0.0.1 and 2130706433 are all 127.0.0.1."""
    parts = text.split(".")
    if len(parts) > 4 or not all(map(_NUMBER.match, parts)):
        raise ValueError("not a host name")
    *high, low = [int(part, 16) if part.startswith("0x") else int(part, 8 if part[0] == "0" else 10) for part in parts]
    if any(number > 255 for number in high) or low >= 256 ** (4 - len(high)):
        raise AddressValueError(text)
    return IPv4Address(sum(number << 8 * (3 - at) for at, number in enumerate(high)) + low)


def _named(text: str) -> tuple[str, int | None]:
    match = _ENTRY.match(text)
    host, port = match.groups() if match else (text, None)  # no match: an IPv6 address without brackets, or nothing useful
    try:
        if port is not None and not 0 < int(port) < 65536:
            raise ValueError("not a port")
        return normal_host(host), None if port is None else int(port)
    except ValueError:
        raise BadSetting(f"{SETTING} {plain(text, 80)!r}: must be hosts or host:port, separated by ';', {_EXAMPLE}") from None


def _only_to_named(host: str, what: str) -> str:
    return f"{host}: {what} only to hosts that {SETTING} names; if you trust this one, add it there"
