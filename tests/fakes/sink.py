"""A store in memory."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

from streams_importer.adapters.bson_record import Refused, as_text, check_id, encode_record
from streams_importer.adapters.order_guard import is_newer, version
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import Unavailable
from streams_importer.domain.model import Counts, Page, Record, Reject


class FakeSink:
    """`records` by collection and external id, each with the order of its page; `rejects` with import and shard key, each once.

    While `away` is True every call fails as in an outage. `pages` counts the pages stored.
    """

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], tuple[Record, int]] = {}
        self.rejects: dict[tuple[str, str, Reject], None] = {}
        self.away = False
        self.pages = 0

    def store(self, definition: Definition, shard_key: str, page: Page) -> Counts:
        if self.away:
            raise Unavailable("MongoDB", "away")
        fit, rejects = _sorted_out(definition, page)
        newest: dict[str, Record] = {}
        for record in fit:
            other = newest.get(record.external_id)
            if other is None or not is_newer(version(other.updated_at, page.order), version(record.updated_at, page.order)):
                newest[record.external_id] = record
        ends = Counter(rejected=len(rejects))
        for record in fit:
            winner = newest[record.external_id]
            if record is not winner:
                ends["unchanged" if record.content_hash == winner.content_hash else "stale"] += 1
        for record in newest.values():
            ends[self._put(definition.collection, record, page.order)] += 1
        self.rejects |= dict.fromkeys((definition.name, shard_key, reject) for reject in rejects)
        self.pages += 1
        return Counts(**ends)

    def _put(self, collection: str, record: Record, order: int) -> str:
        stored = self.records.get((collection, record.external_id))
        if stored is not None:
            if stored[0].content_hash == record.content_hash:
                return "unchanged"
            if not is_newer(version(record.updated_at, order), version(stored[0].updated_at, stored[1])):
                return "stale"
        self.records[collection, record.external_id] = (record, order)
        return "inserted" if stored is None else "updated"


def _sorted_out(definition: Definition, page: Page) -> tuple[list[Record], list[Reject]]:
    fit, rejects = [], list(page.rejects)
    for record in page.records:
        try:
            check_id(record.external_id)
            encode_record(record, definition.source, page.order, datetime.now(UTC), new=True)
            fit.append(record)
        except Refused as refusal:
            rejects.append(Reject(str(refusal), as_text(record)))
    return fit, rejects
