"""Everything that lies in the stores, as texts to search in. Not by DUMP: Redis packs values there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pymongo.database import Database
from redis import Redis, ResponseError


def stored_texts(redis: Redis, db: Database[dict[str, Any]]) -> Iterator[str]:
    yield from texts_in_redis(redis)
    for name in db.list_collection_names():
        yield name
        for document in db[name].find({}):
            yield repr(document)


def texts_in_redis(redis: Any) -> Iterator[str]:
    for key in redis.scan_iter("*"):
        yield repr(key)
        match redis.type(key):
            case b"string":
                yield repr(redis.get(key))
            case b"hash":
                yield repr(redis.hgetall(key))
            case b"zset":
                yield repr(redis.zrange(key, 0, -1, withscores=True))
            case b"set":
                yield repr(redis.smembers(key))
            case b"list":
                yield repr(redis.lrange(key, 0, -1))
            case b"stream":
                yield repr(redis.xrange(key))
                with suppress(ResponseError):
                    for group in redis.xinfo_groups(key):
                        yield repr((group, redis.xinfo_consumers(key, group["name"])))
            case other:
                raise AssertionError(f"what is {other!r}?")
