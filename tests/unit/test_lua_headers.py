"""Each script's header says what its body does: header and body are read, not run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

import streams_importer.adapters
from streams_importer.adapters.lua_scripts import lua_folder, read_part, script_names, script_source
from streams_importer.adapters.redis_keys import NEWER, RELEASED
from streams_importer.domain.model import Counts
from streams_importer.domain.shard_key import MAX_KEY_LENGTH

SCRIPTS = script_names()
PARTS = sorted(path.stem for path in lua_folder().glob("_*.lua"))
GROUP_SIZES = {
    "pairs": 2,
    "groups of three": 3,
    "groups of four": 4,
    "groups of five": 5,
    "groups of six": 6,
    "groups of seven": 7,
    "groups of eight": 8,
}

each_script = pytest.mark.parametrize("name", SCRIPTS)


def header_and_body(name: str) -> tuple[str, str]:
    match = re.fullmatch(r"--\[\[\n(.*?)\n\]\]\n(.*)", read_part(name), re.DOTALL)
    assert match, f"{name}.lua must open with a --[[ header ]]"
    return match[1], match[2]


def listed(header: str, table: str) -> tuple[list[int], int | None]:
    """The numbers that the header lists, and where an open end begins."""
    found = re.findall(rf"^  {table}\[(\d+)(…?)\] +\S", header, re.MULTILINE)
    open_ends = [int(number) for number, end in found if end]
    assert len(open_ends) <= 1
    return [int(number) for number, end in found if not end], open_ends[0] if open_ends else None


def used(body: str, table: str) -> tuple[set[int], int | None]:
    """The numbers that the body uses, and from where on it uses all there are. An index that moves with a loop, or an unpack
    without an end, is used from its first value on."""
    code = re.sub(r"--.*", "", body)
    first_values = dict(re.findall(r"for (\w+) = (\d+), ", code))
    fixed: set[int] = set()
    open_ends: set[int] = set()

    def first_value(index: str) -> tuple[int, bool]:
        """An index as it is in the first round of its loop, and whether it moves."""
        moves = False
        for variable, value in first_values.items():
            index, times = re.subn(rf"\b{variable}\b", value, index)
            moves = moves or times > 0
        assert re.fullmatch(r"[\d+*/() -]+", index), f"cannot tell what {table}[{index}] is"
        return int(eval(index)), moves

    for index in re.findall(rf"\b{table}\[([^\]]+)\]", code):
        number, moves = first_value(index)
        (open_ends if moves else fixed).add(number)
    for first, last in re.findall(rf"\bunpack\({table}, ([^,)]+)(?:, ([^)]+))?\)", code):
        number, moves = first_value(first)
        if moves or not last:
            open_ends.add(number)
        else:
            fixed |= set(range(number, int(last) + 1))
    return fixed, min(open_ends, default=None)


def includes(text: str) -> list[str]:
    return re.findall(r"^--@include (.+)$", text, re.MULTILINE)


def reached(name: str) -> set[str]:
    """The parts that a script includes, and those that they include."""
    parts: set[str] = set()
    waiting = includes(read_part(name))
    while waiting:
        part = waiting.pop()
        if part not in parts:
            parts.add(part)
            waiting += includes(read_part(part))
    return parts


def defined(text: str) -> set[str]:
    return set(re.findall(r"^local function (\w+)", text, re.MULTILINE)) | set(
        re.findall(r"^local ([A-Z_]+) =", text, re.MULTILINE)
    )


def test_there_are_scripts_and_parts() -> None:
    assert {"enqueue", "claim", "reclaim", "complete", "take_token"} <= set(SCRIPTS)
    assert {"_lease", "_place", "_now"} <= set(PARTS)
    assert {path.stem for path in lua_folder().iterdir()} == {*SCRIPTS, *PARTS}


@each_script
def test_a_header_opens_with_the_scripts_own_name_and_its_purpose(name: str) -> None:
    header, _ = header_and_body(name)
    assert re.match(rf"  {name}: \w.{{10,}}", header)


@each_script
def test_a_header_says_what_is_returned_and_says_it_last(name: str) -> None:
    header, body = header_and_body(name)
    assert len(re.findall(r"^  Returns  \S", header, re.MULTILINE)) == 1
    assert not re.search(r"(KEYS|ARGV)\[", header.partition("  Returns  ")[2])
    assert re.search(r"^return\b", body, re.MULTILINE)


@each_script
@pytest.mark.parametrize("table", ["KEYS", "ARGV"])
def test_a_header_lists_without_a_gap_exactly_what_the_body_uses(name: str, table: str) -> None:
    header, body = header_and_body(name)
    numbers, open_end = listed(header, table)
    assert numbers == list(range(1, len(numbers) + 1))
    assert open_end in (None, len(numbers) + 1)
    fixed, used_from = used(body, table)
    assert (set(numbers), open_end) == ({n for n in fixed if used_from is None or n < used_from}, used_from)


@each_script
def test_the_size_of_a_group_in_the_header_is_the_step_of_the_loop(name: str) -> None:
    header, body = header_and_body(name)
    for table, start, step in re.findall(r"for \w+ = (?=\d+, #(KEYS|ARGV), )(\d+), #\w+, (\d+)", body):
        line = re.search(rf"^  {table}\[{start}…\] +(.*)$", header, re.MULTILINE)
        assert line
        words = [size for words, size in GROUP_SIZES.items() if line[1].startswith(words)]
        assert words == [int(step)]


@pytest.mark.parametrize("name", [*SCRIPTS, *PARTS])
def test_what_is_included_exists(name: str) -> None:
    wanted = includes(read_part(name))
    assert set(wanted) <= set(PARTS)
    assert len(wanted) == len(set(wanted))
    assert "--@include" not in script_source(name)


@pytest.mark.parametrize("part", PARTS)
def test_a_part_is_included_by_somebody_and_says_what_it_is_for(part: str) -> None:
    assert any(part in reached(name) for name in SCRIPTS)
    assert read_part(part).startswith("-- ")


@pytest.mark.parametrize("name", [*SCRIPTS, *PARTS])
def test_what_a_script_uses_from_a_part_it_includes(name: str) -> None:
    code = re.sub(r"--.*|'[^']*'", "", read_part(name))
    there = defined(read_part(name)).union(*(defined(read_part(part)) for part in reached(name)))
    elsewhere = set().union(*(defined(read_part(part)) for part in PARTS))
    assert {word for word in re.findall(r"\b\w+\b", code) if word in elsewhere} <= there


@each_script
def test_a_script_needs_every_part_it_names(name: str) -> None:
    _, body = header_and_body(name)
    code = re.sub(r"--.*|'[^']*'", "", body)
    for part in includes(body):
        names = set().union(*(defined(read_part(one)) for one in {part, *reached(part)}))
        assert names & set(re.findall(r"\b\w+\b", code)), f"{part} is included for nothing"


def called() -> Iterator[str]:
    """Names of scripts as adapters call them: the first argument of a runner."""
    for path in Path(streams_importer.adapters.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                first = node.args[0]
                if node.func.attr in ("run", "_run", "_flags", "_settle") and isinstance(first, ast.Constant):
                    yield str(first.value)


def test_every_script_is_called_by_an_adapter_and_every_called_script_exists() -> None:
    assert set(called()) == set(SCRIPTS)


def test_scripts_count_the_same_things_in_the_same_order_as_the_domain() -> None:
    names = re.search(r"local COUNT_NAMES = \{(.*?)\}", read_part("_progress"), re.DOTALL)
    assert names
    assert re.findall(r"'(\w+)'", names[1]) == [field.name for field in fields(Counts)]
    zeroes = re.search(r"counts = \{([0, ]+)\}", read_part("_progress"))
    assert zeroes
    assert zeroes[1].split(", ") == ["0"] * len(fields(Counts))


def test_scripts_and_adapters_agree_on_the_consumers_under_which_shards_wait() -> None:
    assert re.findall(r"local NEWER = '(\w+)'", read_part("_claimed")) == [NEWER]
    assert all(f"'{RELEASED}'" in read_part(name) for name in ("claim", "release"))


def test_scripts_and_domain_agree_on_the_longest_shard_key() -> None:
    assert re.findall(r"local MAX_SHARD_KEY = (\d+)", read_part("_place")) == [str(MAX_KEY_LENGTH)]
