"""Every key there is. One namespace is one hash slot, so each script works on Redis Cluster too.

`{si}:imports`        hash    import -> definition (JSON), a copy of what MongoDB has
`{si}:paused`         hash    import -> why it is paused (JSON)
`{si}:workers`        hash    consumer -> heartbeat (JSON); stale ones are reaped
`{si}:budget:<fp>`    hash    last slot given and hold of one budget; <fp> is a keyed hash of source and API key
`{si}:cache:<name>`   string  an upstream's look-up answer, kept a day
`{si}:control`        channel work, pause, hold, cancel
and for each import:
`{si}:<i>:shards`     stream  the work, group `workers`
`{si}:<i>:dead`       stream  dead letters
`{si}:<i>:delayed`    zset    shard -> when it comes back (ms)
`{si}:<i>:places`     hash    shard in flight -> where it is
`{si}:<i>:progress`   hash    shard in flight -> checkpoint, attempts, crashes, who started it
`{si}:<i>:counters`   hash    shards, records and requests so far; the newest run; when it last moved
"""

from __future__ import annotations

from dataclasses import dataclass

GROUP = "workers"
RELEASED = "released"
NEWER = "newer"


@dataclass(frozen=True, slots=True)
class ImportKeys:
    shards: str
    dead: str
    delayed: str
    places: str
    progress: str
    counters: str


@dataclass(frozen=True, slots=True)
class Keys:
    namespace: str = "si"

    def _key(self, *parts: str) -> str:
        return ":".join(("{" + self.namespace + "}", *parts))

    @property
    def imports(self) -> str:
        return self._key("imports")

    @property
    def paused(self) -> str:
        return self._key("paused")

    @property
    def workers(self) -> str:
        return self._key("workers")

    @property
    def control(self) -> str:
        return self._key("control")

    def budget(self, fingerprint: str) -> str:
        return self._key("budget", fingerprint)

    def cache(self, name: str) -> str:
        return self._key("cache", name)

    def of(self, import_name: str) -> ImportKeys:
        def key(what: str) -> str:
            return self._key(import_name, what)

        return ImportKeys(key("shards"), key("dead"), key("delayed"), key("places"), key("progress"), key("counters"))
