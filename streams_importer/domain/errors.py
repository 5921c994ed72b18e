"""What can go wrong, as a tree. The handling of an error follows from its branch alone.

ImporterError
├── BadSetting            the user can change something: exit 2, one line
├── TooNew                written by a newer version of us: leave it to that version
├── Unavailable           a server of ours is away: wait it out, nobody is charged
│   ├── Full              Redis takes nothing more: what finishes makes room
│   └── Uncounted         Redis has no counters of an import: they are rebuilt from the ledger first
├── LeaseLost             somebody else owns the shard now: stop, settle nothing
├── Cancelled             the call was cut short on purpose (a stop, a lost lease)
└── UpstreamError         the upstream answered, or failed to
    ├── Transient         try again: costs an attempt once the page's own tries are used up
    ├── Weather           the upstream asks to wait (429, 503): costs nothing
    ├── ShardRefused      this shard can never work: dead letter
    └── ImportRefused     no shard can work now (a refused key): pause the import
"""

from __future__ import annotations


class ImporterError(Exception):
    """Base of all errors that this program raises on purpose."""


class BadSetting(ImporterError):
    """The user asked for something that cannot be; the text says what to change."""


class TooNew(ImporterError):
    """A newer version of us wrote this; an older one must not touch it."""


class Unavailable(ImporterError):
    """A server of ours cannot be reached, or cannot serve just now."""

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"{server}: {reason}")
        self.server = server
        self.reason = reason


class Full(Unavailable):
    """Redis is at its memory limit. Whoever settles may go on; whoever adds waits."""


class Uncounted(Unavailable):
    """Redis lost its memory of an import, or never had one: its counters come first."""

    def __init__(self, import_name: str) -> None:
        super().__init__("Redis", f"has no counters of {import_name}")


class LeaseLost(ImporterError):
    """The shard belongs to another worker now."""


class Cancelled(ImporterError):
    """The work was cut short on purpose."""


class UpstreamError(ImporterError):
    """The upstream did not give a usable answer. `code` is short and stable, `status` the HTTP status if there was one."""

    def __init__(self, code: str, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


class Transient(UpstreamError):
    """Likely to work when tried again. `wait_s` is None when the upstream did not say when."""

    def __init__(self, code: str, message: str, status: int | None = None, wait_s: float | None = None) -> None:
        super().__init__(code, message, status)
        self.wait_s = wait_s


class Weather(UpstreamError):
    """The upstream asks everybody to wait. `wait_s` is None when it did not say how long."""

    def __init__(self, code: str, message: str, status: int | None = None, wait_s: float | None = None) -> None:
        super().__init__(code, message, status)
        self.wait_s = wait_s


class ShardRefused(UpstreamError):
    """This shard will never work, whoever tries."""


class ImportRefused(UpstreamError):
    """Nothing of this import will work until a person changes something."""
