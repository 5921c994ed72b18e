"""Indexes, and the check that a collection is ours to write into. Safe to repeat, and by many processes at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pymongo import ASCENDING, GEOSPHERE, IndexModel
from pymongo.database import Database
from pymongo.errors import OperationFailure

from ..domain.definition import RESERVED_COLLECTIONS
from ..domain.errors import BadSetting, Unavailable
from ..domain.text import plain
from . import mongo_rejects
from .mongo_client import Document, mongo_errors, primary

_RECORDS = (
    IndexModel([("externalId", ASCENDING)], unique=True, name="externalId_1"),
    IndexModel([("location", GEOSPHERE)], name="location_2dsphere"),
    IndexModel([("source", ASCENDING), ("changedAt", ASCENDING)], name="source_1_changedAt_1"),
)
_OWN = {
    "import_windows": (
        IndexModel([("namespace", 1), ("import", 1), ("shardKey", 1)], unique=True, name="namespace_1_import_1_shardKey_1"),
        IndexModel(
            [("namespace", 1), ("import", 1), ("status", 1), ("shardKey", 1)], name="namespace_1_import_1_status_1_shardKey_1"
        ),
    ),
    "imports": (IndexModel([("namespace", 1), ("name", 1)], unique=True, name="namespace_1_name_1"),),
    mongo_rejects.COLLECTION: (IndexModel([("at", 1)], expireAfterSeconds=mongo_rejects.KEPT_S, name="at_1"),),
}
_CONFLICTS = frozenset((67, 68, 85, 86, 11000, 16755, 16756))
"""The index cannot be made as it is wanted: another stands in its place, or what is stored contradicts it."""
_TRIES = 5
_BUILD_ABORTED = frozenset((276, 11601, 117))
"""Somebody made or dropped an index of the same collection in the same moment."""


def set_up(database: Database[Document], collection: str) -> None:
    """All indexes of an import that stores into `collection`. Raises BadSetting when that holds something else."""
    refuse_foreign_collection(database, collection)
    with mongo_errors():
        for name, indexes in (*_OWN.items(), (collection, _RECORDS)):
            _ensure(database, name, indexes)


def missing_indexes(database: Database[Document], collections: Sequence[str]) -> list[str]:
    """Of those that imports storing into `collections` need, as collection.index."""
    with mongo_errors():
        missing = []
        for name, indexes in (*_OWN.items(), *((collection, _RECORDS) for collection in collections)):
            there = _indexes(database, name).values()
            missing += [f"{name}.{one.document['name']}" for one in indexes if not any(_serves(each, one) for each in there)]
    return missing


def refuse_foreign_collection(database: Database[Document], collection: str) -> None:
    """Raises BadSetting, with what to do, when we must not write into this collection."""
    advice = "name another with `collection` in the import file"
    if collection in RESERVED_COLLECTIONS:
        raise BadSetting(f"collection {collection}: is used by streams-importer itself; {advice}")
    with mongo_errors():
        kinds = [each.get("type") for each in database.list_collections(filter={"name": collection})]
        if not kinds:
            return
        if kinds != ["collection"]:
            raise BadSetting(f"collection {collection}: is a {kinds[0]}, not a plain collection; {advice}")
        for index in _RECORDS:
            if name := _conflict(_indexes(database, collection), index):
                raise BadSetting(f"collection {collection}: its index {name} is in the way of ours; drop it or {advice}")
        # Matches missing and null. With our index it is one key to look up; without, the first foreign document ends it.
        if primary(database, collection).find_one({"externalId": None}, {"_id": 1}) is not None:
            raise BadSetting(f"collection {collection}: holds documents without externalId, so it is not ours; {advice}")


def _ensure(database: Database[Document], collection: str, wanted: tuple[IndexModel, ...]) -> None:
    for _ in range(_TRIES):
        existing = _indexes(database, collection)
        missing = [index for index in wanted if not any(_serves(each, index) for each in existing.values())]
        if not missing:
            return
        try:
            database.get_collection(collection).create_indexes(missing)
            return
        except OperationFailure as error:
            if error.code in _CONFLICTS:
                text = plain(str(error).partition(", full error")[0], 200)
                raise BadSetting(f"collection {collection}: cannot make its indexes ({text})") from None
            if error.code not in _BUILD_ABORTED:
                raise
    raise Unavailable("MongoDB", f"others keep changing the indexes of {collection}")


def _indexes(database: Database[Document], collection: str) -> dict[str, Any]:
    """Empty for a collection that does not exist."""
    return dict(primary(database, collection).index_information())


def _keys(index: IndexModel) -> list[tuple[str, Any]]:
    return list(index.document["key"].items())


def _serves(existing: dict[str, Any], wanted: IndexModel) -> bool:
    """Whether an index does what the wanted one would, under whatever name; how long rejects are kept may have been changed."""
    if list(existing["key"]) != _keys(wanted) or "partialFilterExpression" in existing:
        return False
    unique = wanted.document.get("unique", False)
    ttl_fits = ("expireAfterSeconds" in existing) == ("expireAfterSeconds" in wanted.document)
    return bool(existing.get("unique", False) or not unique) and not (unique and existing.get("sparse")) and ttl_fits


def _conflict(existing: dict[str, Any], wanted: IndexModel) -> str | None:
    """The name of an index that stands where ours should be."""
    for name, index in existing.items():
        taken = name == wanted.document["name"] or list(index["key"]) == _keys(wanted)
        if taken and not _serves(index, wanted):
            return name
    return None
