"""How many rejected signatures are recorded."""

from __future__ import annotations

from collections.abc import Callable

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


class Recorder:
    """Records rejections, and keeps what is to be called later."""

    def __init__(self) -> None:
        self.limiter = RejectionLimiter()
        self.recorded: list[int] = []
        self.timers: list[Callable[[], None]] = []

    def reject(self, times: int, clock: FakeClock) -> None:
        for _ in range(times):
            self.limiter.record(
                7, clock.now(), self.recorded.append, lambda _, call: self.timers.append(call)
            )

    def count(self) -> int:
        return len(self.recorded) + sum(self.recorded)


def test_the_exact_count_of_a_flood_that_ends_is_recorded_once(clock: FakeClock) -> None:
    recorder = Recorder()
    recorder.reject(MAX_PER_MINUTE + 500, clock)
    assert recorder.recorded == [0] * MAX_PER_MINUTE
    [timer] = recorder.timers
    clock.advance(60)
    timer()
    assert recorder.recorded[-1] == 499
    assert recorder.count() == MAX_PER_MINUTE + 500
    timer()
    recorder.limiter.summarize()
    assert recorder.count() == MAX_PER_MINUTE + 500


def test_a_stop_records_the_count_of_a_flood(clock: FakeClock) -> None:
    recorder = Recorder()
    recorder.reject(MAX_PER_MINUTE + 3, clock)
    recorder.limiter.summarize()
    assert recorder.count() == MAX_PER_MINUTE + 3


def test_count_is_exact_when_the_flood_continues_in_the_next_minute(clock: FakeClock) -> None:
    recorder = Recorder()
    recorder.reject(MAX_PER_MINUTE + 3, clock)
    clock.advance(60)
    recorder.reject(MAX_PER_MINUTE + 4, clock)
    for timer in recorder.timers:
        timer()
    assert recorder.count() == 2 * MAX_PER_MINUTE + 7


def test_clock_that_is_set_back_starts_a_new_minute(clock: FakeClock) -> None:
    limiter = RejectionLimiter()
    for _ in range(MAX_PER_MINUTE + 1):
        limiter.admit(7, clock.now())
    clock.advance(-86_400)
    assert limiter.admit(7, clock.now()) == 1
