"""The shared budget on a real server: never more than the limit in any window, on the server's clock."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import redis

from streams_importer.adapters.lua_scripts import LuaScripts
from streams_importer.adapters.redis_budget import RedisBudget, fingerprint
from streams_importer.adapters.redis_client import connect
from streams_importer.adapters.redis_keys import Keys
from streams_importer.application.cancellation import CancelToken
from streams_importer.domain.errors import Cancelled
from streams_importer.domain.rates import Limit

KEYS = Keys("si")
PATIENCE_S = 30


class Server:
    """The server's clock and what it keeps about a budget."""

    def __init__(self, client: redis.Redis) -> None:
        self.client: Any = client

    def now_us(self) -> int:
        seconds, micros = self.client.time()
        return int(seconds) * 1_000_000 + int(micros)

    def stored(self, what: str, name: str = "ocm") -> int:
        return int(self.client.hget(KEYS.budget(name), what) or 0)

    def wait_until_reserved(self, slot: int) -> None:
        """Until somebody has been given a slot at that time or later, and so sleeps towards it."""
        tick, tries = threading.Event(), int(PATIENCE_S / 0.002)
        assert any(self.stored("last") >= slot or tick.wait(0.002) for _ in range(tries))

    def budget(self, limit: Limit, name: str = "ocm", **options: Any) -> RedisBudget:
        return RedisBudget(self.client, KEYS, name, limit, **options)


@pytest.fixture
def server(redis_client: redis.Redis, redis_url: str) -> Iterator[Server]:
    client = connect(redis_url, max_connections=2)
    yield Server(client)
    client.close()
    client.connection_pool.disconnect()


def assert_within(limit: Limit, slots: Sequence[int]) -> None:
    """No window of the limit's length, wherever it begins, holds more than its amount; and the slots are spaced."""
    ordered = sorted(slots)
    assert all(later - first >= limit.seconds * 1_000_000 for first, later in zip(ordered, ordered[limit.amount :], strict=False))
    assert all(later - first >= limit.spacing_us for first, later in pairwise(ordered))


def take_many(url: str, limit: Limit, number: int) -> list[int]:
    """What one process takes, on a connection of its own."""
    client = connect(url, max_connections=1)
    budget = RedisBudget(client, KEYS, "ocm", limit)
    try:
        return [budget.take(CancelToken()) for _ in range(number)]
    finally:
        client.close()
        client.connection_pool.disconnect()


# The limit.


@pytest.mark.parametrize("limit", [Limit(3, 1), Limit(7, 60), Limit(5000, 3600), Limit(1_000_000, 1)], ids=str)
def test_under_steady_demand_slots_are_spaced_exactly_and_none_is_lost(server: Server, limit: Limit) -> None:
    scripts = LuaScripts(server.client)
    reserved = [scripts.run("take_token", [KEYS.budget("ocm")], [limit.spacing_us]) for _ in range(200)]
    slots = [int(slot) for slot, _ in reserved]
    assert_within(limit, slots)
    waited = [i for i in range(1, 200) if reserved[i][1] > 0]
    assert all(slots[i] - slots[i - 1] == limit.spacing_us for i in waited)
    if limit.spacing_us > 100_000:
        assert waited == list(range(1, 200))


def test_threads_at_the_limit_never_exceed_it_and_use_nearly_all_of_it(server: Server) -> None:
    limit = Limit(20, 1)
    budget = server.budget(limit)
    with ThreadPoolExecutor(12) as threads:
        slots = list(threads.map(lambda _: budget.take(CancelToken()), range(36)))
    assert len(set(slots)) == 36
    assert_within(limit, slots)
    reserved = (server.stored("last") - min(slots)) / limit.spacing_us + 1
    assert len(slots) / reserved >= 0.75


def test_processes_at_the_limit_never_exceed_it_together(server: Server, redis_url: str) -> None:
    limit = Limit(50, 1)
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("spawn")) as processes:
        taken = list(processes.map(partial(take_many, redis_url, limit), [20] * 4))
    slots = [slot for slots in taken for slot in slots]
    assert len(set(slots)) == 80
    assert_within(limit, slots)


def test_a_slot_is_not_granted_before_its_time(server: Server) -> None:
    budget = server.budget(Limit(20, 1))
    for _ in range(5):
        slot = budget.take(CancelToken())
        assert server.now_us() >= slot - 2_000  # a sleep may end a little early on another clock


def test_demand_after_a_rest_is_not_served_from_the_past(server: Server) -> None:
    limit = Limit(10, 1)
    budget = server.budget(limit)
    budget.take(CancelToken())
    server.client.hset(KEYS.budget("ocm"), "last", server.now_us() - 60_000_000)  # nobody asked for a minute
    begun = server.now_us()
    slots = [budget.take(CancelToken()) for _ in range(3)]
    assert slots[0] >= begun
    assert_within(limit, slots)


def test_two_budgets_share_nothing(server: Server) -> None:
    one, other = server.budget(Limit(1, 3600), "one"), server.budget(Limit(1, 3600), "other")
    one.take(CancelToken())
    other.take(CancelToken())  # would wait for an hour
    one.hold(60)
    assert one.held_for_s() > 50
    assert other.held_for_s() == 0


# Holds.


def test_a_hold_wakes_sleepers_at_once_and_they_get_slots_after_it(server: Server) -> None:
    limit = Limit(10, 1)
    budget, cancel = server.budget(limit), CancelToken()
    first = budget.take(cancel)
    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(budget.take, cancel) for _ in range(3)]
        server.wait_until_reserved(first + 3 * limit.spacing_us)
        budget.hold(1.0)
        end_of_hold = server.stored("hold")
        server.wait_until_reserved(end_of_hold + 2 * limit.spacing_us)  # all have new slots
        assert server.now_us() < end_of_hold
        slots = [future.result(timeout=PATIENCE_S) for future in waiting]
    assert min(slots) >= end_of_hold
    assert_within(limit, [first, *slots])


def test_a_hold_by_another_process_wakes_those_who_hear_of_it(server: Server) -> None:
    budget, cancel = server.budget(Limit(10, 1)), CancelToken()
    first = budget.take(cancel)
    with server.client.pubsub(ignore_subscribe_messages=True) as channel, ThreadPoolExecutor(1) as threads:
        channel.subscribe(KEYS.control)
        assert channel.get_message(timeout=PATIENCE_S) is None  # the subscription itself
        waiting = threads.submit(budget.take, cancel)
        server.wait_until_reserved(first + 1)
        server.budget(Limit(10, 1)).hold(0.5)
        message = channel.get_message(timeout=PATIENCE_S)
        budget.heard(message["data"].decode())
        assert waiting.result(timeout=PATIENCE_S) >= server.stored("hold")


def test_a_hold_of_another_budget_wakes_nobody(server: Server) -> None:
    budget, cancel = server.budget(Limit(4, 1)), CancelToken()
    first = budget.take(cancel)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(budget.take, cancel)
        server.wait_until_reserved(first + 1)
        budget.heard("hold:other")
        budget.heard("work")
        assert waiting.result(timeout=PATIENCE_S) == first + budget_spacing(4)


def budget_spacing(amount: int) -> int:
    return Limit(amount, 1).spacing_us


def test_a_hold_between_the_reservation_and_the_sleep_voids_the_slot_too(server: Server) -> None:
    readings = 0

    def clock() -> float:
        nonlocal readings
        readings += 1
        if readings == 2:  # the reply is there, the sleep has not begun
            budget.hold(0.5)
        return 0.0

    server.budget(Limit(10, 1)).take(CancelToken())
    budget = server.budget(Limit(10, 1), clock=clock)
    slot = budget.take(CancelToken())
    assert slot >= server.stored("hold")


def test_what_queues_up_during_a_hold_does_not_go_all_together_at_its_end(server: Server) -> None:
    limit = Limit(20, 1)
    budget = server.budget(limit)
    budget.hold(0.3)
    with ThreadPoolExecutor(8) as threads:
        slots = list(threads.map(lambda _: budget.take(CancelToken()), range(8)))
    assert min(slots) == server.stored("hold")
    assert_within(limit, slots)


def test_a_longer_hold_stays(server: Server) -> None:
    budget = server.budget(Limit(10, 1))
    assert budget.held_for_s() == 0
    budget.hold(60)
    until = server.stored("hold")
    budget.hold(1)
    assert server.stored("hold") == until
    assert 50 < budget.held_for_s() <= 60
    budget.hold(120)
    assert server.stored("hold") > until


def test_a_changed_limit_reaches_sleepers_at_once(server: Server) -> None:
    budget, cancel = server.budget(Limit(1, 3600)), CancelToken()
    budget.hold(0.2)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(budget.take, cancel)
        server.wait_until_reserved(server.stored("hold"))
        first = server.stored("last")
        budget.change_limit(Limit(50, 1))
        slot = waiting.result(timeout=PATIENCE_S)
    assert slot - first == budget_spacing(50)


# Waiting.


def test_a_cancelled_sleeper_is_told_at_once(server: Server) -> None:
    budget, cancel = server.budget(Limit(1, 3600)), CancelToken()
    first = budget.take(cancel)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(budget.take, cancel)
        server.wait_until_reserved(first + 1)
        cancel.cancel("stop")
        with pytest.raises(Cancelled):
            waiting.result(timeout=PATIENCE_S)


def test_who_is_cancelled_already_takes_no_slot(server: Server) -> None:
    cancel = CancelToken()
    cancel.cancel("stop")
    with pytest.raises(Cancelled):
        server.budget(Limit(1, 3600)).take(cancel)
    assert server.client.keys("*") == []


@pytest.mark.parametrize(
    ("amount", "readings", "thrown_away"),
    [
        pytest.param(10, [0.0, 0.0, 0.15], 1, id="overslept by more than the spacing"),
        pytest.param(10, [0.0, 0.0, 0.15, 1.0, 1.0, 9.0], 2, id="overslept twice"),
        pytest.param(10, [0.0, 0.0, 0.09], 0, id="overslept by less than the spacing"),
        pytest.param(10, [0.0, 0.2, 0.2], 1, id="the reply took longer than the spacing"),
        pytest.param(100, [0.0, 0.05, 0.05], 0, id="the reply took longer than the spacing but not long"),
        pytest.param(2, [0.0, 0.4, 0.4], 0, id="the reply took less than the spacing"),
    ],
)
def test_a_slot_that_is_too_old_is_thrown_away(server: Server, amount: int, readings: list[float], thrown_away: int) -> None:
    limit = Limit(amount, 1)
    pending = iter(readings)
    budget = server.budget(limit, clock=lambda: next(pending, 1000.0))
    begun = server.now_us()
    slot = budget.take(CancelToken())
    assert server.stored("last") == slot
    assert slot - begun >= thrown_away * limit.spacing_us
    if not thrown_away:
        assert slot - begun < 1_000_000  # the first one, which was free


# Names.


def test_a_fingerprint_tells_keys_sources_and_namespaces_apart_and_never_the_key() -> None:
    secret = "s3cret-key-0123456789abcdef"
    names = [
        fingerprint("si", "openchargemap", secret),
        fingerprint("si", "openchargemap", secret + "x"),
        fingerprint("si", "openchargemap", None),
        fingerprint("si", "rest", secret),
        fingerprint("other", "openchargemap", secret),
    ]
    assert len(set(names)) == len(names)
    assert names[0] == fingerprint("si", "openchargemap", secret), "the same in every process"
    assert all(len(name) == 16 and set(name) <= set("0123456789abcdef") for name in names)
    assert all(secret not in name and secret.encode().hex() not in name for name in names)


def test_the_key_is_nowhere_in_redis(server: Server) -> None:
    secret = "s3cret-key-0123456789abcdef"
    budget = server.budget(Limit(10, 1), fingerprint("si", "openchargemap", secret))
    budget.take(CancelToken())
    budget.hold(0.1)
    (key,) = server.client.keys("*")
    assert secret.encode() not in key + repr(server.client.hgetall(key)).encode()
