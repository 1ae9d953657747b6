"""When a schedule entry fires: anchors, windows, jitter, one-shots."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import fmean
from zoneinfo import ZoneInfo

import pytest

from ductile.core.schedules.decide import (
    CATCH_UP_MOST,
    SHORTEST,
    After,
    Anchors,
    At,
    CatchUp,
    Cron,
    Every,
    Hold,
    Monthly,
    Passed,
    Reason,
    Run,
    Schedule,
    due,
    fired,
    fired_before,
    held,
    next_due,
    next_look,
    preview,
    started,
)
from ductile.core.schedules.window import Window

UTC_ZONE = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
DAYTIME = Window.parse("08:00-22:00", UTC_ZONE)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NOON = at("2026-05-20T12:00")  # a Wednesday
SEEN = Anchors(first_seen=NOON, boot=NOON, last_fire=NOON, last_fired_at=NOON)
"""Seen at noon, and fired at once."""


def entry(rule: Every | Monthly | Cron | At | After, **options: object) -> Schedule:
    return Schedule("withings", "default", rule, UTC_ZONE, **options)  # type: ignore[arg-type]


HOURLY = entry(Every(3600))


def fires(schedule: Schedule, anchors: Anchors, now: datetime) -> list[datetime]:
    return [run.slot for run in due(schedule, anchors, now).fires]


def coming(schedule: Schedule, anchors: Anchors, now: datetime, count: int) -> list[datetime]:
    return [run.due for run in preview(schedule, anchors, now, count)]


class TestEvery:
    def test_before_any_fire_it_comes_at_first_sight(self) -> None:
        fresh = Anchors(first_seen=NOON, boot=NOON)
        assert next_due(HOURLY, fresh, NOON) == NOON
        assert fires(HOURLY, fresh, NOON) == [NOON]

    def test_after_a_fire_it_comes_an_interval_later(self) -> None:
        assert next_due(HOURLY, SEEN, NOON) == NOON + HOUR
        assert fires(HOURLY, SEEN, NOON + HOUR - MINUTE) == []
        assert fires(HOURLY, SEEN, NOON + HOUR) == [NOON + HOUR]

    def test_it_comes_an_interval_after_the_last_fire(self) -> None:
        late = NOON + HOUR + MINUTE
        anchors = fired(HOURLY, SEEN, NOON + HOUR, late)
        assert next_due(HOURLY, anchors, late) == late + HOUR

    def test_a_success_that_completes_later_moves_it_on(self) -> None:
        anchors = fired(HOURLY, SEEN, NOON + HOUR, NOON + HOUR)
        done = replace(anchors, last_success_at=NOON + HOUR + 20 * MINUTE)
        assert next_due(HOURLY, done, NOON + 2 * HOUR) == NOON + 2 * HOUR + 20 * MINUTE
        assert fires(HOURLY, done, NOON + 2 * HOUR) == []

    def test_a_success_from_before_the_last_fire_does_not(self) -> None:
        anchors = replace(fired(HOURLY, SEEN, NOON, NOON), last_success_at=NOON - MINUTE)
        assert next_due(HOURLY, anchors, NOON) == NOON + HOUR

    def test_a_slot_that_met_the_run_before_is_over(self) -> None:
        slot = NOON + HOUR
        anchors = held(HOURLY, SEEN, Run(slot, slot), Hold(Reason.RUNNING), slot)
        assert fires(HOURLY, anchors, slot) == []
        assert next_look(HOURLY, anchors, slot) == slot + HOUR

    def test_a_slot_that_fired_before_is_over(self) -> None:
        slot = NOON + HOUR
        anchors = fired_before(HOURLY, SEEN, slot, slot)
        assert fires(HOURLY, anchors, slot) == []
        assert next_look(HOURLY, anchors, slot) == slot + HOUR

    def test_a_day_is_24_hours_whatever_the_clocks_do(self) -> None:
        daily = replace(entry(Every(86400)), zone=BERLIN)
        before_shift = at("2026-03-28T12:00")
        anchors = Anchors(before_shift, before_shift, before_shift, before_shift)
        assert next_due(daily, anchors, before_shift) == before_shift + 24 * HOUR

    def test_a_millisecond_is_an_interval_and_less_is_not(self) -> None:
        assert next_due(entry(Every(SHORTEST)), SEEN, NOON) == NOON + timedelta(milliseconds=1)
        with pytest.raises(ValueError, match="minimum is 1ms"):
            Every(0.0)

    def test_an_interval_beyond_the_calendar_is_never(self) -> None:
        assert next_due(entry(Every(86400 * 365 * 9000)), SEEN, NOON) is None


class TestMonthly:
    def test_month_that_lacks_the_day_takes_its_last_and_the_next_goes_back(self) -> None:
        start = at("2027-01-31T10:00")
        days = coming(entry(Monthly()), Anchors(start, start, start, start), start, 14)
        assert [day.day for day in days] == [28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31, 31, 29, 31]
        assert {day.hour for day in days} == {10}

    def test_it_keeps_the_hour_of_its_zone_through_summer_time(self) -> None:
        monthly = replace(entry(Monthly()), zone=BERLIN)
        start = at("2026-03-15T09:00")
        assert next_due(monthly, Anchors(start, start, start, start), start) == at(
            "2026-04-15T08:00"
        )

    def test_years_of_missed_months_are_bounded(self) -> None:
        start = at("2000-01-31T10:00")
        monthly = entry(Monthly(), catch_up=CatchUp.RUN_ALL)
        up = at("2026-03-01T00:00")
        slots = fires(monthly, Anchors(start, up, start, start), up)
        assert len(slots) == CATCH_UP_MOST
        assert slots[-1] == at("2026-02-28T10:00")


class TestWindows:
    def test_every_moves_to_the_windows_next_start(self) -> None:
        schedule = entry(Every(3600), window=DAYTIME)
        anchors = replace(SEEN, last_fired_at=at("2026-05-20T21:30"))
        morning = at("2026-05-21T08:00")
        assert next_due(schedule, anchors, at("2026-05-20T21:30")) == morning
        assert fires(schedule, anchors, morning - MINUTE) == []
        assert fires(schedule, anchors, morning) == [morning]

    def test_every_late_past_the_windows_end_waits_for_its_start(self) -> None:
        schedule = entry(Every(3600), window=DAYTIME)
        anchors = replace(SEEN, last_fired_at=at("2026-05-20T20:30"))
        night = at("2026-05-20T23:00")
        assert fires(schedule, anchors, night) == []
        assert next_due(schedule, anchors, night) == at("2026-05-21T08:00")

    def test_every_passes_over_barred_weekdays(self) -> None:
        window = Window.parse("08:00-22:00", UTC_ZONE, ["sat", "sun"])
        friday = at("2026-05-22T21:30")
        anchors = replace(SEEN, last_fired_at=friday)
        monday = at("2026-05-25T08:00")
        assert next_due(entry(Every(3600), window=window), anchors, friday) == monday

    def test_a_cron_slot_outside_is_passed_over_with_the_reason(self) -> None:
        schedule = entry(Cron("0 * * * *"), window=DAYTIME)
        night = at("2026-05-20T22:00")
        decision = due(schedule, replace(SEEN, last_fire=night - HOUR), night)
        assert decision.fires == ()
        assert decision.passed == (Passed(night, Reason.WINDOW),)
        assert next_due(schedule, decision.anchors, night) == night + HOUR

    def test_cron_slot_on_a_barred_day_is_passed_over_with_the_reason(self) -> None:
        schedule = entry(Cron("0 12 * * *"), window=Window.parse(None, UTC_ZONE, [3]))
        decision = due(schedule, replace(SEEN, last_fire=NOON - 24 * HOUR), NOON)
        assert decision.passed == (Passed(NOON, Reason.WEEKDAY),)

    def test_cron_slot_that_comes_too_late_for_its_window_is_passed_over(self) -> None:
        schedule = entry(Cron("0 21 * * *"), window=DAYTIME)
        evening = at("2026-05-20T21:00")
        decision = due(schedule, SEEN, evening + 2 * HOUR)
        assert decision.fires == ()
        assert decision.passed == (Passed(evening, Reason.WINDOW),)

    def test_a_one_shot_waits_for_its_window(self) -> None:
        night = at("2026-05-20T23:00")
        schedule = entry(At(night), window=DAYTIME)
        assert next_due(schedule, SEEN, NOON) == at("2026-05-21T08:00")

    def test_a_preview_shows_only_what_the_window_lets_through(self) -> None:
        window = Window.parse("08:00-22:00", UTC_ZONE, range(1, 7))
        schedule = entry(Cron("*/30 * * * *"), window=window)
        shown = coming(schedule, SEEN, NOON, 29)
        assert shown[0] == at("2026-05-24T08:00")
        assert shown[27] == at("2026-05-24T21:30")
        assert shown[28] == at("2026-05-31T08:00")

    def test_preview_of_what_its_window_never_lets_through_is_empty(self) -> None:
        assert coming(entry(Cron("0 3 * * *"), window=DAYTIME), SEEN, NOON, 5) == []


class TestJitter:
    def test_it_is_fixed_for_a_run_and_differs_between_entries(self) -> None:
        schedule = entry(Every(3600), jitter=1800)
        first = next_due(schedule, SEEN, NOON)
        assert first == next_due(schedule, SEEN, NOON + 10 * MINUTE)
        assert first != next_due(replace(schedule, id="other"), SEEN, NOON)
        assert first != next_due(replace(schedule, plugin="other"), SEEN, NOON)

    def test_it_is_symmetric_and_stays_within_half(self) -> None:
        schedule = entry(Every(3600), jitter=1800)
        offsets = []
        for n in range(2000):
            moment = NOON + n * MINUTE
            run = next_due(schedule, replace(SEEN, last_fired_at=moment), moment)
            assert run is not None
            offsets.append((run - moment - HOUR).total_seconds())
        assert max(map(abs, offsets)) <= 900
        assert min(offsets) < -850
        assert max(offsets) > 850
        assert abs(fmean(offsets)) < 40

    def test_a_cron_slot_keeps_its_identity(self) -> None:
        schedule = entry(Cron("0 * * * *"), jitter=1200)
        for run in preview(schedule, SEEN, NOON, 20):
            assert run.slot.minute == 0
            assert abs(run.due - run.slot) <= 10 * MINUTE

    def test_more_jitter_than_interval_neither_storms_nor_reorders(self) -> None:
        for rule in (Every(60), Cron("* * * * *")):
            shown = list(preview(entry(rule, jitter=3600), SEEN, NOON, 200))
            slots, dues = [run.slot for run in shown], [run.due for run in shown]
            assert dues == sorted(dues)
            assert len(set(slots)) == 200
            assert dues[-1] - NOON >= 90 * MINUTE

    def test_it_costs_an_uneven_cron_rule_no_slot(self) -> None:
        schedule = entry(Cron("0,1,30,32 */3 * * *"), jitter=7200)
        shown = list(preview(schedule, SEEN, NOON, 80))
        plain = coming(replace(schedule, jitter=0), SEEN, NOON, 80)
        assert [run.slot for run in shown] == plain

    def test_it_never_takes_a_run_out_of_its_window(self) -> None:
        for rule in (Every(3600), Cron("*/20 * * * *")):
            schedule = entry(rule, jitter=3000, window=DAYTIME)
            assert all(DAYTIME.contains(run.due) for run in preview(schedule, SEEN, NOON, 200))

    def test_a_slot_inside_stays_inside(self) -> None:
        last_minute = at("2026-05-20T21:59")
        for n in range(50):
            schedule = replace(entry(Every(3600), jitter=3600, window=DAYTIME), id=str(n))
            anchors = replace(SEEN, last_fired_at=last_minute - HOUR)
            run = next_due(schedule, anchors, last_minute - HOUR)
            assert run is not None
            assert at("2026-05-20T21:29") <= run <= last_minute


class TestOneShots:
    def test_at_fires_once_ever(self) -> None:
        schedule = entry(At(NOON + HOUR))
        assert next_due(schedule, SEEN, NOON) == NOON + HOUR
        anchors = fired(schedule, SEEN, NOON + HOUR, NOON + HOUR)
        assert anchors.exhausted
        assert next_due(schedule, anchors, NOON + HOUR) is None
        assert fires(schedule, started(schedule, anchors, NOON + 5 * HOUR), NOON + 9 * HOUR) == []

    def test_at_is_the_same_however_its_offset_is_written(self) -> None:
        schedule = entry(At(NOON + HOUR), jitter=600)
        elsewhere = entry(At((NOON + HOUR).astimezone(BERLIN)), jitter=600)
        assert next_due(schedule, SEEN, NOON) == next_due(elsewhere, SEEN, NOON)
        anchors = fired(schedule, SEEN, NOON + HOUR, NOON + HOUR)
        assert next_due(elsewhere, anchors, NOON + HOUR) is None

    def test_one_shot_whose_slot_fired_before_is_over_until_it_is_moved_on(self) -> None:
        schedule, fresh = entry(At(NOON)), Anchors(first_seen=NOON, boot=NOON)
        anchors = fired_before(schedule, fresh, NOON, NOON + HOUR)
        assert anchors.exhausted
        assert next_due(schedule, anchors, NOON + HOUR) is None
        assert started(entry(At(NOON + 2 * HOUR)), anchors, NOON).exhausted is False

    def test_at_missed_while_down_fires_late(self) -> None:
        assert fires(entry(At(NOON + HOUR)), SEEN, NOON + 90 * HOUR) == [NOON + HOUR]

    def test_at_set_to_a_later_time_is_a_new_one_shot(self) -> None:
        anchors = fired(entry(At(NOON)), SEEN, NOON, NOON)
        assert next_due(entry(At(NOON + HOUR)), anchors, NOON) == NOON + HOUR
        assert next_due(entry(At(NOON - HOUR)), anchors, NOON) is None

    def test_after_fires_once_a_start(self) -> None:
        schedule = entry(After(600))
        due_at = NOON + 10 * MINUTE
        assert next_due(schedule, SEEN, NOON) == due_at
        anchors = fired(schedule, SEEN, due_at, due_at)
        assert next_due(schedule, anchors, due_at) is None
        again = started(schedule, anchors, NOON + HOUR)
        assert next_due(schedule, again, NOON + HOUR) == NOON + HOUR + 10 * MINUTE

    @pytest.mark.parametrize("reason", [Reason.RUNNING, Reason.UNHEALTHY, Reason.BREAKER_OPEN])
    def test_held_back_it_comes_up_again_at_growing_distances(self, reason: Reason) -> None:
        schedule, anchors, tries = entry(At(NOON)), SEEN, []
        moment: datetime | None = NOON + 2 * MINUTE
        for _ in range(9):
            assert moment is not None
            (run,) = due(schedule, anchors, moment).fires
            tries.append(int((moment - NOON) / MINUTE))
            anchors = held(schedule, anchors, run, Hold(reason), moment)
            moment = next_look(schedule, anchors, moment)
        assert tries == [2, 4, 8, 16, 32, 64, 124, 184, 244]
        assert not anchors.exhausted

    def test_paused_it_waits(self) -> None:
        schedule, paused = entry(At(NOON)), replace(SEEN, paused=True)
        assert due(schedule, paused, NOON + HOUR).passed == ()
        assert next_due(schedule, paused, NOON + HOUR) is None
        assert fires(schedule, SEEN, NOON + HOUR) == [NOON]
