"""What becomes of slots that were missed, paused or held back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ductile.core.schedule import (
    CATCH_UP_MOST,
    PASSED_LISTED,
    CatchUp,
    Cron,
    Every,
    Fire,
    Hold,
    IfRunning,
    Passed,
    Reason,
    Run,
    admit,
    due,
    fired,
    held,
    next_due,
)
from tests.core.test_schedule import (
    DAYTIME,
    HOUR,
    HOURLY,
    MINUTE,
    NOON,
    SEEN,
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
        assert decision.truncated

    def test_a_slot_that_fell_due_before_the_start_is_owed(self) -> None:
        schedule = entry(Every(3600), catch_up=CatchUp.RUN_ONCE)
        anchors = replace(SEEN, boot=NOON + 90 * MINUTE)
        assert due(schedule, anchors, NOON + 90 * MINUTE).fires[0].catch_up
        assert not due(schedule, SEEN, NOON + 90 * MINUTE).fires[0].catch_up

    def test_after_it_all_goes_on_from_now(self) -> None:
        for policy in CatchUp:
            schedule = entry(Every(3600), catch_up=policy)
            decision = due(schedule, self.DOWN, self.UP)
            anchors = decision.anchors
            for run in decision.fires:
                anchors = fired(schedule, anchors, run.slot, self.UP)
            assert fires(schedule, anchors, self.UP) == []
            assert next_due(schedule, anchors, self.UP) == self.UP + HOUR

    def test_held_back_it_goes_on_from_now_too(self) -> None:
        decision = due(HOURLY, self.DOWN, self.UP)
        anchors = held(HOURLY, decision.anchors, decision.fires[0].slot, self.UP)
        assert next_due(HOURLY, anchors, self.UP) == self.UP + HOUR

    def test_rows_are_bounded(self) -> None:
        decision = due(entry(Every(1)), self.DOWN, self.UP)
        assert len(decision.passed) == PASSED_LISTED
        assert decision.truncated
        assert decision.passed[-1].slot < decision.fires[0].slot

    def test_nights_outside_the_window_were_not_missed(self) -> None:
        schedule = entry(Every(4 * 3600), window=DAYTIME, catch_up=CatchUp.RUN_ALL)
        slots = fires(schedule, replace(SEEN, last_fired_at=NOON), NOON + 24 * HOUR)
        assert [slot.hour for slot in slots] == [16, 20, 8, 12]

    def test_cron_fires_its_newest_due_slot_alone(self) -> None:
        for policy in CatchUp:
            decision = due(entry(Cron("0 * * * *"), catch_up=policy), self.DOWN, self.UP)
            assert decision.fires == (Run(self.SLOTS[-1], self.SLOTS[-1]),)
            assert [passed.slot for passed in decision.passed] == self.SLOTS[:-1]

    def test_cron_finds_its_newest_due_slot_years_later(self) -> None:
        for expr, newest in (
            ("* * * * *", "2036-05-20T12:34"),
            ("30 * * * *", "2036-05-20T12:30"),
            ("0 3 * * 1", "2036-05-19T03:00"),
            ("* 0 1 * *", "2036-05-01T00:59"),
        ):
            decision = due(entry(Cron(expr)), SEEN, at("2036-05-20T12:34:56"))
            assert [run.slot for run in decision.fires] == [at(newest)]
            assert decision.truncated


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


@pytest.mark.parametrize(
    ("policy", "run", "queued", "running", "most", "verdict"),
    [
        (IfRunning.SKIP, RUN, 0, 0, 1, Fire()),
        (IfRunning.SKIP, RUN, 1, 0, 1, Hold(Reason.RUNNING)),
        (IfRunning.SKIP, RUN, 0, 1, 1, Hold(Reason.RUNNING)),
        (IfRunning.SKIP, RUN, 1, 1, 3, Fire()),
        (IfRunning.SKIP, RUN, 1, 2, 3, Hold(Reason.RUNNING)),
        (IfRunning.SKIP, OWED, 7, 1, 1, Fire()),
        (IfRunning.QUEUE, RUN, 0, 1, 1, Fire()),
        (IfRunning.QUEUE, RUN, 1, 1, 1, Hold(Reason.RUNNING)),
        (IfRunning.QUEUE, RUN, 1, 1, 2, Fire()),
        (IfRunning.QUEUE, OWED, 7, 1, 1, Fire()),
        (IfRunning.CANCEL, RUN, 0, 0, 1, Fire()),
        (IfRunning.CANCEL, RUN, 0, 1, 1, Fire(cancel_outstanding=True)),
        (IfRunning.CANCEL, RUN, 2, 0, 1, Fire(cancel_outstanding=True)),
        (IfRunning.CANCEL, OWED, 2, 0, 1, Fire()),
    ],
)
def test_the_guard_counts_what_the_policy_says(
    policy: IfRunning, run: Run, queued: int, running: int, most: int, verdict: Fire | Hold
) -> None:
    assert verdict == admit(
        entry(Every(60), if_running=policy),
        run,
        queued=queued,
        running=running,
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
            max_outstanding=1,
            breaker_allows=breaker_allows,
            healthy=healthy,
        )

    assert verdict(False, True) == Hold(Reason.BREAKER_OPEN)
    assert verdict(True, False) == Hold(Reason.UNHEALTHY)
    assert verdict(False, False) == Hold(Reason.UNHEALTHY)
