"""One way to reach MongoDB, and one place that says what its errors mean to us.

1. `connect` builds a client whose outages show within seconds and whose writes are on a majority before they count.
2. `mongo_errors` turns what pymongo raises into our own tree: Unavailable is waited out, BadSetting is for a person.
3. No text that leaves this module holds a password, a control character or a second line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from pymongo import MongoClient, ReadPreference
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    CursorNotFound,
    InvalidName,
    OperationFailure,
    PyMongoError,
    WriteConcernError,
)
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import split_options

from ..domain.errors import BadSetting, ImporterError, Unavailable
from ..domain.text import plain

Document = dict[str, Any]

DEFAULT_DATABASE = "streams_importer"
SETTING = "--mongodb-uri"
MAX_REASON = 200
"""Characters. pymongo appends a description of the whole topology, which helps nobody in a log line."""

_DEFAULTS: Mapping[str, Any] = {
    # An outage is noticed by whoever writes next, not half a minute later.
    "serverSelectionTimeoutMS": 3000,
    "connectTimeoutMS": 3000,
    # Longer than any page takes; a connection that died without a word is given up after it.
    "socketTimeoutMS": 30_000,
    # A page counts as stored when no election can take it back. Without a bound, a set that lost its majority hangs us.
    "w": "majority",
    "wTimeoutMS": 10_000,
    "retryWrites": True,
    "appname": "streams-importer",
}

_PASSING_CODES = frozenset((11600, 11601, 11602, 13435, 13436, 14031)) | frozenset(
    # Not primary, recovering, shutting down; the network between members; limits of time and of load; conflicts.
    (6, 7, 24, 46, 50, 64, 89, 91, 112, 117, 133, 134, 189, 202, 262, 365, 462, 9001, 10058, 10107)
)
"""14031 is a full disk: an operator makes room, and the import goes on where it was."""

_WRONG_PASSWORD = "the user or the password is wrong"
_REFUSED_CODES = {13: "this user may not do that", 18: _WRONG_PASSWORD, 33: _WRONG_PASSWORD}
_ATLAS_ERROR = 8000
"""Atlas says everything under this code: a wrong password as well as a full quota."""

_PLAIN_HOSTS = re.compile(r"[\w.%-]+(:\d{1,5})?(,[\w.%-]+(:\d{1,5})?)*(/[\w.%-]*)?\Z", re.ASCII)
_USER_INFO = re.compile(r"(\w://)[^\s/]*@")


def connect(uri: str, **options: Any) -> Database[Document]:
    """The database that the URI names. Talks to nobody yet. `options` are pymongo's and win over the URI."""
    try:
        stated = {name.lower() for name in split_options(uri.partition("?")[2], warn=False)} if "?" in uri else set()
        chosen = {name: value for name, value in _DEFAULTS.items() if name.lower() not in stated} | options
        client: MongoClient[Document] = MongoClient(uri, tz_aware=True, connect=False, **chosen)
        if not client.write_concern.acknowledged:
            client.close()
            raise BadSetting(f"{SETTING} {masked(uri)}: w=0 cannot be used, every write must be confirmed")
        return client.get_default_database(DEFAULT_DATABASE)
    except (ConfigurationError, InvalidName, ValueError, TypeError) as error:
        raise BadSetting(f"{SETTING} {masked(uri)}: {_what_to_change(uri, error)}") from None


def primary(database: Database[Document], name: str) -> Collection[Document]:
    """A collection read at the primary, whatever the URI prefers: we decide on what we read."""
    return database.get_collection(name, read_preference=ReadPreference.PRIMARY, read_concern=ReadConcern("majority"))


def masked(uri: str) -> str:
    """The URI fit to print: no user, no password, no options; nothing at all of what cannot be told apart from a password."""
    scheme, mark, rest = uri.partition("://")
    hosts = rest.rpartition("@")[2].partition("?")[0]
    if not mark or not _PLAIN_HOSTS.match(hosts) or not scheme.replace("+", "").isalnum():
        return "(not shown)"
    return plain(f"{scheme}://{'***@' if '@' in rest else ''}{unquote(hosts)}", MAX_REASON)


@contextmanager
def mongo_errors() -> Iterator[None]:
    """Around every call to MongoDB. What it does not know passes through: that would be a mistake of ours."""
    try:
        yield
    except PyMongoError as error:
        meaning = translated(error)
        if meaning is None:
            raise
        raise meaning from None


def translated(error: PyMongoError) -> ImporterError | None:
    """What an error means to us, or None when it is neither an outage nor a setting."""
    reason = _one_line(error)
    if isinstance(error, ConnectionFailure | WriteConcernError | CursorNotFound):
        return Unavailable("MongoDB", reason)
    # While a server comes back pymongo may know of none yet, and takes that for a deployment without sessions.
    if isinstance(error, ConfigurationError) and "Sessions are not supported" in reason:
        return Unavailable("MongoDB", reason)
    if isinstance(error, ConfigurationError):
        return BadSetting(f"{SETTING}: {reason}")
    if not isinstance(error, OperationFailure):
        return None
    labels = ("RetryableWriteError", "TransientTransactionError", "RetryableError", "SystemOverloadedError")
    if any(error.has_error_label(label) for label in labels):
        return Unavailable("MongoDB", reason)
    if isinstance(error, BulkWriteError):
        return _translated_bulk(error)
    return of_code(error.code, reason)


def of_code(code: int | None, text: str) -> ImporterError | None:
    """The same for an error code alone, as in a list of write errors."""
    reason = _clean(text)
    if code in _PASSING_CODES or (code == _ATLAS_ERROR and "auth" not in text.lower()):
        return Unavailable("MongoDB", reason)
    if code in _REFUSED_CODES or code == _ATLAS_ERROR:
        return BadSetting(f"{SETTING}: {_REFUSED_CODES.get(code or 0, 'MongoDB refused it')} ({reason})")
    return None


def _translated_bulk(error: BulkWriteError) -> ImporterError | None:
    details = error.details
    for concern in details.get("writeConcernErrors", []):
        return Unavailable("MongoDB", _clean(str(concern.get("errmsg", "not on a majority"))))
    meanings = (of_code(each.get("code"), str(each.get("errmsg", ""))) for each in details.get("writeErrors", []))
    return next((meaning for meaning in meanings if meaning is not None), None)


def _one_line(error: PyMongoError) -> str:
    text = str(error)
    for appendix in (", full error: ", ", Timeout: ", " (configured timeouts: ", ", Topology Description: "):
        text = text.partition(appendix)[0]
    return _clean(text) or type(error).__name__


def _clean(text: str) -> str:
    return plain(_USER_INFO.sub(r"\1***@", text[: 10 * MAX_REASON]), MAX_REASON)


def _what_to_change(uri: str, error: Exception) -> str:
    """Our own words: pymongo's quote parts of the URI, and what it takes for a port may be a password."""
    text = str(error)
    if not uri.startswith(("mongodb://", "mongodb+srv://")):
        return "must begin with mongodb:// or mongodb+srv://"
    if "escaped" in text:
        return "a user or password with one of : / ? # [ ] @ % must be percent-encoded"
    if uri.startswith("mongodb+srv://") and "DNS" in text:
        return "its host name has no SRV records in DNS"
    options = (option.partition("=")[0] for option in uri.partition("?")[2].replace(";", "&").split("&"))
    bad = next((option for option in options if option and option.lower() in text.lower()), None)
    if bad is not None:
        return plain(f"its option {bad} is unknown or has a bad value", MAX_REASON)
    return "must look like mongodb://user:password@host:27017/database"
