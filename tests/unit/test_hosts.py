"""The host rule: a table of what may go where, and of the many ways to write an address."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_importer.domain.errors import BadSetting
from streams_importer.domain.hosts import SETTING, HostRule, is_public, normal_host, place_of
from streams_importer.settings import OCM_BASE_URL, Upstreams

PUBLIC = [
    *("1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "169.253.255.255", "193.0.0.1", "223.255.255.255"),
    *("2606:4700:4700::1111", "2a00:1450::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1"),
]
NOT_PUBLIC = [
    # loopback, unspecified, private, shared
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1"),
    *("100.64.0.1", "100.127.255.255", "::", "::1", "fc00::1", "fd12:3456::1"),
    # link-local, with what clouds answer their secrets on, and site-local
    *("169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "fec0::1", "fd00:ec2::254"),
    # multicast, broadcast, reserved, documentation, benchmarks
    *("224.0.0.1", "239.255.255.255", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.51.100.1", "203.0.113.1", "198.18.0.1"),
    *("ff02::1", "ff0e::1", "2001:db8::1", "100::1", "4000::1"),
    # an inner address in another coat
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::127.0.0.1"),
    *("64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::8.8.8.8"),
    *("2002:7f00:1::1", "2002:a00:1::1", "2002:a9fe:a9fe::1", "2001::1", "2001:0:7f00:1::1"),
    # nothing at all
    *("", "example.org", "1.2.3", "256.1.1.1", "1.2.3.4.5", "::g", "8.8.8.8\n"),
]


@pytest.mark.parametrize("address", PUBLIC)
def test_an_address_of_the_open_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_of_anything_else_is_not(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("example.org", "example.org"),
        ("EXAMPLE.Org", "example.org"),
        ("example.org.", "example.org"),
        ("münchen.example", "xn--mnchen-3ya.example"),
        ("MÜNCHEN.example", "xn--mnchen-3ya.example"),
        ("xn--mnchen-3ya.example", "xn--mnchen-3ya.example"),
        ("my_service", "my_service"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("127.0.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("0X7F.1", "127.0.0.1"),
        ("0x7f.0x0.0x0.0x1", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("0177.0.0.01", "127.0.0.1"),
        ("１２７.0.0.1", "127.0.0.1"),
        ("0xa9fea9fe", "169.254.169.254"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("[FE80::1%25eth0]", "fe80::1"),
    ],
)
def test_a_host_has_one_spelling(written: str, normal: str) -> None:
    assert normal_host(written) == normal


@pytest.mark.parametrize(
    "written",
    [
        *(
            "",
            ".",
            "..",
            "a..b",
            ".a",
            "-a.b",
            "a-.b",
            "a b",
            "a/b",
            "a@b",
            "a\\b",
            "a\n",
            "*.example.org",
            "a%2eb",
            "[::1",
            "::1]",
        ),
        *("256.0.0.1", "1.2.3.4.5", "1.2.3.256", "1.2.65536", "4294967296", "09.0.0.1", "0x", "0x.1", "a.1", "1.a.1"),
        *("straße.example", "ςίσυφος.example", "a\u200db.example", "x" * 64 + ".example", "a." * 130 + "b"),
    ],
)
def test_what_is_no_host_is_no_host(written: str) -> None:
    with pytest.raises(ValueError):
        normal_host(written)


@given(st.text(max_size=40))
def test_every_text_is_a_host_with_one_spelling_or_none(text: str) -> None:
    try:
        normal = normal_host(text)
    except ValueError:
        return
    assert normal_host(normal) == normal
    assert normal.isascii()
    assert normal == normal.lower()


@given(st.integers(0, 2**32 - 1), st.sampled_from(["{0}", "{0:#x}", "0{0:o}"]))
def test_no_number_passes_for_a_public_name(number: int, form: str) -> None:
    host = form.format(number)
    rule = HostRule()
    refused = rule.refusal(f"https://{host}/", with_secret=False) is not None
    assert refused == (not is_public(normal_host(host)))


RULE = HostRule.of("trusted.example; inner:8080 ;10.0.0.5;[fd00::1]:443;MÜNCHEN.example.;", ["http://127.0.0.1:4711/v3"])


@pytest.mark.parametrize(
    ("url", "with_secret", "reason"),
    [
        # public https without secrets goes anywhere
        ("https://anywhere.example/path?x=1", False, None),
        ("https://8.8.8.8/", False, None),
        ("https://anywhere.example:8443/", False, None),
        # a secret, plain http and inner addresses do not
        ("https://anywhere.example/", True, "a secret"),
        ("http://anywhere.example/", False, "plain http"),
        ("https://127.0.0.1/", False, "not public"),
        ("https://127.1/", False, "not public"),
        ("https://[::1]/", False, "not public"),
        ("https://[::ffff:127.0.0.1]/", False, "not public"),
        ("https://0xa9fea9fe/latest/meta-data", False, "not public"),
        # a named host gets everything, in every spelling of its name
        ("https://trusted.example/", True, None),
        ("http://TRUSTED.example.:99/", True, None),
        ("http://10.0.0.5/", True, None),
        ("http://0xa.5/", True, None),
        ("http://xn--mnchen-3ya.example/", True, None),
        ("http://münchen.example/", True, None),
        # where a port was named, that port
        ("http://inner:8080/", True, None),
        ("http://inner/", True, "a secret"),
        ("http://inner:8081/", False, "plain http"),
        ("https://[fd00::1]/", True, None),
        ("https://[fd00::1]:444/", False, "not public"),
        ("http://127.0.0.1:4711/v3/poi", True, None),
        ("http://127.0.0.1:6379/", False, "plain http"),
        ("https://127.0.0.1:4712/", False, "not public"),
        # and looks alone are not enough
        ("https://trusted.example.evil.example/", True, "a secret"),
        ("https://eviltrusted.example/", True, "a secret"),
        ("https://trusted.example@evil.example/", True, "a secret"),
        ("https://evil.example/trusted.example", True, "a secret"),
        ("https://evil.example#@trusted.example/", True, "a secret"),
        ("https://evil.example?@trusted.example/", True, "a secret"),
        # what is no address of ours is nowhere
        ("ftp://trusted.example/", False, "http(s)://"),
        ("file:///etc/passwd", False, "http(s)://"),
        ("//trusted.example/", False, "http(s)://"),
        ("https://", False, "http(s)://"),
        ("https://trusted.example:0/", False, "http(s)://"),
        ("https://trusted.example:99999/", False, "http(s)://"),
        ("https://evil.example\\@trusted.example/", False, "http(s)://"),
        ("https://trusted.example\t.evil.example/", False, "http(s)://"),
        (" https://trusted.example/", False, "http(s)://"),
        ("", False, "http(s)://"),
    ],
)
def test_what_may_go_where(url: str, with_secret: bool, reason: str | None) -> None:
    refusal = RULE.refusal(url, with_secret=with_secret)
    if reason is None:
        assert refusal is None
    else:
        assert refusal is not None
        assert reason in refusal
        assert len(refusal.splitlines()) == 1


@pytest.mark.parametrize("with_secret", [True, False])
def test_a_refusal_names_the_host_and_the_setting(with_secret: bool) -> None:
    refusal = RULE.refusal("http://other.example:81/?key=abc", with_secret=with_secret)
    assert refusal is not None
    assert refusal.startswith("other.example:81: ")
    assert SETTING in refusal
    assert "abc" not in refusal


def test_an_address_that_a_name_has_is_held_to_the_rule_unless_the_name_is_trusted() -> None:
    assert RULE.address_refusal("anywhere.example", 443, "8.8.8.8") is None
    assert "not public" in (RULE.address_refusal("anywhere.example", 443, "169.254.169.254") or "")
    assert RULE.address_refusal("Trusted.example.", 443, "10.1.2.3") is None
    assert RULE.address_refusal("inner", 8080, "10.1.2.3") is None
    assert RULE.address_refusal("inner", 8081, "10.1.2.3") is not None
    assert RULE.address_refusal("a b", 443, "10.1.2.3") is not None
    assert RULE.address_refusal("anywhere.example", 443, "fe80::1%eth0") is not None


@pytest.mark.parametrize(
    "text",
    [
        *("http://x", "a/b", "a:0", "a:65536", "a:b", "a:", "user@host", "*", "*.example.org", "a b", "[::1", "1.2.3.4.5"),
        *("good.example;bad host", "straße.example", "x\x1b[2J", "a,b"),
    ],
)
def test_a_bad_list_of_hosts_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(BadSetting) as raised:
        HostRule.of(text)
    message = str(raised.value)
    assert message.startswith(SETTING)
    assert message.isprintable()


def test_nothing_named_means_nobody_trusted() -> None:
    assert HostRule.of("") == HostRule.of(" ; ;") == HostRule()


def test_the_host_of_the_upstream_is_named_with_its_port_and_so_is_what_the_environment_lists() -> None:
    assert Upstreams.from_environment({}).hosts == HostRule.of("", [OCM_BASE_URL])
    told = {"OCM_BASE_URL": "http://127.0.0.1:8080/v3", SETTING: "stations.example"}
    hosts = Upstreams.from_environment(told).hosts
    assert hosts.named == {("127.0.0.1", 8080), ("stations.example", None)}
    with pytest.raises(BadSetting):
        Upstreams.from_environment({SETTING: "no host"})


def test_a_place_is_scheme_host_and_port() -> None:
    place = place_of("HTTPS://Example.org./x")
    assert place is not None
    assert (place.scheme, place.host, place.port) == ("https", "example.org", 443)
    assert place_of("http://[::1") is None
