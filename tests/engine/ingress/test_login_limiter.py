"""Failed logins are limited and recorded per address."""

from __future__ import annotations

import pytest

from ductile.engine.ingress import login_limiter
from ductile.engine.ingress.login_limiter import (
    MAX_FAILURES,
    MAX_RECORDED,
    LoginLimiter,
    TooManyFailedLogins,
)
from tests.conftest import FakeClock

LONG, SHORT = "a-token-0123456789", "abc"


class Recorder:
    def __init__(self, clock: FakeClock) -> None:
        self.recorded: list[tuple[str, int]] = []
        self.limiter = LoginLimiter(clock, lambda *entry: self.recorded.append(entry))

    def fail(self, address: str = "10.0.0.1", times: int = 1) -> None:
        for _ in range(times):
            self.limiter.judge(address, "wrong", valid=False)


@pytest.fixture
def recorder(clock: FakeClock) -> Recorder:
    return Recorder(clock)


def test_failed_logins_of_an_address_are_limited(recorder: Recorder, clock: FakeClock) -> None:
    recorder.fail(times=MAX_FAILURES)
    clock.advance(20)
    with pytest.raises(TooManyFailedLogins) as refused:
        recorder.fail()
    assert refused.value.details == {"retry_after": 40}
    recorder.fail("10.0.0.2")
    clock.advance(40)
    recorder.fail()


def test_valid_token_passes_unless_it_can_be_guessed(recorder: Recorder) -> None:
    recorder.limiter.judge("10.0.0.1", SHORT, valid=True)
    recorder.fail(times=MAX_FAILURES)
    recorder.limiter.judge("10.0.0.1", LONG, valid=True)
    recorder.limiter.judge("10.0.0.2", SHORT, valid=True)
    with pytest.raises(TooManyFailedLogins):
        recorder.limiter.judge("10.0.0.1", SHORT, valid=True)


def test_few_failures_are_recorded_and_the_others_counted(
    recorder: Recorder, clock: FakeClock
) -> None:
    recorder.fail(times=MAX_FAILURES)
    assert recorder.recorded == [("10.0.0.1", 0)] * MAX_RECORDED
    for _ in range(3):
        with pytest.raises(TooManyFailedLogins):
            recorder.fail()
    clock.advance(60)
    recorder.fail()
    assert len(recorder.recorded) == MAX_RECORDED
    clock.advance(540)
    recorder.fail()
    assert recorder.recorded[-1] == ("10.0.0.1", MAX_FAILURES - MAX_RECORDED + 3 + 1)


def test_records_of_all_addresses_are_limited(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_limiter, "MAX_RECORDED_BY_ALL", 3)
    for number in range(9):
        recorder.fail(f"10.0.0.{number}")
    assert len(recorder.recorded) == 3


def test_number_of_remembered_addresses_is_limited(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_limiter, "MAX_ADDRESSES", 2)
    recorder.fail("10.0.0.1", MAX_FAILURES)
    recorder.fail("10.0.0.2")
    recorder.fail("10.0.0.3")
    recorder.fail("10.0.0.1")


@pytest.mark.parametrize(
    ("one", "other"), [("2001:db8::1", "2001:db8::ffff:1"), ("10.0.0.1", "::ffff:10.0.0.1")]
)
def test_addresses_of_one_client_count_together(recorder: Recorder, one: str, other: str) -> None:
    recorder.fail(one, MAX_FAILURES)
    with pytest.raises(TooManyFailedLogins):
        recorder.fail(other)
