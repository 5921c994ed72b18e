"""Stores the pages of an import. Every record ends stored, counted as unchanged or stale, or among the rejects.

1. Of several versions in one page the newest goes on.
2. One find says what is there already. New ids are inserted; changed ones are updated under the order guard, without upsert
   (a guarded upsert would take "somebody inserted it just now" for "we are stale" and drop the newest version).
3. A duplicate key on an insert means that somebody was first: read again, decide again.
4. A record that cannot be stored becomes a reject and takes no neighbour along.

Storing the same page twice changes nothing the second time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from bson.codec_options import DatetimeConversion
from pymongo import UpdateOne
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import BulkWriteError, OperationFailure

from ..domain.definition import Definition
from ..domain.errors import Unavailable
from ..domain.model import Counts, Page, Record, Reject
from .bson_record import Refused, as_text, check_id, encode_record
from .mongo_client import Document, mongo_errors, primary, translated
from .mongo_rejects import MongoRejects
from .order_guard import Version, is_newer, newer_at_first_sight, newer_than_stored, stored_version, version

MAX_ROUNDS = 5
"""Each round but the first needs somebody who inserted one of our ids after we looked; who deletes them again, loops for ever."""
IDS_A_FIND = 1000
"""With the longest ids allowed, the list stays far below the 16 MB of one command."""

_DUPLICATE_KEY = 11000
_DOCUMENT_CODES = frozenset((2, 9, 14, 15, 22, 28, 52, 54, 55, 56, 57, 121, 10334, 16755, 16756, 17280, 17419, 17420))
"""Refusals that concern one document, in case MongoDB answers them for a whole command."""
_GEO_CODES = frozenset((16755, 16756))
_OBJECT_ID = re.compile(r"ObjectId\('\w*'\)")


class MongoSink:
    def __init__(self, database: Database[Document]) -> None:
        self._database = database
        self._rejects = MongoRejects(database)

    def store(self, definition: Definition, shard_key: str, page: Page) -> Counts:
        # A causal session: after "somebody was first" the next find waits until it can see what that somebody wrote.
        with mongo_errors(), self._database.client.start_session(causal_consistency=True) as session:
            work = _PageWork(self._database, definition, page, session)
            work.run()
            rejects = [*page.rejects, *work.rejects]
            if rejects:
                self._rejects.add(definition.name, shard_key, rejects, work.now, session)
        return Counts(work.inserted, work.updated, work.unchanged, work.stale, len(rejects))


class _PageWork:
    """What is done for one page, and the count of it."""

    def __init__(self, database: Database[Document], definition: Definition, page: Page, session: ClientSession) -> None:
        self._collection = primary(database, definition.collection)
        self._source = definition.source
        self._page = page
        self._session = session
        self.now = datetime.now(UTC)
        self.inserted = self.updated = self.unchanged = self.stale = 0
        self.rejects: list[Reject] = []

    def run(self) -> None:
        waiting = self._newest_of_each()
        for _ in range(MAX_ROUNDS):
            if not waiting:
                return
            new, changed = self._compare(waiting)
            self._update(changed)
            waiting = {record.external_id: record for record in self._insert(new)}
        if waiting:
            raise Unavailable("MongoDB", f"others keep inserting and deleting the same {len(waiting)} records")

    def _newest_of_each(self) -> dict[str, Record]:
        newest: dict[str, Record] = {}
        losers: list[Record] = []
        for record in self._page.records:
            try:
                check_id(record.external_id)
            except Refused as refusal:
                self._reject(record, str(refusal))
                continue
            if record.external_id in newest:
                self._settle_duplicate(newest, losers, record)
            else:
                newest[record.external_id] = record
        for loser in losers:
            if loser.content_hash == newest[loser.external_id].content_hash:
                self.unchanged += 1
            else:
                self.stale += 1
        return newest

    def _settle_duplicate(self, newest: dict[str, Record], losers: list[Record], later: Record) -> None:
        """Only a version that can be stored may push another one out."""
        earlier, order = newest[later.external_id], self._page.order
        if self._encoded(later) is None:
            return
        if self._encoded(earlier) is None:
            newest[later.external_id] = later
        elif is_newer(version(earlier.updated_at, order), version(later.updated_at, order)):
            losers.append(later)
        else:  # a tie too: the later row is what the upstream said last
            losers.append(earlier)
            newest[later.external_id] = later

    def _compare(self, records: dict[str, Record]) -> tuple[list[Record], list[Record]]:
        """Those that are new and those that are newer than what is stored; the others are counted."""
        stored = {document["externalId"]: document for document in self._find(records)}
        new, changed = [], []
        for external_id, record in records.items():
            document = stored.get(external_id)
            if document is None:
                new.append(record)
            elif document.get("contentHash") == record.content_hash:
                self.unchanged += 1
            elif is_newer(version(record.updated_at, self._page.order), stored_version(document)):
                changed.append(record)
            else:
                self.stale += 1
        return new, changed

    def _find(self, ids: Iterable[str]) -> Iterator[Document]:
        # Times as plain numbers: a stored year 99999 must not stop us.
        options = self._collection.codec_options.with_options(datetime_conversion=DatetimeConversion.DATETIME_MS)
        collection = self._collection.with_options(codec_options=options)
        fields = {"_id": 0, "externalId": 1, "contentHash": 1, "sourceUpdatedAt": 1, "order": 1}
        remaining = iter(ids)
        while some := list(islice(remaining, IDS_A_FIND)):
            # The whole answer in one batch: the default would come back for everything after the first 101.
            yield from collection.find({"externalId": {"$in": some}}, fields, batch_size=len(some) + 1, session=self._session)

    def _insert(self, records: list[Record]) -> list[Record]:
        """Returns those that somebody else inserted first."""
        pairs = [(record, raw) for record in records if (raw := self._encoded(record, new=True)) is not None]
        inserted, errors = _send([raw for _, raw in pairs], self._send_inserts, "nInserted")
        self.inserted += inserted
        raced = []
        for index, error in errors:
            record = pairs[index][0]
            if error.get("code") == _DUPLICATE_KEY and set(error.get("keyPattern", {"externalId": 1})) == {"externalId"}:
                raced.append(record)
            else:
                self._reject(record, _refusal(error))
        return raced

    def _update(self, records: list[Record]) -> None:
        pairs = [(record, raw) for record in records if (raw := self._encoded(record)) is not None]
        undecided = len(pairs)
        # The cheap guard takes nearly all. The exact one then goes over the page again, where it cannot take twice what is
        # stored just as we bring it.
        for guard in (newer_at_first_sight, newer_than_stored):
            if undecided == 0:
                return
            matched, errors = _send([self._guarded(guard, *pair) for pair in pairs], self._send_updates, "nMatched")
            self.updated += min(matched, undecided)
            undecided -= min(matched, undecided) + len(errors)
            for index, error in errors:
                self._reject(pairs[index][0], _refusal(error))
            refused = {index for index, _ in errors}
            pairs = [pair for index, pair in enumerate(pairs) if index not in refused]
        # Who matched neither met a version that became newer after our find.
        self.stale += undecided

    def _guarded(self, guard: Callable[[Version], Document], record: Record, raw: Any) -> UpdateOne:
        gone = {"missingSince": ""} if record.location is not None else {"missingSince": "", "location": ""}
        newer = guard(version(record.updated_at, self._page.order))
        return UpdateOne({"externalId": record.external_id, **newer}, {"$set": raw, "$unset": gone})

    def _send_inserts(self, documents: Sequence[Any]) -> int:
        self._collection.insert_many(documents, ordered=False, session=self._session)
        return len(documents)  # pymongo knows no ids of documents that come encoded

    def _send_updates(self, updates: Sequence[Any]) -> int:
        return self._collection.bulk_write(updates, ordered=False, session=self._session).matched_count

    def _encoded(self, record: Record, *, new: bool = False) -> Any:
        """None when it cannot be stored: then it is among the rejects."""
        try:
            return encode_record(record, self._source, self._page.order, self.now, new=new)
        except Refused as refusal:
            self._reject(record, str(refusal))
            return None

    def _reject(self, record: Record, reason: str) -> None:
        self.rejects.append(Reject(reason, as_text(record)))


def _send(items: Sequence[Any], send: Callable[[Sequence[Any]], int], total: str) -> tuple[int, list[tuple[int, Document]]]:
    """How many took effect, and by index the ones that MongoDB refused."""
    if not items:
        return 0, []
    try:
        return send(items), []
    except BulkWriteError as error:
        errors = error.details["writeErrors"]
        if translated(error) is not None or _concerns_all(errors, len(items)):
            raise
        return error.details[total], [(each["index"], each) for each in errors]
    except OperationFailure as error:
        if error.code not in _DOCUMENT_CODES:
            raise
        if len(items) == 1:
            return 0, [(0, {"code": error.code, "errmsg": str(error)})]
    # One document had the whole command refused: halve until it stands alone.
    middle = len(items) // 2
    first, early = _send(items[:middle], send, total)
    second, late = _send(items[middle:], send, total)
    return first + second, early + [(index + middle, each) for index, each in late]


def _concerns_all(errors: list[Document], sent: int) -> bool:
    """Whether nothing went through, for a reason that is not known to be one document's: the collection is a view, perhaps."""
    known = _DOCUMENT_CODES | {_DUPLICATE_KEY}
    return len(errors) == sent and not any(each["code"] in known for each in errors)


def _refusal(error: Document) -> str:
    """The same text for the same refusal: MongoDB quotes the document with the `_id` it had just given it."""
    text = str(error.get("errmsg", ""))
    if error.get("code") in _GEO_CODES:
        text = "its location is not valid: " + text.rpartition("}  ")[2]
    return "MongoDB refused it: " + _OBJECT_ID.sub("…", text)
