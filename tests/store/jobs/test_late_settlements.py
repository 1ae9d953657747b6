"""A settlement writes only to the attempt that its own boot has claimed, on both engines."""

from __future__ import annotations

import pytest

from ductile.model import Ending, JobStatus, Outcome
from ductile.store.engines.api import Ledger
from ductile.store.jobs import requeue, retries
from ductile.store.jobs.claim import ClaimedJob, ClaimPolicy
from tests.conftest import CountingEntropy, FakeClock
from tests.store.jobs.harness import BAD, OK, JobQueue

LATE = Outcome(
    Ending.EXITED,
    exit_code=0,
    stdout=b'{"status": "ok", "result": "late", "state_updates": {"written": "late"}}',
)
OTHER = ClaimPolicy(owner="boot-2")


@pytest.fixture
def q(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> JobQueue:
    return JobQueue(ledger, clock, entropy)


def undo(q: JobQueue, claimed: ClaimedJob) -> None:
    assert q.ledger.write(lambda tx: requeue.undo_claim(tx, claimed.job, q.clock.now()))


def assert_only(q: JobQueue, current: ClaimedJob, late: ClaimedJob) -> None:
    """The late settlement changes nothing, and the current attempt can still be settled."""
    before = q.job(late.job.id)
    assert not q.end(late, LATE)
    assert q.job(late.job.id) == before
    assert q.state("echo") == {}
    assert before["status"] == JobStatus.RUNNING
    assert q.end(current, OK)
    after = q.job(late.job.id)
    assert (after["status"], after["attempt"]) == (JobStatus.SUCCEEDED, current.job.attempt)


def test_first_attempt_does_not_settle_the_second_of_the_same_boot(q: JobQueue) -> None:
    q.put()
    first = q.must_take()
    assert q.end(first, BAD)
    q.clock.advance(3600)
    assert q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now())) == 1
    second = q.must_take()
    assert (second.job.attempt, second.job.owner) == (2, first.job.owner)
    assert_only(q, current=second, late=first)


def test_boot_does_not_settle_the_same_attempt_of_another_boot(q: JobQueue) -> None:
    q.put()
    first = q.must_take()
    undo(q, first)
    second = q.must_take(OTHER)
    assert (second.job.attempt, second.job.owner) == (first.job.attempt, "boot-2")
    assert_only(q, current=second, late=first)


def test_boot_does_not_settle_a_later_attempt_of_another_boot(q: JobQueue) -> None:
    q.put()
    first = q.must_take()
    assert q.end(first, BAD)
    q.clock.advance(3600)
    q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now()))
    second = q.must_take(OTHER)
    assert_only(q, current=second, late=first)


def test_boot_does_not_settle_a_job_that_is_queued_again(q: JobQueue) -> None:
    id = q.put().job_id
    first = q.must_take()
    undo(q, first)
    before = q.job(id)
    assert not q.end(first, LATE)
    assert q.job(id) == before
    assert before["status"] == JobStatus.QUEUED
