"""Whose fault a crash is, and when a shard has caused enough of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_importer.domain.crash_policy import UNSEEN_FOR_ONE_SEEN, CrashPolicy


@pytest.mark.parametrize(("crashes", "is_enough"), [(0, False), (1, False), (2, False), (3, True), (4, True)])
def test_a_shard_that_ended_its_own_process_often_enough_is_given_up(crashes: int, is_enough: bool) -> None:
    assert CrashPolicy(max_crashes=3).is_enough(crashes) is is_enough


@pytest.mark.parametrize(("crashes", "runs_alone"), [(0, False), (1, False), (2, False), (3, True), (29, True)])
def test_one_that_nobody_saw_crash_as_often_runs_without_any_other_suspect_beside_it(crashes: int, runs_alone: bool) -> None:
    assert CrashPolicy(max_crashes=3).runs_alone(crashes) is runs_alone


@pytest.mark.parametrize(("crashes", "is_hopeless"), [(3, False), (29, False), (30, True), (31, True)])
def test_crashes_that_nobody_saw_are_believed_only_when_there_are_many(crashes: int, is_hopeless: bool) -> None:
    assert CrashPolicy(max_crashes=3).is_hopeless(crashes) is is_hopeless


@given(st.integers(1, 1000), st.integers(0, 100_000))
def test_nobody_is_hopeless_before_it_had_its_turn_alone(max_crashes: int, crashes: int) -> None:
    policy = CrashPolicy(max_crashes)
    assert policy.runs_alone(crashes) or not policy.is_hopeless(crashes)
    assert UNSEEN_FOR_ONE_SEEN > 1


def test_a_shard_without_a_crash_is_never_suspected() -> None:
    policy = CrashPolicy(max_crashes=1)
    assert [policy.is_enough(0), policy.is_hopeless(0), policy.runs_alone(0)] == [False] * 3
