"""Whether a failed attempt is tried again, and when."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams_importer.domain.retry_policy import MAX_DELAY_S, RetryPolicy

DICE = st.floats(0, 1, exclude_max=True)


@pytest.mark.parametrize(("attempts", "longest"), [(1, 5), (2, 10), (3, 20), (4, 40)])
def test_the_wait_doubles_with_every_failed_attempt(attempts: int, longest: float) -> None:
    policy = RetryPolicy(max_attempts=5, base_delay_s=5.0)
    assert policy.delay_after(attempts, 0.0) == longest / 2
    assert policy.delay_after(attempts, 0.5) == longest * 0.75
    assert policy.delay_after(attempts, 0.999_999) == pytest.approx(longest, rel=1e-5)


@pytest.mark.parametrize("attempts", [5, 6, 1000])
def test_the_last_attempt_is_followed_by_none(attempts: int) -> None:
    assert RetryPolicy(max_attempts=5, base_delay_s=5.0).delay_after(attempts, 0.5) is None


def test_who_asks_for_a_first_wait_beyond_the_longest_gets_it_every_time() -> None:
    policy = RetryPolicy(max_attempts=5, base_delay_s=7200.0)
    assert [policy.delay_after(attempts, 0.5) for attempts in range(1, 5)] == [5400.0] * 4


def test_a_single_attempt_is_never_repeated() -> None:
    assert RetryPolicy(max_attempts=1, base_delay_s=5.0).delay_after(1, 0.5) is None


@given(st.integers(1, 999), st.floats(0, 86_400), DICE)
def test_no_wait_is_longer_than_the_longest_nor_negative(attempts: int, base: float, dice: float) -> None:
    delay = RetryPolicy(max_attempts=1000, base_delay_s=base).delay_after(attempts, dice)
    assert delay is not None
    assert 0 <= delay <= max(MAX_DELAY_S, base)


@given(st.integers(1, 998), st.floats(0, 86_400), DICE)
def test_a_later_attempt_never_waits_less(attempts: int, base: float, dice: float) -> None:
    policy = RetryPolicy(max_attempts=1000, base_delay_s=base)
    sooner, later = policy.delay_after(attempts, dice), policy.delay_after(attempts + 1, dice)
    assert sooner is not None
    assert later is not None
    assert sooner <= later


def test_the_dice_spread_waits_over_the_upper_half() -> None:
    delays = [RetryPolicy(5, 8.0).delay_after(1, dice / 100) for dice in range(100)]
    assert min(delay for delay in delays if delay is not None) == 4.0
    assert len(set(delays)) == 100
