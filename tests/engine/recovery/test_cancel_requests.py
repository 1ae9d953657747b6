"""Cancel requests reach the node that runs the job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from ductile.engine.recovery.cancel_requests import (
    IDLE_SECONDS,
    RETRY_SECONDS,
    UNKNOWN_JOB_SECONDS,
    CancelRequestHandler,
)
from ductile.errors import Refused
from ductile.model import Cancellation, JobStatus
from ductile.operations import jobs
from ductile.operations.jobs import JobCancellation
from ductile.store import notices
from ductile.store.engines.api import BEGINNING, StoredNotice
from ductile.store.jobs import cancel_requests
from tests.conftest import FakeClock
from tests.engine.site import OK, Gate, Running, Site
from tests.postgres import Server
from tests.waiting import until

TEXT = '{"owner": "ours", "reason": "cancelled"}'
REQUEST = StoredNotice(1, "jobs", cancel_requests.REQUESTED, "j", TEXT, "")


class HandlerHarness:
    """The parts of a node that a request needs."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock, self.wakes = clock, 0
        self.owned: set[str] = set()
        self.running: set[str] = set()
        self.cancelled: list[tuple[str, Cancellation]] = []
        self.handler = CancelRequestHandler(
            "ours", clock, lambda: self.owned, self._cancel, self._wake
        )

    def _cancel(self, job_id: str, why: Cancellation) -> bool:
        if job_id in self.running:
            self.cancelled.append((job_id, why))
        return job_id in self.running

    def _wake(self) -> None:
        self.wakes += 1

    def tick(self) -> float:
        return self.handler.tick(self.clock.now())


@pytest.fixture
def harness(clock: FakeClock) -> HandlerHarness:
    return HandlerHarness(clock)


def test_running_job_is_cancelled_once_with_the_given_reason(harness: HandlerHarness) -> None:
    harness.running = {"j", "k"}
    harness.handler.receive(REQUEST)
    assert (harness.wakes, harness.cancelled) == (1, []), "receive must not block"
    assert (harness.tick(), harness.tick()) == (IDLE_SECONDS, IDLE_SECONDS)
    assert harness.cancelled == [("j", Cancellation.OPERATOR)]


@pytest.mark.parametrize(
    "payload",
    [
        TEXT.replace("ours", "theirs"),
        TEXT.replace("cancelled", "the gateway stopped"),
        '{"owner": null, "reason": "cancelled"}',
        "{}",
    ],
)
def test_request_for_another_boot_is_ignored(harness: HandlerHarness, payload: str) -> None:
    harness.running = {"j"}
    harness.handler.receive(REQUEST._replace(payload=payload))
    assert (harness.tick(), harness.wakes, harness.cancelled) == (IDLE_SECONDS, 0, [])


def test_job_without_a_process_is_cancelled_when_it_has_one(harness: HandlerHarness) -> None:
    harness.owned = {"j"}
    harness.handler.receive(REQUEST)
    assert harness.tick() == RETRY_SECONDS
    harness.clock.advance(10 * UNKNOWN_JOB_SECONDS)
    assert harness.tick() == RETRY_SECONDS
    harness.running = {"j"}
    assert harness.tick() == IDLE_SECONDS
    assert harness.cancelled == [("j", Cancellation.OPERATOR)]


def test_request_for_an_unknown_job_is_kept_for_a_while(harness: HandlerHarness) -> None:
    """The result of its claim may not have arrived yet."""
    harness.handler.receive(REQUEST)
    assert harness.tick() == RETRY_SECONDS
    harness.clock.advance(UNKNOWN_JOB_SECONDS)
    assert harness.tick() == IDLE_SECONDS
    harness.running = {"j"}
    assert harness.tick() == IDLE_SECONDS
    assert harness.cancelled == []


# Two nodes


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.database()


Make = Callable[..., tuple[Site, Gate]]


@pytest.fixture
def node(url: str, another: Callable[[], Site]) -> Make:
    """Makes a node with one plugin that waits at a gate."""

    def node(**settings: Any) -> tuple[Site, Gate]:
        site = another()
        gate = site.gate()
        site.plugin("work", gate.script() + OK, **settings)
        site.settings["state"] = {"url": url, "dir": str(site.state)}
        return site, gate

    return node


@pytest.fixture
def worker(node: Make) -> Iterator[tuple[Running, Gate]]:
    site, gate = node()
    with site.running() as running:
        yield running, gate


@pytest.fixture
def requester(node: Make, worker: tuple[Running, Gate]) -> Iterator[Running]:
    """A node that runs nothing."""
    site, _ = node()
    with site.opened() as running:
        yield running


def start_jobs(worker: tuple[Running, Gate], count: int = 1) -> list[str]:
    running, gate = worker
    ids = [running.put("work") for _ in range(count)]
    for _ in ids:
        gate.arrived()
    return ids


def requests(running: Running) -> list[str | None]:
    stored = running.gateway.ledger.read(lambda tx: notices.list_after(tx, BEGINNING))
    return [notice.job_id for notice in stored if notice.type == cancel_requests.REQUESTED]


def ignore_requests(running: Running) -> None:
    """Make the node ignore all requests."""
    running.gateway.notice_bus.subscribe(cancel_requests.REQUESTED, lambda _notice: None)


def test_job_of_another_node_is_cancelled(worker: tuple[Running, Gate], requester: Running) -> None:
    [id] = start_jobs(worker)
    assert jobs.cancel(requester.gateway, id) is JobStatus.RUNNING
    job = requester.job(id)
    assert (job["status"], job["last_error"], job["attempt"]) == ("dead", "cancelled", 1)
    assert worker[0].gateway.busy == 0
    assert requests(requester) == [id]


def test_local_cancel_posts_no_request(worker: tuple[Running, Gate]) -> None:
    running, _ = worker
    [id] = start_jobs(worker)
    jobs.cancel(running.gateway, id)
    assert running.ended(id)["status"] == "dead"
    assert requests(running) == []


def test_all_requests_are_posted_before_waiting(
    worker: tuple[Running, Gate], requester: Running
) -> None:
    ids = start_jobs(worker, 2)
    cancelling = JobCancellation(requester.gateway)
    cancelling.request_remote(ids)
    assert {requester.ended(id)["status"] for id in ids} == {"dead"}
    assert [cancelling(id) for id in ids] == [JobStatus.RUNNING] * 2
    assert requests(requester) == ids, "each once"


@pytest.mark.parametrize("how", [{"dry": True}, {"only": JobStatus.QUEUED}])
def test_no_request_without_a_running_job(
    worker: tuple[Running, Gate], requester: Running, how: dict[str, Any]
) -> None:
    ids = start_jobs(worker)
    JobCancellation(requester.gateway, **how).request_remote(ids)
    assert requests(requester) == []
    worker[1].open()


def test_unfulfilled_cancel_is_not_reported_as_done(
    worker: tuple[Running, Gate], requester: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "REMOTE_TIMEOUT", 0.2)
    ignore_requests(worker[0])
    [id] = start_jobs(worker)
    with pytest.raises(Refused, match="the node that runs it has not answered the cancel request"):
        jobs.cancel(requester.gateway, id)
    worker[1].open()
    assert worker[0].ended(id)["status"] == "succeeded"


def test_job_that_ends_by_itself_is_not_reported_as_cancelled(
    worker: tuple[Running, Gate], requester: Running
) -> None:
    ignore_requests(worker[0])
    [id] = start_jobs(worker)
    cancelling = JobCancellation(requester.gateway)
    cancelling.request_remote([id])
    worker[1].open()
    requester.ended(id)
    with pytest.raises(Refused, match="is succeeded"):
        cancelling(id)


def test_no_request_to_a_dead_node(
    worker: tuple[Running, Gate], requester: Running, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "START_TIMEOUT", 0.05)
    [id] = start_jobs(worker)
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE job_queue SET owner = 'nobody'")
    with pytest.raises(Refused, match="no worker of this gateway owns it"):
        jobs.cancel(requester.gateway, id)
    assert requests(requester) == []
    worker[1].open()


def test_newer_occurrence_cancels_the_job_of_another_node(node: Make) -> None:
    schedules = [{"every": "300ms", "if_running": "cancel"}]
    first, gate = node(schedules=schedules)
    second, theirs = node(schedules=schedules)
    with first.running() as running:
        gate.arrived()
        running.gateway.loops["scheduler"].stop()
        [old] = running.gateway.owned_jobs()
        with second.running() as other:
            assert other.ended(old)["last_error"] == Cancellation.SUPERSEDED.value
            until(lambda: running.gateway.busy == 0 or running.gateway.owned_jobs() != {old})
            other.gateway.loops["scheduler"].stop()
            gate.open(20)
            theirs.open(20)
