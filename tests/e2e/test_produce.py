"""`produce` as a script uses it: held back by the backlog, interrupted, waited for; and `status --check` beside it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

from .fleet import Fleet, wait_until

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
