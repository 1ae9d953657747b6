"""What comes late changes nothing: settlements, undone claims, cancels and retries of a job that
has moved on, on both engines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ductile.clock import Ids
from ductile.core.jobs.judge import judge
from ductile.model import Ending, JobStatus, Outcome
from ductile.store.engines.api import Ledger
from ductile.store.jobs import close, requeue, retries
from ductile.store.jobs.claim import ClaimedJob, ClaimPolicy
from ductile.store.jobs.settle import settle_many
from tests.conftest import CountingEntropy, FakeClock
from tests.store.jobs.harness import BAD, BASE, OK, RULES, TX_CONFIG, JobQueue

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


def test_late_settlements_of_a_batch_change_nothing(q: JobQueue) -> None:
    """PostgreSQL settles a batch by a statement of its own, with a guard of its own."""
    q.put()
    retried = q.must_take()
    assert q.end(retried, BAD)
    q.clock.advance(3600)
    q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now()))
    assert q.must_take().job.attempt == 2
    q.put()
    given_back = q.must_take()
    undo(q, given_back)
    assert q.must_take(OTHER).job.owner == "boot-2"
    q.put()
    current = q.must_take()

    before = [q.job(late.job.id) for late in (retried, given_back)]
    settlements = [
        (judge(each.job, OK, RULES, q.clock.now(), 0.5), f"{BASE[:-1]}{number}")
        for number, each in enumerate((retried, given_back, current))
    ]
    settled = q.ledger.write(lambda tx: settle_many(tx, settlements, TX_CONFIG))
    assert [each and each.job.id for each in settled] == [None, None, current.job.id]
    assert [q.job(late.job.id) for late in (retried, given_back)] == before
    assert [job["status"] for job in before] == [JobStatus.RUNNING] * 2
    assert q.job(current.job.id)["status"] == JobStatus.SUCCEEDED


def test_late_undo_does_not_requeue_the_next_attempt(q: JobQueue) -> None:
    q.put()
    first = q.must_take()
    assert q.end(first, BAD)
    q.clock.advance(3600)
    q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now()))
    second = q.must_take()
    assert not q.ledger.write(lambda tx: requeue.undo_claim(tx, first.job, q.clock.now()))
    assert q.job(first.job.id)["status"] == JobStatus.RUNNING
    assert q.end(second)


def test_late_undo_does_not_requeue_an_ended_job(q: JobQueue) -> None:
    q.put()
    claimed = q.must_take()
    assert q.end(claimed)
    assert not q.ledger.write(lambda tx: requeue.undo_claim(tx, claimed.job, q.clock.now()))
    assert q.job(claimed.job.id)["status"] == JobStatus.SUCCEEDED


def test_late_cancel_of_a_queued_job_does_not_end_the_running_one(q: JobQueue) -> None:
    id = q.put().job_id
    [queued] = q.ledger.read(lambda tx: requeue.list_queued(tx, "echo", 10))
    claimed = q.must_take()
    now, dead = q.clock.now(), JobStatus.DEAD
    assert not q.ledger.write(
        lambda tx: close.end_queued(tx, queued, dead, "cancelled", now, TX_CONFIG, Ids(BASE))
    )
    assert q.job(id)["status"] == JobStatus.RUNNING
    assert q.end(claimed)


def test_second_retry_of_the_same_end_changes_nothing(q: JobQueue) -> None:
    id = q.put(attempts=1).job_id
    claimed = q.must_take()
    assert q.end(claimed, BAD)
    dead = replace(claimed.job, status=JobStatus.DEAD)
    assert q.ledger.write(lambda tx: requeue.retry_job(tx, dead, 1, q.clock.now()))
    assert not q.ledger.write(lambda tx: requeue.retry_job(tx, dead, 1, q.clock.now()))
    assert q.end(q.must_take(), BAD)
    # The job is dead again, by another attempt than the one that this retry has seen.
    assert not q.ledger.write(lambda tx: requeue.retry_job(tx, dead, 1, q.clock.now()))
    job = q.job(id)
    assert (job["status"], job["attempt"]) == (JobStatus.DEAD, 2)
