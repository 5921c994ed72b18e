"""A secret is found in every spelling in which programs pass values on, and nothing else is touched."""

from __future__ import annotations

import base64
import html
import json
import threading
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_importer.domain.redaction import MASK, SECRETS, SHORTEST, Redactor, secrets_in_url
from streams_importer.domain.text import one_line, plain, plain_block

CANARY = "canary+/=&<>\"'%key"


def _lower_hex(text: str) -> str:
    return "".join(part if at % 2 == 0 else part.lower() for at, part in enumerate(_split_escapes(text)))


def _split_escapes(text: str) -> list[str]:
    parts, rest = [""], text
    while rest:
        if rest[0] == "%":
            parts += [rest[:3], ""]
            rest = rest[3:]
        else:
            parts[-1] += rest[0]
            rest = rest[1:]
    return parts


def _dot_net_json(text: str) -> str:
    """As Open Charge Map's own platform writes JSON: quotes, plus and everything that HTML knows are numbers."""
    escaped = json.dumps(text)[1:-1].replace('\\"', "\\u0022")
    for mark in "+&<>'":
        escaped = escaped.replace(mark, f"\\u{ord(mark):04X}")
    return escaped


SPELLINGS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "percent": lambda text: quote(text, safe=""),
    "percent but for slashes": quote,
    "percent as in a form": quote_plus,
    "percent as in a browser": lambda text: quote(text, safe="!'()*~"),
    "percent in small letters": lambda text: _lower_hex(quote(text, safe="")),
    "percent twice": lambda text: quote(quote(text, safe=""), safe=""),
    "percent twice in small letters": lambda text: _lower_hex(quote(_lower_hex(quote(text, safe="")), safe="")),
    "JSON": lambda text: json.dumps(text)[1:-1],
    "JSON with all letters": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "JSON within JSON": lambda text: json.dumps(json.dumps(text))[3:-3],
    "JSON with escaped slashes": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "JSON of .NET": _dot_net_json,
    "HTML": html.escape,
    "HTML without quotes": lambda text: html.escape(text, quote=False),
    "HTML twice": lambda text: html.escape(html.escape(text)),
    "repr": lambda text: repr(text)[1:-1],
    "hex": lambda text: text.encode().hex(),
    "hex in capitals": lambda text: text.encode().hex().upper(),
}

SECRET = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=SHORTEST, max_size=40)
PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=SHORTEST, max_size=64)
AROUND = st.text(st.characters(codec="utf-8") | st.sampled_from("*%\\&+=/ \n"), max_size=30)


def told(*secrets: str) -> Redactor:
    redactor = Redactor()
    redactor.learn(*secrets)
    return redactor


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_secret_with_every_awkward_character_is_blanked_in_every_spelling(spelling: str) -> None:
    text = SPELLINGS[spelling](CANARY)
    assert told(CANARY).redacted(f"before {text} after") == f"before {MASK} after"


@pytest.mark.parametrize("spelling", SPELLINGS)
@given(secret=SECRET | PRINTABLE, before=AROUND, after=AROUND)
def test_no_spelling_of_any_secret_survives_in_any_text(spelling: str, secret: str, before: str, after: str) -> None:
    spelt = SPELLINGS[spelling](secret)
    shown = told(secret).redacted(before + spelt + after)
    assert spelt not in shown
    assert secret not in shown


@given(secret=SECRET | PRINTABLE, before=st.binary(max_size=20), after=st.binary(max_size=20))
def test_a_secret_within_something_in_base64_is_blanked_wherever_it_begins(secret: str, before: bytes, after: bytes) -> None:
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(before + secret.encode() + after).decode()
        # The letters that hold nothing but bits of the secret: these would give it away.
        first, last = -(-len(before) * 8 // 6), (len(before) + len(secret.encode())) * 8 // 6
        shown = told(secret).redacted(encoded)
        assert encoded[first:last] not in shown
        assert MASK in shown


@given(secret=PRINTABLE, text=AROUND)
def test_a_text_without_a_secret_stays_as_it_is(secret: str, text: str) -> None:
    if len(text) < len(secret) // 2:
        assert told("x" * 100 + secret).redacted(text) == text


@given(secrets=st.lists(PRINTABLE, min_size=2, max_size=4), around=AROUND)
def test_of_secrets_that_overlap_none_is_left(secrets: list[str], around: str) -> None:
    first, second = secrets[:2]
    overlapping = first[:-2] + second if first[-2:] == second[:2] else first + second
    shown = told(*secrets).redacted(around + overlapping + around)
    assert not any(secret in shown for secret in secrets)


def test_secrets_that_share_letters_are_blanked_together() -> None:
    assert told("abcdef", "defghi").redacted("<abcdefghi>") == f"<{MASK}>"


@given(secret=PRINTABLE, before=AROUND, most=st.integers(0, 60))
def test_a_cut_leaves_no_part_of_a_secret(secret: str, before: str, most: int) -> None:
    redactor = told(secret)
    shown = redactor.redacted(before + secret + "after", most)
    assert secret not in shown
    whole = redactor.redacted(before + secret + "after")
    assert whole.startswith(shown) or shown.endswith(MASK)
    assert shown == redactor.redacted(shown)


def test_a_secret_that_the_cut_goes_through_is_blanked_whole() -> None:
    assert told("0123456789").redacted("ab 0123456789 cd", 5) == f"ab {MASK}"
    assert told("0123456789").redacted("ab 0123456789 cd", 3) == "ab "


def test_masks_in_a_row_do_not_bring_a_cut_off_secret_into_view() -> None:
    secret = "0123456789"
    shown = told(secret).redacted(secret * 300, 1000)
    assert shown == MASK


@pytest.mark.parametrize("secret", ["", "a", "abc"])
def test_what_is_too_short_is_not_looked_for(secret: str) -> None:
    assert told(secret).redacted("abc a b c") == "abc a b c"


def test_a_long_secret_is_found_in_capitals_and_in_small_letters_and_a_short_one_only_as_it_is() -> None:
    assert told("Secret-Key-1").redacted("secret-key-1.example SECRET-KEY-1") == f"{MASK}.example {MASK}"
    assert told("Redis").redacted("redis Redis") == f"redis {MASK}"


def test_learning_twice_changes_nothing_and_every_secret_stays_known() -> None:
    redactor = told("first-secret")
    redactor.learn("second-secret")
    redactor.learn("first-secret", "")
    assert redactor.redacted("first-secret second-secret") == f"{MASK} {MASK}"


@pytest.mark.parametrize(
    "secret", ["****", "***1", "1***", "\\\\\\\\", "%25%", "&amp;", "++++", "    ", "\ud800\ud800\ud800\ud800"]
)
def test_a_secret_made_of_marks_comes_to_an_end_too(secret: str) -> None:
    shown = told(secret).redacted(f"a {secret}{secret[-1]}{secret[-1]} z")
    assert secret not in shown


@pytest.mark.parametrize("secret", ["\\" * 40, '\\"' * 30, "%25" * 60, "&amp;" * 40, "\\x5c" * 30, "' \\\n" * 20])
@pytest.mark.parametrize("text", ["\\" * 20_000, "%25" * 8000, "&amp;" * 5000, "\\x5c" * 5000, "\\u005c" * 4000, "+ " * 9000])
def test_no_text_makes_it_look_for_ever(secret: str, text: str) -> None:
    """Exponential patterns would not come back within anybody's lifetime."""
    told(secret).redacted(text + secret[:-1])


def test_many_threads_may_learn_and_ask_at_once() -> None:
    redactor, start = Redactor(), threading.Barrier(8)
    wrong: list[str] = []

    def work(number: int) -> None:
        start.wait(10)
        for turn in range(20):
            secret = f"secret-{number}-{turn}"
            redactor.learn(secret)
            if redactor.redacted(f"<{secret}>") != f"<{MASK}>":
                wrong.append(secret)

    threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert wrong == []


# plain() in front of it.


def test_plain_knows_the_secrets_of_this_process() -> None:
    SECRETS.learn(CANARY)
    assert plain(f"refused: {quote(CANARY)}\x1b[2J") == f"refused: {MASK} [2J"
    assert plain_block(f"one {CANARY}\ntwo\x1b\r") == f"one {MASK}\ntwo  "


@given(secret=PRINTABLE, before=AROUND, after=AROUND, most=st.integers(4, 100))
def test_plain_leaves_no_secret_whatever_is_around_it(secret: str, before: str, after: str, most: int) -> None:
    known = SECRETS._known
    try:
        SECRETS.learn(secret)
        assert secret not in plain(before + secret + after, most)
        assert secret not in plain_block(before + secret + after)
    finally:
        SECRETS._known = known


def test_plain_finds_a_secret_that_only_cleaning_puts_together() -> None:
    SECRETS.learn("my pass word")
    assert plain("it is my\npass\tword") == f"it is {MASK}"


def test_plain_never_shows_half_a_secret_at_its_cut() -> None:
    SECRETS.learn("0123456789" * 3)
    for length in range(470, 505):
        assert "0123" not in plain("x" * length + "0123456789" * 3)


def test_a_name_that_is_compared_keeps_what_looks_like_a_secret() -> None:
    SECRETS.learn("1234")
    assert one_line("worker-1234:ab\n") == "worker-1234:ab"


# Addresses of servers.


@pytest.mark.parametrize(
    ("url", "secrets"),
    [
        ("redis://localhost:6379/0", set()),
        ("redis://:hunter2@localhost:6379/0", {"hunter2"}),
        ("rediss://app:p%40ss%2Fword@h:6380", {"p%40ss%2Fword", "p@ss/word", "app:p%40ss%2Fword", "app:p@ss/word"}),
        ("unix:///tmp/redis.sock?password=a%20b%2Bc", {"a%20b%2Bc", "a b+c"}),
        (
            "redis+sentinel://app:first@h1:26379,h2:26379/master/0?sentinel_username=s&sentinel_password=second",
            {"first", "app:first", "second"},
        ),
        ("mongodb://u:pw%3A1@h1:27017,h2/db?authSource=admin", {"pw%3A1", "pw:1", "u:pw%3A1", "u:pw:1"}),
        ("mongodb+srv://u:word@cluster.example.net/db", {"word", "u:word"}),
        ("mongodb://h/db?tls=true&tlsCertificateKeyFilePassword=key%26file", {"key%26file", "key&file"}),
        (
            "mongodb://h/?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:to%2Fken,SERVICE_NAME:mongodb",
            {"to%2Fken", "to/ken"},
        ),
        ("mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN%3Atoken%2CX%3Ay", {"token"}),
        ("mongodb://h/?proxyHost=p&proxyPassword=proxied;ssl_password=other", {"proxied", "other"}),
        ("--redis-url=redis://:flagged@h", {"flagged"}),
        ("nothing of the kind", set()),
        ("", set()),
    ],
)
def test_the_log_ins_of_an_address_are_found_as_written_and_as_meant(url: str, secrets: set[str]) -> None:
    assert set(secrets_in_url(url)) == secrets


def test_a_password_with_marks_that_should_have_been_encoded_is_found_whole() -> None:
    assert {"p@ss/w?rd", "app:p@ss/w?rd"} <= set(secrets_in_url("redis://app:p@ss/w?rd@h:6379/0"))


@given(st.text(max_size=60))
def test_no_address_is_too_malformed_to_be_looked_at(text: str) -> None:
    list(secrets_in_url(text))
    list(secrets_in_url(f"redis://{text}"))


def test_the_mask_is_shorter_than_anything_looked_for() -> None:
    assert len(MASK) < SHORTEST
