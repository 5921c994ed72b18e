"""What every Catalogue promises: the one in memory and the one on MongoDB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pymongo.database import Database

from streams_importer.adapters.mongo_catalogue import MongoCatalogue
from streams_importer.adapters.mongo_setup import set_up
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import BadSetting, TooNew
from streams_importer.domain.model import STORED_VERSION
from streams_importer.ports import Catalogue, Pause
from tests.fakes.catalogue import FakeCatalogue

Overwrite = Callable[[str, dict[str, Any]], None]
PAUSE = Pause("key refused", "worker.1", "2026-02-21T10:00:00Z")


@pytest.fixture(params=["fake", "mongodb"])
def both(request: pytest.FixtureRequest) -> tuple[Catalogue, Overwrite]:
    """A catalogue, and a way for others to change parts of a stored definition."""
    if request.param == "fake":
        fake = FakeCatalogue()
        return fake, lambda name, parts: fake.stored[name].update(parts)
    db: Database[dict[str, Any]] = request.getfixturevalue("mongo_db")
    set_up(db, "pois")

    def overwrite(name: str, parts: dict[str, Any]) -> None:
        change = {f"definition.{key}": value for key, value in parts.items()}
        change |= {"v": parts["v"]} if "v" in parts else {}
        db["imports"].update_one({"name": name}, {"$set": change})

    return MongoCatalogue(db, "si"), overwrite


@pytest.fixture
def catalogue(both: tuple[Catalogue, Overwrite]) -> Catalogue:
    return both[0]


def test_a_saved_definition_comes_back_equal(catalogue: Catalogue) -> None:
    definition = Definition("a", collection="points", rate="600/m", page_size=500, lease_s=2.5, retry_delay_s=1)
    catalogue.save(definition, "run1")
    assert catalogue.get("a") == definition
    assert catalogue.get("b") is None


def test_saving_again_replaces_and_keeps_the_pause(catalogue: Catalogue) -> None:
    catalogue.save(Definition("a"), "run1")
    assert catalogue.pause("a", PAUSE)
    catalogue.save(Definition("a", page_size=7), "run2")
    saved = catalogue.get("a")
    assert saved is not None
    assert saved.page_size == 7
    assert catalogue.paused() == {"a": PAUSE}


def test_names_are_sorted(catalogue: Catalogue) -> None:
    assert catalogue.names() == []
    for name in ("b", "a", "c"):
        catalogue.save(Definition(name), "run1")
    assert catalogue.names() == ["a", "b", "c"]


def test_pause_and_resume(catalogue: Catalogue) -> None:
    assert catalogue.pause("a", PAUSE) is False
    catalogue.save(Definition("a"), "run1")
    catalogue.save(Definition("b"), "run1")
    assert catalogue.paused() == {}
    assert catalogue.pause("a", PAUSE) is True
    assert catalogue.pause("a", PAUSE) is True
    assert catalogue.paused() == {"a": PAUSE}
    assert catalogue.pause("a", None) is True
    assert catalogue.paused() == {}


def test_what_a_newer_version_stored_is_neither_read_nor_overwritten(both: tuple[Catalogue, Overwrite]) -> None:
    catalogue, overwrite = both
    catalogue.save(Definition("a"), "run1")
    overwrite("a", {"v": STORED_VERSION + 1, "page_size": 77})
    for attempt in (
        lambda: catalogue.save(Definition("a"), "run2"),
        lambda: catalogue.get("a"),
        lambda: catalogue.pause("a", PAUSE),
    ):
        with pytest.raises(TooNew, match="import a: "):
            attempt()
    assert catalogue.names() == ["a"]
    overwrite("a", {"v": STORED_VERSION})
    untouched = catalogue.get("a")
    assert untouched is not None
    assert untouched.page_size == 77


def test_a_definition_that_others_broke_is_refused_by_name(both: tuple[Catalogue, Overwrite]) -> None:
    catalogue, overwrite = both
    catalogue.save(Definition("a"), "run1")
    overwrite("a", {"collection": "imports"})
    with pytest.raises(BadSetting, match="collection imports"):
        catalogue.get("a")
    overwrite("a", {"collection": ["pois"]})
    with pytest.raises(BadSetting, match="bad collection"):
        catalogue.get("a")
