"""The definition of an import: what `produce` stores so that a worker needs no file. It never holds a secret or a host."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from .errors import BadSetting, TooNew
from .model import STORED_VERSION
from .rates import Limit, parse_limit
from .shard_key import is_name

RESERVED_COLLECTIONS = ("import_windows", "imports", "import_rejects")
MAX_PAGE_SIZE = 10_000
"""What Open Charge Map's own exporter asks for; more than that is unkind to any upstream."""


@dataclass(frozen=True, slots=True)
class Definition:
    """What a worker must know of an import. Durations in seconds."""

    name: str
    source: str = "openchargemap"
    collection: str = "pois"
    rate: str = "1/s"
    page_size: int = 1000
    lease_s: float = 15.0
    max_attempts: int = 5
    max_crashes: int = 3
    retry_delay_s: float = 5.0
    v: int = STORED_VERSION

    @property
    def limit(self) -> Limit:
        return parse_limit(self.rate)

    def stored(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "name"}

    def changed(self, **changes: Any) -> Definition:
        """With every given change that is not None, checked."""
        return checked(replace(self, **{key: value for key, value in changes.items() if value is not None}))


def checked(definition: Definition) -> Definition:
    """The definition itself when every value is one that we would write; BadSetting names the first that is not."""
    _require(is_name(definition.name), "import name", definition.name, "a-z, then up to 62 of a-z 0-9 _ -")
    _require(definition.source == "openchargemap", "source", definition.source, "openchargemap")
    parse_limit(definition.rate)
    _require(
        is_collection_name(definition.collection) and definition.collection not in RESERVED_COLLECTIONS,
        "collection",
        definition.collection,
        "a plain name other than " + ", ".join(RESERVED_COLLECTIONS),
    )
    _require(1 <= definition.page_size <= MAX_PAGE_SIZE, "--page-size", definition.page_size, f"1 to {MAX_PAGE_SIZE}")
    _require(0.2 <= definition.lease_s <= 86400, "--lease", f"{definition.lease_s:g}s", "200ms to 1d")
    _require(1 <= definition.max_attempts <= 1000, "--max-attempts", definition.max_attempts, "1 to 1000")
    _require(1 <= definition.max_crashes <= 1000, "--max-crashes", definition.max_crashes, "1 to 1000")
    _require(0 <= definition.retry_delay_s <= 86400, "--retry-delay", f"{definition.retry_delay_s:g}s", "0s to 1d")
    return definition


def read_definition(name: str, stored: dict[str, Any]) -> Definition:
    """A stored definition, held to the same rules as one that a user types: others can write where it lies."""
    version = stored.get("v")
    if isinstance(version, int) and version > STORED_VERSION:
        raise TooNew(f"import {name}: a newer version of streams-importer defined it; update this one")
    known = {key: value for key, value in stored.items() if key in Definition.__slots__ and key != "name"}
    for key, value in known.items():
        wanted = type(getattr(_DEFAULTS, key))
        if wanted is float and type(value) is int and abs(value) < 2**53:
            known[key] = float(value)
        elif type(value) is not wanted:
            raise BadSetting(f"import {name}: its stored definition has a bad {key}; run produce again to store a good one")
    return checked(Definition(name=name, **known))


def is_collection_name(name: str) -> bool:
    """Stricter than MongoDB: letters, digits, `_`, `-`, `.`; nothing of `system.`."""
    plain = name.replace("_", "").replace("-", "").replace(".", "")
    if not all(name.split(".")):
        return False
    return plain.isascii() and plain.isalnum() and len(name) <= 100 and name[0].isalpha() and not name.startswith("system.")


def _require(holds: bool, setting: str, value: object, allowed: str) -> None:
    if not holds:
        raise BadSetting(f"{setting} {value}: must be {allowed}")


_DEFAULTS = Definition(name="defaults")
