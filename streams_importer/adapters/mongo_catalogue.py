"""`imports`: the definition, the pause and the newest run of each import. Survives a flushed Redis, which holds a copy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from ..domain.definition import Definition, read_definition
from ..domain.errors import TooNew, Unavailable
from ..domain.model import STORED_VERSION
from ..domain.shard_key import is_name
from ..domain.text import plain
from ..ports import Pause
from .mongo_client import Document, mongo_errors, primary

COLLECTION = "imports"
_TRIES = 5
_NOT_NEWER = {"v": {"$not": {"$gt": STORED_VERSION}}}


class MongoCatalogue:
    def __init__(self, database: Database[Document], namespace: str) -> None:
        self._collection = primary(database, COLLECTION)
        self._namespace = namespace

    def save(self, definition: Definition, run: str) -> None:
        """A pause stays. Raises TooNew instead of overwriting what a newer version of us stored."""
        stored = definition.stored()
        change = {
            "$set": {"definition": stored, "rate": definition.rate, "run": run, "v": STORED_VERSION},
            "$setOnInsert": {"paused": None},
        }
        with mongo_errors():
            for _ in range(_TRIES):
                try:
                    self._collection.update_one({**self._named(definition.name), **_NOT_NEWER}, change, upsert=True)
                    return
                except DuplicateKeyError:  # a newer version's document, or somebody stored the first one just now
                    self._refuse_newer(definition.name)
        raise Unavailable("MongoDB", f"others keep storing and removing the import {definition.name}")

    def get(self, name: str) -> Definition | None:
        with mongo_errors():
            document = self._collection.find_one(self._named(name), {"_id": 0, "definition": 1, "v": 1})
        if document is None:
            return None
        if _is_newer(document.get("v")):
            raise _too_new(name)
        definition = document.get("definition")
        # What is no document at all is as bad as one with a bad source, and is refused in the same words.
        return read_definition(name, dict(definition) if isinstance(definition, Mapping) else {"source": None})

    def names(self) -> list[str]:
        with mongo_errors():
            found = [each.get("name") for each in self._collection.find({"namespace": self._namespace}, {"_id": 0, "name": 1})]
        return sorted(name for name in found if isinstance(name, str) and is_name(name))

    def pause(self, name: str, pause: Pause | None) -> bool:
        paused = None if pause is None else {"reason": plain(pause.reason), "by": plain(pause.by), "since": plain(pause.since)}
        with mongo_errors():
            result = self._collection.update_one({**self._named(name), **_NOT_NEWER}, {"$set": {"paused": paused}})
            if result.matched_count == 0:
                self._refuse_newer(name)
        return result.matched_count == 1

    def paused(self) -> dict[str, Pause]:
        query = {"namespace": self._namespace, "paused": {"$ne": None}}
        with mongo_errors():
            found = list(self._collection.find(query, {"_id": 0, "name": 1, "paused": 1}))
        names = {name: each["paused"] for each in found if isinstance(name := each.get("name"), str) and is_name(name)}
        return {name: _pause(paused) for name, paused in names.items()}

    def _named(self, name: str) -> dict[str, Any]:
        return {"namespace": self._namespace, "name": name}

    def _refuse_newer(self, name: str) -> None:
        document = self._collection.find_one(self._named(name), {"_id": 0, "v": 1})
        if document is not None and _is_newer(document.get("v")):
            raise _too_new(name)


def _is_newer(version: object) -> bool:
    return isinstance(version, int | float) and version > STORED_VERSION


def _too_new(name: str) -> TooNew:
    return TooNew(f"import {name}: a newer version of streams-importer defined it; update this one")


def _pause(stored: object) -> Pause:
    """Somebody wanted it paused: what cannot be read pauses too."""
    parts = stored if isinstance(stored, Mapping) else {}
    reason, by, since = (plain(value) if isinstance(value := parts.get(key), str) else "" for key in ("reason", "by", "since"))
    return Pause(reason, by, since)
