"""One mechanism at a time is taken out, by replacing a part of a Lua script or a method; the scenario about it must notice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pymongo import IndexModel
from pymongo.database import Database
from redis import Redis

from streams_importer.adapters import log_events, mongo_catalogue, mongo_ledger, mongo_setup, mongo_sink
from streams_importer.adapters.mongo_rejects import MongoRejects
from streams_importer.adapters.upstream import HttpUpstream
from streams_importer.application import settlement
from streams_importer.cli import output
from streams_importer.domain import definition
from streams_importer.domain.errors import ImporterError
from streams_importer.domain.hosts import HostRule
from streams_importer.domain.redaction import Redactor
from streams_importer.embedded.stand_in import StandIn
from streams_importer.sources import ocm_selection, openchargemap
from streams_importer.sources.ocm_selection import Selection

from . import hostile, scenarios
from .lease_mutants import LEASE_MUTANTS
from .mutant import Mutant, replacing
from .scenarios import World


def _yes(*_: object) -> bool:
    return True


def _any_version(*_: object) -> dict[str, Any]:
    return {}


def _duplicates_are_stale(self: Any, records: Any, original: Any = mongo_sink._PageWork._insert) -> list[Any]:
    self.stale += len(original(self, records))
    return []


def _open_whatever_the_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mongo_ledger, "OPEN", {name: value for name, value in mongo_ledger.OPEN.items() if name != "v"})


def _blind_to_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mongo_catalogue, "_is_newer", lambda _: False)
    monkeypatch.setattr(definition, "STORED_VERSION", 99)


def _accepting_any_page(rows: Any, selection: Any, after: int, order: int) -> Any:
    """A page without the checks of order and belonging."""
    listed = sorted(rows, key=lambda row: int(row["ID"]))
    last = max((int(row["ID"]) for row in listed), default=after)
    for row in listed:
        if selection.country_id is not None and isinstance(row.get("AddressInfo"), dict):
            row["AddressInfo"]["CountryID"] = selection.country_id
    start = min([after, *(int(row["ID"]) - 1 for row in listed)])
    page = original_page_of(listed, Selection(selection.scope), start, order)
    return type(page)(page.records, page.rejects, None if not listed or page.next_cursor is None else last, order)


original_page_of = openchargemap.page_of

_WITHOUT_UNIQUE = tuple(
    IndexModel(list(index.document["key"].items()), name=index.document["name"]) for index in mongo_setup._RECORDS
)
_HELD = "return pending[1][2] == consumer and pending[1][4] == tonumber(count)"

MUTANTS = [
    # Promise 3
    Mutant(
        "the order guard in Python and in the filter",
        scenarios.an_older_version_never_replaces_a_newer_one,
        patch=replacing(
            (mongo_sink, "is_newer", _yes),
            (mongo_sink, "newer_at_first_sight", _any_version),
            (mongo_sink, "newer_than_stored", _any_version),
        ),
    ),
    Mutant(
        "the order guard in the filter alone",
        scenarios.an_update_that_comes_late_finds_the_newer_version_there,
        patch=replacing((mongo_sink, "newer_at_first_sight", _any_version), (mongo_sink, "newer_than_stored", _any_version)),
    ),
    Mutant(
        "deciding again after a duplicate key",
        scenarios.of_two_that_insert_at_once_the_newest_stays_and_there_is_one,
        patch=replacing((mongo_sink._PageWork, "_insert", _duplicates_are_stale)),
    ),
    Mutant(
        "the unique index",
        scenarios.of_two_that_insert_at_once_the_newest_stays_and_there_is_one,
        patch=replacing((mongo_setup, "_RECORDS", _WITHOUT_UNIQUE)),
    ),
    Mutant(
        "the rejects",
        scenarios.a_record_that_cannot_be_stored_is_among_the_rejects,
        patch=replacing((MongoRejects, "add", lambda *_: None)),
    ),
    Mutant(
        "the order check of ids",
        scenarios.a_cold_cache_upstream_loses_no_row,
        patch=replacing((openchargemap, "page_of", _accepting_any_page)),
    ),
    Mutant(
        "the check that rows belong",
        scenarios.an_ignored_filter_brings_no_foreign_row,
        patch=replacing((openchargemap, "page_of", _accepting_any_page)),
    ),
    Mutant(
        "the cut of a box",
        scenarios.a_box_brings_exactly_its_own_rows,
        patch=replacing((Selection, "is_ours", _yes)),
    ),
    Mutant(
        "the padding of a box",
        scenarios.a_box_brings_exactly_its_own_rows,
        patch=replacing((ocm_selection, "padded", lambda box: (box.south, box.west, box.north, box.east))),
    ),
    Mutant(
        "the end of a window",
        scenarios.a_window_brings_exactly_its_own_rows,
        patch=replacing((Selection, "is_ours", _yes)),
    ),
    # Promise 9
    Mutant(
        "the version check of messages",
        scenarios.a_message_of_a_newer_version_is_left_to_it,
        lua=("_claimed", "tonumber(v) > tonumber(version)", "false"),
    ),
    Mutant(
        "the version in the ledger's filter",
        scenarios.a_ledger_row_of_a_newer_version_is_not_touched,
        patch=_open_whatever_the_version,
    ),
    Mutant(
        "leaving a newer ledger row's shard alone",
        scenarios.a_shard_whose_ledger_row_is_newer_is_left_to_that_version,
        patch=replacing((settlement, "STORED_VERSION", 99)),
    ),
    Mutant(
        "the version check of definitions",
        scenarios.a_definition_of_a_newer_version_is_not_used_and_not_overwritten,
        patch=_blind_to_versions,
    ),
    # Promise 10
    Mutant(
        "the redactor",
        hostile.a_secret_that_everybody_repeats_is_stored_nowhere,
        patch=replacing((Redactor, "redacted", lambda _, text, most=None: text[:most])),
    ),
    Mutant(
        "blanking the key in answers",
        hostile.an_answer_that_repeats_the_key_is_blanked_before_anybody_reads_it,
        patch=replacing((HttpUpstream, "_without_key", lambda _, body: body)),
    ),
    Mutant(
        "the host rule for requests",
        hostile.a_secret_is_not_sent_to_a_host_that_nobody_named,
        patch=replacing((HostRule, "refusal", lambda *_, **__: None)),
    ),
    Mutant(
        "the host rule for addresses",
        hostile.a_public_name_that_leads_inside_is_not_connected_to,
        patch=replacing((HostRule, "address_refusal", lambda *_: None)),
    ),
    Mutant(
        "plain() in front of the log",
        hostile.a_hostile_name_is_one_harmless_line_of_a_log,
        patch=replacing((log_events, "plain", str)),
    ),
    Mutant(
        "plain() in front of the terminal",
        hostile.a_hostile_name_is_one_harmless_line_of_a_terminal,
        patch=replacing((output, "plain", lambda text, _: text)),
    ),
    # The queue
    Mutant("the owner check", scenarios.a_lost_lease_settles_nothing, lua=("_lease", _HELD, "return true")),
    Mutant(
        "renewing before reclaiming",
        scenarios.nobody_reclaims_its_own_lease,
        lua=("reclaim", "for i = 9, #ARGV, 2 do", "for i = 1, 0 do"),
    ),
    Mutant(
        "the place check",
        scenarios.a_shard_in_flight_is_not_queued_again,
        lua=("enqueue", "place and is_there(place, shard, stream, delayed, dead)", "false"),
    ),
    Mutant(
        "the page number of a checkpoint",
        scenarios.a_repeated_checkpoint_counts_once,
        lua=("_progress", "local change = totals[i] - progress.counts[i]", "local change = totals[i]"),
    ),
    Mutant(
        "the place as the guard of a cancellation",
        scenarios.a_shard_cancelled_twice_is_counted_once,
        lua=("cancel", "local round = takeable(place, shard, job)", "place = place or DELAYED\n  local round = {}"),
    ),
    Mutant(
        "the round in a cancellation",
        scenarios.a_late_cancellation_leaves_the_next_round_alone,
        lua=("cancel", "if (round.job or job) ~= job then return nil end", ""),
    ),
    Mutant(
        "the ledger's totals in a cancellation",
        scenarios.records_of_a_cancelled_shard_are_those_of_its_ledger_row,
        lua=("cancel", "count_totals(counters, progress, cjson.decode(counts))", ""),
    ),
    Mutant(
        "counting the next slot from the slot",
        scenarios.slots_taken_during_a_hold_are_spread_after_it,
        lua=("take_token", "as_text(slot))", "as_text(now))"),
    ),
    *LEASE_MUTANTS,
]


@pytest.fixture
def world(redis_client: Redis, mongo_db: Database[dict[str, Any]], stand_in: Callable[..., StandIn]) -> World:
    return World(redis_client, mongo_db, stand_in)


@pytest.mark.parametrize("scenario", dict.fromkeys(mutant.scenario for mutant in MUTANTS))
def test_the_scenario_holds_as_the_program_is(world: World, scenario: Callable[[World], None]) -> None:
    scenario(world)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_scenario_notices_that_the_mechanism_is_gone(world: World, mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    world.read = mutant.read
    if mutant.patch is not None:
        mutant.patch(monkeypatch)
    with pytest.raises((AssertionError, ValueError, ImporterError)):
        mutant.scenario(world)
