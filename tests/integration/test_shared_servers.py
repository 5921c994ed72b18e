"""The pair that the commands of a folder share: one pair however they come, quiet recovery, and nothing left behind."""

from __future__ import annotations

import errno
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from streams_importer.domain.errors import BadSetting, ImporterError, TooNew
from streams_importer.embedded import pair_folder
from streams_importer.embedded.binaries import MONGOD, REDIS_SERVER, find_binary
from streams_importer.embedded.locks import SERVERS_LOCK, START_LOCK, Lock
from streams_importer.embedded.pair_file import STOPPED
from streams_importer.embedded.pair_folder import NAME, SHOWN, PairFolder
from streams_importer.embedded.services import services_status, stop_services
from streams_importer.embedded.shared import NotRunning, SharedServers
from tests.e2e.fleet import wait_until

PATIENCE_S = 30.0
LONG_S = 600.0

MEMBER = """
import json, sys
from streams_importer.embedded.shared import SharedServers
with SharedServers(creates=True, idle_s=float(sys.argv[1])) as pair:
    pair.watch(lambda text: print(json.dumps({"said": text}), flush=True))
    print(json.dumps({"started": pair.started, "sockets": pair.pair.sockets, "pids": pair.pair.pids}), flush=True)
    sys.stdin.read()
"""


class Member:
    """Another command that uses the pair, until its input ends."""

    def __init__(self, idle_s: float = LONG_S) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", MEMBER, str(idle_s)], text=True, **pipes)  # type: ignore[call-overload]

    def hear(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read()
        heard: dict[str, Any] = json.loads(line)
        return heard

    def end(self) -> None:
        self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode in (0, -signal.SIGKILL)


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working folder. Whatever a test leaves running is killed."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    yield folder
    monkeypatch.chdir(folder)
    clean_up()


@pytest.fixture
def member() -> Iterator[Callable[..., Member]]:
    members: list[Member] = []

    def make(idle_s: float = LONG_S) -> Member:
        members.append(Member(idle_s))
        return members[-1]

    yield make
    for one in members:
        one.end()


def kill_keeper() -> None:
    """Both servers go with it. Returns when they are gone."""
    with suppress(ImporterError):
        found = services_status()
        if found.keeper_pid is not None:
            os.kill(found.keeper_pid, signal.SIGKILL)
            wait_until(nobody_runs, "the end of a killed pair")


def clean_up() -> None:
    kill_keeper()
    with suppress(ImporterError):
        pair = services_status().pair
        if pair is not None:
            shutil.rmtree(pair.sockets, ignore_errors=True)


def nobody_runs() -> bool:
    """No keeper and no server has this folder's data open."""
    lock = Lock(f"{NAME}/{SERVERS_LOCK}")
    try:
        return not lock.is_held()
    finally:
        lock.close()


def start(idle_s: float = LONG_S) -> SharedServers:
    return SharedServers(creates=True, idle_s=idle_s)


def handles(pair: SharedServers) -> list[int]:
    keeper = services_status().keeper_pid
    assert keeper is not None
    return [os.pidfd_open(pid) for pid in (keeper, *pair.pair.pids.values())]


def wait_gone(processes: list[int]) -> None:
    """A handle of a process becomes readable when the process ends."""
    for process in processes:
        assert select.select([process], [], [], PATIENCE_S)[0], "still running"
        os.close(process)


def redis_of(pair: SharedServers) -> Redis:
    return Redis.from_url(pair.redis_url, decode_responses=True, retry=Retry(NoBackoff(), 0))


def remember(pair: SharedServers) -> None:
    """In both, as the commands write."""
    with redis_of(pair) as redis, MongoClient[dict[str, Any]](pair.mongodb_uri, w="majority") as mongo:
        redis.set("kept", "yes")
        mongo.get_default_database()["kept"].insert_one({"_id": mongo.get_default_database()["kept"].count_documents({})})


def remembered(pair: SharedServers) -> int:
    with redis_of(pair) as redis, MongoClient[dict[str, Any]](pair.mongodb_uri) as mongo:
        assert redis.get("kept") == "yes"
        return mongo.get_default_database()["kept"].count_documents({})


def answers(url: str) -> bool:
    with Redis.from_url(url, retry=Retry(NoBackoff(), 0)) as redis, suppress(RedisError):
        return bool(redis.ping())
    return False


# One pair.


def test_those_that_start_at_the_same_instant_share_one_pair(member: Callable[..., Member]) -> None:
    told = [one.hear() for one in [member() for _ in range(4)]]
    assert sorted(one["started"] for one in told) == [False, False, False, True]
    assert len({json.dumps([one["sockets"], one["pids"]]) for one in told}) == 1


def test_a_command_that_looks_waits_for_a_start_under_way(member: Callable[..., Member], work: Path) -> None:
    starting = member()
    wait_until((work / NAME / START_LOCK).exists, "the start to begin")
    lock = Lock(f"{NAME}/{START_LOCK}")
    wait_until(lock.is_held, "the start to begin")
    with SharedServers(creates=False, idle_s=LONG_S) as joined:
        assert not joined.started
        assert joined.pair.pids == starting.hear()["pids"]
    lock.close()


def test_a_command_that_looks_creates_nothing(work: Path) -> None:
    with pytest.raises(NotRunning, match="no embedded Redis and MongoDB run in this folder: produce, consume or setup"):
        SharedServers(creates=False, idle_s=LONG_S)
    assert services_status().state == stop_services().state == STOPPED
    assert list(work.iterdir()) == []


def test_the_servers_hold_no_lock_but_the_one_that_says_that_they_run(work: Path) -> None:
    with start() as pair:
        for pid in pair.pair.pids.values():
            opened = open_files(pid)
            assert {path.name for path in (work / NAME).glob("*.lock") if path in opened} == {SERVERS_LOCK}


def open_files(pid: int) -> set[Path]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # connections come and go
            found.add(entry.readlink())
    return found


def test_nothing_of_the_commands_environment_that_is_secret_stays_with_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCM_API_KEY", "hunter2")
    with start() as pair:
        for pid in (services_status().keeper_pid, *pair.pair.pids.values()):
            assert b"hunter2" not in Path(f"/proc/{pid}/environ").read_bytes()


# It ends.


def test_a_pair_that_nobody_uses_stops_by_itself_and_keeps_its_data(work: Path) -> None:
    with start(idle_s=0.1) as pair:
        remember(pair)
        running, sockets = handles(pair), Path(pair.pair.sockets)
    wait_gone(running)
    assert not sockets.exists()
    assert (work / NAME).stat().st_mode & 0o777 == 0o700
    with start() as again:
        assert again.started
        assert remembered(again) == 1


def test_one_that_comes_while_it_stops_waits_and_starts_it_anew(member: Callable[..., Member]) -> None:
    pair = start(idle_s=0.0)
    running = handles(pair)
    pair.leave()
    with PairFolder() as folder:
        wait_until(folder.users.is_held, "the decision to stop")
    assert member().hear()["started"]
    wait_gone(running)


def test_services_stop_leaves_nothing_running_and_says_whether_it_was_in_use(member: Callable[..., Member]) -> None:
    working = member()
    address = working.hear()
    with start() as pair:
        running = handles(pair)
        remember(pair)
    before = stop_services()
    assert (before.state, before.in_use) == ("running", True)
    wait_gone(running)
    assert not Path(pair.pair.sockets).exists()
    assert working.hear()["said"] == "the embedded servers were stopped: streams-importer services stop"
    with start() as again:  # who waits finds it where it was
        assert again.pair.sockets == address["sockets"]
        assert remembered(again) == 1


@pytest.mark.slow
def test_a_folder_that_was_removed_takes_its_pair_along(work: Path) -> None:
    with start(idle_s=1.0) as pair:
        running = handles(pair)
        (work / NAME).rename(work / "gone")
        for path in (work / "gone").glob("*.lock"):
            path.unlink()
        wait_gone(running)


# It was killed.


def test_after_everything_was_killed_the_next_command_finds_the_data_at_the_same_address(member: Callable[..., Member]) -> None:
    killed = member()
    killed.hear()
    with start() as pair:
        remember(pair)
        running = handles(pair)
    killed.process.kill()
    killed.process.wait()
    kill_keeper()
    wait_gone(running)
    assert services_status().state == STOPPED
    with pytest.raises(NotRunning):
        SharedServers(creates=False, idle_s=LONG_S)
    with start() as again:
        assert again.started
        assert again.redis_url == pair.redis_url
        assert remembered(again) == 1


def test_a_working_command_starts_a_killed_pair_again_by_itself(member: Callable[..., Member]) -> None:
    for _ in range(2):
        member().hear()
    with start() as pair:
        remember(pair)
        running = handles(pair)
        os.kill(services_status().keeper_pid or 0, signal.SIGKILL)
        wait_gone(running)
        wait_until(lambda: services_status().state == "running", "a new pair")
        assert answers(pair.redis_url)
        assert remembered(pair) == 1


@pytest.mark.parametrize("name", ["redis", "mongod"])
def test_a_server_that_was_killed_is_back_with_its_data(name: str) -> None:
    with start() as pair:
        remember(pair)
        os.kill(pair.pair.pids[name], signal.SIGKILL)
        with PairFolder() as folder:
            wait_until(lambda: getattr(folder.running(), "pids", {}).get(name) != pair.pair.pids[name], "a new server")
        with SharedServers(creates=False, idle_s=LONG_S) as joined:  # ready, not only running
            remember(joined)
            assert remembered(joined) == 2


def test_a_server_that_dies_again_and_again_is_given_up_and_the_next_command_is_told_why(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REDIS_SERVER.variable, str(wrapped(work, "[ ! -e fail ] || { echo out of luck; exit 3; }")))
    with start(idle_s=0.2) as pair:
        running = handles(pair)
        (work / NAME / "fail").touch()
        os.kill(pair.pair.pids["redis"], signal.SIGKILL)
        wait_gone(running)
    with pytest.raises(NotRunning, match=r"\(redis ended 5 times in 60 s: .*out of luck\)"):
        SharedServers(creates=False, idle_s=LONG_S)


# It does not start.


def wrapped(folder: Path, before: str, binary: Any = REDIS_SERVER) -> Path:
    """A program that does something before it becomes the real one."""
    real, script = find_binary(binary), folder / f"my-{binary.name}"
    script.write_text(f'#!/bin/sh\n{before}\nexec "{real}" "$@"\n')
    script.chmod(0o755)
    return script


def test_a_start_that_fails_says_why_and_leaves_nothing_running(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MONGOD.variable, str(wrapped(work, "echo out of luck; exit 3", MONGOD)))
    with pytest.raises(ImporterError, match="the embedded mongod ended while starting: out of luck"):
        start()
    assert nobody_runs()
    assert services_status().state == STOPPED


def test_a_starter_that_is_killed_takes_its_servers_along(
    work: Path, member: Callable[..., Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MONGOD.variable, str(wrapped(work, "touch ../begun; exec sleep 600", MONGOD)))
    starting = member()
    wait_until((work / "begun").exists, "the start of mongod")
    assert not nobody_runs()
    starting.process.kill()
    wait_until(nobody_runs, "the end of the servers")


def test_too_little_room_is_told_in_numbers_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(pair_folder.NEEDED_MB, "new", 10**9)
    with pytest.raises(ImporterError, match=rf"too little room .*: \d+ MB free in {SHOWN}, 1000000000 MB needed; make room"):
        start()
    assert nobody_runs()


@pytest.fixture
def mounted(work: Path) -> Iterator[Callable[[str], None]]:
    """Puts a small file system of its own where the pair's folder goes."""
    folder = work / NAME

    def mount(options: str) -> None:
        folder.mkdir(0o700)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=700,{options}", "none", str(folder)], capture_output=True)
        if done.returncode != 0:
            pytest.skip("file systems cannot be mounted here")

    yield mount
    if os.path.ismount(folder):
        clean_up()
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
def test_a_disk_that_is_full_when_the_servers_start_is_one_line(
    mounted: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted("size=400k")
    with pytest.raises(ImporterError, match=r"too little room .*: 0 MB free"):
        start()
    monkeypatch.setitem(pair_folder.NEEDED_MB, "new", 0)
    with pytest.raises(ImporterError, match="No space left on device") as caught:
        start()
    assert "\n" not in str(caught.value)
    assert nobody_runs()


def test_a_read_only_disk_is_one_line(mounted: Callable[[str], None]) -> None:
    mounted("ro")
    with pytest.raises(
        BadSetting, match=rf"{SHOWN} cannot be used \({os.strerror(errno.EROFS)}\): run it in a folder of your own"
    ):
        start()


@pytest.mark.skipif(os.geteuid() == 0, reason="to root every folder is writable")
def test_a_folder_that_cannot_be_written_to_is_one_line(work: Path) -> None:
    work.chmod(0o500)
    with pytest.raises(BadSetting, match=rf"{SHOWN} cannot be used \({os.strerror(errno.EACCES)}\)"):
        start()
    work.chmod(0o700)


# The folder is not as we left it.


def make_file(path: Path) -> None:
    path.write_text("in the way")


def make_link(path: Path) -> None:
    path.with_name("elsewhere").mkdir(0o700)
    path.symlink_to("elsewhere")


def make_open(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


@pytest.mark.parametrize(
    ("make", "problem"),
    [(make_file, "is a link or a file"), (make_link, "is a link or a file"), (make_open, "can be written to by others")],
)
def test_a_folder_that_others_may_have_put_there_is_refused(work: Path, make: Callable[[Path], None], problem: str) -> None:
    make(work / NAME)
    for creates in (True, False):
        with pytest.raises(BadSetting, match=f"^{SHOWN} {problem}.*REDIS_URL"):
            SharedServers(creates=creates, idle_s=LONG_S)


def test_a_path_may_be_long_and_hold_anything(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = work / ("blank , comma 'quote\" ünï" * 6)
    deep.mkdir()
    monkeypatch.chdir(deep)
    with start() as pair:
        remember(pair)
        assert remembered(pair) == 1
        assert (deep / NAME / "redis" / "appendonly.aof").exists() or (deep / NAME / "redis" / "appendonlydir").exists()
    clean_up()


def test_a_pair_whose_sockets_have_moved_keeps_its_data_and_can_be_written_to(work: Path) -> None:
    with start() as pair:
        remember(pair)
    clean_up()
    (work / NAME / "pair.json").write_text("{ cut off")
    with start() as again:
        assert again.mongodb_uri != pair.mongodb_uri
        remember(again)
        assert remembered(again) == 2


def test_a_copy_of_a_folder_does_not_take_the_sockets_of_the_pair_that_runs(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with start() as pair:
        copy = work / "copy" / NAME
        copy.mkdir(0o700, parents=True)
        (copy / "pair.json").write_bytes((work / NAME / "pair.json").read_bytes())
        monkeypatch.chdir(copy.parent)
        with start() as other:
            assert other.pair.sockets != pair.pair.sockets
        clean_up()
        assert answers(pair.redis_url)


def test_what_a_newer_version_wrote_is_left_to_it(work: Path) -> None:
    (work / NAME).mkdir(0o700)
    (work / NAME / "pair.json").write_text('{"v": 2}')
    with pytest.raises(TooNew, match="newer version"):
        start()
