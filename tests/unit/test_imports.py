"""Which imports are served: the copy that is read, and the original that survives a flush."""

from __future__ import annotations

import pytest

from streams_importer.application.imports import Imports
from streams_importer.domain.definition import Definition
from streams_importer.domain.errors import BadSetting, TooNew, Unavailable
from streams_importer.domain.model import STORED_VERSION
from streams_importer.ports import Pause
from tests.fakes.catalogue import FakeCatalogue
from tests.fakes.recorded import Events

A, B = Definition("a", rate="5/s"), Definition("b")
PAUSE = Pause("key refused", "w:1", "2026-02-21T10:00:00Z")


class Scene:
    """Two imports in both places."""

    def __init__(self) -> None:
        self.original, self.copy, self.events = FakeCatalogue(), FakeCatalogue(), Events()
        self.imports = Imports(self.original, self.copy, self.events)
        self.imports.save(A, "run1")
        self.imports.save(B, "run2")

    def flush(self) -> None:
        """Redis loses its memory."""
        self.copy.stored.clear()
        self.copy.pauses.clear()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_definition_is_saved_in_both_places(scene: Scene) -> None:
    assert scene.original.get("a") == scene.copy.get("a") == A
    assert scene.original.runs["a"] == "run1"


def test_a_definition_that_the_original_refuses_does_not_reach_the_copy(scene: Scene) -> None:
    scene.original.stored["a"]["v"] = STORED_VERSION + 1
    with pytest.raises(TooNew):
        scene.imports.save(A.changed(rate="9/s"), "run3")
    assert scene.copy.get("a") == A


def test_the_copy_is_read_and_not_the_original(scene: Scene) -> None:
    scene.original.away = True
    assert scene.imports.find("a") == A
    assert scene.imports.names() == ["a", "b"]
    assert scene.imports.served([]) == {"a": A, "b": B}


def test_a_copy_that_is_gone_is_made_again_from_the_original(scene: Scene) -> None:
    scene.flush()
    assert scene.imports.find("a") == A
    assert scene.copy.get("a") == A
    assert scene.original.runs["a"] == "run1"


def test_after_a_flush_all_imports_are_served_again(scene: Scene) -> None:
    scene.flush()
    assert scene.imports.served([]) == {"a": A, "b": B}
    assert scene.copy.names() == ["a", "b"]


def test_after_a_flush_one_import_made_again_does_not_hide_the_others(scene: Scene) -> None:
    scene.flush()
    scene.imports.save(A, "run3")  # somebody produces one of them before any worker looks
    assert set(scene.imports.served([])) == {"a", "b"}


def test_what_is_defined_nowhere_is_not_found(scene: Scene) -> None:
    assert scene.imports.find("ghost") is None
    assert scene.imports.served(["ghost", "a"]) == {"a": A}
    assert scene.events.told == []


def test_only_the_wanted_imports_are_served(scene: Scene) -> None:
    assert scene.imports.served(["b"]) == {"b": B}


def test_a_definition_of_a_newer_version_is_left_alone_and_told_of_once(scene: Scene) -> None:
    scene.copy.stored["a"]["v"] = STORED_VERSION + 1
    for _ in range(3):
        assert scene.imports.served([]) == {"b": B}
    assert scene.events.names == ["import left alone"]
    assert scene.events.details("import left alone")[0]["import_name"] == "a"
    assert "newer version" in scene.events.details("import left alone")[0]["reason"]


def test_a_broken_definition_is_left_alone_and_told_of_once(scene: Scene) -> None:
    scene.copy.stored["a"]["rate"] = scene.original.stored["a"]["rate"] = {"$gt": ""}
    for _ in range(3):
        assert scene.imports.served([]) == {"b": B}
    assert scene.events.names == ["import left alone"]
    assert set(scene.imports.left_alone) == {"a"}


def test_a_copy_that_somebody_broke_is_made_again_from_the_original(scene: Scene) -> None:
    scene.copy.stored["a"]["rate"] = {"$gt": ""}
    assert scene.imports.served([]) == {"a": A, "b": B}
    assert scene.copy.get("a") == A
    assert scene.events.told == []


def test_a_pause_is_written_to_both_places_and_taken_back_from_both(scene: Scene) -> None:
    scene.imports.pause("a", PAUSE)
    assert scene.original.paused() == scene.copy.paused() == scene.imports.paused() == {"a": PAUSE}
    scene.imports.pause("a", None)
    assert scene.original.paused() == scene.copy.paused() == {}


def test_pausing_what_does_not_exist_names_what_does(scene: Scene) -> None:
    with pytest.raises(BadSetting) as refused:
        scene.imports.pause("ghost", PAUSE)
    assert str(refused.value) == "there is no import 'ghost' (known: a, b)"
    assert scene.copy.paused() == {}


def test_pausing_before_anything_was_produced_says_so() -> None:
    with pytest.raises(BadSetting, match="none yet; produce makes one"):
        Imports(FakeCatalogue(), FakeCatalogue(), Events()).pause("a", None)


def test_after_a_flush_what_is_paused_stays_paused(scene: Scene) -> None:
    scene.imports.pause("a", PAUSE)
    scene.flush()
    scene.imports.served([])
    scene.imports.restore_pauses()
    assert scene.imports.paused() == {"a": PAUSE}


def test_restoring_pauses_changes_none_that_is_there(scene: Scene) -> None:
    scene.imports.pause("a", PAUSE)
    newer = Pause("by hand", "me", "later")
    scene.copy.pauses["a"] = newer
    scene.imports.restore_pauses()
    assert scene.imports.paused() == {"a": newer}


def test_an_outage_is_not_taken_for_a_missing_import(scene: Scene) -> None:
    scene.copy.away = True
    with pytest.raises(Unavailable):
        scene.imports.served([])
    assert scene.events.told == []
