"""`produce` as a script uses it: held back by the backlog, interrupted, waited for; and `status --check` beside it."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .fleet import COMMAND, Fleet, wait_until

MakeFleet = Callable[..., Fleet]


def test_a_produce_held_back_by_its_backlog_and_interrupted_is_finished_by_the_next(fleet: MakeFleet) -> None:
    one = fleet(points=1000)
    plan = ["produce", "--id-range", "0..2000", "--shard-size", "100", "--rate", "500/s"]
    held_back = one.start(*plan, "--max-backlog", "5")
    held_back.wait_for_line("waiting for workers: 5 shards are in flight (--max-backlog)")
    assert one.redis.xlen("{si}:openchargemap:shards") == one.db["import_windows"].count_documents({}) == 5
    held_back.signal(signal.SIGINT)
    assert held_back.wait() == 130
    worker = one.start("consume")
    finished = json.loads(one.run(*plan, "--max-backlog", "5", "--wait", "--json").splitlines()[-1])
    assert (finished["planned"], finished["problem"]) == (20, None)
    assert finished["queued"] + finished["in_flight"] + finished["done"] == 20
    assert one.shard_states() == {"done": 20}
    assert one.stored_ids() == [number for number in one.upstream.control.ids() if number <= 2000]
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_a_burst_worker_stays_while_a_produce_is_held_back(fleet: MakeFleet) -> None:
    one = fleet(points=1000)
    held_back = one.start("produce", "--id-range", "0..2000", "--shard-size", "100", "--rate", "500/s", "--max-backlog", "5")
    held_back.wait_for_line("waiting for workers")
    one.work(1)
    assert held_back.wait() == 0
    assert one.shard_states() == {"done": 20}
    assert one.redis.hget("{si}:openchargemap:counters", "producing") is None


@pytest.mark.slow
def test_a_held_back_produce_that_is_killed_keeps_nobody(fleet: MakeFleet) -> None:
    one = fleet(points=300)
    killed = one.start("produce", "--id-range", "0..300", "--shard-size", "10", "--rate", "500/s", "--max-backlog", "5")
    killed.wait_for_line("waiting for workers")
    killed.signal(signal.SIGKILL)
    killed.wait()
    one.work(1)
    assert one.shard_states() == {"done": 5}


def test_commands_work_with_their_output_closed(fleet: MakeFleet, tmp_path: Path) -> None:
    one = fleet(points=100)
    for redirection in (">&-", "2>&-", ">&- 2>&-"):
        shell = f'"$0" produce --id-range 0..100 {redirection}; echo "exit $?" >"$1"'
        said = tmp_path / "exit"
        subprocess.run(["sh", "-c", shell, COMMAND, str(said)], env=one.environment, check=True, timeout=60)
        assert said.read_text() == "exit 0\n", redirection


def test_waiting_for_a_run_with_a_dead_letter_is_1_and_so_is_the_check_until_it_is_allowed(fleet: MakeFleet) -> None:
    one = fleet(points=300)
    one.run("status", "--check")
    one.upstream.control.add_fault("status", 400, times=1)
    worker = one.start("consume", "-c", "1")
    said = one.run("produce", "--id-range", "0..300", "--shard-size", "100", "--rate", "500/s", "--wait", code=1)
    assert "1 shards were dead-lettered; see: streams-importer dlq list" in said
    assert "openchargemap: 1 dead letters" in one.run("status", "--check", code=1)
    one.run("status", "--check", "--max-dead", "1")
    one.run("pause", "--reason", "for lunch")
    assert "for lunch; go on with: streams-importer resume openchargemap" in one.run(
        "status", "--check", "--max-dead", "1", code=1
    )
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    wait_until(lambda: one.redis.hlen("{si}:workers") == 0, "the worker to sign off")
