"""What becomes of slots that were missed, paused or held back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from ductile.core.schedules.cron import next_after
from ductile.core.schedules.decide import (
    CATCH_UP_MOST,
    LOOKED_BACK,
    Anchors,
    CatchUp,
    Cron,
    Every,
    Fire,
    Hold,
    IfRunning,
    Monthly,
    Passed,
    Reason,
    Run,
    admit,
    due,
    fired,
    held,
    next_due,
    next_look,
)
from ductile.core.schedules.window import Window
from tests.core.schedules.test_decide import (
    DAYTIME,
    HOUR,
    HOURLY,
    MINUTE,
    NOON,
    SEEN,
    UTC_ZONE,
    at,
    coming,
    entry,
    fires,
)


class TestCatchUp:
    DOWN = replace(SEEN, last_fire=NOON, last_fired_at=NOON, boot=NOON + 5 * HOUR + MINUTE)
    UP = NOON + 5 * HOUR + MINUTE
    SLOTS = [NOON + n * HOUR for n in range(1, 6)]

    def test_a_single_late_slot_fires_under_every_policy(self) -> None:
        for policy in CatchUp:
            decision = due(entry(Every(3600), catch_up=policy), SEEN, NOON + HOUR + 59 * MINUTE)
            assert [run.slot for run in decision.fires] == [NOON + HOUR]
            assert decision.passed == ()

    def test_skip_fires_the_newest_as_an_ordinary_run(self) -> None:
        decision = due(HOURLY, self.DOWN, self.UP)
        assert decision.fires == (Run(self.SLOTS[-1], self.SLOTS[-1]),)
        assert decision.passed == tuple(
            Passed(slot, Reason.CATCH_UP_SKIPPED) for slot in self.SLOTS[:-1]
        )

    def test_run_once_fires_one_that_is_owed(self) -> None:
        decision = due(entry(Every(3600), catch_up=CatchUp.RUN_ONCE), self.DOWN, self.UP)
        assert decision.fires == (Run(self.SLOTS[-1], self.SLOTS[-1], catch_up=True),)

    def test_run_all_fires_each(self) -> None:
        decision = due(entry(Every(3600), catch_up=CatchUp.RUN_ALL), self.DOWN, self.UP)
        assert [run.slot for run in decision.fires] == self.SLOTS
        assert all(run.catch_up for run in decision.fires)
        assert decision.passed == ()

    def test_run_all_fires_the_newest_hundred_at_most(self) -> None:
        schedule = entry(Every(60), catch_up=CatchUp.RUN_ALL)
        decision = due(schedule, self.DOWN, self.UP)
        assert len(decision.fires) == CATCH_UP_MOST
        assert decision.fires[-1].slot == self.UP

    def test_of_the_slots_since_the_start_the_newest_fires_as_an_ordinary_run(self) -> None:
        now, newest = self.UP + 3 * HOUR, NOON + 8 * HOUR
        ordinary = Run(newest, newest)
        owed = [Run(slot, slot, catch_up=True) for slot in self.SLOTS]
        passed = tuple(Passed(NOON + n * HOUR, Reason.CATCH_UP_SKIPPED) for n in (6, 7))
        decision = due(entry(Every(3600), catch_up=CatchUp.RUN_ALL), self.DOWN, now)
        assert decision.fires == (*owed, ordinary)
        assert decision.passed == passed
        once = due(entry(Every(3600), catch_up=CatchUp.RUN_ONCE), self.DOWN, now)
        assert once.fires == (ordinary,)

    def test_ordinary_run_does_not_cancel_those_that_are_caught_up(self) -> None:
        schedule = entry(Every(3600), catch_up=CatchUp.RUN_ALL, if_running=IfRunning.CANCEL)
        decision = due(schedule, self.DOWN, self.UP + 3 * HOUR)
        assert [run.slot for run in decision.fires] == self.SLOTS
        assert all(run.catch_up for run in decision.fires)

    def test_a_slot_that_fell_due_before_the_start_is_owed(self) -> None:
        schedule = entry(Every(3600), catch_up=CatchUp.RUN_ONCE)
        anchors = replace(SEEN, boot=NOON + 90 * MINUTE)
        assert due(schedule, anchors, NOON + 90 * MINUTE).fires[0].catch_up
        assert not due(schedule, SEEN, NOON + 90 * MINUTE).fires[0].catch_up

    def test_after_catch_up_the_schedule_continues_from_now(self) -> None:
        for policy in CatchUp:
            schedule = entry(Every(3600), catch_up=policy)
            decision = due(schedule, self.DOWN, self.UP)
            anchors = decision.anchors
            for run in decision.fires:
                anchors = fired(schedule, anchors, run.slot, self.UP)
            assert fires(schedule, anchors, self.UP) == []
            assert next_due(schedule, anchors, self.UP) == self.UP + HOUR

    def test_held_schedule_continues_from_now_too(self) -> None:
        decision = due(HOURLY, self.DOWN, self.UP)
        anchors = held(HOURLY, decision.anchors, decision.fires[0], Hold(Reason.RUNNING), self.UP)
        assert next_due(HOURLY, anchors, self.UP) == self.UP + HOUR

    def test_rows_are_bounded(self) -> None:
        decision = due(entry(Every(1)), self.DOWN, self.UP)
        assert len(decision.passed) + 1 == LOOKED_BACK
        assert decision.passed[-1].slot < decision.fires[0].slot

    def test_occurrences_that_run_all_leaves_out_are_recorded(self) -> None:
        schedule = entry(Every(60), catch_up=CatchUp.RUN_ALL)
        decision = due(schedule, self.DOWN, self.UP)
        assert len(decision.passed) == 5 * 60 + 1 - CATCH_UP_MOST
        assert {passed.reason for passed in decision.passed} == {Reason.CATCH_UP_SKIPPED}

    def test_nights_outside_the_window_were_not_missed(self) -> None:
        schedule = entry(Every(4 * 3600), window=DAYTIME, catch_up=CatchUp.RUN_ALL)
        up = NOON + 24 * HOUR
        slots = fires(schedule, replace(SEEN, last_fired_at=NOON, boot=up), up)
        assert [slot.hour for slot in slots] == [16, 20, 8, 12]

    def test_cron_fires_its_newest_due_slot_alone(self) -> None:
        for policy in CatchUp:
            decision = due(entry(Cron("0 * * * *"), catch_up=policy), self.DOWN, self.UP)
            assert decision.fires == (Run(self.SLOTS[-1], self.SLOTS[-1]),)
            assert [passed.slot for passed in decision.passed] == self.SLOTS[:-1]

    @pytest.mark.parametrize(
        ("late", "fired"), [(0, True), (1, True), (60, True), (61, False), (9 * 3600, False)]
    )
    def test_cron_occurrence_seen_late_fires_up_to_a_minute_late(
        self, late: int, fired: bool
    ) -> None:
        nightly, slot = entry(Cron("0 3 * * *")), at("2026-05-21T03:00")
        up = slot + timedelta(seconds=late)
        for anchors in (
            replace(SEEN, boot=up),
            replace(SEEN, boot=NOON - HOUR, awake=up),
        ):
            decision = due(nightly, anchors, up)
            assert [run.slot for run in decision.fires] == [slot] * fired
            if not fired:
                assert decision.passed == (Passed(slot, Reason.CATCH_UP_SKIPPED),)
                assert next_look(nightly, decision.anchors, up) == slot + 24 * HOUR

    def test_run_once_catches_up_on_the_newest_missed_cron_slot(self) -> None:
        nightly = entry(Cron("0 3 * * *"), catch_up=CatchUp.RUN_ONCE)
        slots = [at(f"2026-05-{day}T03:00") for day in (21, 22, 23)]
        up = slots[-1] + 9 * HOUR
        decision = due(nightly, replace(SEEN, boot=up), up)
        assert decision.fires == (Run(slots[-1], slots[-1], catch_up=True),)
        assert decision.passed == tuple(
            Passed(slot, Reason.CATCH_UP_SKIPPED) for slot in slots[:-1]
        )
        anchors = fired(nightly, decision.anchors, slots[-1], up)
        assert due(nightly, anchors, up + HOUR).fires == ()
        assert next_due(nightly, anchors, up) == slots[-1] + 24 * HOUR

    def test_run_once_does_not_catch_up_while_the_window_is_closed(self) -> None:
        window = Window.parse("02:00-04:00", UTC_ZONE)
        nightly = entry(Cron("0 3 * * *"), catch_up=CatchUp.RUN_ONCE, window=window)
        slot = at("2026-05-21T03:00")
        up = slot + 9 * HOUR
        decision = due(nightly, replace(SEEN, boot=up), up)
        assert decision.fires == ()
        assert decision.passed == (Passed(slot, Reason.WINDOW),)

    def test_a_cron_slot_that_a_running_gateway_comes_to_late_fires(self) -> None:
        slot = at("2026-05-21T03:00")
        assert fires(entry(Cron("0 3 * * *")), SEEN, slot + 9 * HOUR) == [slot]

    def test_start_that_a_clock_set_back_lies_before_hides_no_cron_slot(self) -> None:
        slot = at("2026-05-21T03:00")
        anchors = replace(SEEN, boot=slot + 1000 * HOUR)
        assert fires(entry(Cron("0 3 * * *")), anchors, slot) == [slot]

    def test_every_missed_cron_occurrence_of_a_day_is_recorded(self) -> None:
        anchors = replace(SEEN, boot=NOON + 24 * HOUR)
        decision = due(entry(Cron("* * * * *")), anchors, NOON + 24 * HOUR)
        assert len(decision.passed) == 24 * 60 - 1
        assert decision.passed[0].slot == NOON + MINUTE
        assert [run.slot for run in decision.fires] == [NOON + 24 * HOUR]

    @pytest.mark.parametrize("expr", ["* * * * *", "* 0 1 * *", "7,8 3-5 * * 1", "0 0 1 1 *"])
    def test_of_years_of_cron_occurrences_the_newest_are_reported(self, expr: str) -> None:
        rule, now = Cron(expr), at("2036-05-20T12:34:56")
        decision = due(entry(rule), replace(SEEN, boot=now), now)
        times = [passed.slot for passed in decision.passed]
        times += [run.slot for run in decision.fires]
        assert len(times) == (10 if expr == "0 0 1 1 *" else LOOKED_BACK)
        for earlier, later in pairwise(times):
            assert next_after(expr, earlier, UTC_ZONE) == later
        following = next_after(expr, times[-1], UTC_ZONE)
        assert following is not None
        assert following > now

    def test_cron_finds_its_newest_due_slot_years_later(self) -> None:
        for expr, newest in (
            ("* * * * *", "2036-05-20T12:34"),
            ("30 * * * *", "2036-05-20T12:30"),
            ("0 3 * * 1", "2036-05-19T03:00"),
            ("* 0 1 * *", "2036-05-01T00:59"),
        ):
            decision = due(entry(Cron(expr)), SEEN, at("2036-05-20T12:34:56"))
            assert [run.slot for run in decision.fires] == [at(newest)]


class TestHeld:
    """Back by what may soon be over, an `every` run stays due until it fires."""

    WEEK = 7 * 24 * HOUR
    WEEKLY = entry(Every(7 * 86_400))

    @pytest.mark.parametrize("reason", [Reason.UNHEALTHY, Reason.BREAKER_OPEN])
    @pytest.mark.parametrize("rule", [Every(7 * 86_400), Monthly()], ids=str)
    def test_it_is_tried_again_every_minute(self, rule: Every | Monthly, reason: Reason) -> None:
        schedule, anchors = entry(rule), SEEN
        now = slot = next_due(schedule, SEEN, NOON)
        for _ in range(90):
            assert now is not None
            (run,) = due(schedule, anchors, now).fires
            assert run.slot == slot
            anchors = held(schedule, anchors, run, Hold(reason), now)
            assert next_look(schedule, anchors, now) == now + MINUTE
            now += MINUTE
        assert fires(schedule, anchors, now) == [slot]

    def test_a_short_interval_is_not_stretched(self) -> None:
        schedule, now = entry(Every(10)), NOON + timedelta(seconds=10)
        (run,) = due(schedule, SEEN, now).fires
        anchors = held(schedule, SEEN, run, Hold(Reason.UNHEALTHY), now)
        assert next_look(schedule, anchors, now) == now + timedelta(seconds=10)

    def test_its_successor_takes_its_place_and_neither_is_caught_up(self) -> None:
        for policy in CatchUp:
            schedule, anchors = entry(Every(3600), catch_up=policy), SEEN
            for minutes in range(60, 600):
                now = NOON + minutes * MINUTE
                decision = due(schedule, anchors, now)
                anchors = decision.anchors
                for run in decision.fires:
                    anchors = held(schedule, anchors, run, Hold(Reason.UNHEALTHY), now)
            assert fires(schedule, anchors, NOON + 600 * MINUTE - MINUTE) == [NOON + 9 * HOUR]

    def test_at_first_sight_it_stays_due_too(self) -> None:
        fresh = Anchors(first_seen=NOON, boot=NOON)
        (run,) = due(self.WEEKLY, fresh, NOON).fires
        anchors = held(self.WEEKLY, fresh, run, Hold(Reason.UNHEALTHY), NOON)
        assert fires(self.WEEKLY, anchors, NOON + HOUR) == [NOON]

    @pytest.mark.parametrize("rule", [Every(3600), Cron("0 * * * *")], ids=str)
    def test_run_that_waits_for_other_polls_stays_due_until_its_successor(
        self, rule: Every | Cron
    ) -> None:
        schedule, slot = entry(rule), NOON + HOUR
        hold = Hold(Reason.RUNNING, by_other_polls=True)
        (run,) = due(schedule, SEEN, slot).fires
        anchors = held(schedule, SEEN, run, hold, slot)
        assert next_look(schedule, anchors, slot) == slot + MINUTE
        assert fires(schedule, anchors, slot + 59 * MINUTE) == [slot]
        late = due(schedule, anchors, slot + HOUR)
        assert [run.slot for run in late.fires] == [slot + HOUR]
        assert late.passed == (Passed(slot, Reason.CATCH_UP_SKIPPED),)

    @pytest.mark.parametrize("policy", CatchUp)
    def test_run_that_waits_for_other_polls_is_not_caught_up(self, policy: CatchUp) -> None:
        schedule, anchors = entry(Every(10), catch_up=policy), SEEN
        for seconds in range(10, 120, 5):
            now = NOON + timedelta(seconds=seconds)
            decision = due(schedule, anchors, now)
            anchors = decision.anchors
            assert len(decision.fires) == 1
            for run in decision.fires:
                verdict = admit(
                    schedule,
                    run,
                    queued=0,
                    running=0,
                    others=1,
                    max_outstanding=1,
                    breaker_allows=True,
                    healthy=True,
                )
                assert verdict == HELD_BY_OTHERS
                anchors = held(schedule, anchors, run, verdict, now)

    def test_cron_continues_with_its_next_occurrence(self) -> None:
        schedule, slot = entry(Cron("0 3 * * *")), at("2026-05-21T03:00")
        (run,) = due(schedule, SEEN, slot).fires
        anchors = held(schedule, SEEN, run, Hold(Reason.UNHEALTHY), slot)
        assert next_look(schedule, anchors, slot) == slot + 24 * HOUR


class TestPause:
    def test_slots_pass_with_the_reason_and_are_not_caught_up(self) -> None:
        for rule in (Every(3600), Cron("0 * * * *")):
            schedule = entry(rule, catch_up=CatchUp.RUN_ALL)
            decision = due(schedule, replace(SEEN, paused=True), NOON + 3 * HOUR)
            assert decision.fires == ()
            assert decision.passed == tuple(
                Passed(NOON + n * HOUR, Reason.PAUSED) for n in (1, 2, 3)
            )
            resumed = replace(decision.anchors, paused=False)
            assert fires(schedule, resumed, NOON + 3 * HOUR + MINUTE) == []
            assert fires(schedule, resumed, NOON + 4 * HOUR) == [NOON + 4 * HOUR]

    def test_a_preview_of_a_paused_entry_is_empty(self) -> None:
        assert coming(HOURLY, replace(SEEN, paused=True), NOON, 3) == []


RUN = Run(NOON, NOON)
OWED = Run(NOON, NOON, catch_up=True)


HELD = Hold(Reason.RUNNING)
HELD_BY_OTHERS = Hold(Reason.RUNNING, by_other_polls=True)


@pytest.mark.parametrize(
    ("policy", "run", "queued", "running", "others", "most", "verdict"),
    [
        (IfRunning.SKIP, RUN, 0, 0, 0, 1, Fire()),
        (IfRunning.SKIP, RUN, 1, 0, 0, 1, HELD),
        (IfRunning.SKIP, RUN, 0, 1, 0, 1, HELD),
        (IfRunning.SKIP, RUN, 1, 1, 0, 3, Fire()),
        (IfRunning.SKIP, RUN, 1, 2, 0, 3, HELD),
        (IfRunning.SKIP, RUN, 0, 0, 1, 1, HELD_BY_OTHERS),
        (IfRunning.SKIP, RUN, 0, 0, 1, 2, Fire()),
        (IfRunning.SKIP, RUN, 0, 1, 1, 2, HELD),
        (IfRunning.SKIP, OWED, 7, 1, 7, 1, Fire()),
        (IfRunning.QUEUE, RUN, 0, 1, 0, 1, Fire()),
        (IfRunning.QUEUE, RUN, 1, 1, 0, 1, HELD),
        (IfRunning.QUEUE, RUN, 1, 1, 0, 9, HELD),
        (IfRunning.QUEUE, RUN, 0, 1, 1, 1, HELD_BY_OTHERS),
        (IfRunning.QUEUE, RUN, 0, 1, 1, 2, Fire()),
        (IfRunning.QUEUE, OWED, 7, 1, 7, 1, Fire()),
        (IfRunning.CANCEL, RUN, 0, 0, 0, 1, Fire()),
        (IfRunning.CANCEL, RUN, 0, 1, 0, 1, Fire(cancel_outstanding=True)),
        (IfRunning.CANCEL, RUN, 2, 0, 0, 1, Fire(cancel_outstanding=True)),
        (IfRunning.CANCEL, RUN, 0, 1, 1, 1, HELD_BY_OTHERS),
        (IfRunning.CANCEL, OWED, 2, 0, 0, 1, Fire()),
    ],
)
def test_the_guard_counts_by_the_policy(
    policy: IfRunning,
    run: Run,
    queued: int,
    running: int,
    others: int,
    most: int,
    verdict: Fire | Hold,
) -> None:
    assert verdict == admit(
        entry(Every(60), if_running=policy),
        run,
        queued=queued,
        running=running,
        others=others,
        max_outstanding=most,
        breaker_allows=True,
        healthy=True,
    )


@pytest.mark.parametrize("run", [RUN, OWED])
def test_breaker_and_health_hold_every_run(run: Run) -> None:
    def verdict(breaker_allows: bool, healthy: bool) -> Fire | Hold:
        return admit(
            HOURLY,
            run,
            queued=0,
            running=0,
            others=0,
            max_outstanding=1,
            breaker_allows=breaker_allows,
            healthy=healthy,
        )

    assert verdict(False, True) == Hold(Reason.BREAKER_OPEN)
    assert verdict(True, False) == Hold(Reason.UNHEALTHY)
    assert verdict(False, False) == Hold(Reason.UNHEALTHY)
