"""What the README says is there is there."""

from __future__ import annotations

import re
from pathlib import Path

from streams_importer.adapters import redis_keys
from streams_importer.cli.main import cli

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_test_named_in_the_readme_exists() -> None:
    tests = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    promises = README.partition("## What is promised")[2].partition("## Reference")[0]
    named = re.findall(r"`([a-z]+_\w{20,})`", promises)
    assert len(named) >= 20
    assert [name for name in named if f"def {name}(" not in tests] == []


def test_every_key_of_the_program_is_in_the_readme() -> None:
    keys = re.findall(r"^`(\{si\}:[^`]+)`", redis_keys.__doc__ or "", re.MULTILINE)
    assert len(keys) == 12
    assert [key for key in keys if f"`{key.replace('<i>', '<import>')}`" not in README] == []


def test_every_command_is_in_the_readme() -> None:
    assert [name for name in cli.commands if not re.search(rf"`{name}\b", README)] == []


def test_every_file_the_readme_points_to_exists() -> None:
    named = re.findall(r"\]\(((?!http|#)[^)]+)\)", README) + re.findall(r"`(\./scripts/\w+)", README)
    assert named
    assert [name for name in named if not (ROOT / name).exists()] == []
    for module in re.findall(r"`((?:domain|application|sources|adapters)/\w+)`", README):
        assert (ROOT / "streams_importer" / f"{module}.py").exists(), module
    for script in re.findall(r"`(lua/\w+)`", README):
        assert (ROOT / f"{script}.lua").exists(), script
