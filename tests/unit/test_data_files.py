"""A definition can name a file below the data folder, and nothing else."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from streams_importer.adapters.data_files import DataFolder
from streams_importer.domain.errors import BadSetting

from .command_line import UNREACHABLE, CommandLine, FakeWiring


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder with files, beside a file that is nobody's business."""
    data = tmp_path / "data"
    (data / "deep" / "er").mkdir(parents=True)
    (data / "retailers.csv").write_text("uid\n")
    (data / "deep" / "er" / "more.csv").write_text("uid\n")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "data-two").mkdir()
    (tmp_path / "data-two" / "near.csv").write_text("near")
    return data


@pytest.mark.parametrize(
    "name", ["retailers.csv", "deep/er/more.csv", "./retailers.csv", "deep/../retailers.csv", "deep//er/more.csv"]
)
def test_a_file_below_the_folder_is_found(folder: Path, name: str) -> None:
    path = DataFolder(folder).path(name)
    assert path.read_text() == "uid\n"
    assert path.is_absolute()


def test_a_link_within_the_folder_is_followed(folder: Path) -> None:
    (folder / "link.csv").symlink_to("deep/er/more.csv")
    assert DataFolder(folder).path("link.csv") == (folder / "deep" / "er" / "more.csv").resolve()


def test_the_folder_itself_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "data-link").symlink_to(folder)
    assert DataFolder(tmp_path / "data-link").path("retailers.csv") == (folder / "retailers.csv").resolve()


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "../secret.txt", "deep/../../secret.txt", "../data-two/near.csv", "/etc/passwd", "//etc/passwd"),
        *("deep", "deep/er/", "missing.csv", "retailers.csv/x", "retailers.csv\0", "\0", "~/retailers.csv", "x" * 5000),
        *("file:///etc/passwd", "\ud800.csv", "/proc/self/environ", "../../../../../../proc/self/environ"),
    ],
)
def test_everything_else_is_refused_in_one_line(folder: Path, name: str) -> None:
    with pytest.raises(BadSetting) as raised:
        DataFolder(folder).path(name)
    assert "--data-dir" in str(raised.value)
    assert str(raised.value).isprintable()


def test_a_link_that_leads_out_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "out.csv").symlink_to(tmp_path / "secret.txt")
    (folder / "outer").symlink_to(tmp_path)
    (folder / "round").symlink_to("round")
    for name in ("out.csv", "outer/secret.txt", "round"):
        with pytest.raises(BadSetting):
            DataFolder(folder).path(name)


def test_what_only_looks_like_a_file_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(folder / "pipe.csv")
    (folder / "device.csv").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(folder)  # a short path for the socket
        listener.bind("socket.csv")
        for name in ("pipe.csv", "device.csv", "socket.csv"):
            with pytest.raises(BadSetting):
                DataFolder(folder).path(name)


def test_a_hostile_name_is_told_as_text(folder: Path) -> None:
    with pytest.raises(BadSetting) as raised:
        DataFolder(folder).path("[/]\x1b[2J\nfake")
    assert str(raised.value).isprintable()


@pytest.mark.parametrize("name", ["missing", "retailers.csv", "bad\0name", "x" * 5000])
def test_a_data_folder_that_is_none_is_refused_in_one_line(folder: Path, name: str) -> None:
    with pytest.raises(BadSetting) as raised:
        DataFolder(str(folder / name))
    assert str(raised.value).startswith("--data-dir ")
    assert str(raised.value).isprintable()


def test_the_data_folder_comes_from_the_flag_then_the_environment_then_the_file_then_the_working_folder(
    command: CommandLine, wiring: FakeWiring
) -> None:
    for name in ("flag", "variable", "file"):
        (command.folder / name).mkdir()

    def found(*arguments: str, **variables: str) -> str:
        ended = command("produce", "--id-range", "0..10", *arguments, **UNREACHABLE, OCM_API_KEY="test-key", **variables)
        assert ended.code == 0, ended.err
        return wiring.data_dir

    assert found() == "."
    command.write_file('data_dir = "file"')
    assert found() == "file"
    assert found(STREAMS_IMPORTER_DATA_DIR="variable") == "variable"
    assert found("--data-dir", "flag", STREAMS_IMPORTER_DATA_DIR="variable") == "flag"


@pytest.mark.parametrize("name", ["produce", "consume"])
def test_a_data_folder_that_is_none_is_told_before_any_server_is_asked(command: CommandLine, name: str) -> None:
    ended = command(name, "--data-dir", "missing", **UNREACHABLE, OCM_API_KEY="test-key")
    assert ended.code == 2
    assert ended.message == "--data-dir missing: must be a folder that can be read"
