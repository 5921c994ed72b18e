"""An examination as a whole, and its repairs, on stores in memory."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from streams_importer.application import checkup_ports as kinds
from streams_importer.application.checkup import OK, UNKNOWN, WRONG, Finding
from streams_importer.application.checkup_ports import Fleet
from streams_importer.application.doctor import Doctor
from streams_importer.application.examination import Parts
from streams_importer.application.repairs import Done, Repairs
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import BadSetting
from streams_importer.domain.model import STORED_VERSION
from streams_importer.ports import Pause, QueuedShard
from tests.fakes.doctor import Patient
from tests.unit.command_line import CommandLine, FakeWiring

BOTH = {"REDIS_URL": "redis://environment", "MONGODB_URI": "mongodb://environment"}
KEY, OTHER = "ids:0..10", "ids:10..20"
HOSTILE = "[/]\x1b[2J\nfake"


@pytest.fixture
def patient() -> Patient:
    made = Patient()
    made.original.save(Definition("a"), "run")
    made.copy.save(Definition("a"), "run")
    return made


def examined(patient: Patient, *names: str) -> dict[str, Finding]:
    return {finding.subject: finding for finding in Doctor(patient.parts).examine(names)}


def not_ok(patient: Patient) -> dict[str, str]:
    return {subject: finding.verdict.state for subject, finding in examined(patient).items() if finding.verdict.state != OK}


def fixed(patient: Patient) -> Done:
    return Repairs(patient.parts).fix(Doctor(patient.parts).examine())


def test_of_a_healthy_patient_everything_is_ok(patient: Patient) -> None:
    assert not_ok(patient) == {}
    assert len(examined(patient)) == 33
    assert fixed(patient) == {}


def test_an_import_that_is_nowhere_is_bad_usage(patient: Patient) -> None:
    with pytest.raises(BadSetting, match="there is no import 'b'"):
        examined(patient, "b")


@pytest.mark.parametrize("server", ["Redis", "MongoDB"])
def test_a_server_that_is_away_is_one_wrong_row_and_is_asked_once(patient: Patient, server: str) -> None:
    away, other = (patient.redis, patient.mongo) if server == "Redis" else (patient.mongo, patient.redis)
    away.away = True
    (patient.copy if server == "Redis" else patient.original).away = True
    patient.ledger.away = server == "MongoDB"
    found = not_ok(patient)
    assert [subject for subject, state in found.items() if state == WRONG] == [f"{server}: reachable"]
    assert found[f"{server}: version"] == UNKNOWN
    assert found["a: lost shards"] == UNKNOWN
    assert f"{other.name}: version" not in found
    assert away.asked == 1


def test_with_both_servers_away_a_named_import_is_unknown(patient: Patient) -> None:
    patient.redis.away = patient.mongo.away = patient.copy.away = patient.original.away = True
    found = examined(patient, "z")
    assert {finding.verdict.state for finding in found.values()} == {WRONG, UNKNOWN}
    assert found["z: places"].verdict.found == "Redis cannot be reached"


def test_a_key_of_a_wrong_type_makes_what_needs_it_unknown_and_nothing_else(patient: Patient) -> None:
    patient.scans.refuses = {"entries"}
    found = not_ok(patient)
    assert set(found) == {"a: entries", "a: garbage", "a: newer version"}
    assert set(found.values()) == {UNKNOWN}


def test_a_lost_shard_is_found_and_queued(patient: Patient) -> None:
    patient.ledger.plan("a", [KEY], "run")
    assert not_ok(patient) == {"a: lost shards": WRONG, "a: counters": UNKNOWN}
    assert fixed(patient) == {("a", "lost shards"): "1 queued"}
    assert not_ok(patient) == {"a: counters": UNKNOWN}


def test_while_somebody_produces_nothing_is_called_lost(patient: Patient) -> None:
    patient.ledger.plan("a", [KEY], "run")
    patient.is_being_produced = True
    assert examined(patient)["a: lost shards"].verdict.state == UNKNOWN
    assert fixed(patient) == {}


def test_a_row_that_nobody_can_run_is_not_called_lost_but_told(patient: Patient) -> None:
    patient.ledger.plan("a", ["no key", KEY], "run")
    newer = replace(patient.ledger.rows["a", KEY], v=STORED_VERSION + 1)
    patient.ledger.rows["a", KEY] = newer
    found = examined(patient)
    assert "whose shardKey names no shard" in found["a: lost shards"].verdict.found
    assert found["a: newer version"].verdict.state == WRONG
    assert not patient.queue.store.entries


def test_a_shard_that_ends_while_we_look_is_not_lost(patient: Patient) -> None:
    rows, _ = patient.ledger.plan("a", [KEY], "run")
    look = patient.ledger.look

    def finish_then_look(name: str, keys: object) -> object:
        patient.ledger.rows["a", KEY] = replace(rows[KEY], status="done")
        return look(name, [KEY])

    patient.ledger.look = finish_then_look  # type: ignore[method-assign, assignment]
    assert examined(patient)["a: lost shards"].verdict.state == OK


def test_a_failed_shard_without_a_letter_is_told(patient: Patient) -> None:
    rows, _ = patient.ledger.plan("a", [KEY], "run")
    patient.ledger.rows["a", KEY] = replace(rows[KEY], status="failed", counted_as="failed")
    found = not_ok(patient)
    assert found == {"a: failed shards": WRONG, "a: counters": WRONG}
    assert fixed(patient) == {("a", "counters"): "put right"}
    assert not_ok(patient) == {"a: failed shards": WRONG}


def test_counters_that_are_gone_are_rebuilt(patient: Patient) -> None:
    rows, _ = patient.ledger.plan("a", [KEY], "run")
    patient.ledger.rows["a", KEY] = replace(rows[KEY], status="done", counted_as="done")
    patient.counters.fields.clear()
    patient.letters_lost = 2
    assert not_ok(patient) == {"a: counters": WRONG}
    assert fixed(patient) == {("a", "counters"): "rebuilt from the ledger, with 2 dead letters"}
    assert patient.counters.fields["a"]["done"] == "1"
    assert not_ok(patient) == {}


def test_copies_follow_the_originals(patient: Patient) -> None:
    patient.original.save(Definition("a", rate="5/s"), "run")
    patient.original.pause("a", Pause("why", "me", "then"))
    assert set(not_ok(patient)) == {"a: definition", "a: pause"}
    done = fixed(patient)
    assert done == {("a", "definition"): "copied from MongoDB", ("a", "pause"): "pause copied from MongoDB"}
    assert patient.copy.stored == patient.original.stored
    assert not_ok(patient) == {}
    patient.original.pause("a", None)
    assert fixed(patient) == {("a", "pause"): "pause ended, as in MongoDB"}
    assert patient.copy.pauses == {}


def test_what_a_newer_version_defined_is_left_alone(patient: Patient) -> None:
    patient.copy.stored["a"]["v"] = STORED_VERSION + 1
    assert examined(patient)["a: definition"].verdict.state == WRONG
    assert fixed(patient) == {}
    assert patient.copy.stored["a"]["v"] == STORED_VERSION + 1


def test_a_definition_that_changes_while_it_is_copied_is_copied_again(patient: Patient) -> None:
    patient.copy.stored.clear()
    save = patient.copy.save
    newest = Definition("a", rate="7/s")

    def change_then_save(definition: Definition, run: str) -> None:
        save(definition, run)
        patient.original.save(newest, "run")

    patient.copy.save = change_then_save  # type: ignore[method-assign]
    fixed(patient)
    assert patient.copy.get("a") == newest


def test_what_is_nobodys_goes_before_anything_is_queued(patient: Patient) -> None:
    patient.ledger.plan("a", [KEY], "run")
    patient.scans.groups.clear()
    patient.scans.found = {
        "pending": {kinds.DELETED: ["1-1"]},
        "entries": {kinds.UNPLACED: ["2-1"]},
        "delayed": {kinds.STUCK: [KEY]},
        "places": {kinds.DANGLING: [OTHER]},
        "progress": {kinds.ORPHAN: ["\udcff"]},
    }
    done = fixed(patient)
    assert [scan for scan, _ in patient.scans.mended] == ["pending", "entries", "delayed", "places", "progress"]
    # Whether the ledger has no more work for it.
    assert dict(patient.scans.mended)["delayed"] == [(KEY, False)]
    assert dict(patient.scans.mended)["places"] == [(OTHER, True)]
    assert done["a", "group"] == "made"
    assert done["a", "lost shards"] == "1 queued"
    assert not_ok(patient) == {"a: counters": UNKNOWN}


def test_a_repair_that_fails_keeps_none_of_the_others_from_theirs(patient: Patient) -> None:
    patient.ledger.plan("a", [KEY], "run")
    patient.scans.found = {"pending": {kinds.DELETED: ["1-1"]}}
    findings = Doctor(patient.parts).examine()
    patient.scans.refuses = {"pending"}
    done = Repairs(patient.parts).fix(findings)
    assert done["a", "deleted entries"].startswith("not fixed: Redis refuses")
    assert done["a", "lost shards"] == "1 queued"


def test_workers_that_are_gone_are_forgotten(patient: Patient) -> None:
    patient.redis.of_fleet = Fleet({"w:1": ["a"]}, ["dead:1"])
    patient.queue.store.known_consumers.add(("a", "dead:1"))
    patient.scans.idle = ["dead:1"]
    done = fixed(patient)
    assert done[None, "heartbeats"] == "1 forgotten"
    assert done[None, "consumers"] == "1 forgotten"


def test_foreign_keys_are_told_and_never_touched(patient: Patient) -> None:
    patient.redis.found_keys = {kinds.STRANGER: ["{si}:x"], kinds.WRONG_TYPE: ["{si}:imports is a string, not a hash"]}
    assert not_ok(patient) == {"fleet: types of keys": WRONG, "fleet: foreign keys": WRONG}
    assert fixed(patient) == {}
    patient.redis.found_keys = {kinds.UNDEFINED: ["{si}:b:shards"]}
    patient.original.away = patient.mongo.away = patient.ledger.away = True
    assert examined(patient)["fleet: foreign keys"].verdict.state == UNKNOWN


def test_progress_is_told_how_much_was_looked_at(patient: Patient) -> None:
    told: list[int] = []
    patient.scans.found = {"places": {kinds.DANGLING: [KEY, OTHER]}}
    Doctor(patient.parts, told.append).examine()
    assert told == sorted(told)
    assert told[-1] == 3


# As it is typed.


@pytest.fixture
def wired(wiring: FakeWiring, patient: Patient, monkeypatch: pytest.MonkeyPatch) -> Patient:
    def parts(_: FakeWiring) -> Parts:
        return patient.parts

    monkeypatch.setattr(FakeWiring, "examined", property(parts), raising=False)
    return patient


def test_exit_is_0_when_nothing_is_wrong_even_if_something_is_unknown(command: CommandLine, wired: Patient) -> None:
    del wired.redis.told["maxmemory"]
    ended = command("doctor", **BOTH)
    assert (ended.code, ended.err) == (0, "")
    assert "0 wrong, 1 unknown, 32 ok" in ended.out


def test_exit_is_1_when_something_is_wrong_and_0_when_it_is_fixed(command: CommandLine, wired: Patient) -> None:
    wired.scans.groups.clear()
    ended = command("doctor", "a", **BOTH)
    assert ended.code == 1
    words = " ".join(ended.out.split())
    assert "a: group wrong the consumer group is missing" in words
    assert "to do: streams-importer doctor a --fix" in words
    ended = command("doctor", "a", "--fix", **BOTH)
    assert (ended.code, ended.err) == (0, "")
    assert "a: group ok there fixed: made" in " ".join(ended.out.split())


def test_what_is_still_wrong_after_fixing_is_exit_1(command: CommandLine, wired: Patient) -> None:
    wired.redis.told["maxmemory_policy"] = "allkeys-lru"
    ended = command("doctor", "--fix", **BOTH)
    assert ended.code == 1
    assert "redis-cli CONFIG SET maxmemory-policy noeviction" in ended.out


def test_json_has_one_object_a_check(command: CommandLine, wired: Patient) -> None:
    wired.scans.found = {"places": {kinds.DANGLING: [KEY]}}
    shown = json.loads(command("doctor", "--json", **BOTH).out)
    assert (shown["ok"], shown["wrong"], shown["unknown"]) == (32, 1, 0)
    assert [check for check in shown["checks"] if check["state"] == "wrong"] == [
        {
            "area": "import",
            "import": "a",
            "check": "places",
            "state": "wrong",
            "found": "1 place of shards where there is nothing",
            "examples": [KEY],
            "to_do": "streams-importer doctor a --fix",
            "fixed": None,
        }
    ]


def test_usage_is_exit_2(command: CommandLine, wired: Patient) -> None:
    assert command("doctor", "b", **BOTH).code == 2
    assert command("doctor", "NO NAME", **BOTH).code == 2
    assert command("doctor", "--repair", **BOTH).code == 2
    assert "Example: streams-importer doctor" in command("doctor", "--help").out


def test_hostile_names_are_shown_as_text(command: CommandLine, wired: Patient) -> None:
    wired.scans.found = {"places": {kinds.DANGLING: [HOSTILE, "\udcff"]}, "entries": {kinds.GARBAGE: [HOSTILE]}}
    wired.redis.of_fleet = Fleet({}, [HOSTILE])
    wired.redis.found_keys = {kinds.STRANGER: [HOSTILE]}
    for options in ([], ["--json"], ["--fix"]):
        ended = command("doctor", *options, **BOTH)
        assert ended.code == 1
        assert ended.out.replace("\n", "").isprintable()
        assert "[/]" in ended.out
        assert "Traceback" not in ended.err


def test_a_queued_shard_and_its_worker_are_fine(patient: Patient) -> None:
    rows, _ = patient.ledger.plan("a", [KEY], "run")
    patient.queue.enqueue("a", [QueuedShard(KEY, rows[KEY].job)], "run")
    assert not_ok(patient) == {"a: counters": UNKNOWN}
    patient.redis.of_fleet = Fleet()
    assert not_ok(patient)["a: workers"] == WRONG
