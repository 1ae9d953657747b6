"""The outages of parts are known from their start until their end was reported."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from ductile.core.alerts.outage import Outage
from ductile.engine.observability.outages import OutageHistory
from tests.conftest import FakeClock


def later(clock: FakeClock, seconds: float) -> datetime:
    clock.advance(seconds)
    return clock.now()


def test_outage_keeps_its_start_and_ends_when_the_part_works(clock: FakeClock) -> None:
    history, begun = OutageHistory(), clock.now()
    history.update([Outage("ledger", "is full", begun)], later(clock, 5))
    history.update([Outage("ledger", "is busy", later(clock, 5))], clock.now())
    assert history.read() == (Outage("ledger", "is busy", begun),)
    history.forget(history.read())
    assert history.read() == (Outage("ledger", "is busy", begun),)
    history.update([], later(clock, 5))
    [ended] = history.read()
    assert ended == Outage("ledger", "is busy", begun, begun + timedelta(seconds=15))
    history.forget([ended])
    assert history.read() == ()


def test_outage_between_two_checks_is_reported_once(clock: FakeClock) -> None:
    history, begun = OutageHistory(), clock.now()
    short = Outage("retries", "busy", begun, later(clock, 1))
    for _ in range(2):
        history.update([short], later(clock, 5))
        assert history.read() == (short,)
    history.forget([short])
    history.update([short], later(clock, 5))
    assert history.read() == ()
    again = Outage("retries", "busy", later(clock, 1), later(clock, 1))
    history.update([again], clock.now())
    assert history.read() == (again,)


def test_part_that_fails_again_before_a_report_continues_its_outage(clock: FakeClock) -> None:
    history = OutageHistory()
    first = Outage("retries", "busy", clock.now(), later(clock, 300))
    history.update([first], clock.now())
    reported = history.read()
    second = Outage("retries", "busy", later(clock, 1))
    history.update([second], clock.now())
    history.forget(reported)
    assert history.read() == (replace(second, since=first.since),)
