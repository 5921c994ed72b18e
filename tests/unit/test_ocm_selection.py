"""What Open Charge Map is asked for always holds what belongs to the shard, and what comes along is cut."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_importer.domain.axes import WIDEST_BOX, Box, IdRange, Window
from streams_importer.domain.errors import Transient
from streams_importer.domain.model import Page
from streams_importer.domain.shard_key import Scope
from streams_importer.embedded.stand_in_points import read_points
from streams_importer.embedded.stand_in_queries import Points, parse_query, select
from streams_importer.sources.ocm_selection import PAD_DEGREES, Selection, padded
from streams_importer.sources.openchargemap import page_of

START = datetime(2026, 2, 21, 10, 0, 30, tzinfo=UTC)
HOUR = Window(START, START + timedelta(hours=1))
ALPS = Box(40.0, 0.0, 50.0, 10.0)


@st.composite
def boxes(draw: st.DrawFn) -> Box:
    south = draw(st.integers(-900, 899)) / 10
    west = draw(st.integers(-1800, 1799)) / 10
    north = min(90.0, round(south + draw(st.integers(1, 900)) / 10, 1))
    return Box(south, west, north, min(180.0, round(west + draw(st.integers(1, int(WIDEST_BOX * 10))) / 10, 1)))


def row(identifier: int = 1, place: Any = None, at: Any = None) -> dict[str, Any]:
    latitude, longitude = place or (None, None)
    info = {"ID": identifier, "CountryID": 87, "Latitude": latitude, "Longitude": longitude}
    return {"ID": identifier, "AddressInfo": info, "DateLastStatusUpdate": at}


def answered(selection: Selection, *rows: dict[str, Any]) -> list[int]:
    """Ids that the server with its great circles answers."""
    return [point.id for point in select(Points(read_points(rows)), parse_query(selection.params))]


def page(selection: Selection, *rows: Any) -> Page:
    return page_of(list(rows), selection, 0, 1)


def kept(selection: Selection, *rows: Any) -> list[int]:
    return [record.source_id for record in page(selection, *rows).records]


@given(boxes(), st.floats(0, 1), st.floats(0, 1))
def test_the_padded_box_of_great_circles_holds_every_point_of_the_planar_one(box: Box, up: float, right: float) -> None:
    selection = Selection(Scope(box=box))
    latitude = min(box.south + up * (box.north - box.south), box.north)
    longitude = min(box.west + right * (box.east - box.west), box.east)
    assert answered(selection, row(1, (latitude, longitude))) == [1]


@given(boxes(), st.floats(-90, 90), st.floats(-180, 180))
def test_what_the_server_sends_because_it_was_asked_for_is_never_called_foreign(
    box: Box, latitude: float, longitude: float
) -> None:
    selection = Selection(Scope(box=box))
    one = row(1, (latitude, longitude))
    if answered(selection, one):
        assert not selection.is_foreign(one)
        assert selection.is_ours(one) == box.contains(latitude, longitude)


@given(boxes())
def test_the_padded_box_stays_on_the_globe_and_is_little_larger(box: Box) -> None:
    south, west, north, east = padded(box)
    assert -90 <= south <= box.south - min(PAD_DEGREES, box.south + 90)
    assert west >= -180
    assert north <= 90
    assert east <= 180
    assert west <= box.west
    assert east >= box.east
    assert north >= box.north


def test_ten_degrees_at_fifty_north_are_asked_for_with_less_than_half_a_degree_more() -> None:
    south, west, north, east = padded(Box(50.0, -10.0, 60.0, 0.0))
    assert 49.6 < south < 49.9
    assert (west, north, east) == (-10.05, 60.05, 0.05)


def test_a_box_is_cut_half_open_and_what_has_no_place_is_in_none() -> None:
    inside = [row(1, (40.0, 0.0)), row(2, (49.99, 9.99))]
    outside = [row(3, (50.0, 5.0)), row(4, (45.0, 10.0)), row(5, (39.99, 5.0)), row(6), {"ID": 7}, row(8, ("45", "5"))]
    assert kept(Selection(Scope(box=ALPS)), *inside, *outside) == [1, 2]


def test_a_window_is_cut_at_both_ends_and_what_has_no_time_is_in_none() -> None:
    times = {
        1: "2026-02-21T10:00:29Z",
        2: "2026-02-21T10:00:30Z",
        3: "2026-02-21T11:00:29.999Z",
        4: "2026-02-21T11:00:30Z",
        5: None,
        6: "soon",
        7: "2027-01-01T00:00:00Z",
        8: 12,
    }
    assert kept(Selection(Scope(window=HOUR)), *(row(number, at=at) for number, at in times.items())) == [2, 3]


def test_a_window_is_asked_for_from_its_minute_on() -> None:
    assert Selection(Scope(window=HOUR)).params == {"modifiedsince": "2026-02-21T10:00"}


def test_all_axes_narrow_each_other() -> None:
    selection = Selection(Scope("DE", IdRange(0, 3), ALPS, HOUR), 87)
    now = "2026-02-21T10:30:00Z"
    rows = [row(1, (45, 5), now), row(2, (45, 11), now), row(3, (45, 5), "2026-02-21T12:00:00Z"), row(4, (45, 5), now)]
    assert sorted(selection.params) == ["boundingbox", "countryid", "modifiedsince"]
    assert kept(selection, *rows) == [1]
    assert page(selection, *rows).next_cursor is None


def test_rows_that_are_cut_still_move_the_cursor() -> None:
    found = page(Selection(Scope(box=ALPS)), row(5), row(9))
    assert (found.records, found.rejects, found.next_cursor) == ([], [], 9)


@pytest.mark.parametrize(
    ("selection", "foreign"),
    [
        (Selection(Scope(box=ALPS)), row(2, (-33.0, 151.0))),
        (Selection(Scope(box=ALPS)), row(2, (45.0, 12.0))),
        (Selection(Scope(box=ALPS)), row(2, (52.0, 5.0))),
        (Selection(Scope(window=HOUR)), row(2, at="2020-01-01T00:00:00Z")),
        (Selection(Scope("DE", box=ALPS), 1), row(2, (45.0, 5.0))),
    ],
)
def test_a_row_far_from_what_was_asked_for_means_that_the_filter_was_dropped(selection: Selection, foreign: Any) -> None:
    with pytest.raises(Transient) as raised:
        page(selection, foreign)
    assert raised.value.code == "foreign_rows"


def test_what_cannot_be_read_is_rejected_wherever_it_is_met() -> None:
    found = page(Selection(Scope(box=ALPS)), row(1, (45, 5)), None, "text")
    assert [reject.reason for reject in found.rejects] == ["not_an_object", "not_an_object"]


def test_a_record_without_an_id_outside_of_the_box_is_not_this_shards_reject() -> None:
    selection = Selection(Scope(box=ALPS))
    assert page(selection, row(1, (45, 5)), {**row(0, (30, 5)), "ID": None}).rejects == []
    assert len(page(selection, row(1, (45, 5)), {**row(0, (45, 5)), "ID": None}).rejects) == 1
