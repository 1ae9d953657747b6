"""The generic cell rate algorithm."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from ductile.core.flow.rates import CLOCK_TOLERANCE, Rate

NOW = datetime(2026, 2, 8, 10, tzinfo=UTC)


def starts(rate: Rate, seconds: int, step: float = 0.25) -> list[float]:
    """When jobs start if one waits at any time."""
    used, found, at = None, [], 0.0
    while at < seconds:
        now = NOW + timedelta(seconds=at)
        if used is None or rate.opens_at(used, now) <= now:
            used = rate.advance(used, now)
            found.append(at)
        else:
            at += step
    return found


def test_starts_are_spread_evenly() -> None:
    assert starts(Rate(limit=6, per=60), 41) == [0, 10, 20, 30, 40]


def test_burst_allows_several_starts_at_once() -> None:
    assert starts(Rate(limit=6, per=60, burst=3), 31) == [0, 0, 0, 10, 20, 30]


def test_unused_time_is_not_saved_beyond_the_burst() -> None:
    rate = Rate(limit=6, per=60, burst=2)
    used = rate.advance(None, NOW)
    later = NOW + timedelta(hours=1)
    used = rate.advance(used, later)
    used = rate.advance(used, later)
    assert rate.opens_at(used, later) == later + timedelta(seconds=10)


@pytest.mark.parametrize("burst", [1, 2, 5])
@pytest.mark.parametrize("limit", [1, 3, 10])
def test_no_period_has_more_starts_than_limit_and_burst(limit: int, burst: int) -> None:
    found = starts(Rate(limit, 60, burst), 300)
    for first in found:
        assert sum(first <= at < first + 60 for at in found) <= limit + burst - 1


def test_time_that_the_rate_cannot_have_stored_is_ignored() -> None:
    rate = Rate(limit=6, per=60, burst=2)
    used = NOW + timedelta(seconds=20) + CLOCK_TOLERANCE
    assert rate.opens_at(used, NOW) == used - timedelta(seconds=10)
    assert rate.advance(used, NOW) == used + timedelta(seconds=10)
    later = used + timedelta(seconds=1)
    assert rate.opens_at(later, NOW) == NOW
    assert rate.advance(later, NOW) == NOW + timedelta(seconds=10)
