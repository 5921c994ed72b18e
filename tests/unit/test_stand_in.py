"""The local Open Charge Map behaves as the real one does (FACTS, section 4), and fails in every way it is told to."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPMessage, IncompleteRead
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from streams_importer.embedded.stand_in import StandIn, StandInProcess
from streams_importer.embedded.stand_in_faults import FAULTS, RateLimit
from streams_importer.embedded.stand_in_odd import RECORD_KINDS
from streams_importer.embedded.stand_in_points import COUNTRIES, generate, read_points
from streams_importer.embedded.stand_in_queries import (
    Points,
    least_requests,
    least_requests_of_countries,
    parse_query,
    select,
)

KEYSET: dict[str, Any] = {"sortby": "id_asc", "compact": "true", "verbose": "false"}


class Reply:
    def __init__(self, status: int, headers: HTTPMessage, body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def ids(self) -> list[int]:
        return [row["ID"] for row in json.loads(self.body)]


@contextmanager
def connection(base_url: str) -> Iterator[HTTPConnection]:
    address = urlsplit(base_url)
    opened = HTTPConnection(address.hostname or "", address.port, timeout=20)
    try:
        yield opened
    finally:
        opened.close()


def ask(where: StandIn | StandInProcess, path: str = "/poi", headers: dict[str, str] | None = None, **params: Any) -> Reply:
    with connection(where.base_url) as opened:
        opened.request("GET", f"/v3{path}?{urlencode(params)}", headers=headers or {})
        answer = opened.getresponse()
        return Reply(answer.status, answer.headers, answer.read())


@pytest.fixture(scope="module")
def upstream() -> Iterator[StandIn]:
    """3,000 points that no test changes."""
    with StandIn(points=3000, seed=7) as running:
        yield running


# The points.


def test_the_same_seed_gives_the_same_points_and_another_seed_others() -> None:
    assert list(generate(500, 3)) == list(generate(500, 3))
    assert [p.body for p in generate(500, 3)] != [p.body for p in generate(500, 4)]


def test_ids_ascend_and_about_half_of_them_are_holes() -> None:
    ids = [point.id for point in generate(20_000, 1)]
    assert all(low < high for low, high in pairwise(ids))
    assert 0.4 < len(ids) / ids[-1] < 0.6


def test_points_are_skewed_over_countries_and_minutes() -> None:
    points = list(generate(20_000, 1))
    countries = Counter(point.country for point in points)
    minutes = Counter(point.updated for point in points if point.updated is not None)
    assert len(countries) > 30
    assert countries[87] > 20_000 / 4
    assert sum(count for _, count in countries.most_common(4)) > 20_000 / 2
    assert max(minutes.values()) > 200
    assert all(minute % 60 == 0 for minute in minutes)
    assert any(point.updated is None for point in points)


def test_points_have_the_compact_shape_and_size() -> None:
    points = list(generate(2000, 1, odd_rate=0))
    poi = json.loads(points[0].body)
    assert {"ID", "UUID", "AddressInfo", "Connections", "DateLastStatusUpdate", "DateCreated", "StatusTypeID"} <= set(poi)
    assert {"Title", "Town", "CountryID", "Latitude", "Longitude", "Distance"} <= set(poi["AddressInfo"])
    assert 600 < sum(len(point.body) for point in points) / len(points) < 900


def test_odd_rows_exist_at_the_given_rate_and_only_then() -> None:
    def odd(rows: list[dict[str, Any]]) -> int:
        return sum("AddressInfo" not in row or row["NumberOfPoints"] < 0 or len(row["Connections"]) == 84 for row in rows)

    assert odd([json.loads(point.body) for point in generate(1000, 1, odd_rate=0)]) == 0
    assert odd([json.loads(point.body) for point in generate(1000, 1, odd_rate=1)]) > 200


def test_given_records_are_served_as_they_are(stand_in: Callable[..., StandIn]) -> None:
    pois = [{"UUID": "x", "ID": 9, "AddressInfo": None}, {"ID": 4, "GeneralComments": "Straße \ud800"}]
    answer = ask(stand_in(pois=pois), **KEYSET)
    assert json.loads(answer.body) == [pois[1], pois[0]]


# What it ignores, how it orders, what it refuses.


def test_paging_by_offset_returns_the_same_newest_hundred_rows(upstream: StandIn) -> None:
    first = ask(upstream).ids
    assert first == sorted(upstream.points.ids, reverse=True)[:100]
    for unknown in ("offset", "page", "limit", "cursor"):
        params: dict[str, Any] = {unknown: 5}
        assert ask(upstream, **params).ids == first


def test_keyset_pages_read_every_point_once(upstream: StandIn) -> None:
    seen: list[int] = []
    while page := ask(upstream, greaterthanid=seen[-1] if seen else 0, maxresults=700, **KEYSET).ids:
        seen += page
    assert seen == upstream.points.ids


def test_a_cold_cache_answers_in_order_of_creation_and_keyset_loses_rows(stand_in: Callable[..., StandIn]) -> None:
    upstream = stand_in(points=3000, seed=7)
    upstream.faults.add("creation_order", times=None)
    seen: list[int] = []
    disordered = 0
    while page := ask(upstream, greaterthanid=seen[-1] if seen else 0, maxresults=500, **KEYSET).ids:
        disordered += page != sorted(page)
        seen += page
    assert disordered
    assert 0 < len(upstream.points.ids) - len(set(seen)) < 300


@pytest.mark.parametrize("params", [{"countryid": 87}, {"countrycode": "DE"}, {"countryid": "87,1"}, {"countryid": 99999}])
def test_a_country_filter_gives_the_points_of_those_countries(upstream: StandIn, params: dict[str, Any]) -> None:
    wanted = {int(part) for part in str(params.get("countryid", "87")).split(",")}
    expected = [point.id for point in upstream.points.rows if point.country in wanted]
    assert ask(upstream, maxresults=9999, **KEYSET, **params).ids == expected


@pytest.mark.parametrize(
    "params",
    [
        {"countrycode": "XX"},
        {"countryid": "DE"},
        {"modifiedsince": "yesterday"},
        {"boundingbox": "50,5,51,6"},
        {"greaterthanid": "x"},
    ],
)
def test_a_filter_that_cannot_be_parsed_is_dropped(upstream: StandIn, params: dict[str, Any]) -> None:
    assert ask(upstream, maxresults=9999, **KEYSET, **params).ids == upstream.points.ids


def test_modifiedsince_includes_its_own_minute_and_never_a_null(upstream: StandIn) -> None:
    minute = sorted(point.updated for point in upstream.points.rows if point.updated is not None)[1500]
    text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(minute))
    expected = [point.id for point in upstream.points.rows if point.updated is not None and point.updated >= minute]
    assert ask(upstream, maxresults=9999, modifiedsince=text, **KEYSET).ids == expected
    assert any(point.updated == minute for point in upstream.points.rows)


def test_a_box_of_ten_degrees_at_50_north_bulges_12_km() -> None:
    def place(identifier: int, latitude: float, longitude: float) -> dict[str, Any]:
        return {"ID": identifier, "AddressInfo": {"Latitude": latitude, "Longitude": longitude}}

    bulge = 12 / 111.2
    pois = [
        place(1, 50 + bulge * 0.9, 5),
        place(2, 50 + bulge * 1.1, 5),
        place(3, 50.05, 0.01),
        place(4, 45, 5),
        place(5, 45, 11),
    ]
    query = parse_query({"boundingbox": "(40,0),(50,10)", "sortby": "id_asc"})
    assert [point.id for point in select(Points(read_points(pois)), query)] == [1, 4]


def test_a_box_without_sortby_comes_in_no_useful_order(upstream: StandIn) -> None:
    ids = ask(upstream, boundingbox="(35,-10),(60,30)", maxresults=500).ids
    assert len(ids) == 500
    assert ids not in (sorted(ids), sorted(ids, reverse=True))


def test_a_search_by_place_ignores_sortby(upstream: StandIn) -> None:
    rows = [upstream.points.get(i) for i in ask(upstream, latitude=50, longitude=10, maxresults=50, **KEYSET).ids]
    far = [math.hypot((row.latitude or 0) - 50, (row.longitude or 0) - 10) for row in rows]
    assert far == sorted(far)


def test_system_status_gives_the_highest_id(upstream: StandIn) -> None:
    status = json.loads(ask(upstream, "/system/status").body)
    assert status["MaxPOIId"] == upstream.points.ids[-1]
    assert status["DataHash"]


def test_reference_data_lists_the_countries(upstream: StandIn) -> None:
    data = json.loads(ask(upstream, "/referencedata").body)
    germany = {"ID": 87, "ISOCode": "DE", "ContinentCode": "EU", "Title": "Germany"}
    assert germany in data["Countries"]
    assert len(data["Countries"]) == len(COUNTRIES)
    assert data["Operators"] == []


def test_a_missing_or_wrong_key_is_a_403_in_plain_text(stand_in: Callable[..., StandIn]) -> None:
    upstream = stand_in(points=10, key="right")
    attempts: list[tuple[dict[str, str], dict[str, Any]]] = [({}, {}), ({"X-API-Key": "wrong"}, {}), ({}, {"key": "wrong"})]
    for headers, params in attempts:
        answer = ask(upstream, "/poi", headers, **params)
        assert answer.status == 403
        assert answer.headers.get_content_type() == "text/plain"
    assert ask(upstream, headers={"x-api-key": "right"}).status == 200
    assert ask(upstream, key="right").status == 200


@pytest.mark.parametrize("agent", ["my-Crawler/1.0", "robot", "a spider"])
def test_a_robot_is_refused_for_ever(upstream: StandIn, agent: str) -> None:
    assert ask(upstream, headers={"User-Agent": agent}).status == 503


def test_a_connection_serves_many_requests(upstream: StandIn) -> None:
    with connection(upstream.base_url) as opened:
        for _ in range(3):
            opened.request("GET", "/v3/poi?maxresults=1")
            answer = opened.getresponse()
            assert (answer.version, answer.headers["Content-Length"]) == (11, str(len(answer.read())))
            assert opened.sock is not None, "closed by the server"


# The log.


def test_every_request_is_logged_with_what_was_asked_and_answered(stand_in: Callable[..., StandIn]) -> None:
    upstream = stand_in(points=100, key="secret")
    before = time.monotonic()
    ask(upstream, headers={"X-API-Key": "secret", "User-Agent": "tester/1"}, maxresults=10, **KEYSET)
    ask(upstream, key="secret", maxresults=0)
    first, second = upstream.log
    assert before <= first.at <= second.at <= time.monotonic()
    assert abs(first.wall - time.time()) < 60
    assert (first.path, first.status, first.rows) == ("/poi", 200, 10)
    assert (first.first_id, first.last_id) == (upstream.points.ids[0], upstream.points.ids[9])
    assert (first.user_agent, first.key_in_header, first.params["maxresults"]) == ("tester/1", True, "10")
    assert (second.key_in_header, second.rows, second.first_id) == (False, 0, None)
    assert "secret" not in str(upstream.log)


# The faults.


@pytest.fixture
def faulty(stand_in: Callable[..., StandIn]) -> StandIn:
    return stand_in(points=200, seed=5)


@pytest.mark.parametrize("code", [429, 500, 502, 503, 520, 403])
def test_a_status_can_be_ordered_for_so_many_requests(faulty: StandIn, code: int) -> None:
    faulty.faults.add("status", code, times=2)
    assert [ask(faulty).status for _ in range(3)] == [code, code, 200]
    assert [asked.fault for asked in faulty.log] == ["status", "status", None]


def test_retry_after_comes_in_seconds_as_a_date_or_not_at_all(faulty: StandIn) -> None:
    faulty.faults.add("status", 429)
    faulty.faults.add("status", {"code": 429, "retry_after": 7})
    faulty.faults.add("status", {"code": 429, "retry_after_date_s": 90})
    assert "Retry-After" not in ask(faulty).headers
    assert ask(faulty).headers["Retry-After"] == "7"
    headers = ask(faulty).headers
    ahead = parsedate_to_datetime(headers["Retry-After"]) - parsedate_to_datetime(headers["Date"])
    assert 88 <= ahead.total_seconds() <= 91


@pytest.mark.parametrize(
    ("fault", "start"), [("empty_body", b""), ("null", b"null"), ("html", b"<!DOCTYPE"), ("error_body", b'{"error"')]
)
def test_a_200_can_carry_something_else_than_rows(faulty: StandIn, fault: str, start: bytes) -> None:
    faulty.faults.add(fault)
    answer = ask(faulty)
    assert answer.status == 200
    assert answer.body.startswith(start)
    assert bool(answer.body) == bool(start)


def test_json_can_end_early_in_a_complete_answer(faulty: StandIn) -> None:
    faulty.faults.add("cut_json", 0.3)
    with pytest.raises(json.JSONDecodeError):
        json.loads(ask(faulty).body)


def test_a_connection_can_close_within_the_body(faulty: StandIn) -> None:
    faulty.faults.add("cut_body")
    with pytest.raises(IncompleteRead):
        ask(faulty)


def test_a_connection_can_be_reset(faulty: StandIn) -> None:
    faulty.faults.add("reset")
    with pytest.raises(ConnectionResetError):
        ask(faulty)


def test_a_filter_can_be_ignored(faulty: StandIn) -> None:
    faulty.faults.add("filter_ignored")
    faulty.faults.add("filter_ignored", ["greaterthanid"])
    middle = faulty.points.ids[100]
    asked: dict[str, Any] = {"countryid": 1, "greaterthanid": middle, "maxresults": 999, **KEYSET}
    assert ask(faulty, **asked).ids == faulty.points.ids[101:]
    assert ask(faulty, **asked).ids == [point.id for point in faulty.points.by_country[1]]


def test_a_page_can_hold_the_same_poi_twice(faulty: StandIn) -> None:
    faulty.faults.add("repeat_poi", 7)
    ids = ask(faulty, **KEYSET).ids
    assert (len(ids), len(set(ids))) == (100, 93)
    assert list(dict.fromkeys(ids)) == faulty.points.ids[:93]


def test_a_redirect_points_to_another_host(faulty: StandIn) -> None:
    faulty.faults.add("redirect", "https://evil.invalid/v3/poi")
    answer = ask(faulty)
    assert (answer.status, answer.headers["Location"]) == (302, "https://evil.invalid/v3/poi")


def test_a_first_byte_can_be_slow(faulty: StandIn) -> None:
    faulty.faults.add("slow", 0.2)
    begun = time.monotonic()
    assert ask(faulty).status == 200
    assert time.monotonic() - begun >= 0.2


def test_a_body_can_trickle(faulty: StandIn) -> None:
    faulty.faults.add("drip", 4000)
    begun = time.monotonic()
    assert len(ask(faulty, maxresults=1).body) > 400
    assert time.monotonic() - begun > 0.1


@pytest.mark.parametrize("fault", ["huge_body", "endless_body"])
def test_a_body_can_be_huge_with_and_without_an_announced_length(faulty: StandIn, fault: str) -> None:
    faulty.faults.add(fault, 3_000_000)
    answer = ask(faulty)
    assert len(answer.body) > 3_000_000
    assert ("Content-Length" in answer.headers) == (fault == "huge_body")


@pytest.mark.parametrize(("fault", "value"), [("slow", 3600), ("drip", 1)])
def test_stopping_does_not_wait_for_slow_answers(faulty: StandIn, fault: str, value: float) -> None:
    faulty.faults.add(fault, value)
    cut: list[BaseException] = []

    def wait_for_answer() -> None:
        try:
            ask(faulty)
        except (OSError, HTTPException) as error:
            cut.append(error)

    waiting = threading.Thread(target=wait_for_answer)
    waiting.start()
    while not faulty.log:  # logged before it is sent
        assert waiting.is_alive()
    faulty.stop()
    waiting.join(20)
    assert len(cut) == 1


def test_a_rule_applies_only_to_requests_that_match_it(faulty: StandIn) -> None:
    faulty.faults.add("status", 500, times=None, params={"greaterthanid": 7})
    faulty.faults.add("status", 502, path="/system/status")
    assert ask(faulty, greaterthanid=8).status == 200
    assert [ask(faulty, greaterthanid=7).status for _ in range(3)] == [500] * 3
    assert ask(faulty, "/system/status").status == 502
    faulty.faults.clear()
    assert ask(faulty, greaterthanid=7).status == 200


def test_an_unknown_fault_or_record_kind_is_refused(faulty: StandIn) -> None:
    with pytest.raises(ValueError, match="must be one of status"):
        faulty.faults.add("earthquake")
    with pytest.raises(ValueError, match="must be one of nan"):
        faulty.control.spoil({1: "rotten"})


def test_a_rate_limit_lets_so_many_through_in_any_second_and_does_not_count_the_refused() -> None:
    limit = RateLimit()
    limit.set(2)
    moments = [0.0, 0.5, 0.6, 0.99, 1.0, 1.1, 1.5]
    assert [limit.refusal(now) is None for now in moments] == [True, True, False, False, True, False, True]


def test_a_rate_limit_answers_429_until_it_is_taken_away(faulty: StandIn) -> None:
    faulty.control.set_rate_limit(0, retry_after="1")
    answer = ask(faulty)
    assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
    faulty.control.set_rate_limit(None)
    assert ask(faulty).status == 200


@pytest.mark.parametrize("kind", RECORD_KINDS)
def test_one_record_can_be_unfit_while_its_neighbours_are_whole(faulty: StandIn, kind: str) -> None:
    first, bad, last = faulty.points.ids[:3]
    faulty.control.spoil({bad: kind})
    rows = json.loads(ask(faulty, maxresults=3, **KEYSET).body)
    assert [rows[0]["ID"], rows[2]["ID"]] == [first, last]
    assert _unfit(kind, rows[1])
    faulty.control.spoil({})
    assert json.loads(ask(faulty, maxresults=3, **KEYSET).body)[1] == faulty.control.poi(bad)


def _unfit(kind: str, row: Any) -> bool:
    match kind:
        case "no_id":
            return "ID" not in row
        case "null_id":
            return row["ID"] is None
        case "not_an_object":
            return isinstance(row, str)
        case "nul_key":
            return "O\0dd" in row
    odd = row["Odd"]
    checks: dict[str, Callable[[], bool]] = {
        "nan": lambda: math.isnan(odd),
        "infinity": lambda: math.isinf(odd),
        "surrogate": lambda: "\ud83d" in odd,
        "huge": lambda: len(odd) > 16 * 1024 * 1024,
        "big_int": lambda: odd > 2**63,
        "deep": lambda: str(odd).count("[") == 250,
    }
    return checks[kind]()


def test_points_can_be_changed_added_and_deleted_while_it_runs(faulty: StandIn) -> None:
    first, second, *_ = faulty.points.ids
    changed = faulty.control.poi(first) | {"UsageCost": "changed"}
    faulty.control.update_points([changed, {"ID": 10_000_000}])
    faulty.control.delete_points([second])
    rows = json.loads(ask(faulty, maxresults=999, **KEYSET).body)
    assert rows[0] == changed
    assert rows[-1] == {"ID": 10_000_000}
    assert second not in [row["ID"] for row in rows]


# In a process of its own.


def test_the_same_points_come_from_a_process_of_its_own_with_all_switches() -> None:
    with StandInProcess(points=300, seed=9, key="k") as upstream, StandIn(points=300, seed=9) as twin:
        assert ask(upstream).status == 403
        headers = {"X-API-Key": "k"}
        assert ask(upstream, headers=headers, maxresults=999).body == ask(twin, maxresults=999).body
        assert upstream.control.ids() == twin.points.ids
        upstream.control.add_fault("status", 520, params={"maxresults": 5})
        assert ask(upstream, headers=headers, maxresults=5).status == 520
        assert [asked.status for asked in upstream.control.log()] == [403, 200, 520]
        upstream.control.clear_log()
        upstream.control.spoil({twin.points.ids[0]: "no_id"})
        assert "ID" not in json.loads(ask(upstream, headers=headers, maxresults=1, **KEYSET).body)[0]
        upstream.control.delete_points(twin.points.ids[1:])
        upstream.control.update_points([upstream.control.poi(twin.points.ids[0]) | {"ID": 5_000_000}])
        assert upstream.control.ids() == [twin.points.ids[0], 5_000_000]
        upstream.control.set_key(None)
        upstream.control.set_rate_limit(0)
        assert ask(upstream).status == 429
        with pytest.raises(ValueError, match="must be one of"):
            upstream.control.add_fault("earthquake")


def test_the_switches_answer_only_under_the_loopback_address(upstream: StandIn) -> None:
    with connection(upstream.base_url) as opened:
        opened.request("GET", "/_control/log", headers={"Host": "rebound.example"})
        assert opened.getresponse().status == 404


def test_every_fault_is_described_where_it_is_named() -> None:
    from streams_importer.embedded import stand_in_faults

    assert all(f"`{fault}`" in (stand_in_faults.__doc__ or "") for fault in FAULTS)


# The least number of requests.


@pytest.mark.parametrize(
    ("ids", "ranges", "size", "least"),
    [
        ([], [(0, 10)], 5, 1),  # an empty page says it at once
        ([1, 2, 3], [(0, 3)], 5, 1),  # the page holds an id that reaches the end of the shard
        ([1, 2, 3], [(0, 4)], 5, 2),  # a short page proves nothing
        ([1, 2, 12], [(0, 10)], 5, 1),  # an id past the end does
        ([1, 2, 3, 4, 12], [(0, 10)], 2, 3),
        ([1, 2, 3, 4], [(0, 4)], 2, 2),  # a full page that ends exactly at the shard's end is the last
        ([1, 2, 11, 12], [(0, 10), (10, 20)], 2, 4),
    ],
)
def test_the_least_requests_of_id_ranges(ids: list[int], ranges: list[tuple[int, int]], size: int, least: int) -> None:
    assert least_requests(ids, ranges, size) == least


def test_the_least_requests_of_countries_include_the_empty_page_of_each() -> None:
    pois = [{"ID": index, "AddressInfo": {"CountryID": 87 if index < 5 else 1}} for index in range(1, 7)]
    points = Points(read_points(pois))
    assert least_requests_of_countries(points, [87], 2) == 3
    assert least_requests_of_countries(points, [1, 80], 2) == 3
