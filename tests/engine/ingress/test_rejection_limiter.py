"""How many rejected signatures are recorded."""

from __future__ import annotations

from ductile.engine.ingress.rejection_limiter import MAX_PER_MINUTE, RejectionLimiter
from tests.conftest import FakeClock


def test_each_key_has_its_own_limit_per_minute_and_the_rest_is_counted(clock: FakeClock) -> None:
    limiter = RejectionLimiter()
    admitted = [limiter.admit(7, clock.now()) for _ in range(MAX_PER_MINUTE + 5)]
    assert admitted == [0] * MAX_PER_MINUTE + [None] * 5
    assert limiter.admit(8, clock.now()) == 0
    clock.advance(60)
    assert limiter.admit(7, clock.now()) == 5
    assert limiter.admit(7, clock.now()) == 0


def test_clock_that_is_set_back_starts_a_new_minute(clock: FakeClock) -> None:
    limiter = RejectionLimiter()
    for _ in range(MAX_PER_MINUTE + 1):
        limiter.admit(7, clock.now())
    clock.advance(-86_400)
    assert limiter.admit(7, clock.now()) == 1
