"""One shard, page by page: fetch, store, checkpoint. The next page is fetched while the last one is stored."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from datetime import datetime

from ..domain.definition import Definition
from ..domain.errors import BadSetting, Cancelled, ImportRefused, LeaseLost, ShardRefused, Transient, UpstreamError, Weather
from ..domain.model import (
    Abandoned,
    Checkpoint,
    Completed,
    Counts,
    Cursor,
    Dead,
    Failure,
    Lease,
    Outcome,
    Page,
    Released,
    Retry,
)
from ..domain.shard_key import Scope, parse_key
from ..ports import Ledger, ShardQueue, Sink, Source
from .cancellation import CancelToken
from .outages import Outages

PAGE_TRIES = 3
"""Requests for one page within one attempt; after that the shard waits with a backoff of its own."""

PAGE_RETRY_S = 0.5

LOST = "lease lost"


@dataclass(slots=True)
class _Requests:
    """What this attempt asked of the upstream so far."""

    ok: int = 0
    rate_limited: int = 0
    failed: int = 0

    def counts(self) -> Counts:
        return Counts(requests_ok=self.ok, requests_rate_limited=self.rate_limited, requests_failed=self.failed)


@dataclass(frozen=True, slots=True)
class ShardImporter:
    """Runs attempts. `run` returns an outcome and never raises."""

    queue: ShardQueue
    ledger: Ledger
    sink: Sink
    outages: Outages
    ahead: Executor
    lease_until: Callable[[Definition], datetime]
    clock: Callable[[], float] = time.monotonic

    def run(self, lease: Lease, definition: Definition, source: Source, cancel: CancelToken) -> Outcome:
        attempt = _Attempt(self, lease, definition, source, cancel)
        try:
            return attempt.import_pages()
        except LeaseLost:
            return Abandoned()
        except Cancelled:
            return Abandoned() if cancel.reason == LOST else Released(attempt.checkpoint)
        except ImportRefused as error:
            return Released(attempt.totals(), _failure(error))
        except BadSetting as error:  # no shard can work until a person changes something
            return Released(attempt.totals(), Failure("setting", str(error)))
        except ShardRefused as error:
            return Dead(attempt.totals(), _failure(error))
        except UpstreamError as error:
            return Retry(attempt.totals(), _failure(error), getattr(error, "wait_s", None) or 0.0)
        except Exception as error:
            # A defect of ours costs this shard an attempt, never the worker and the other shards in it.
            return Retry(attempt.totals(), Failure("internal_error", f"{type(error).__name__}: {error}"))
        finally:
            attempt.drop_page_ahead()


class _Attempt:
    def __init__(self, tools: ShardImporter, lease: Lease, definition: Definition, source: Source, cancel: CancelToken) -> None:
        self._tools = tools
        self._lease = lease
        self._definition = definition
        self._source = source
        self._cancel = cancel
        self._requests = _Requests()
        self._base = lease.checkpoint.counts
        self._stored = Counts()
        self._next: Future[tuple[Page, float]] | None = None
        self.checkpoint = lease.checkpoint

    def totals(self) -> Checkpoint:
        """The checkpoint with the requests made since."""
        return replace(self.checkpoint, counts=self._base + self._stored + self._requests.counts())

    def import_pages(self) -> Outcome:
        scope = parse_key(self._lease.shard_key)
        self._fetch_ahead(scope, self.checkpoint.cursor)
        while self._next is not None:
            (page, fetched_at), self._next = self._next.result(), None
            # After a stop, a page that is here already is still stored; no further one is asked for.
            if page.next_cursor is not None and not self._cancel.cancelled:
                self._fetch_ahead(scope, page.next_cursor)
            self._check_lease(fetched_at)
            self._store(page)
            if page.next_cursor is None:
                return Completed(self.checkpoint)
            self._save_checkpoint()
        return Released(self.checkpoint)

    def drop_page_ahead(self) -> None:
        if self._next is not None and not self._next.done():
            self._cancel.cancel("attempt over")

    def _fetch_ahead(self, scope: Scope, cursor: Cursor | None) -> None:
        self._next = self._tools.ahead.submit(self._fetch, scope, cursor)

    def _fetch(self, scope: Scope, cursor: Cursor | None) -> tuple[Page, float]:
        tries = 0
        while True:
            try:
                page = self._tools.outages.patiently(self._cancel, lambda: self._source.fetch(scope, cursor, self._cancel))
            except Weather:
                self._requests.rate_limited += 1  # the budget is held: the next token comes after that
            except Transient as error:
                self._requests.failed += 1
                tries += 1
                if tries >= PAGE_TRIES or error.wait_s:  # who says when to come back is not asked before
                    raise
                if self._cancel.wait(PAGE_RETRY_S * tries * random.uniform(0.5, 1.0)):
                    raise Cancelled("stopped between two tries of a page") from None
            except (ShardRefused, ImportRefused):
                self._requests.failed += 1
                raise
            else:
                self._requests.ok += 1
                return page, self._tools.clock()

    def _check_lease(self, fetched_at: float) -> None:
        """Who lost its lease stores no further bulk. A page that has been in hand for long is a sign that this process stood
        still: then Redis is asked, for the keeper stood still as well."""
        if self._cancel.reason == LOST:
            raise LeaseLost(self._lease.shard_key)
        if self._tools.clock() - fetched_at > self._definition.lease_s / 2:
            [held] = self._tools.outages.patiently(self._cancel, lambda: self._tools.queue.renew([self._lease]))
            if not held:
                raise LeaseLost(self._lease.shard_key)

    def _store(self, page: Page) -> None:
        store = self._tools.sink.store
        self._stored += self._tools.outages.patiently(self._cancel, lambda: store(self._definition, self._lease.shard_key, page))
        self.checkpoint = Checkpoint(
            self.checkpoint.page + 1, page.next_cursor, self._base + self._stored + self._requests.counts()
        )

    def _save_checkpoint(self) -> None:
        """The ledger first, then the queue, which renews the lease with it."""
        patiently, lease, checkpoint = self._tools.outages.patiently, self._lease, self.checkpoint
        until = self._tools.lease_until(self._definition)
        if not patiently(self._cancel, lambda: self._tools.ledger.checkpoint(lease, checkpoint, until)):
            raise LeaseLost(lease.shard_key)
        if not patiently(self._cancel, lambda: self._tools.queue.checkpoint(lease, checkpoint)):
            raise LeaseLost(lease.shard_key)


def _failure(error: UpstreamError) -> Failure:
    return Failure(error.code, error.message, error.status)
