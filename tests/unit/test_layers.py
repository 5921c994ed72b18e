"""Imports point left only: domain ◄ ports ◄ application ◄ adapters, sources, console ◄ wiring ◄ cli. Read, not run."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import streams_importer

ROOT = Path(streams_importer.__path__[0])
PACKAGE = "streams_importer"

# What each layer may import of ours, besides itself. The version in the package's __init__ is everybody's.
MAY_IMPORT: dict[str, set[str]] = {
    "__init__": set(),
    "domain": set(),
    "ports": {"domain"},
    "application": {"domain", "ports"},
    "adapters": {"domain", "ports", "application"},
    "sources": {"domain", "ports", "application"},
    "console": {"domain", "ports", "application"},
    "embedded": {"domain"},
    "settings": {"domain"},
    "wiring": {"domain", "ports", "application", "adapters", "sources", "console", "settings"},
    "apart_process": {"domain", "ports", "application", "adapters", "settings", "wiring"},
    "worker": {"domain", "ports", "application", "adapters", "wiring", "apart_process"},
    "cli": {"domain", "ports", "application", "adapters", "sources", "console", "embedded", "settings", "wiring", "worker"},
    "__main__": {"cli"},
}

# Layers that are held to the standard library and ours.
PURE = {"__init__", "domain", "ports", "application", "settings"}

# What the servers' private clients may be, and only inside the function that needs one: a first run must not load them.
EMBEDDED_LAZILY = {"redis", "pymongo"}


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module, by its full name."""

    path: Path
    line: int
    module: str
    lazily: bool

    @property
    def layer(self) -> str:
        return layer_of(self.path)

    @property
    def target(self) -> str | None:
        """The layer it points to; None for what is not ours."""
        parts = self.module.split(".")
        return None if parts[0] != PACKAGE else parts[1] if len(parts) > 1 else "__init__"

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line} imports {self.module}"


def layer_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def imports_of(path: Path) -> Iterator[Import]:
    package = (PACKAGE, *path.relative_to(ROOT).parent.parts)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name, id(node) in inside)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            for alias in node.names:
                # `from .. import name` may name a module of ours.
                named = ROOT.joinpath(*module.split(".")[1:], alias.name) if module.startswith(PACKAGE) else None
                is_module = named is not None and (named.is_dir() or named.with_suffix(".py").is_file())
                yield Import(path, node.lineno, f"{module}.{alias.name}" if is_module else module, id(node) in inside)


FILES = sorted(ROOT.rglob("*.py"))
IMPORTS = [found for path in FILES for found in imports_of(path)]


def test_every_module_belongs_to_a_layer() -> None:
    assert {layer_of(path) for path in FILES} == set(MAY_IMPORT)


def test_the_rules_themselves_point_left_only() -> None:
    order = list(MAY_IMPORT)
    assert all(order.index(target) < order.index(layer) for layer, targets in MAY_IMPORT.items() for target in targets)
    assert not {"adapters", "sources", "console"} & set().union(*(MAY_IMPORT[one] for one in ("adapters", "sources", "console")))


@pytest.mark.parametrize("layer", MAY_IMPORT)
def test_a_layer_imports_only_what_lies_left_of_it(layer: str) -> None:
    allowed = {layer, "__init__", *MAY_IMPORT[layer]}
    wrong = [str(found) for found in IMPORTS if found.layer == layer and found.target is not None and found.target not in allowed]
    assert wrong == []


@pytest.mark.parametrize("layer", sorted(PURE))
def test_a_pure_layer_imports_nobody_elses_package(layer: str) -> None:
    wrong = [str(found) for found in IMPORTS if found.layer == layer and is_foreign(found)]
    assert wrong == []


def test_embedded_loads_clients_of_its_servers_only_when_it_needs_them() -> None:
    foreign = [found for found in IMPORTS if found.layer == "embedded" and is_foreign(found)]
    wrong = [str(found) for found in foreign if not found.lazily or found.module.split(".")[0] not in EMBEDDED_LAZILY]
    assert wrong == []


def is_foreign(found: Import) -> bool:
    return found.target is None and found.module.split(".")[0] not in sys.stdlib_module_names
