"""What is taken out of the mechanisms of leases, one at a time."""

from __future__ import annotations

import random

from streams_importer.adapters.mongo_ledger import MongoLedger
from streams_importer.application import intake, shutdown
from streams_importer.application.cancellation import CancelToken
from streams_importer.application.healer import Healer
from streams_importer.application.housekeeper import Housekeeper
from streams_importer.application.outages import Outages
from streams_importer.application.recount import Recount
from streams_importer.domain.crash_policy import CrashPolicy

from . import leases
from .mutant import Mutant, replacing

_RENEW = "renew_lease(stream, group, consumer, entry)\n"

LEASE_MUTANTS = [
    # Promise 1
    Mutant(
        "the kept cursor",
        leases.a_stale_entry_behind_many_renewed_ones_is_reached,
        lua=("reclaim", "return {too_new, rows, deleted, scan[1]}", "return {too_new, rows, deleted, '0-0'}"),
    ),
    Mutant(
        "the look in the ledger",
        leases.what_the_ledger_has_as_done_is_not_run_again,
        patch=replacing((intake, "FINAL_STATES", ())),
    ),
    Mutant(
        "queueing what is missing",
        leases.a_flushed_redis_is_filled_again_from_the_ledger,
        patch=replacing((Healer, "_requeue", lambda *_: 0)),
    ),
    Mutant(
        "rebuilding the counters",
        leases.a_flushed_redis_is_filled_again_from_the_ledger,
        patch=replacing((Recount, "rebuild", lambda self, name: self.counters.replace(name, {}, {"done": ""}))),
    ),
    Mutant(
        "taking shards from who has them in hand when Redis is flushed",
        leases.a_page_in_hand_when_redis_is_flushed_is_counted_once,
        patch=replacing((MongoLedger, "disown", lambda *_: None)),
    ),
    Mutant(
        "restoring dead letters",
        leases.dead_letters_come_back_after_a_flush,
        patch=replacing((leases, "restore_letters", lambda *_: 0)),
    ),
    Mutant(
        "the counters before the queue",
        leases.nobody_queues_before_the_counters_are_rebuilt,
        lua=("enqueue", "if redis.call('HEXISTS', counters, 'since') == 0 then return {} end", ""),
    ),
    Mutant(
        "the look at what a consumer has pending",
        leases.a_consumer_with_pending_entries_is_not_forgotten,
        lua=("reap_consumer", "not pending.err and #pending == 0", "true"),
    ),
    Mutant(
        "a first write that adds nothing",
        leases.who_has_work_in_hand_goes_on_in_a_full_redis,
        lua=("retry", _RENEW, ""),
    ),
    Mutant(
        "freeing before adding when promoting",
        leases.who_has_work_in_hand_goes_on_in_a_full_redis,
        lua=("promote", "if #due > 0 then redis.call('ZREM', delayed, '') end", ""),
    ),
    # Promise 2
    Mutant(
        "the owner in the ledger's filter",
        leases.a_zombie_changes_nothing_in_the_ledger,
        patch=replacing((MongoLedger, "_held", MongoLedger._open)),
    ),
    Mutant(
        "taking a row before looking how far it is",
        leases.a_former_holder_that_wakes_up_during_a_claim_stores_no_page_behind_its_back,
        patch=replacing((intake.Intake, "_started", lambda _, claimed, __: list(claimed))),
    ),
    Mutant(
        "asking whether it is still ours before a request",
        leases.who_cannot_know_whether_the_shard_is_still_its_own_asks_for_nothing,
        patch=replacing((CancelToken, "may_send", lambda _: True)),
    ),
    Mutant(
        "the jitter",
        leases.workers_that_start_together_do_not_keep_house_together,
        patch=replacing((random, "uniform", lambda _, most: most)),
    ),
    # Promise 6
    Mutant(
        "taking what was released first",
        leases.what_was_given_back_is_taken_at_once_from_its_checkpoint_and_at_no_cost,
        lua=("claim", "take_from(number, stream, places, progress, 'released')", ""),
    ),
    Mutant(
        "the two seconds of one signal",
        leases.signals_that_come_together_are_one,
        patch=replacing((shutdown, "SAME_SIGNAL_S", 0.0)),
    ),
    # Promise 7
    Mutant(
        "who had started",
        leases.only_who_was_running_is_a_suspect,
        lua=("_crash", "is_crash and progress.started == lease", "is_crash"),
    ),
    Mutant(
        "noting who starts",
        leases.who_was_running_is_a_suspect,
        lua=("start", "progress.started = lease_name(consumer, count)", ""),
    ),
    Mutant(
        "the heartbeat check",
        leases.a_live_worker_that_lost_a_lease_did_not_crash,
        lua=("_crash", "if not beat then return true end", "if true then return true end"),
    ),
    Mutant(
        "the outage in a silence",
        leases.silence_through_an_outage_is_no_crash,
        lua=("reclaim", "item[3] <= tonumber(there) and ", ""),
    ),
    Mutant(
        "a page that clears",
        leases.a_page_that_is_stored_clears_a_suspect,
        lua=("checkpoint", "  progress.crashes = 0\n", "\n"),
    ),
    Mutant(
        "the limit of crashes",
        leases.enough_crashes_are_a_dead_letter_and_not_before,
        patch=replacing((CrashPolicy, "is_enough", lambda *_: False)),
    ),
    Mutant(
        "keeping count of crashes",
        leases.enough_crashes_are_a_dead_letter_and_not_before,
        lua=("retry", "tonumber(attempts), tonumber(crashes)", "tonumber(attempts), 0"),
    ),
    Mutant(
        "the grace after an outage",
        leases.after_an_outage_holders_renew_before_anyone_reclaims,
        patch=replacing((Outages, "seconds_since", lambda *_: float("inf"))),
    ),
    # Promise 8
    Mutant(
        "forgetting the progress of what is done",
        leases.with_nothing_in_flight_the_fixed_keys_are_left,
        lua=("complete", "redis.call('HDEL', progress_key, shard)", ""),
    ),
    Mutant(
        "forgetting the place of what is done",
        leases.with_nothing_in_flight_the_fixed_keys_are_left,
        lua=("_place", "if redis.call('HGET', places, shard) == on_stream(entry) then redis.call('HDEL', places, shard) end", ""),
    ),
    Mutant(
        "the reaper",
        leases.consumers_of_workers_that_are_gone_are_forgotten,
        patch=replacing((Housekeeper, "reap", lambda *_: 0)),
    ),
]
