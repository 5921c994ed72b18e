"""The table of answers: what each one means, and what its text must never say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_importer.domain.answers import _WITHOUT_STATUS, MAX_WAIT_S, Kind, classify, error_of, failure, retry_after_seconds
from streams_importer.domain.errors import ImportRefused, ShardRefused, Transient, UpstreamError, Weather

DATE = "Sat, 21 Feb 2026 10:00:00 GMT"
JSON = {"Content-Type": "application/json; charset=utf-8"}
HTML = {"content-type": "text/html"}
PLAIN = {"Content-Type": "text/plain"}


@pytest.mark.parametrize(
    ("status", "headers", "kind", "code"),
    [
        (200, JSON, Kind.GOOD, "ok"),
        (200, {}, Kind.GOOD, "ok"),
        (200, PLAIN, Kind.GOOD, "ok"),
        (200, HTML, Kind.TRANSIENT, "html_body"),
        (204, {}, Kind.TRANSIENT, "http_204"),
        (304, {}, Kind.TRANSIENT, "http_304"),
        (301, {"Location": "https://elsewhere.example/v4"}, Kind.IMPORT_REFUSED, "redirect"),
        (302, {}, Kind.IMPORT_REFUSED, "redirect"),
        (308, {"Location": "/v4"}, Kind.IMPORT_REFUSED, "redirect"),
        (400, JSON, Kind.SHARD_REFUSED, "http_400"),
        (401, JSON, Kind.IMPORT_REFUSED, "key_refused"),
        (403, PLAIN, Kind.IMPORT_REFUSED, "key_refused"),
        (403, HTML, Kind.IMPORT_REFUSED, "forbidden"),
        (404, HTML, Kind.SHARD_REFUSED, "http_404"),
        (407, {}, Kind.IMPORT_REFUSED, "http_407"),
        (408, {}, Kind.TRANSIENT, "http_408"),
        (413, {}, Kind.SHARD_REFUSED, "http_413"),
        (414, {}, Kind.SHARD_REFUSED, "http_414"),
        (418, {}, Kind.SHARD_REFUSED, "http_418"),
        (421, {}, Kind.TRANSIENT, "http_421"),
        (425, {}, Kind.TRANSIENT, "http_425"),
        (429, {}, Kind.WEATHER, "http_429"),
        (500, {"Retry-After": "5"}, Kind.TRANSIENT, "http_500"),
        (502, HTML, Kind.TRANSIENT, "http_502"),
        (503, HTML, Kind.TRANSIENT, "http_503"),
        (503, {"RETRY-AFTER": "5"}, Kind.WEATHER, "http_503"),
        (504, {}, Kind.TRANSIENT, "http_504"),
        *((status, HTML, Kind.TRANSIENT, f"http_{status}") for status in range(520, 527)),
        (999, {}, Kind.TRANSIENT, "http_999"),
    ],
)
def test_every_status_has_its_class_and_its_stable_code(status: int, headers: dict[str, str], kind: Kind, code: str) -> None:
    verdict = classify(status, headers)
    assert (verdict.kind, verdict.code) == (kind, code)


@pytest.mark.parametrize(
    ("status", "headers", "error"),
    [
        (500, {}, Transient),
        (429, {}, Weather),
        (404, {}, ShardRefused),
        (403, PLAIN, ImportRefused),
        (301, {}, ImportRefused),
    ],
)
def test_a_verdict_becomes_the_exception_of_its_branch(status: int, headers: dict[str, str], error: type[UpstreamError]) -> None:
    raised = error_of(classify(status, headers), status, "api.example")
    assert type(raised) is error
    assert raised.status == status
    assert raised.message.startswith("api.example: answered")


def test_a_good_answer_is_no_exception() -> None:
    assert error_of(classify(200, JSON), 200, "api.example") is None


@pytest.mark.parametrize(
    ("location", "named"),
    [
        ("https://Elsewhere.example:8443/v4?key=secret", "elsewhere.example:8443"),
        ("//elsewhere.example/v4", "elsewhere.example"),
        ("https://user:secret@elsewhere.example/", "elsewhere.example"),
        ("/v4/?key=secret", "the same host"),
        ("", "the same host"),
        ("https://[broken/secret", "an unreadable address"),
        ("https://\x1b[31msecret/", "an unreadable address"),
        ("https://" + "a" * 300 + "/", "an unreadable address"),
    ],
)
def test_a_redirect_names_the_host_and_the_setting_but_nothing_else(location: str, named: str) -> None:
    message = classify(302, {"Location": location}).message
    assert named in message
    assert "OCM_BASE_URL" in message
    assert "secret" not in message
    assert message.isprintable()


@pytest.mark.parametrize(
    ("value", "date", "seconds"),
    [
        ("3", None, 3.0),
        (" 3 ", DATE, 3.0),
        ("0", None, 0.0),
        ("1.5", None, 1.5),
        ("7200", None, MAX_WAIT_S),
        ("999999999999", None, MAX_WAIT_S),
        ("Sat, 21 Feb 2026 10:00:30 GMT", DATE, 30.0),
        ("Sat, 21 Feb 2026 10:00:30 -0000", DATE, 30.0),
        ("Sat, 21 Feb 2026 09:00:00 GMT", DATE, 0.0),
        ("Sun, 22 Feb 2027 10:00:00 GMT", DATE, MAX_WAIT_S),
        ("Sat, 21 Feb 2026 10:00:30 GMT", None, None),
        ("Sat, 21 Feb 2026 10:00:30 GMT", "yesterday", None),
        ("soon", DATE, None),
        ("", DATE, None),
        ("-5", DATE, None),
        ("٣", DATE, None),
        ("inf", DATE, None),
        (None, DATE, None),
    ],
)
def test_retry_after_is_seconds_or_a_date_counted_from_the_answers_own_date(
    value: str | None, date: str | None, seconds: float | None
) -> None:
    assert retry_after_seconds(value, date) == seconds


@given(st.text(), st.none() | st.text())
def test_retry_after_of_any_text_is_none_or_within_an_hour(value: str, date: str | None) -> None:
    seconds = retry_after_seconds(value, date)
    assert seconds is None or 0.0 <= seconds <= MAX_WAIT_S


@given(st.integers(100, 999), st.dictionaries(st.sampled_from(["Location", "Retry-After", "Date", "Content-Type"]), st.text()))
def test_any_answer_has_a_class(status: int, headers: dict[str, str]) -> None:
    verdict = classify(status, headers)
    assert (error_of(verdict, status, "host") is None) == (verdict.kind is Kind.GOOD)


def test_weather_tells_how_long_the_upstream_asked_to_wait() -> None:
    raised = error_of(classify(429, {"Retry-After": "Sat, 21 Feb 2026 10:00:09 GMT", "Date": DATE}), 429, "host")
    assert isinstance(raised, Weather)
    assert raised.wait_s == 9.0


@pytest.mark.parametrize(("headers", "wait_s"), [({"Retry-After": "7"}, 7.0), ({"Retry-After": "soon"}, None), ({}, None)])
@pytest.mark.parametrize("status", [500, 502, 504])
def test_a_failing_upstream_may_say_when_to_come_back(status: int, headers: dict[str, str], wait_s: float | None) -> None:
    raised = error_of(classify(status, headers), status, "host")
    assert isinstance(raised, Transient)
    assert raised.wait_s == wait_s


@pytest.mark.parametrize("code", sorted(_WITHOUT_STATUS))
def test_every_other_code_makes_an_exception_of_its_own_branch(code: str) -> None:
    raised = failure(code, "host", "more")
    assert raised.code == code
    assert isinstance(raised, Transient | ShardRefused)
    assert raised.message.startswith("host: ")
    assert raised.message.endswith(": more")
