"""Follows the ledger as it is written, and so sees what its last state no longer tells: who wrote what, and when.

It reads MongoDB's own log of writes. A change stream would not do: the log also has the session of each write, and a session is
one process's. So a write is known by who made it, whatever it claims. Times are those of the writes; they are on the same clock
as the log of the stand-in, which runs on this machine.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pymongo import CursorType, MongoClient
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern

from streams_importer.domain.model import FINAL_STATES

LEDGER, MARKS = "import_windows", "chaos_marks"
"""A mark is written to see that all that came before it was seen."""
_AWAIT_MS = 200


@dataclass(frozen=True, slots=True)
class Progress:
    """A checkpoint in the ledger: all up to `cursor` is stored."""

    page: int
    cursor: int | None
    owner: str | None
    wall: float


@dataclass(slots=True)
class Round:
    """One shard from produce, again or replay to its settlement."""

    shard: str
    job: str
    opened: float
    starts: list[tuple[str, float]] = field(default_factory=list)
    checkpoints: list[Progress] = field(default_factory=list)
    settlements: list[tuple[str, float]] = field(default_factory=list)
    late_writes: list[tuple[str, str]] = field(default_factory=list)
    """Who stored a page, or ended it, and was not the one that started last; and what it did."""
    owner: str | None = None

    def take(self, fields: dict[str, Any], wall: float, writer: str | None) -> None:
        """One update: what became different by it, and who made it, as far as that is known."""
        status, owner = fields.get("status"), fields.get("leaseOwner")
        if status in FINAL_STATES:
            self.settlements.append((status, wall))
            # What has failed may be settled by another one: whoever finds that it crashed once too often.
            if status == "done":
                self._check(writer, "done")
        elif "page" in fields:
            self._check(owner or writer, f"page {fields['page']} stored")
            self.checkpoints.append(Progress(fields["page"], fields.get("cursor"), owner or writer or self.owner, wall))
        elif owner is not None:
            self.starts.append((owner, wall))
        if "leaseOwner" in fields:
            self.owner = owner

    def _check(self, writer: str | None, what: str) -> None:
        if writer is not None and writer != self.owner:
            self.late_writes.append((writer, f"{self.shard}: {what} by {writer} when {self.owner} had it"))


class Observer:
    """From construction to `close()`; everything since is seen, through outages and elections too."""

    def __init__(self, uri: str) -> None:
        self._client: MongoClient[dict[str, Any]] = MongoClient(uri, tz_aware=True, serverSelectionTimeoutMS=1000)
        self._database = self._client.get_default_database()
        self._changed = threading.Condition()
        self._rounds: dict[Any, list[Round]] = {}
        self._marks: set[str] = set()
        self._writers: dict[Any, str] = {}
        """Sessions, and whose they are."""
        self._movements: list[float] = []
        self._closing = threading.Event()
        self._log = self._client.get_database("local").get_collection("oplog.rs", read_concern=ReadConcern("majority"))
        [newest] = self._log.find({}, {"ts": 1}).sort("$natural", -1).limit(1)
        self._since = newest["ts"]
        self._thread = threading.Thread(target=self._follow, name="observer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._thread.join()
        self._client.close()

    def rounds(self) -> list[Round]:
        """All that was written up to now."""
        self._catch_up()
        with self._changed:
            return [one for rounds in self._rounds.values() for one in rounds]

    @property
    def movements(self) -> int:
        """Checkpoints and settlements so far."""
        with self._changed:
            return len(self._movements)

    def first_movement_after(self, wall: float) -> float | None:
        with self._changed:
            return next((moved for moved in self._movements if moved > wall), None)

    def wait_for(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Looked at after each write that was seen."""
        with self._changed:
            return self._changed.wait_for(holds, seconds)

    def forget(self) -> None:
        """Between two imports, when nothing is in flight: only the last round of each shard is kept."""
        self._catch_up()
        with self._changed:
            self._rounds = {key: rounds[-1:] for key, rounds in self._rounds.items()}
            self._movements.clear()
            for rounds in self._rounds.values():
                rounds[0].starts.clear()
                rounds[0].late_writes.clear()

    def _catch_up(self) -> None:
        mark = uuid.uuid4().hex
        self._database[MARKS].insert_one({"_id": mark})
        assert self.wait_for(lambda: mark in self._marks, 30), "the log of writes does not come to its end"

    def _follow(self) -> None:
        names = [f"{self._database.name}.{name}" for name in (LEDGER, MARKS)]
        while not self._closing.wait(0.05):
            with suppress(PyMongoError):  # an outage, or an election: later from where we are
                wanted = {"ts": {"$gt": self._since}, "ns": {"$in": names}, "op": {"$in": ["i", "u"]}}
                with self._log.find(wanted, cursor_type=CursorType.TAILABLE_AWAIT).max_await_time_ms(_AWAIT_MS) as cursor:
                    while cursor.alive and not self._closing.is_set():
                        for write in cursor:
                            self._take(write)

    def _take(self, write: dict[str, Any]) -> None:
        with self._changed:
            self._since = write["ts"]
            wall, row = write["wall"].timestamp(), write["o"]
            if write["ns"].endswith(MARKS):
                self._marks.add(row["_id"])
            elif write["op"] == "i":
                self._rounds[row["_id"]] = [Round(row["shardKey"], row["jobId"], wall)]
            else:
                different = {**row["diff"].get("u", {}), **row["diff"].get("i", {})}
                self._take_update(self._rounds[write["o2"]["_id"]], different, wall, write.get("lsid", {}).get("id"))
            self._changed.notify_all()

    def _take_update(self, rounds: list[Round], fields: dict[str, Any], wall: float, session: Any) -> None:
        if "jobId" in fields:
            rounds.append(Round(rounds[-1].shard, fields["jobId"], wall))
            return
        one = rounds[-1]
        before = len(one.checkpoints) + len(one.settlements)
        if session is not None and fields.get("leaseOwner"):
            self._writers[session] = fields["leaseOwner"]
        one.take(fields, wall, self._writers.get(session))
        if len(one.checkpoints) + len(one.settlements) > before:
            self._movements.append(wall)
        if session is not None and "page" in fields and one.owner is not None:
            self._writers.setdefault(session, one.owner)
