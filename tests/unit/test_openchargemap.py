"""The source: pages by id that prove themselves, and countries by the upstream's own list."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_importer.domain.axes import IdRange
from streams_importer.domain.errors import BadSetting, Cancelled, ShardRefused, Transient
from streams_importer.domain.model import Cursor, Page
from streams_importer.domain.shard_key import Scope
from streams_importer.ports import Answer, Cancel, Source
from streams_importer.sources.openchargemap import COUNTRIES_CACHE, OpenChargeMap, checked_countries

IDS = Scope(ids=IdRange(0, 100))
GERMANY = Scope(country="DE")
COUNTRIES = {"Countries": [{"ID": 87, "ISOCode": "DE"}, {"ID": 1, "ISOCode": "GB"}, {"ID": 99, "ISOCode": ""}, None]}


class FakeCancel:
    def __init__(self, cancelled: bool = False) -> None:
        self.cancelled = cancelled

    def wait(self, seconds: float) -> bool:
        return self.cancelled

    def on_cancel(self, action: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    def may_send(self) -> bool:
        return True


class FakeCache(dict[str, bytes]):
    def put(self, name: str, value: bytes, seconds: int) -> None:
        assert seconds == 86_400
        self[name] = value


class FakeUpstream:
    """Answers with the bodies given, in turn; the last one stays."""

    def __init__(self, *bodies: Any, reference: Any = COUNTRIES) -> None:
        self.bodies = [body if isinstance(body, bytes) else json.dumps(body).encode() for body in bodies]
        self.reference = reference
        self.asked: list[tuple[str, dict[str, str]]] = []

    def get(self, path: str, params: Mapping[str, str], cancel: Cancel) -> Answer:
        self.asked.append((path, dict(params)))
        if path == "referencedata":
            return Answer(json.dumps(self.reference).encode(), 1)
        return Answer(self.bodies.pop(0) if len(self.bodies) > 1 else self.bodies[0], 1_000 + len(self.asked))


class KeysetUpstream(FakeUpstream):
    """Pages by id over a list of rows, as the real one does when its cache is warm."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        super().__init__(b"")
        self.rows = rows

    def get(self, path: str, params: Mapping[str, str], cancel: Cancel) -> Answer:
        if path == "poi":
            after, most = int(params["greaterthanid"]), int(params["maxresults"])
            self.bodies = [json.dumps([row for row in self.rows if row["ID"] > after][:most]).encode()]
        return super().get(path, params, cancel)


def source(upstream: FakeUpstream, page_size: int = 3) -> OpenChargeMap:
    return OpenChargeMap(upstream, FakeCache(), page_size)


def rows(*ids: Any, country: Any = 87) -> list[dict[str, Any]]:
    return [{"ID": one, "AddressInfo": {"CountryID": country}} for one in ids]


def fetch(upstream: FakeUpstream, scope: Scope = IDS, cursor: Cursor | None = None) -> Page:
    return source(upstream).fetch(scope, cursor, FakeCancel())


def ids_of(page: Page) -> list[int]:
    return [record.source_id for record in page.records]


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises((Transient, ShardRefused)) as raised:
        call()
    return str(raised.value.code)


def test_it_is_a_source() -> None:
    one: Source = source(FakeUpstream([]))
    assert one is not None


def test_a_page_is_asked_for_by_the_id_it_starts_after() -> None:
    upstream = FakeUpstream(rows(8, 9, 12))
    page = fetch(upstream, cursor=7)
    asked = {"compact": "true", "verbose": "false", "sortby": "id_asc", "greaterthanid": "7", "maxresults": "3"}
    assert upstream.asked == [("poi", asked)]
    assert ids_of(page) == [8, 9, 12]
    assert page.next_cursor == 12
    assert page.order == 1_001


@pytest.mark.parametrize(
    ("scope", "cursor", "asked"),
    [
        (Scope(ids=IdRange(50, 100)), None, "50"),
        (Scope(ids=IdRange(50, 100)), 60, "60"),
        (Scope(ids=IdRange(50, 100)), "60", "60"),
        (Scope(ids=IdRange(50, 100)), 3, "50"),
        (Scope(), None, "0"),
    ],
)
def test_a_shard_starts_at_its_low_end_and_a_cursor_never_leads_out_of_it(
    scope: Scope, cursor: Cursor | None, asked: str
) -> None:
    upstream = FakeUpstream([])
    fetch(upstream, scope, cursor)
    assert upstream.asked[0][1]["greaterthanid"] == asked


def test_a_cursor_at_the_end_costs_no_request() -> None:
    upstream = FakeUpstream([])
    assert fetch(upstream, cursor=100).next_cursor is None
    assert upstream.asked == []


@pytest.mark.parametrize("cursor", ["12; drop", "", "-1", -1, True, "9" * 30, "٣"])
def test_a_cursor_that_is_no_id_refuses_the_shard(cursor: Cursor) -> None:
    assert code_of(lambda: fetch(FakeUpstream([]), cursor=cursor)) == "bad_cursor"


@pytest.mark.parametrize(
    ("answered", "kept", "next_cursor"),
    [
        (rows(98, 99), [98, 99], 99),
        (rows(98, 100), [98, 100], None),
        (rows(98, 101, 105), [98], None),
        (rows(101), [], None),
        ([], [], None),
        (rows(98), [98], 98),
    ],
)
def test_an_id_range_ends_at_its_high_end_or_at_an_empty_page_never_at_a_short_one(
    answered: list[Any], kept: list[int], next_cursor: int | None
) -> None:
    page = fetch(FakeUpstream(answered), cursor=97)
    assert ids_of(page) == kept
    assert page.next_cursor == next_cursor


def test_a_country_goes_on_until_an_empty_page() -> None:
    upstream = FakeUpstream(rows(5), [])
    one = source(upstream)
    assert one.fetch(GERMANY, None, FakeCancel()).next_cursor == 5
    assert one.fetch(GERMANY, 5, FakeCancel()).next_cursor is None
    assert [params.get("countryid") for path, params in upstream.asked if path == "poi"] == ["87", "87"]


def test_a_country_and_an_id_range_narrow_each_other() -> None:
    upstream = FakeUpstream(rows(60, 101))
    page = fetch(upstream, Scope(country="DE", ids=IdRange(50, 100)))
    assert upstream.asked[-1][1]["countryid"] == "87"
    assert upstream.asked[-1][1]["greaterthanid"] == "50"
    assert (ids_of(page), page.next_cursor) == ([60], None)


@pytest.mark.parametrize(
    "answered",
    [
        rows(9, 8),  # order of creation, from a cold cache
        rows(12, 11, 10),
        rows(7, 8),  # the cursor itself: greaterthanid was dropped
        rows(3, 8),
        rows(8, 8, 9, 7),
        rows(8, 200, 150),  # out of order beyond the shard is out of order all the same
    ],
)
def test_ids_that_do_not_ascend_above_the_cursor_are_never_progress(answered: list[Any]) -> None:
    assert code_of(lambda: fetch(FakeUpstream(answered), cursor=7)) == "wrong_order"


@pytest.mark.parametrize("answered", [rows(8, 8, 9), rows(8, 9, 8), rows(8, 9, 9)])
def test_the_same_poi_twice_in_a_page_is_kept_for_the_sink_to_sort_out(answered: list[Any]) -> None:
    page = fetch(FakeUpstream(answered), cursor=7)
    assert len(page.records) == 3
    assert page.next_cursor == 9


def test_rows_without_an_id_are_rejected_and_do_not_disturb_the_order() -> None:
    page = fetch(FakeUpstream([*rows(8), {"Title": "x"}, None, *rows("9", 10)]), cursor=7)
    assert ids_of(page) == [8, 10]
    assert [reject.reason for reject in page.rejects] == ["no_id", "not_an_object", "bad_id"]
    assert page.next_cursor == 10


def test_a_page_without_any_id_is_no_progress_instead_of_an_endless_loop() -> None:
    assert code_of(lambda: fetch(FakeUpstream([{"Title": "x"}]), cursor=7)) == "no_progress"


@pytest.mark.parametrize("foreign", [rows(9, country=1), rows(9, country=None), [{"ID": 9}], [{"ID": 9, "AddressInfo": None}]])
def test_one_row_of_another_country_means_that_the_filter_was_dropped(foreign: list[Any]) -> None:
    assert code_of(lambda: fetch(FakeUpstream(rows(8) + foreign), GERMANY)) == "foreign_rows"


def test_rows_of_any_country_or_none_belong_to_an_id_range() -> None:
    assert ids_of(fetch(FakeUpstream([*rows(8, country=1), *rows(9, country=None), {"ID": 10}]))) == [8, 9, 10]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "empty_body"),
        (b"null", "null_body"),
        (b"<html>", "html_body"),
        (b'[{"ID":8},', "cut_json"),
        ({"e": 1}, "not_a_list"),
    ],
)
def test_a_200_without_a_list_is_never_the_end_of_the_data_however_often_it_comes(body: Any, code: str) -> None:
    one = source(FakeUpstream(body))
    for _ in range(3):
        assert code_of(lambda: one.fetch(IDS, 7, FakeCancel())) == code


ODD = b'[{"ID":8},{"ID":9,"x":NaN},{"ID":10,"x":"\\ud800"},{"ID":11}]'


def test_a_page_that_fails_twice_with_the_same_bytes_is_taken_record_by_record() -> None:
    one = source(FakeUpstream(ODD))
    assert code_of(lambda: one.fetch(IDS, 7, FakeCancel())) == "not_json"
    page = one.fetch(IDS, 7, FakeCancel())
    assert ids_of(page) == [8, 11]
    assert [reject.reason for reject in page.rejects] == ["not_finite", "lone_surrogate"]
    assert page.next_cursor == 11


def test_other_bytes_or_another_place_are_not_the_same_failure() -> None:
    one = source(FakeUpstream(ODD, ODD + b" ", ODD, ODD))
    for scope, cursor in [(IDS, 7), (IDS, 7), (IDS, 6), (Scope(ids=IdRange(0, 99)), 7)]:
        assert code_of(lambda scope=scope, cursor=cursor: one.fetch(scope, cursor, FakeCancel())) == "not_json"  # type: ignore[misc]


@pytest.mark.parametrize(
    "bad", [b'{"ID":9,"AddressInfo":{"CountryID":87},"x":NaN}', b'{"ID":9,"x":' + b"[" * 9999 + b"]" * 9999 + b"}"]
)
def test_a_bad_record_at_the_end_of_a_page_still_moves_the_cursor(bad: bytes) -> None:
    one = source(FakeUpstream(b'[{"ID":8,"AddressInfo":{"CountryID":87}},' + bad + b"]"))
    code_of(lambda: one.fetch(GERMANY, 7, FakeCancel()))
    page = one.fetch(GERMANY, 7, FakeCancel())
    assert (ids_of(page), len(page.rejects), page.next_cursor) == ([8], 1, 9)


def test_a_bad_record_of_another_country_is_foreign_too() -> None:
    one = source(FakeUpstream(b'[{"ID":9,"AddressInfo":{"CountryID":1},"x":NaN}]'))
    code_of(lambda: one.fetch(GERMANY, 7, FakeCancel()))
    assert code_of(lambda: one.fetch(GERMANY, 7, FakeCancel())) == "foreign_rows"


def test_what_is_remembered_of_failed_pages_is_bounded() -> None:
    one = source(FakeUpstream(ODD))
    for cursor in range(1000):
        code_of(lambda cursor=cursor: one.fetch(Scope(), cursor, FakeCancel()))  # type: ignore[misc]
    assert len(one._failed._digests) == 256


@given(st.sets(st.integers(1, 120), max_size=60), st.integers(1, 7), st.integers(1, 60))
def test_shards_paged_to_their_ends_bring_every_id_exactly_once(ids: set[int], page_size: int, shard_size: int) -> None:
    one = source(KeysetUpstream(rows(*sorted(ids))), page_size)
    found: list[int] = []
    for low in range(0, 120, shard_size):
        cursor: Cursor | None = None
        while True:
            page = one.fetch(Scope(ids=IdRange(low, min(low + shard_size, 120))), cursor, FakeCancel())
            found += ids_of(page)
            cursor = page.next_cursor
            if cursor is None:
                break
    assert found == sorted(ids)


# Countries and the highest id.


def test_known_countries_pass_and_the_list_is_asked_for_once() -> None:
    upstream, cache = FakeUpstream([]), FakeCache()
    one = OpenChargeMap(upstream, cache)
    one.check_countries(["DE", "GB"], FakeCancel())
    one.check_countries(["GB"], FakeCancel())
    OpenChargeMap(upstream, cache).check_countries(["DE"], FakeCancel())
    assert [path for path, _ in upstream.asked] == ["referencedata"]
    assert json.loads(cache[COUNTRIES_CACHE]) == {"DE": 87, "GB": 1}


@pytest.mark.parametrize(("code", "near"), [("UK", "GB"), ("de", "DE"), ("ED", "DE"), ("DX", "DE")])
def test_an_unknown_country_is_named_with_how_codes_look_and_what_was_likely_meant(code: str, near: str) -> None:
    with pytest.raises(BadSetting) as raised:
        source(FakeUpstream([])).check_countries(["DE", code], FakeCancel())
    assert str(raised.value).startswith(f"--country {code}: ")
    assert "two capital letters" in str(raised.value)
    assert near in str(raised.value).partition("near: ")[2]


def test_a_hostile_code_is_shown_escaped_and_short() -> None:
    with pytest.raises(BadSetting) as raised:
        source(FakeUpstream([])).check_countries(["\x1b[31m" + "x" * 10_000, *(f"Q{n}" for n in range(100))], FakeCancel())
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 300


def test_a_shard_of_an_unknown_country_is_refused_before_anything_is_asked() -> None:
    upstream = FakeUpstream([])
    assert code_of(lambda: fetch(upstream, Scope(country="QQ"))) == "unknown_country"
    assert [path for path, _ in upstream.asked] == ["referencedata"]


@pytest.mark.parametrize(
    "stored",
    [
        b"",
        b"null",
        b"[1]",
        b"{}",
        b'{"DE": "87"}',
        b'{"DE": true}',
        b'{"DE": 0}',
        b'{"DE": 87, "AT": 87}',
        b'{"de": 87}',
        b'{"DE&countryid=2": 87}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_cached_list_that_is_none_is_asked_for_again(stored: bytes) -> None:
    upstream = FakeUpstream([])
    cache = FakeCache({COUNTRIES_CACHE: stored})
    OpenChargeMap(upstream, cache).check_countries(["DE"], FakeCancel())
    assert len(upstream.asked) == 1
    assert cache[COUNTRIES_CACHE] != stored


@pytest.mark.parametrize("reference", [[], {}, {"Countries": None}, {"Countries": []}, {"Countries": [{"ISOCode": "DE"}]}])
def test_reference_data_without_countries_is_transient_and_not_remembered(reference: Any) -> None:
    cache = FakeCache()
    one = OpenChargeMap(FakeUpstream([], reference=reference), cache)
    assert code_of(lambda: one.check_countries(["DE"], FakeCancel())) == "bad_countries"
    assert not cache


def test_a_list_of_countries_has_a_bound() -> None:
    codes = [a + b for a in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" for b in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]
    many = {code: number + 1 for number, code in enumerate(codes)}
    assert checked_countries(many) == many
    assert checked_countries({f"{n}": n for n in range(1, 2000)}) is None


def test_threads_that_need_the_list_at_the_same_time_ask_once_and_a_waiting_one_can_be_cancelled() -> None:
    asking, go_on = threading.Event(), threading.Event()

    class Slow(FakeUpstream):
        def get(self, path: str, params: Mapping[str, str], cancel: Cancel) -> Answer:
            asking.set()
            assert go_on.wait(10)
            return super().get(path, params, cancel)

    upstream = Slow([])
    one = source(upstream)
    threads = [threading.Thread(target=one.check_countries, args=(["DE"], FakeCancel())) for _ in range(4)]
    for thread in threads:
        thread.start()
    assert asking.wait(10)
    with pytest.raises(Cancelled):
        one.check_countries(["DE"], FakeCancel(cancelled=True))
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert len(upstream.asked) == 1


def test_the_highest_id_is_what_the_upstream_says() -> None:
    upstream = FakeUpstream({"MaxPOIId": 465_000})
    assert source(upstream).highest_id(FakeCancel()) == 465_000
    assert upstream.asked == [("system/status", {})]


@pytest.mark.parametrize(
    "body", [{}, [], {"MaxPOIId": "5"}, {"MaxPOIId": None}, {"MaxPOIId": True}, {"MaxPOIId": 0}, {"MaxPOIId": 10**30}]
)
def test_a_highest_id_that_is_none_is_transient(body: Any) -> None:
    assert code_of(lambda: source(FakeUpstream(body)).highest_id(FakeCancel())) == "bad_status"
