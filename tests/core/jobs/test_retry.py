"""When a failed attempt is tried again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.core.jobs.retry import (
    LONGEST_DELAY,
    RetryPolicy,
    backoff,
    failures_so_far,
    next_retry_at,
)

NOW = datetime(2026, 2, 8, 10, 0, tzinfo=UTC)
POLICY = RetryPolicy()
CHANCE = st.floats(0.0, 1.0, exclude_max=True)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 30), (2, 60), (3, 120), (4, 240)])
def test_each_failure_doubles_the_delay(failures, seconds):
    assert backoff(failures, 30.0, 0.0) == seconds


@pytest.mark.parametrize(("chance", "seconds"), [(0.0, 60), (0.5, 75), (0.999, 89.97)])
def test_chance_adds_up_to_one_base(chance, seconds):
    assert backoff(2, 30.0, chance) == pytest.approx(seconds)


@given(st.integers(1, 10**9), st.floats(0.001, 10**7), CHANCE)
def test_delay_is_never_longer_than_its_bound_and_never_overflows(failures, base, chance):
    delay = backoff(failures, base, chance)
    assert 0 < delay <= LONGEST_DELAY


@given(st.integers(1, 20), st.floats(0.001, 3600), CHANCE)
def test_a_later_failure_never_waits_less(failures, base, chance):
    assert backoff(failures + 1, base, chance) >= backoff(failures, base, chance)


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 45), (2, 75), (3, 135), (4, None)])
def test_four_attempts_are_three_retries(attempt, seconds):
    due = next_retry_at(attempt, 4, POLICY, NOW, 0.5)
    assert due == (None if seconds is None else NOW + timedelta(seconds=seconds))


@given(st.integers(1, 50), st.integers(1, 50), CHANCE)
def test_attempts_are_used_up_when_the_last_has_failed(attempt, most, chance):
    assert (next_retry_at(attempt, most, POLICY, NOW, chance) is None) == (attempt >= most)


@given(st.integers(1, 3), st.integers(0, 200))
def test_stops_between_attempts_do_not_lengthen_the_delay(attempt, stops):
    """A stop raises `attempt` and `max_attempts` alike."""
    without = next_retry_at(attempt, 4, POLICY, NOW, 0.5)
    assert next_retry_at(attempt + stops, 4 + stops, POLICY, NOW, 0.5) == without


@given(st.integers(1, 4), st.integers(1, 3))
def test_an_operators_retry_begins_with_the_first_delay_again(died_at, failures):
    """`job retry` continues with the next attempt, and allows the plugin's number again."""
    fresh = next_retry_at(failures, 4, POLICY, NOW, 0.5)
    assert next_retry_at(died_at + failures, died_at + 4, POLICY, NOW, 0.5) == fresh


@given(st.integers(1, 100), st.integers(1, 100), st.integers(1, 100))
def test_at_least_one_failure_is_counted(attempt, most, allowed):
    """Also where the config has changed since the job was made."""
    assert 1 <= failures_so_far(attempt, most, RetryPolicy(allowed)) <= attempt


def test_raised_maximum_does_not_change_delays_of_old_jobs():
    assert failures_so_far(2, 4, RetryPolicy(max_attempts=9)) == 2


def test_the_base_is_the_plugins():
    due = next_retry_at(1, 5, RetryPolicy(max_attempts=5, backoff_base=60.0), NOW, 0.0)
    assert due == NOW + timedelta(seconds=60)


def test_a_single_attempt_is_never_retried():
    assert next_retry_at(1, 1, RetryPolicy(max_attempts=1), NOW, 0.0) is None
