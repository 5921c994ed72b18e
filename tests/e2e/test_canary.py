"""Promise 10, end to end: secrets that are easy to recognise, and a station with a hostile name, go through every command and
every fault. They are found nowhere they should not be."""

from __future__ import annotations

import base64
import json
import os
import pty
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from redis import Redis

from streams_importer.embedded.servers import EmbeddedServers
from tests.stored import stored_texts

from .fleet import COMMAND, Fleet, Process

STEM = "Kanari7"
"""In every secret below, and in nothing else. No encoder changes letters and digits one by one."""
KEY = f"{STEM}+/=&<>\"'%key"
REDIS_PASSWORD = f"{STEM}@:/?#[]%+redis"
MONGO_PASSWORD = f"{STEM}@:/?#[]% +mongo"
OTHER_SECRET = f"Token-{STEM}"
"""Fit to be a part of a host name."""
HOSTILE = "[/]\x1b[2J\nfake"
BOTH = f"{HOSTILE} {KEY} {quote(KEY, safe='')} {base64.b64encode(KEY.encode()).decode()}"

STREAM, DEAD = "{si}:openchargemap:shards", "{si}:openchargemap:dead"
WIDE = {"COLUMNS": "240", "TERM": "xterm-256color"}
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def _in_base64(text: str) -> list[str]:
    """What is surely in the base64 of anything that contains the text, for each place where it can begin."""
    found = []
    for shift in range(3):
        letters = base64.b64encode(bytes(shift) + text.encode()).decode()
        found.append(letters[-(-shift * 8 // 6) : (shift + len(text)) * 8 // 6])
    return found


TRACES = [re.compile(re.escape(STEM), re.IGNORECASE), re.compile(STEM.encode().hex(), re.IGNORECASE)]
TRACES += [re.compile(re.escape(letters)) for letters in _in_base64(STEM)]


def traces_in(text: str) -> list[str]:
    return [text[max(0, found.start() - 60) : found.end() + 60] for trace in TRACES for found in trace.finditer(text)]


@pytest.fixture
def canary(own_servers: EmbeddedServers, fleet_on: Callable[..., Fleet], tmp_path: Path) -> Iterator[Canary]:
    one = Canary(fleet_on(own_servers, key=KEY, pois=[station(number) for number in range(1, 201)]), own_servers, tmp_path)
    yield one
    one.fleet.redis.close()


def station(number: int) -> dict[str, Any]:
    """Every tenth repeats the key, as an upstream does that puts the request's address into its answer."""
    comment = f"https://api.example/?key={quote(KEY)} {KEY}" if number % 10 == 0 else HOSTILE
    return {"ID": number, "UUID": HOSTILE, "GeneralComments": comment, "AddressInfo": {"Title": HOSTILE, "CountryID": 87}}


class Canary:
    """A fleet all of whose secrets can be recognised, and everything that its commands said."""

    def __init__(self, fleet: Fleet, servers: EmbeddedServers, folder: Path) -> None:
        self.fleet = fleet
        self.folder = folder
        self.said: list[tuple[str, str]] = []
        fleet.redis.config_set("requirepass", REDIS_PASSWORD)
        fleet.redis.close()
        socket = servers.redis_url.removeprefix("unix://")
        fleet.redis = Redis(unix_socket_path=socket, password=REDIS_PASSWORD)
        fleet.mongo["admin"].command("createUser", "user", pwd=MONGO_PASSWORD, roles=["root"])
        mongo = fleet.environment["MONGODB_URI"].replace("mongodb://", f"mongodb://user:{quote(MONGO_PASSWORD, safe='')}@")
        fleet.environment |= {
            "REDIS_URL": f"unix://:{quote(REDIS_PASSWORD, safe='')}@{socket}",
            "MONGODB_URI": f"{mongo}&authSource=admin",
            "OCM_API_KEY": KEY,
            "STREAMS_IMPORTER_SECRET_OTHER": OTHER_SECRET,
        }

    def run(self, *arguments: str, code: int = 0) -> str:
        return self._ended(self.fleet.start(*arguments), arguments, code)

    def run_together(self, *commands: tuple[int, tuple[str, ...]]) -> None:
        """Commands that do not mind each other: exit status and arguments."""
        for at in range(0, len(commands), 4):
            started = [(self.fleet.start(*arguments, **WIDE), arguments, code) for code, arguments in commands[at : at + 4]]
            for process, arguments, code in started:
                self._ended(process, arguments, code)

    def run_at_terminal(self, *arguments: str, code: int = 0) -> str:
        screen, other_end = pty.openpty()
        process = subprocess.Popen(
            [COMMAND, *arguments], env={**self.fleet.environment, **WIDE}, stdin=other_end, stdout=other_end, stderr=other_end
        )
        os.close(other_end)
        text = _read_all(screen).decode()
        os.close(screen)
        assert process.wait(60) == code, text
        self.said.append((f"at a terminal: {arguments}", COLOURS.sub("", text)))
        return text

    def refuse(self, fault: str, value: Any) -> None:
        """The upstream refuses everything, the import is paused over it, and resumed when that is over."""
        self.fleet.upstream.control.clear_faults()
        self.fleet.upstream.control.add_fault(fault, value, times=None)
        self.run("produce", "--again", "--id-range", "0..10", "--shard-size", "10")
        self.run("consume", "--until-empty", code=1)
        assert "PAUSED" in self.run("status")
        self.fleet.upstream.control.clear_faults()
        self.run("resume")

    def expect_no_trace(self) -> None:
        for what, text in self.said:
            assert traces_in(text) == [], what
            assert "\x1b[2J" not in text, what
            assert not any(line.startswith("fake") for line in text.splitlines()), (what, text)
            assert not any(word in text for word in ("Traceback", "defect", "MarkupError")), (what, text)
        for text in stored_texts(self.fleet.redis, self.fleet.db):
            assert traces_in(text) == []

    def _ended(self, process: Process, arguments: tuple[str, ...], code: int) -> str:
        found, said = process.wait(), "\n".join(process.lines)
        assert found == code, f"{arguments} ended with {found}:\n{said}"
        assert "\x1b" not in said, arguments
        self.said.append((str(arguments), said))
        return said


def _read_all(screen: int) -> bytes:
    read = b""
    while True:
        try:
            some = os.read(screen, 65536)
        except OSError:  # the last one at the other end has left
            return read
        if not some:
            return read
        read += some


PRODUCE = (
    "produce",
    "--shard-size",
    "10",
    "--page-size",
    "10",
    "--rate",
    "200/s",
    "--retry-delay",
    "50ms",
    "--max-attempts",
    "2",
)

FAULTS: list[tuple[str, Any]] = [
    *((name, None) for name in ("empty_body", "null", "html", "error_body", "cut_json", "cut_body", "creation_order", "reset")),
    *(("status", {"code": code, "body": BOTH}) for code in (500, 502, 520, 408)),
    ("status", {"code": 429, "retry_after": "1", "body": BOTH}),
    ("status", {"code": 500, "retry_after": KEY, "body": BOTH}),
    ("repeat_poi", 3),
]
SLOW_FAULTS: list[tuple[str, Any]] = [
    *(("slow", 1), ("drip", 5000), ("huge_body", None), ("endless_body", None), ("filter_ignored", None)),
    ("status", {"code": 503, "retry_after": KEY, "body": BOTH}),
]
REFUSALS: list[tuple[str, Any]] = [
    ("redirect", f"https://{OTHER_SECRET}.example/{quote(KEY)}?key={quote(KEY)}"),
    ("redirect", f"https://user:{quote(KEY)}@elsewhere.example/{HOSTILE.encode().hex()}"),
    ("status", {"code": 403, "body": BOTH}),
]


def test_a_secret_and_a_hostile_name_go_through_every_fault_and_are_found_nowhere(canary: Canary) -> None:
    one, control = canary.fleet, canary.fleet.upstream.control
    canary.run(*PRODUCE)
    for number, fault in enumerate(FAULTS):  # each at the first page of a shard of its own
        control.add_fault(fault[0], fault[1], times=1, params={"greaterthanid": str(10 * number)})
    control.add_fault("status", {"code": 404, "body": BOTH}, times=None, params={"greaterthanid": "190"})
    control.spoil({30: "nan", 40: "big_int", 50: "surrogate", 60: "no_id", 70: "nul_key"})  # all of these repeat the key
    garbage: list[dict[Any, Any]] = [
        {HOSTILE: BOTH},
        {"v": "1", "shard": BOTH, "job": KEY},
        {"v": KEY, "shard": "ids:8000000..8000010", "job": "x"},
        {"v": "1", "shard": "ids:7000000..7000010", "job": KEY, "run": BOTH},
        {"big": "x" * 8180 + KEY},
    ]
    for message in garbage:
        one.redis.xadd(STREAM, message)
    canary.run("-v", "consume", "-c", "16", "--until-empty", "--name", f"{HOSTILE} {KEY}", code=1)
    canary.refuse(*REFUSALS[0])
    one.redis.publish("{si}:control", BOTH)
    canary.run("--log-format", "json", "consume", "--until-empty")

    assert one.db["import_rejects"].count_documents({}) == 5
    assert one.db["pois"].count_documents({"data.AddressInfo.Title": HOSTILE}) == 185  # data stays as answered, less the key
    assert one.db["pois"].count_documents({"data.GeneralComments": {"$regex": r"\*\*\*"}}) == 14
    letters: Any = one.redis.xrange(DEAD)
    assert sorted(fields[b"error"] for _, fields in letters) == [b"garbage"] * 4 + [b"http_404", b"unknown_shard"]
    canary.expect_no_trace()


@pytest.mark.slow
def test_the_same_with_every_refusal_and_with_answers_that_never_end(canary: Canary) -> None:
    control = canary.fleet.upstream.control
    canary.run(*PRODUCE)
    for number, fault in enumerate(SLOW_FAULTS):
        control.add_fault(fault[0], fault[1], times=1, params={"greaterthanid": str(10 * number)})
    canary.run("consume", "--until-empty", code=1)  # what is too large is dead-lettered
    for fault in REFUSALS:
        canary.refuse(*fault)
    canary.run("-v", "consume", "--until-empty")
    canary.run("dlq", "list")
    canary.expect_no_trace()


@pytest.mark.slow
def test_what_others_planted_in_the_stores_goes_through_every_command_and_harms_none(canary: Canary) -> None:
    one = canary.fleet
    canary.run(*PRODUCE)
    one.upstream.control.add_fault("status", {"code": 404, "body": BOTH}, times=None, params={"greaterthanid": "0"})
    canary.run("consume", "--until-empty", code=1)
    plant(one)
    failed = "ids:0..10"
    canary.run_together(
        (0, ("status",)),
        (0, ("status", "--json")),
        (0, ("-v", "status", "openchargemap")),
        (2, ("status", "evil")),
        (0, ("dlq", "list", "openchargemap")),
        (0, ("dlq", "list", "openchargemap", "--json")),
        (0, ("shards", "list", "openchargemap")),
        (0, ("shards", "list", "openchargemap", "--json")),
        (0, ("shards", "show", "openchargemap", failed)),
        (0, ("shards", "show", "openchargemap", failed, "--json")),
        (2, ("shards", "show", "openchargemap", BOTH)),
        (2, ("shards", "list", "openchargemap", "--filter", f"error={BOTH}")),
        (0, ("setup",)),
        (0, ("services", "status")),
        (0, ("produce", "openchargemap", "--missing")),
    )
    canary.run("pause", "openchargemap", "--reason", BOTH)
    assert "PAUSED" in canary.run_at_terminal("status")
    canary.run_at_terminal("dlq", "list", "openchargemap")
    canary.run_at_terminal("shards", "list", "openchargemap")
    canary.run("resume", "openchargemap")
    canary.run("dlq", "replay", "openchargemap", BOTH, code=2)  # no shard of ours can be named so
    canary.run("dlq", "replay", "openchargemap", "--all")
    canary.run("shards", "cancel", "openchargemap", failed)
    canary.run_at_terminal("-v", "consume", "openchargemap", "--until-empty")
    unplant(one)
    canary.expect_no_trace()


def plant(one: Fleet) -> None:
    """What somebody with the servers' passwords could write, who also happens to know our secrets."""
    letter: dict[Any, Any] = dict.fromkeys(
        ("error", "message", "status", "attempts", "cursor", "worker", "died_at", "payload"), BOTH
    )
    for shard in (BOTH, ""):
        one.redis.xadd(DEAD, {"shard": shard, **letter})
    beat = {"imports": [BOTH], "leases": 1, "lease_s": 1.0, "records_per_s": 1.0, "seen_ms": int(one.redis.time()[0]) * 1000}
    one.redis.hset("{si}:workers", BOTH, json.dumps(beat))
    one.redis.hset("{si}:openchargemap:counters", mapping={"since": BOTH, "run_started": BOTH, "run": BOTH, "inserted": BOTH})
    one.redis.hset("{si}:paused", mapping={"evil": json.dumps({"reason": BOTH, "by": BOTH, "since": BOTH}), BOTH: "x"})
    one.redis.hset(
        "{si}:imports", mapping={"evil": json.dumps({"collection": BOTH}), BOTH: "{}", "odd": json.dumps({"rate": BOTH})}
    )
    errors = {"lastErrorCode": BOTH, "lastError": BOTH, "lastErrorStatus": 500, "leaseOwner": BOTH}
    one.db["import_windows"].update_many({"status": "failed"}, {"$set": errors})
    one.db["import_windows"].insert_one(
        {
            "namespace": "si",
            "import": "openchargemap",
            "shardKey": BOTH,
            "status": "failed",
            "planted": True,
            "run": BOTH,
            **errors,
        }
    )
    paused = {"reason": BOTH, "by": BOTH, "since": BOTH}
    for name in ("evil", BOTH):
        definition = {"collection": BOTH, "source": BOTH}
        one.db["imports"].insert_one({"namespace": "si", "name": name, "definition": definition, "paused": paused, "run": BOTH})


def unplant(one: Fleet) -> None:
    """Takes away what was planted, at the places where it was: what is found after that was carried there by us."""
    entries: Any = one.redis.xrange(DEAD)
    one.redis.xdel(DEAD, *(entry for entry, fields in entries if fields[b"message"] == BOTH.encode()))
    one.redis.hdel("{si}:workers", BOTH)
    one.redis.hdel("{si}:openchargemap:counters", "since", "run_started", "run", "inserted")
    one.redis.hdel("{si}:paused", "evil", BOTH)
    one.redis.hdel("{si}:imports", "evil", "odd", BOTH)
    one.db["import_windows"].delete_many({"planted": True})
    one.db["import_windows"].update_many({}, {"$unset": dict.fromkeys(("lastErrorCode", "lastError", "leaseOwner"), "")})
    one.db["imports"].delete_many({"name": {"$in": ["evil", BOTH]}})
