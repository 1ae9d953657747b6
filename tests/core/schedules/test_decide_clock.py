"""Schedules under a clock that is late, shifted, or set forwards and back by years."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ductile.core.schedules.decide import (
    After,
    Anchors,
    At,
    CatchUp,
    Cron,
    Every,
    Monthly,
    Run,
    Schedule,
    due,
    fired,
    fired_before,
    next_due,
    preview,
)
from ductile.core.schedules.window import Window
from tests.core.schedules.test_cron_dst import EVERY_SHIFT, ZONES, fires_by_wall_clock

START = datetime(2026, 5, 20, 12, 0, tzinfo=UTC)
TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
TEN_YEARS = timedelta(days=3653)


class Gateway:
    """A scheduler of one entry, with a ledger that fires each slot at most once."""

    def __init__(self, schedule: Schedule, now: datetime = START) -> None:
        self.schedule = schedule
        self.anchors = Anchors(first_seen=now, boot=now, last_fire=now, last_fired_at=now)
        self.fires: list[Run] = []
        self.slots: set[datetime] = set()

    def round(self, now: datetime) -> tuple[int, datetime | None]:
        """Do what is due; say how many fired and when to wake."""
        decision = due(self.schedule, self.anchors, now)
        self.anchors = decision.anchors
        count = 0
        for run in decision.fires:
            if run.slot in self.slots:
                self.anchors = fired_before(self.schedule, self.anchors, run.slot, now)
                continue
            self.slots.add(run.slot)
            self.anchors = fired(self.schedule, self.anchors, run.slot, now)
            self.fires.append(replace(run, due=now))
            count += 1
        return count, next_due(self.schedule, self.anchors, now)

    def run_until(self, now: datetime, end: datetime, late: timedelta = timedelta()) -> None:
        while now < end:
            _, wake = self.round(now)
            if wake is None:
                return
            assert wake > now, "it would spin"
            now = wake + late


def entry(rule: Every | Monthly | Cron | At | After, **options: object) -> Schedule:
    zone = ZoneInfo("America/New_York")
    return Schedule("withings", "default", rule, zone, **options)  # type: ignore[arg-type]


intervals = st.integers(1, 3 * 86400).map(float)
jitters = st.one_of(st.just(0.0), st.integers(1, 86400).map(float))
policies = st.sampled_from(CatchUp)
crons = st.sampled_from(["* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *", "0 9 * * 1-5"])
jumps = st.one_of(
    st.integers(-7200, 7200).map(lambda s: timedelta(seconds=s)),
    st.sampled_from([HOUR, -HOUR, TEN_YEARS, -TEN_YEARS]),
)


@given(intervals, jitters, policies, st.lists(jumps, max_size=8))
@settings(max_examples=200, deadline=None)
def test_whatever_the_clock_does_every_fires_once_and_is_due_again_soon(
    seconds: float, jitter: float, policy: CatchUp, leaps: list[timedelta]
) -> None:
    schedule = entry(Every(seconds), jitter=jitter, catch_up=policy)
    gateway, now = Gateway(schedule), START
    for leap in leaps:
        now += leap
        count, wake = gateway.round(now)
        assert count <= (100 if policy is CatchUp.RUN_ALL else 1)
        assert wake is not None
        assert now < wake <= now + timedelta(seconds=seconds + jitter / 2)


@given(crons, jitters, st.lists(jumps, max_size=8))
@settings(max_examples=50, deadline=None)
def test_whatever_the_clock_does_cron_fires_once_and_is_due_again_soon(
    expr: str, jitter: float, leaps: list[timedelta]
) -> None:
    gateway, now = Gateway(entry(Cron(expr), jitter=jitter)), START
    for leap in leaps:
        now += leap
        count, wake = gateway.round(now)
        assert count <= 1
        assert wake is not None
        assert now < wake <= now + timedelta(days=4, seconds=jitter)


@pytest.mark.parametrize("rule", [Every(600), Monthly(), Cron("*/10 * * * *")], ids=str)
@pytest.mark.parametrize("jump", [HOUR, TEN_YEARS])
def test_a_clock_set_forwards_and_back_leaves_the_rhythm(
    rule: Every | Monthly | Cron, jump: timedelta
) -> None:
    gateway = Gateway(entry(rule))
    gateway.run_until(START, START + 2 * HOUR)
    back = START + 2 * HOUR
    gateway.round(back + jump)
    gateway.round(back)
    before = len(gateway.fires)
    gateway.run_until(back, back + timedelta(days=62) if rule == Monthly() else back + 2 * HOUR)
    # one less than ever where the slot that fired ahead of its time comes up again
    assert len(gateway.fires) - before in ({1, 2} if rule == Monthly() else {10, 11})


@pytest.mark.parametrize("jitter", [0.0, 300.0])
def test_after_fires_early_when_the_clock_is_set_back(
    jitter: float,
) -> None:
    gateway = Gateway(entry(After(600), jitter=jitter))
    back = START - TEN_YEARS
    assert gateway.round(back) == (1, None)
    assert gateway.round(back - HOUR) == (0, None)


@pytest.mark.parametrize("rule", [Every(600), Monthly(), Cron("*/10 * * * *")], ids=str)
def test_anchors_ahead_of_the_clock_want_a_decision_at_once(rule: Every | Monthly | Cron) -> None:
    schedule, ahead = entry(rule), START + TEN_YEARS
    for anchors in (
        Anchors(ahead, ahead),
        Anchors(START, START, last_fire=ahead, last_fired_at=ahead, last_success_at=ahead),
        Anchors(START, START, last_passed=ahead),
    ):
        assert next_due(schedule, anchors, START) == START
        steady = due(schedule, anchors, START).anchors
        wake = next_due(schedule, steady, START)
        assert wake is not None
        assert START < wake <= START + timedelta(days=31)


def test_success_ahead_of_the_clock_is_left_out() -> None:
    schedule, ahead = entry(Every(600)), START + TEN_YEARS
    anchors = Anchors(START, START, last_fired_at=START, last_success_at=ahead)
    later = START + timedelta(minutes=10)
    assert next_due(schedule, anchors, START) == later
    assert [run.slot for run in due(schedule, anchors, later).fires] == [later]


def test_at_fires_once_even_if_its_time_comes_twice() -> None:
    gateway = Gateway(entry(At(START)))
    assert gateway.round(START) == (1, None)
    assert gateway.round(START - HOUR) == (0, None)
    gateway.slots.clear()
    assert gateway.round(START + HOUR) == (0, None)


@given(intervals, jitters, st.integers(0, 50))
@settings(max_examples=100, deadline=None)
def test_ticks_that_come_late_lose_no_more_than_they_are_late(
    seconds: float, jitter: float, late: int
) -> None:
    gateway = Gateway(entry(Every(seconds), jitter=jitter))
    gateway.run_until(START, START + timedelta(seconds=20 * seconds), timedelta(seconds=late))
    moments = [run.due for run in gateway.fires]
    most = seconds + min(jitter, seconds) / 2 + late
    assert all(
        later - earlier <= timedelta(seconds=most)
        for earlier, later in zip([START, *moments], moments, strict=False)
    )


windows = st.builds(
    lambda zone, start, length, barred: Window(
        ZoneInfo(zone), start, (start + length) % 1440 or 1440, barred
    ),
    st.sampled_from(ZONES),
    st.integers(0, 1439),
    st.integers(1, 1439),
    st.frozensets(st.integers(0, 6), max_size=4),
)


@given(windows, intervals, jitters, st.data())
@settings(max_examples=150, deadline=None)
def test_every_fires_inside_its_window_and_waits_only_for_it(
    window: Window, seconds: float, jitter: float, data: st.DataObject
) -> None:
    assume(window.start != window.end)
    near = [shift for zone, shift in EVERY_SHIFT if zone == window.zone.key]
    now = data.draw(st.sampled_from(near)) - timedelta(hours=data.draw(st.integers(0, 30)))
    schedule = replace(entry(Every(seconds), jitter=jitter, window=window), zone=window.zone)
    previous = now
    half = timedelta(seconds=min(jitter, seconds) / 2)
    for run in preview(schedule, Anchors(now, now, now, now), now, 12):
        assert window.contains(run.due)
        nominal = previous + timedelta(seconds=seconds)
        punctual = nominal - half <= run.due <= nominal + half
        opening = not window.contains(run.due - TICK)
        assert punctual or (opening and not window.contains(nominal))
        previous = run.due


@given(
    st.one_of(
        st.integers(1800, 86400).map(lambda seconds: Every(float(seconds))),
        st.sampled_from(["*/20 * * * *", "0 * * * *", "30 2 * * *", "45 1-3 * * *"]).map(Cron),
        st.just(Monthly()),
    ),
    jitters,
    st.one_of(st.none(), windows),
    st.data(),
)
@settings(max_examples=40, deadline=None)
def test_a_preview_is_what_a_punctual_gateway_does(
    rule: Every | Cron | Monthly, jitter: float, window: Window | None, data: st.DataObject
) -> None:
    assume(window is None or window.start != window.end)
    zone, shift = data.draw(st.sampled_from(EVERY_SHIFT))
    now = shift - timedelta(hours=data.draw(st.integers(0, 30)))
    schedule = replace(entry(rule, jitter=jitter, window=window), zone=ZoneInfo(zone))
    shown = list(preview(schedule, Anchors(now, now, now, now), now, 6))
    gateway = Gateway(schedule, now)
    end = min(shown[-1].due + TICK, now + timedelta(hours=36)) if shown else now
    gateway.run_until(now, end)
    assert gateway.fires == [run for run in shown if run.due < end]


@pytest.mark.parametrize(("zone", "shift"), EVERY_SHIFT[::3], ids=str)
def test_a_cron_entry_fires_what_the_clock_shows_through_a_shift(
    zone: str, shift: datetime
) -> None:
    schedule = replace(entry(Cron("30 0-5 * * *")), zone=ZoneInfo(zone))
    start = shift - 4 * HOUR
    gateway = Gateway(schedule, start - TICK)
    gateway.run_until(start - TICK, shift + 28 * HOUR)
    expected = fires_by_wall_clock(zone, shift, lambda w: w.minute == 30 and w.hour <= 5)
    assert [run.due for run in gateway.fires if run.due < shift + 28 * HOUR] == list(expected)
