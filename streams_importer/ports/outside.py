"""The store, the upstream and its budget, other processes; and how all of them are told to stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..domain.definition import Definition
from ..domain.model import Counts, Cursor, Outcome, Page
from ..domain.shard_key import Scope


class Cancel(Protocol):
    """A request to stop what is being done, that can be waited on and reacted to."""

    @property
    def cancelled(self) -> bool: ...

    def wait(self, seconds: float) -> bool:
        """Sleeps up to `seconds`; True as soon as it is cancelled."""

    def on_cancel(self, action: Callable[[], None]) -> Callable[[], None]:
        """Runs `action` once when cancelled (at once if it already is). Returns a function that takes it back."""

    def may_send(self) -> bool:
        """Asked just before a request goes out. Raises Cancelled when it must not; waits while it is not known whether the
        work is still ours, and then says False: the time for which the request was granted has passed."""


class Sink(Protocol):
    def store(self, definition: Definition, shard_key: str, page: Page) -> Counts:
        """Every record of the page ends stored, or counted as unchanged or stale, or among the rejects."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A good answer: status 200 and a body within bounds. `granted_us` is the slot's time on Redis' clock."""

    body: bytes
    granted_us: int


class Upstream(Protocol):
    """One upstream with its key and its budget. Every call takes a token first."""

    def get(self, path: str, params: Mapping[str, str], cancel: Cancel) -> Answer:
        """Raises Transient, Weather, ShardRefused, ImportRefused, Cancelled or Unavailable (the budget's server)."""


class Source(Protocol):
    """What an upstream looks like."""

    @property
    def has_upper_time_bound(self) -> bool:
        """Whether it can be asked for an end of time. If not, every window downloads all that is newer, too."""

    def check_countries(self, codes: Sequence[str], cancel: Cancel) -> None:
        """Raises BadSetting naming the codes that the upstream does not know."""

    def highest_id(self, cancel: Cancel) -> int: ...
    def fetch(self, scope: Scope, cursor: Cursor | None, cancel: Cancel) -> Page: ...


class Child(Protocol):
    """A process that imports one shard and nothing else."""

    @property
    def how_it_ended(self) -> str:
        """As in "by SIGKILL"."""

    def outcome(self) -> Outcome | None:
        """Waits for its end. None when it ended without a word."""

    def cancel(self, reason: str) -> None: ...
    def hear(self, message: str) -> None:
        """A message of the control channel."""

    def close(self) -> None:
        """It has ended when this returns."""


class RequestBudget(Protocol):
    def take(self, cancel: Cancel) -> int:
        """Waits for a slot and returns its time in microseconds on Redis' clock. Raises Cancelled."""

    def hold(self, seconds: float) -> None:
        """Nobody is granted anything for that long."""


class Cache(Protocol):
    """A small answer remembered for all workers."""

    def get(self, name: str) -> bytes | None: ...
    def put(self, name: str, value: bytes, seconds: int) -> None: ...


class EventSink(Protocol):
    """One event, one line."""

    def __call__(self, event: str, *, level: str = "info", **details: Any) -> None: ...
