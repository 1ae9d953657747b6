"""The breaker: a run of failures opens it, one probe decides, nothing keeps it stuck."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ductile.core.schedules.breaker import (
    TRANSITIONS,
    Breaker,
    BreakerPolicy,
    Result,
    State,
    Transition,
    TransitionCause,
    allow,
    blocked_until,
    record,
    reset,
)
from ductile.model import JobStatus

NOW = datetime(2026, 2, 8, 10, 0, tzinfo=UTC)
POLICY = BreakerPolicy(threshold=3, reset_after=1800)
COOLED = NOW + timedelta(minutes=30)


def opened() -> Breaker:
    breaker = Breaker()
    for n in range(3):
        breaker, _ = record(breaker, Result.FAILURE, f"job-{n}", NOW, POLICY)
    return breaker


def probing() -> Breaker:
    allowed, breaker, _ = allow(opened(), COOLED, POLICY, job_id="probe", outstanding=0)
    assert allowed
    return breaker


def test_failures_in_a_row_open_it_at_the_threshold() -> None:
    breaker = Breaker()
    for n in (1, 2):
        breaker, transition = record(breaker, Result.FAILURE, f"job-{n}", NOW, POLICY)
        assert (breaker.state, breaker.failure_count, transition) == (State.CLOSED, n, None)
    breaker, transition = record(breaker, Result.FAILURE, "job-3", NOW, POLICY)
    assert transition == Transition(
        State.CLOSED, State.OPEN, TransitionCause.FAILURE_THRESHOLD, 3, "job-3"
    )
    assert breaker.state is State.OPEN
    assert breaker.opened_at == breaker.last_failure_at == NOW
    assert breaker.last_job_id == "job-3"


def test_a_success_between_failures_starts_the_count_again() -> None:
    breaker = Breaker()
    for result in (Result.FAILURE, Result.FAILURE, Result.SUCCESS, Result.FAILURE, Result.FAILURE):
        breaker, transition = record(breaker, result, "job", NOW, POLICY)
        assert transition is None
    assert (breaker.state, breaker.failure_count) == (State.CLOSED, 2)


def test_open_lets_nothing_through_until_it_has_cooled_down() -> None:
    almost = COOLED - timedelta(microseconds=1)
    allowed, breaker, transition = allow(opened(), almost, POLICY, job_id="j", outstanding=0)
    assert (allowed, breaker, transition) == (False, opened(), None)


def test_after_the_cooldown_one_probe_goes_through() -> None:
    allowed, breaker, transition = allow(opened(), COOLED, POLICY, job_id="probe", outstanding=0)
    assert allowed
    assert breaker.state is State.HALF_OPEN
    assert transition == Transition(
        State.OPEN, State.HALF_OPEN, TransitionCause.COOLDOWN_ELAPSED, 3, "probe"
    )
    allowed, same, transition = allow(breaker, COOLED, POLICY, job_id="other", outstanding=1)
    assert (allowed, same, transition) == (False, breaker, None)


def test_a_probe_that_succeeds_closes_it() -> None:
    breaker, transition = record(probing(), Result.SUCCESS, "probe", COOLED, POLICY)
    assert breaker == Breaker(last_job_id="probe")
    assert transition == Transition(
        State.HALF_OPEN, State.CLOSED, TransitionCause.SUCCESS, 0, "probe"
    )


def test_a_probe_that_fails_reopens_it_for_a_whole_cooldown() -> None:
    later = COOLED + timedelta(minutes=1)
    breaker, transition = record(probing(), Result.FAILURE, "probe", later, POLICY)
    assert transition == Transition(
        State.HALF_OPEN, State.OPEN, TransitionCause.FAILURE_THRESHOLD, 4, "probe"
    )
    assert breaker.opened_at == later
    assert not allow(breaker, COOLED + timedelta(minutes=30), POLICY, job_id="j", outstanding=0)[0]
    assert allow(breaker, later + timedelta(minutes=30), POLICY, job_id="j", outstanding=0)[0]


def test_probe_that_ends_as_neither_gives_its_place_to_the_next() -> None:
    breaker, transition = record(probing(), Result.NEITHER, "probe", COOLED, POLICY)
    assert (breaker.state, transition) == (State.HALF_OPEN, None)
    allowed, breaker, _ = allow(breaker, COOLED, POLICY, job_id="second", outstanding=3)
    assert allowed
    assert breaker.probe_job_id == "second"


def test_a_probe_that_vanished_gives_its_place_to_the_next() -> None:
    allowed, breaker, _ = allow(probing(), COOLED, POLICY, job_id="second", outstanding=0)
    assert allowed
    assert breaker.probe_job_id == "second"


def test_leftover_that_fails_decides_nothing_while_a_probe_is_out() -> None:
    breaker, transition = record(probing(), Result.FAILURE, "leftover", COOLED, POLICY)
    assert (breaker.state, transition) == (State.HALF_OPEN, None)
    assert breaker.probe_job_id == "probe"


def test_a_leftover_that_fails_does_not_prolong_the_cooldown() -> None:
    breaker, _ = record(opened(), Result.FAILURE, "leftover", NOW + timedelta(minutes=20), POLICY)
    assert allow(breaker, COOLED, POLICY, job_id="probe", outstanding=0)[0]


def test_a_leftover_that_succeeds_closes_it() -> None:
    breaker, transition = record(opened(), Result.SUCCESS, "leftover", NOW, POLICY)
    assert breaker.state is State.CLOSED
    assert transition is not None
    assert transition.reason is TransitionCause.SUCCESS


@pytest.mark.parametrize("breaker", [opened(), probing()])
def test_the_operator_closes_it(breaker: Breaker) -> None:
    fresh, transition = reset(breaker)
    assert fresh == Breaker(last_job_id="job-2")
    assert transition == Transition(
        breaker.state, State.CLOSED, TransitionCause.MANUAL_RESET, 0, None
    )


def test_the_operator_clears_the_count_of_a_closed_one() -> None:
    breaker, _ = record(Breaker(), Result.FAILURE, "job", NOW, POLICY)
    fresh, transition = reset(breaker)
    assert (fresh.failure_count, transition) == (0, None)


@pytest.mark.parametrize("jump", [timedelta(minutes=2), timedelta(hours=1), timedelta(days=3653)])
def test_a_clock_set_back_does_not_keep_it_open(jump: timedelta) -> None:
    allowed, *_ = allow(opened(), NOW - jump, POLICY, job_id="probe", outstanding=0)
    assert allowed


def test_decision_from_before_the_opening_lets_nothing_through() -> None:
    early = NOW - timedelta(milliseconds=5)
    allowed, *_ = allow(opened(), early, POLICY, job_id="probe", outstanding=0)
    assert not allowed


@pytest.mark.parametrize(
    ("status", "cancelled", "result"),
    [
        (JobStatus.SUCCEEDED, False, Result.SUCCESS),
        (JobStatus.FAILED, False, Result.FAILURE),
        (JobStatus.DEAD, False, Result.FAILURE),
        (JobStatus.TIMED_OUT, False, Result.FAILURE),
        (JobStatus.DEAD, True, Result.NEITHER),
        (JobStatus.SKIPPED, False, Result.NEITHER),
    ],
)
def test_a_jobs_end_is_a_verdict_or_none(
    status: JobStatus, cancelled: bool, result: Result
) -> None:
    assert Result.of(status, cancelled=cancelled) is result


class Ledger:
    """The jobs that are out, as the ledger would count them."""

    def __init__(self) -> None:
        self.breaker = Breaker()
        self.out: set[str] = set()
        self.now = NOW
        self.transitions: list[Transition] = []

    def note(self, breaker: Breaker, transition: Transition | None) -> None:
        before, self.breaker = self.breaker, breaker
        if transition is None:
            assert breaker.state is before.state
        else:
            assert transition.from_state is before.state
            assert transition.to_state is breaker.state
            self.transitions.append(transition)


steps = st.lists(
    st.tuples(
        st.sampled_from(["slot", "finish", "lose", "wait", "back", "reset"]),
        st.sampled_from(Result),
        st.integers(0, 3000),
    ),
    max_size=60,
)


@given(steps)
@settings(max_examples=200, deadline=None)
def test_breaker_keeps_to_its_table_and_probes_eventually(
    history: list[tuple[str, Result, int]],
) -> None:
    ledger = Ledger()
    for number, (step, result, seconds) in enumerate(history):
        job = f"job-{number}"
        if step == "slot":
            outstanding = len(ledger.out)
            allowed, breaker, transition = allow(
                ledger.breaker, ledger.now, POLICY, job_id=job, outstanding=outstanding
            )
            if allowed:
                ledger.note(breaker, transition)
                ledger.out.add(job)
        elif step == "finish" and ledger.out:
            ended = min(ledger.out)
            ledger.out.remove(ended)
            ledger.note(*record(ledger.breaker, result, ended, ledger.now, POLICY))
        elif step == "lose":
            ledger.out.clear()
        elif step in ("wait", "back"):
            ledger.now += timedelta(seconds=seconds if step == "wait" else -seconds)
        elif step == "reset":
            ledger.note(*reset(ledger.breaker))
    for transition in ledger.transitions:
        assert TRANSITIONS[transition.from_state, transition.reason] is transition.to_state
    later = ledger.now + timedelta(seconds=POLICY.reset_after)
    assert allow(ledger.breaker, later, POLICY, job_id="last", outstanding=0)[0]


def test_breaker_that_is_off_never_opens_and_holds_nothing_back():
    off = BreakerPolicy(threshold=0)
    breaker = Breaker()
    for n in range(10):
        breaker, transition = record(breaker, Result.FAILURE, f"job-{n}", NOW, off)
        assert transition is None
    assert breaker.state is State.CLOSED
    for held in (opened(), probing()):
        assert allow(held, NOW, off, job_id="next", outstanding=1) == (True, held, None)
        assert blocked_until(held, NOW, off) is None
