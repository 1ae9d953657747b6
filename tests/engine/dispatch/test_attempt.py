"""The table of attempt states, and what an attempt decides by itself."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ductile.engine.dispatch.attempt import CANCELLABLE, TRANSITIONS, Attempt, AttemptState
from ductile.model import Cancellation, JobStatus, Launch
from ductile.runner.started_flags import NO_ENTRY
from ductile.store.jobs.claim import ClaimedJob, claim
from tests.engine.site import OK, Site

State = AttemptState


@pytest.fixture
def claimed(site: Site) -> Iterator[tuple[object, ClaimedJob]]:
    """A gateway that is not started, and a job that it has claimed."""
    site.plugin("echo", OK)
    with site.opened() as running:
        gateway = running.gateway
        running.put("echo")
        now, policy = gateway.clock.now(), gateway.claim_policy()
        [one] = gateway.ledger.write(lambda tx: claim(tx, policy, now))
        yield gateway, one


@pytest.fixture
def attempt(claimed: tuple[object, ClaimedJob]) -> Attempt:
    gateway, one = claimed
    return Attempt(gateway, one, NO_ENTRY)  # type: ignore[arg-type]


def reachable(state: State) -> set[State]:
    found, edge = {state}, [state]
    while edge:
        fresh = TRANSITIONS[edge.pop()] - found
        found |= fresh
        edge += fresh
    return found


def test_every_state_is_in_the_table() -> None:
    assert set(TRANSITIONS) == set(State)


def test_every_state_is_reached_from_the_claim() -> None:
    assert reachable(State.PREFETCHED) == set(State)


@pytest.mark.parametrize("state", State)
def test_every_attempt_can_become_done(state: State) -> None:
    assert State.DONE in reachable(state)


def test_an_attempt_that_has_ended_never_runs_again() -> None:
    for state in (State.JUDGING, State.SETTLING, State.DONE):
        assert not reachable(state) & CANCELLABLE


def test_attempt_passes_the_states_of_a_job_that_runs_and_ends(attempt: Attempt) -> None:
    for state in (State.STARTING, State.RUNNING, State.JUDGING, State.SETTLING, State.DONE):
        attempt.move_to(state)
    assert attempt.state is State.DONE


@pytest.mark.parametrize(
    ("states", "refused"),
    [
        ((), State.RUNNING),
        ((), State.SETTLING),
        ((), State.DONE),
        ((State.STARTING,), State.PREFETCHED),
        ((State.STARTING, State.RUNNING), State.STARTING),
        ((State.STARTING, State.RUNNING), State.PREFETCHED),
        ((State.JUDGING, State.SETTLING), State.JUDGING),
    ],
)
def test_a_transition_outside_the_table_is_a_bug(
    attempt: Attempt, states: tuple[State, ...], refused: State
) -> None:
    for state in states:
        attempt.move_to(state)
    before = attempt.state
    with pytest.raises(RuntimeError, match=f"from {before.name} to {refused.name}"):
        attempt.move_to(refused)
    assert attempt.state is before


def test_prepare_returns_what_the_slot_runs(attempt: Attempt) -> None:
    prepared = attempt.prepare()
    assert isinstance(prepared, Launch)
    assert prepared.argv[0].endswith("/echo/run")


def test_attempt_that_never_ran_goes_back_to_the_queue_uncounted(attempt: Attempt) -> None:
    settlement = attempt.judge_unstarted(Cancellation.NO_WORKER)
    assert settlement.path[-1] is JobStatus.QUEUED
    assert (settlement.counted, settlement.error) == (False, Cancellation.NO_WORKER)


def test_a_cancellation_decides_about_an_attempt_that_never_ran(attempt: Attempt) -> None:
    attempt.cancelled = Cancellation.OPERATOR
    settlement = attempt.judge_unstarted(Cancellation.STOP)
    assert settlement.path[-1] is JobStatus.DEAD
    assert settlement.error == Cancellation.OPERATOR


def test_a_bug_in_our_code_counts_as_a_lost_attempt(attempt: Attempt) -> None:
    settlement = attempt.judge_bug(RuntimeError("a bug"))
    assert settlement.counted
    assert "internal error: a bug" in str(settlement.error)
