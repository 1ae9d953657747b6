"""Jobs that are claimed before a worker is idle: how many, in which order, and their way back."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import orjson
import pytest

from ductile.clock import Clock
from ductile.engine.dispatch import prefetch
from ductile.engine.dispatch.attempt import Attempt
from ductile.engine.dispatch.prefetch import PrefetchQueue, RecentEnds
from ductile.model import Cancellation, Launch, Settlement
from tests.engine.dispatch.fakes import Backlog, backlog
from tests.engine.site import Site
from tests.waiting import WAIT_LIMIT, until

RUNNING, QUEUED, SUCCEEDED = "running", "queued", "succeeded"


@pytest.fixture(autouse=True)
def no_attempt_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is; tests of expiry set a limit of their own."""
    monkeypatch.setattr(prefetch, "LONGEST_WAIT", float("inf"))
    monkeypatch.setattr(prefetch, "SHORT_JOB", float("inf"))


@pytest.fixture
def pair(site: Site) -> Iterator[Backlog]:
    """Two workers that run the first two of eight jobs."""
    with backlog(site, slots=2, jobs=8) as under_test:
        yield under_test


@pytest.fixture
def few(site: Site) -> Iterator[Backlog]:
    """Two workers that run the first two of five jobs."""
    with backlog(site, slots=2, jobs=5) as under_test:
        yield under_test


@pytest.fixture
def single(site: Site) -> Iterator[Backlog]:
    """One worker that runs the first of three jobs."""
    with backlog(site, slots=1, jobs=3) as under_test:
        yield under_test


def number(pair: Backlog, launch: Launch) -> int:
    """Which of the jobs this is."""
    return pair.ids.index(str(orjson.loads(launch.request)["job_id"]))


def numbers(pair: Backlog) -> list[list[int]]:
    """The jobs in each slot's buffer, in order."""
    return [[number(pair, launch) for launch in slot.waiting] for slot in pair.slots]


# How many


@pytest.mark.parametrize(
    ("workers", "finished", "waiting", "demand"),
    [
        (8, 0, 0, 0),
        (8, 1, 0, 0),
        (8, 2, 0, 8),
        (8, 2, 7, 1),
        (8, 2, 9, 0),
        (8, 7, 4, 24),
        (8, 100, 4, 44),
        (2, 2, 0, 8),
        (2, 4, 0, 12),
        (1, 2, 0, 0),
    ],
)
def test_demand_is_what_ends_in_four_rounds_and_fits_into_the_buffers(
    workers: int, finished: int, waiting: int, demand: int
) -> None:
    assert PrefetchQueue(workers, lambda: False).demand(finished, waiting) == demand


@pytest.mark.parametrize(("finished", "waiting", "demand"), [(1, 0, 0), (2, 0, 8), (8, 3, 21)])
def test_three_jobs_per_worker_are_prefetched_where_nodes_share_the_ledger(
    finished: int, waiting: int, demand: int
) -> None:
    assert PrefetchQueue(8, lambda: True).demand(finished, waiting) == demand


def test_jobs_that_end_one_by_one_count_for_a_moment() -> None:
    ends = RecentEnds()
    assert ends.seconds_until(4) == prefetch.LONGEST_NAP
    assert [ends.add(at / 1000, 1) for at in (0, 2, 4, 6, 8, 11)] == [1, 2, 3, 4, 5, 5]
    # Five in ten milliseconds.
    assert ends.seconds_until(2) == pytest.approx(0.004)
    assert ends.add(0.012, 20) == 25
    assert ends.seconds_until(4) == prefetch.SHORTEST_NAP
    assert ends.add(1.0, 1) == 1


def test_two_jobs_that_end_together_cause_a_prefetch(pair: Backlog) -> None:
    pair.finish(*pair.slots)
    pair.until(*[SUCCEEDED] * 2, *[RUNNING] * 6)
    assert pair.dispatcher.busy == 2
    until(lambda: pair.dispatcher.owned_jobs() == set(pair.ids[2:]))
    pair.finish_everything()
    assert pair.statuses() == [SUCCEEDED] * 8
    assert [pair.running.job(id)["attempt"] for id in pair.ids] == [1] * 8


def test_one_job_that_ends_alone_causes_one_claim(pair: Backlog) -> None:
    pair.finish(pair.slots[0])
    pair.until(SUCCEEDED, *[RUNNING] * 2, *[QUEUED] * 5)
    pair.finish_everything()


def test_one_worker_alone_prefetches_nothing(single: Backlog) -> None:
    """Each job sees the plugin state that the one before it left."""
    single.finish(*single.slots)
    single.until(SUCCEEDED, RUNNING, QUEUED)
    single.finish_everything()


# Buffers of slots


def test_a_busy_slot_starts_a_buffered_job_by_itself(pair: Backlog) -> None:
    pair.finish(*pair.slots)
    pair.until_buffered()
    starts = pair.slots[0].starts
    pair.finish(pair.slots[0])
    assert pair.slots[0].started.acquire(timeout=WAIT_LIMIT)
    until(lambda: pair.slots[0].starts > starts)
    pair.finish_everything()


def test_nothing_is_buffered_behind_a_job_that_takes_longer(
    pair: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "SHORT_JOB", -1.0)
    pair.finish(*pair.slots)
    pair.until(*[SUCCEEDED] * 2, *[RUNNING] * 6)
    assert numbers(pair) == [[], []]
    pair.finish_everything()
    assert pair.statuses() == [SUCCEEDED] * 8


def test_buffers_are_filled_evenly_and_in_order(pair: Backlog) -> None:
    pair.finish(*pair.slots)
    until(lambda: all(slot.buffered == 2 for slot in pair.slots))
    assert sorted(numbers(pair)) == [[4, 6], [5, 7]]
    pair.finish_everything()


def test_recalled_jobs_are_buffered_again_in_order(pair: Backlog) -> None:
    pair.finish(*pair.slots)
    until(lambda: all(slot.buffered == 2 for slot in pair.slots))
    before = numbers(pair)
    for slot in pair.slots:
        slot.recall()
    until(lambda: all(slot.given_back == slot.buffered == 2 for slot in pair.slots))
    after = numbers(pair)
    assert sorted(after[0] + after[1]) == [4, 5, 6, 7]
    assert after == [sorted(line) for line in after]
    assert [line[0] for line in after] == [line[0] for line in before]
    pair.finish_everything()


def test_a_job_that_no_slot_buffers_waits_for_an_idle_worker(pair: Backlog) -> None:
    for slot in pair.slots:
        slot.buffers = False
    pair.finish(*pair.slots)
    pair.until(*[SUCCEEDED] * 2, *[RUNNING] * 6)
    pair.finish_everything()
    assert pair.statuses() == [SUCCEEDED] * 8


def test_an_idle_worker_gets_a_job_from_the_buffer_of_a_busy_one(few: Backlog) -> None:
    few.finish(*few.slots)
    few.until(*[SUCCEEDED] * 2, *[RUNNING] * 3)
    until(lambda: any(slot.buffered for slot in few.slots))
    [holder] = [slot for slot in few.slots if slot.buffered]
    [other] = [slot for slot in few.slots if slot is not holder]
    starts = other.starts
    few.finish(other)
    until(lambda: other.starts > starts)
    assert holder.recalls
    few.finish_everything()


# Naps between rounds


class NapClock:
    """A clock whose naps last until the test ends them."""

    def __init__(self, clock: Clock) -> None:
        self.now, self.monotonic = clock.now, clock.monotonic
        self.started, self.over = threading.Semaphore(0), threading.Semaphore(0)

    def wait(self, wake: threading.Event, timeout: float) -> bool:
        assert prefetch.SHORTEST_NAP <= timeout <= prefetch.LONGEST_NAP
        self.started.release()
        assert self.over.acquire(timeout=WAIT_LIMIT)
        return wake.is_set()


@pytest.fixture
def naps(pair: Backlog, monkeypatch: pytest.MonkeyPatch) -> Iterator[NapClock]:
    naps = NapClock(pair.running.gateway.clock)
    monkeypatch.setattr(pair.running.gateway, "clock", naps)
    yield naps
    naps.over.release(1000)


def test_jobs_that_end_during_a_nap_are_settled_in_one_commit(
    pair: Backlog, naps: NapClock
) -> None:
    pair.finish(*pair.slots)
    assert naps.started.acquire(timeout=WAIT_LIMIT)
    commits = int(str(pair.running.gateway.ledger.health()["commits"]))
    for slot in pair.slots:
        slot.finish()
    assert pair.statuses().count(SUCCEEDED) == 2
    naps.over.release()
    until(lambda: pair.statuses().count(SUCCEEDED) == 4)
    assert int(str(pair.running.gateway.ledger.health()["commits"])) == commits + 1
    naps.over.release(1000)
    pair.finish_everything()


def test_a_slot_that_cannot_buffer_does_not_prevent_naps(pair: Backlog, naps: NapClock) -> None:
    """It runs a long job."""
    pair.slots[1].room = 0
    pair.finish(*pair.slots)
    assert naps.started.acquire(timeout=WAIT_LIMIT)
    naps.over.release(1000)
    pair.finish_everything()


def test_dispatcher_does_not_sleep_while_a_slot_has_an_empty_buffer(
    pair: Backlog, naps: NapClock
) -> None:
    pair.slots[1].buffers = False
    pair.finish(*pair.slots)
    until(lambda: pair.slots[0].buffered > 0)
    pair.finish(pair.slots[0])
    until(lambda: pair.statuses().count(SUCCEEDED) == 3)
    assert not naps.started.acquire(blocking=False)
    pair.finish_everything()


# Attempts that do not start

in_buffer_and_in_gateway = pytest.mark.parametrize(
    "buffers", [True, False], ids=["in a slot's buffer", "in the gateway"]
)


@in_buffer_and_in_gateway
def test_a_job_that_waits_too_long_goes_back_uncounted(
    pair: Backlog, monkeypatch: pytest.MonkeyPatch, buffers: bool
) -> None:
    for slot in pair.slots:
        slot.buffers = buffers
    monkeypatch.setattr(prefetch, "LONGEST_WAIT", 0.05)
    pair.finish(*pair.slots)
    pair.until(*[SUCCEEDED] * 2, *[RUNNING] * 2, *[QUEUED] * 4)
    job = pair.running.job(pair.ids[-1])
    assert job["last_error"] == "no worker became free for it"
    assert job["max_attempts"] - job["attempt"] == 3
    until(lambda: pair.dispatcher.owned_jobs() == set(pair.ids[2:4]))
    pair.finish_everything()
    assert pair.statuses() == [SUCCEEDED] * 8


def test_a_job_that_goes_back_keeps_its_place_in_the_queue(
    pair: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "LONGEST_WAIT", 0.05)
    pair.finish(*pair.slots)
    pair.until(*[SUCCEEDED] * 2, *[RUNNING] * 2, *[QUEUED] * 4)
    pair.finish(pair.slots[0])
    until(lambda: pair.statuses()[4] == RUNNING)
    assert pair.statuses()[5:] == [QUEUED] * 3
    pair.finish_everything()


@in_buffer_and_in_gateway
def test_a_prefetched_job_can_be_cancelled(pair: Backlog, buffers: bool) -> None:
    for slot in pair.slots:
        slot.buffers = buffers
    pair.finish(*pair.slots)
    pair.until(*[SUCCEEDED] * 2, *[RUNNING] * 6)
    if buffers:
        pair.until_buffered()
    chosen = pair.ids[4]
    # As the gateway does: the ledger shows a claim before the dispatcher knows of its commit.
    until(lambda: pair.dispatcher.cancel(Cancellation.OPERATOR, job_id=chosen))
    job = pair.running.ended(chosen)
    assert (job["status"], job["last_error"]) == ("dead", "cancelled")
    pair.finish_everything()


@pytest.mark.parametrize("index", [2, 4], ids=["for an idle worker", "for a buffer"])
def test_job_that_is_cancelled_during_its_preparation_does_not_run(
    pair: Backlog, monkeypatch: pytest.MonkeyPatch, index: int
) -> None:
    chosen, prepare = pair.ids[index], Attempt.prepare
    found: list[bool] = []

    def cancel_and_prepare(attempt: Attempt) -> Launch | Settlement:
        if attempt.job.id == chosen:
            found.append(pair.dispatcher.cancel(Cancellation.OPERATOR, job_id=chosen))
        return prepare(attempt)

    monkeypatch.setattr(Attempt, "prepare", cancel_and_prepare)
    pair.finish(*pair.slots)
    job = pair.running.ended(chosen)
    assert found == [True]
    assert (job["status"], job["last_error"]) == ("dead", "cancelled")
    pair.finish_everything()


def test_cancelled_job_that_starts_before_its_recall_is_cancelled_then(pair: Backlog) -> None:
    for slot in pair.slots:
        slot.gives_back = False
    pair.finish(*pair.slots)
    pair.until_buffered()
    cancelled: list[int] = []
    for slot in pair.slots:
        slot.on_cancel = lambda slot=slot: cancelled.append(slot.starts)  # type: ignore[misc]
    assert pair.dispatcher.cancel(Cancellation.OPERATOR, job_id=pair.ids[4])
    until(lambda: sum(slot.recalls for slot in pair.slots) > 0)
    assert not cancelled
    pair.finish(*pair.slots)
    until(lambda: bool(cancelled))
    pair.finish_everything()


def test_a_stop_gives_unstarted_jobs_back_uncounted(pair: Backlog) -> None:
    pair.finish(*pair.slots)
    pair.until_buffered()
    pair.running.gateway.stopping.set()
    pair.running.gateway.work_signal.wake()
    pair.until(*[SUCCEEDED] * 2, *[RUNNING] * 2, *[QUEUED] * 4)
    for id in pair.ids[4:]:
        job = pair.running.job(id)
        assert job["last_error"] == "the gateway stopped"
        assert job["max_attempts"] - job["attempt"] == 3


def test_a_lost_lease_gives_unstarted_jobs_back_uncounted(
    pair: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.finish(*pair.slots)
    pair.until_buffered()
    with monkeypatch.context() as lost:
        lost.setattr(pair.running.gateway, "lease_term", lambda: None)
        pair.running.gateway.work_signal.wake()
        pair.until(*[SUCCEEDED] * 2, *[RUNNING] * 2, *[QUEUED] * 4)
        for id in pair.ids[4:]:
            job = pair.running.job(id)
            assert job["max_attempts"] - job["attempt"] == 3
    pair.running.gateway.claim_again()
    pair.finish_everything()
