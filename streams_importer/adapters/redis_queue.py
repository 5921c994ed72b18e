"""The queue on Redis Streams: one typed method for each Lua transition, batches inside the script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import redis

from ..domain.errors import Uncounted
from ..domain.model import STORED_VERSION, Checkpoint, Failure, Garbage, Lease
from ..domain.text import plain
from ..ports import MAX_LETTERS, Buried, Claimed, QueuedShard
from . import redis_messages as messages
from .lua_scripts import LuaScripts, read_part
from .redis_client import redis_errors
from .redis_keys import GROUP, ImportKeys, Keys

MAX_ADOPTED = 1000
LONGEST_S = 10 * 366 * 86400.0
"""In place of for ever, where a number is wanted."""


class RedisQueue:
    """Implements ports.ShardQueue. Safe to share between threads: it keeps nothing but the cursors of its scans."""

    def __init__(
        self,
        client: redis.Redis,
        keys: Keys,
        consumer: str,
        *,
        version: int = STORED_VERSION,
        max_letters: int = MAX_LETTERS,
        read: Callable[[str], str] = read_part,
    ) -> None:
        self._client = client
        self._scripts = LuaScripts(client, read)
        self._keys = keys
        self._consumer = consumer
        self._version = version
        self._max_letters = max_letters
        self._scan_cursors: dict[str, str] = {}

    @property
    def consumer(self) -> str:
        return self._consumer

    def set_up(self, import_name: str) -> None:
        """The consumer group, made once. At 0, so that what was queued before it is not passed over."""
        with redis_errors():
            try:
                self._client.xgroup_create(self._keys.of(import_name).shards, GROUP, id="0", mkstream=True)
            except redis.ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise

    # On to the stream.

    def enqueue(self, import_name: str, shards: Sequence[QueuedShard], run: str, *, begins: bool = False) -> list[bool]:
        keys = self._keys.of(import_name)
        args: list[str | int] = [self._version, run, int(begins), self._keys.control]
        for shard in shards:
            seed = shard.checkpoint
            is_fresh = seed == Checkpoint() and not shard.attempts and not shard.crashes
            counts = "" if is_fresh else messages.dump_counts(seed.counts)
            args += [shard.shard_key, shard.job, shard.counted_as or "", seed.page, messages.dump_cursor(seed.cursor), counts]
            args += [shard.attempts, shard.crashes]
        places = [keys.shards, keys.places, keys.progress, keys.counters, keys.delayed, keys.dead]
        flags = self._flags("enqueue", places, args)
        if shards and not flags:
            raise Uncounted(import_name)
        return flags

    def announce_producer(self, import_name: str, *, is_there: bool) -> None:
        counters = self._keys.of(import_name).counters
        with redis_errors():
            if is_there:
                self._scripts.run("put", [counters], ["producing", str(self._client.time()[0])])
            else:
                self._client.hdel(counters, "producing")

    def promote(self, import_name: str, limit: int) -> int:
        keys = self._keys.of(import_name)
        places = [keys.shards, keys.places, keys.progress, keys.delayed, keys.counters]
        return int(self._run("promote", places, [limit, self._keys.control, self._version]))

    # Into a worker's hands.

    def claim(self, imports: Sequence[str], limit: int) -> Claimed:
        args: list[str | int] = [GROUP, self._consumer, limit, self._version, *imports]
        places = [key for each in map(self._keys.of, imports) for key in (each.shards, each.places, each.progress, each.counters)]
        return self._claimed(imports, self._run("claim", [self._keys.paused, *places], args))

    def adopt(self, imports: Sequence[str], known: Iterable[str]) -> Claimed:
        args: list[str | int] = [GROUP, self._consumer, self._version, MAX_ADOPTED]
        claimed = self._claimed(imports, self._run("adopt", self._claim_keys(imports), args))
        held = set(known)
        return Claimed(
            [lease for lease in claimed.leases if lease.entry not in held],
            [garbage for garbage in claimed.garbage if garbage.entry not in held],
            claimed.too_new,
            claimed.deleted,
        )

    def reclaim(self, import_name: str, limit: int, min_idle_s: float, held: Sequence[Lease], there_s: float) -> Claimed:
        # The scan looks at ten times COUNT entries only: without its cursor, stale ones behind renewed ones are never reached.
        cursor = self._scan_cursors.get(import_name, "0-0")
        args: list[str | int] = [GROUP, self._consumer, round(min_idle_s * 1000), cursor, limit, self._version, import_name]
        args += [round(min(there_s, LONGEST_S) * 1000)]
        args += [value for lease in held for value in (lease.entry, lease.count)]
        reply = self._run("reclaim", [*self._claim_keys([import_name]), self._keys.paused, self._keys.workers], args)
        self._scan_cursors[import_name] = messages.text(reply[3])
        return self._claimed([import_name], reply)

    def start(self, leases: Sequence[Lease]) -> list[bool]:
        return self._settle(
            "start",
            leases,
            lambda keys: [keys.shards, keys.progress],
            [self._version],
            lambda lease: [lease.shard_key, lease.job, lease.run],
        )

    def renew(self, leases: Sequence[Lease]) -> list[bool]:
        return self._settle("renew", leases, lambda keys: [keys.shards], [], lambda lease: [])

    def checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> bool:
        keys = self._keys.of(lease.import_name)
        args = [*self._one(lease), *messages.dump_checkpoint(checkpoint)]
        return bool(self._run("checkpoint", [keys.shards, keys.progress, keys.counters], args))

    # Out of a worker's hands.

    def complete(self, settled: Sequence[tuple[Lease, Checkpoint]], state: str = "done") -> list[bool]:
        checkpoints = dict(settled)
        return self._settle(
            "complete",
            list(checkpoints),
            lambda keys: [keys.shards, keys.places, keys.progress, keys.counters],
            [state, self._version],
            lambda lease: [lease.shard_key, lease.run, *messages.dump_checkpoint(checkpoints[lease])],
        )

    def discard(self, leases: Sequence[Lease]) -> list[bool]:
        return self._settle(
            "discard",
            leases,
            lambda keys: [keys.shards, keys.places, keys.progress, keys.counters],
            [],
            lambda lease: [lease.shard_key, lease.run, lease.was],
        )

    def release(self, leases: Sequence[Lease], lease_s: float = 0) -> list[bool]:
        head: list[str | int] = [round(lease_s * 1000), self._keys.control]
        return self._settle("release", leases, lambda keys: [keys.shards], head, lambda _: [])

    def hand_over(self, lease: Lease, version: int) -> bool:
        keys = self._keys.of(lease.import_name)
        return bool(self._run("hand_over", [keys.shards, keys.places], [*self._one(lease)[:-1], version]))

    def retry(self, lease: Lease, checkpoint: Checkpoint, delay_s: float, attempts: int) -> bool:
        keys = self._keys.of(lease.import_name)
        args = [*self._one(lease), *messages.dump_checkpoint(checkpoint), attempts, lease.crashes, round(delay_s * 1000)]
        return bool(self._run("retry", [keys.shards, keys.places, keys.progress, keys.delayed, keys.counters], args))

    def dead_letter(self, lease: Lease | Garbage, checkpoint: Checkpoint, failure: Failure, attempts: int) -> Buried:
        keys = self._keys.of(lease.import_name)
        is_garbage = isinstance(lease, Garbage)
        args: list[str | int] = [GROUP, lease.consumer, lease.entry, lease.count]
        args += ["", ""] if isinstance(lease, Garbage) else [lease.shard_key, lease.run]
        args += [self._version, *messages.dump_checkpoint(checkpoint)]
        args += [int(lease.entry.partition("-")[0]) * 1000, lease.shard_key if is_garbage else "", self._max_letters]
        args += messages.letter_fields(lease, checkpoint, failure, attempts)
        args += [] if isinstance(lease, Garbage) else ["job", lease.job]
        places = [keys.shards, keys.places, keys.progress, keys.dead, keys.counters]
        is_written, dropped = self._run("dead_letter", places, args)
        return Buried(bool(is_written), int(dropped))

    def reap(self, import_name: str, consumers: Sequence[str]) -> int:
        return int(self._run("reap_consumer", [self._keys.of(import_name).shards], [GROUP, *consumers])) if consumers else 0

    def consumers(self, import_name: str) -> dict[str, int]:
        """Consumers of the group and how many entries each has pending."""
        with redis_errors():
            try:
                found = self._client.xinfo_consumers(self._keys.of(import_name).shards, GROUP)
            except redis.ResponseError:
                return {}
        return {messages.text(item["name"]): int(item["pending"]) for item in found}

    # Plumbing.

    def _run(self, script: str, keys: Sequence[str], args: Sequence[str | int]) -> Any:
        with redis_errors():
            return self._scripts.run(script, keys, args)

    def _flags(self, script: str, keys: Sequence[str], args: Sequence[str | int]) -> list[bool]:
        return [bool(flag) for flag in self._run(script, keys, args)]

    def _one(self, lease: Lease) -> list[str | int]:
        """How scripts that settle a single shard begin."""
        return [GROUP, lease.consumer, lease.entry, lease.count, lease.shard_key, lease.job, lease.run, self._version]

    def _settle(
        self,
        script: str,
        leases: Sequence[Lease],
        keys_of: Callable[[ImportKeys], list[str]],
        head: Sequence[str | int],
        tail_of: Callable[[Lease], Sequence[str | int]],
    ) -> list[bool]:
        """One call for each import; the answers in the order of the leases."""
        answers: dict[Lease, bool] = {}
        for name in dict.fromkeys(lease.import_name for lease in leases):
            batch = [lease for lease in leases if lease.import_name == name]
            args: list[str | int] = [GROUP, self._consumer, *head]
            for lease in batch:
                args += [lease.entry, lease.count, *tail_of(lease)]
            answers.update(zip(batch, self._flags(script, keys_of(self._keys.of(name)), args), strict=True))
        return [answers[lease] for lease in leases]

    def _claim_keys(self, imports: Sequence[str]) -> list[str]:
        return [key for name in imports for keys in [self._keys.of(name)] for key in (keys.shards, keys.places, keys.progress)]

    def _claimed(self, imports: Sequence[str], reply: Any) -> Claimed:
        leases: list[Lease] = []
        garbage: list[Garbage] = []
        for number, entry, count, fields, progress in reply[1]:
            item = messages.read_entry(
                imports[int(number) - 1], messages.text(entry), self._consumer, int(count), fields, progress
            )
            if isinstance(item, Lease):
                leases.append(item)
            else:
                garbage.append(item)
        return Claimed(leases, garbage, int(reply[0]), int(reply[2]))


def consumer_name(label: str, random_part: str) -> str:
    """New for each start: two processes with one label never share a consumer."""
    return f"{plain(label, 60).replace(' ', '-') or 'worker'}:{random_part}"
