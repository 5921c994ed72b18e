"""`import_rejects`: records that could not be stored, for a person to look at. MongoDB forgets them after 30 days."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256

from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import BulkWriteError

from ..domain.model import Reject
from ..domain.redaction import SECRETS
from ..domain.text import plain
from .mongo_client import Document, primary, translated

COLLECTION = "import_rejects"
KEPT_S = 30 * 86400
MAX_RECORD_BYTES = 64 * 1024
MAX_REASON = 500
_DUPLICATE_KEY = 11000


class MongoRejects:
    def __init__(self, database: Database[Document]) -> None:
        self._collection = primary(database, COLLECTION)

    def add(self, import_name: str, shard_key: str, rejects: Sequence[Reject], at: datetime, session: ClientSession) -> None:
        """Each once: the id is made of what was refused and why, so a page that comes again adds none."""
        documents = {}
        for reject in rejects:
            record = SECRETS.redacted(reject.record).encode("utf-8", "backslashreplace")
            reason = plain(reject.reason, MAX_REASON)
            identity = _identity(import_name, shard_key, reason, record)
            documents[identity] = {
                "_id": identity,
                "import": import_name,
                "shardKey": shard_key,
                "reason": reason,
                "record": record[:MAX_RECORD_BYTES].decode("utf-8", "ignore"),  # the cut may go through a character
                "at": at,
            }
        try:
            self._collection.insert_many(documents.values(), ordered=False, session=session)
        except BulkWriteError as error:
            if any(each["code"] != _DUPLICATE_KEY for each in error.details["writeErrors"]) or translated(error):
                raise


def _identity(import_name: str, shard_key: str, reason: str, record: bytes) -> str:
    """The record's own digest goes in, not the record: none of the parts can run into the next."""
    parts = (import_name, shard_key, reason, sha256(record).hexdigest())
    return sha256("\0".join(parts).encode("utf-8", "backslashreplace")).hexdigest()
