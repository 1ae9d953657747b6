"""The breaker of one (plugin, command): it stops scheduled jobs after a run of failures.

It counts finished jobs, not attempts, and only jobs of the scheduler; other jobs neither count
nor are stopped.

closed     the normal state; `threshold` failed jobs in a row open it
open       no job is enqueued until `reset_after` has passed
half_open  one job, the probe, is enqueued; its result decides

Any scheduled job that succeeds closes the breaker, also one that was queued before it
opened. In half_open only the probe's failure counts as the verdict. A probe that ends as
neither (cancelled, skipped, its plugin removed) is replaced by the job of the next occurrence; so
is one that is no longer in the ledger: `allow` receives the number of outstanding jobs.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from enum import StrEnum

from ductile._fast_dataclass import dataclass
from ductile.model import JobStatus


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    threshold: int = 3
    """Failed jobs in a row that open the breaker; 0: it never opens, and holds nothing back."""
    reset_after: float = 30 * 60.0
    """Seconds until a probe is enqueued."""


DEFAULT_BREAKER = BreakerPolicy()


MAX_LEAD = timedelta(minutes=1)
"""How far an opening may be in the future without a clock that was set back: on a busy machine the
scheduler decides with a time that was read before the job ended that opened the breaker."""


class State(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class TransitionCause(StrEnum):
    FAILURE_THRESHOLD = "failure_threshold"
    SUCCESS = "success"
    COOLDOWN_ELAPSED = "cooldown_elapsed"
    MANUAL_RESET = "manual_reset"


class Result(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    NEITHER = "neither"

    @classmethod
    def of(cls, status: JobStatus, *, cancelled: bool = False) -> Result:
        """The result of a job's final status; a cancelled job is `dead` but does not count."""
        if status is JobStatus.SUCCEEDED:
            return cls.SUCCESS
        if cancelled or status is JobStatus.SKIPPED:
            return cls.NEITHER
        return cls.FAILURE


TRANSITIONS: dict[tuple[State, TransitionCause], State] = {
    (State.CLOSED, TransitionCause.FAILURE_THRESHOLD): State.OPEN,
    (State.OPEN, TransitionCause.COOLDOWN_ELAPSED): State.HALF_OPEN,
    (State.OPEN, TransitionCause.SUCCESS): State.CLOSED,
    (State.OPEN, TransitionCause.MANUAL_RESET): State.CLOSED,
    (State.HALF_OPEN, TransitionCause.FAILURE_THRESHOLD): State.OPEN,
    (State.HALF_OPEN, TransitionCause.SUCCESS): State.CLOSED,
    (State.HALF_OPEN, TransitionCause.MANUAL_RESET): State.CLOSED,
}
"""Every legal edge; a cause without an edge leaves the state unchanged."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """A row of `circuit_breakers`; `Breaker()` if there is no row."""

    state: State = State.CLOSED
    failure_count: int = 0
    opened_at: datetime | None = None
    last_failure_at: datetime | None = None
    last_job_id: str | None = None
    """The newest finished job that counted."""
    probe_job_id: str | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """A row of `circuit_breaker_transitions`."""

    from_state: State
    to_state: State
    reason: TransitionCause
    failure_count: int
    job_id: str | None


def record(
    breaker: Breaker, result: Result, job_id: str, now: datetime, policy: BreakerPolicy
) -> tuple[Breaker, Transition | None]:
    """A scheduled job has finished."""
    is_probe = job_id == breaker.probe_job_id
    if is_probe:
        breaker = replace(breaker, probe_job_id=None)
    if result is Result.NEITHER:
        return breaker, None
    if result is Result.SUCCESS:
        return _moved(Breaker(breaker.state, last_job_id=job_id), TransitionCause.SUCCESS, job_id)
    breaker = replace(
        breaker,
        failure_count=breaker.failure_count + 1,
        last_failure_at=now,
        last_job_id=job_id,
    )
    trips = is_probe or (
        breaker.state is State.CLOSED and breaker.failure_count >= policy.threshold
    )
    if not trips or not policy.threshold:
        return breaker, None
    return _moved(replace(breaker, opened_at=now), TransitionCause.FAILURE_THRESHOLD, job_id)


def allow(
    breaker: Breaker, now: datetime, policy: BreakerPolicy, *, job_id: str, outstanding: int
) -> tuple[bool, Breaker, Transition | None]:
    """Whether the job `job_id` may be enqueued. Store the result only if it is enqueued.

    `outstanding` counts the queued and running scheduled jobs of this (plugin, command).
    """
    if breaker.state is State.CLOSED or not policy.threshold:
        return True, breaker, None
    transition = None
    if breaker.state is State.OPEN:
        if not _cooled_down(breaker, now, policy):
            return False, breaker, None
        breaker, transition = _moved(breaker, TransitionCause.COOLDOWN_ELAPSED, job_id)
    elif breaker.probe_job_id is not None and outstanding:
        return False, breaker, None
    return True, replace(breaker, probe_job_id=job_id), transition


def blocked_until(breaker: Breaker, now: datetime, policy: BreakerPolicy) -> datetime | None:
    """When an open breaker lets the next job pass; None if it does so now."""
    is_blocking = breaker.state is State.OPEN and policy.threshold
    if not is_blocking or _cooled_down(breaker, now, policy):
        return None
    assert breaker.opened_at is not None
    return breaker.opened_at + timedelta(seconds=policy.reset_after)


def describe_count(failures: object) -> str:
    return f"{failures} failure{'' if failures == 1 else 's'} in a row"


def reset(breaker: Breaker) -> tuple[Breaker, Transition | None]:
    """Reset by an operator: closed, with a count of zero."""
    fresh = Breaker(breaker.state, last_job_id=breaker.last_job_id)
    return _moved(fresh, TransitionCause.MANUAL_RESET, None)


def _cooled_down(breaker: Breaker, now: datetime, policy: BreakerPolicy) -> bool:
    """An opening far in the future (the clock was set back) counts as long past: an early probe
    costs one job, a breaker that stays open stops the schedule.
    """
    if breaker.opened_at is None or breaker.opened_at > now + MAX_LEAD:
        return True
    return now - breaker.opened_at >= timedelta(seconds=policy.reset_after)


def _moved(
    breaker: Breaker, cause: TransitionCause, job_id: str | None
) -> tuple[Breaker, Transition | None]:
    target = TRANSITIONS.get((breaker.state, cause))
    if target is None:
        return breaker, None
    transition = Transition(breaker.state, target, cause, breaker.failure_count, job_id)
    return replace(breaker, state=target), transition
