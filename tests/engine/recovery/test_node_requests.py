"""Requests reach the node that they are for: cancels, reloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import orjson
import psycopg
import pytest

from ductile.clock import to_text
from ductile.engine.recovery.node_requests import (
    IDLE_SECONDS,
    POLL_SECONDS,
    RETRY_SECONDS,
    UNKNOWN_JOB_SECONDS,
    NodeRequestHandler,
)
from ductile.errors import ConfigError, LedgerError, Problem, Refused
from ductile.model import Cancellation, JobStatus, Notice
from ductile.operations import jobs
from ductile.operations.jobs import JobCancellation
from ductile.store import nodes, notices
from ductile.store.engines.api import BEGINNING, Ledger
from ductile.store.jobs import cancel_requests
from ductile.store.nodes import NodeRequest, RequestKind
from tests.conftest import FakeClock
from tests.engine.site import OK, Gate, Running, Site
from tests.store.conftest import ledger, open_ledger  # noqa: F401 - fixtures
from tests.waiting import until

REQUEST = NodeRequest("r", "ours", RequestKind.CANCEL, "j", Cancellation.OPERATOR.value)


class HandlerHarness:
    """The parts of a node that a request needs."""

    def __init__(self, clock: FakeClock, ledger: Ledger) -> None:  # noqa: F811
        self.clock, self.ledger = clock, ledger
        self.owned: set[str] = set()
        self.running: set[str] = set()
        self.cancelled: list[tuple[str, Cancellation]] = []
        self.wakes = 0
        self.reloads: list[Exception | None] = []
        """How the next reloads end."""
        self.handler = NodeRequestHandler(
            ledger, "ours", clock, lambda: self.owned, self._cancel, self._reload, self._wake
        )
        self.idle = IDLE_SECONDS if ledger.engine == "sqlite" else POLL_SECONDS

    def _cancel(self, job_id: str, why: Cancellation) -> bool:
        if job_id in self.running:
            self.cancelled.append((job_id, why))
        return job_id in self.running

    def _reload(self) -> tuple[Problem, ...]:
        error = self.reloads.pop()
        if error is not None:
            raise error
        return ()

    def _wake(self) -> None:
        self.wakes += 1

    def add(self, request: NodeRequest) -> None:
        now = to_text(self.clock.now())
        self.ledger.write(lambda tx: nodes.add_request(tx, request, now))

    def open_requests(self) -> list[NodeRequest]:
        return self.ledger.read(lambda tx: nodes.list_requests(tx, "ours"))

    def tick(self) -> float:
        return self.handler.tick(self.clock.now())


@pytest.fixture
def harness(clock: FakeClock, ledger: Ledger) -> HandlerHarness:  # noqa: F811
    return HandlerHarness(clock, ledger)


def test_running_job_is_cancelled_once_with_the_given_reason(harness: HandlerHarness) -> None:
    harness.running = {"j", "k"}
    harness.add(REQUEST)
    assert (harness.tick(), harness.tick()) == (harness.idle, harness.idle)
    assert harness.cancelled == [("j", Cancellation.OPERATOR)]
    assert harness.open_requests() == []


@pytest.mark.parametrize(
    "request_", [replace(REQUEST, boot="theirs"), replace(REQUEST, reason="the gateway stopped")]
)
def test_request_for_another_boot_or_reason_is_ignored(
    harness: HandlerHarness, request_: NodeRequest
) -> None:
    harness.running = {"j"}
    harness.add(request_)
    assert (harness.tick(), harness.cancelled) == (harness.idle, [])


def test_job_without_a_process_is_cancelled_when_it_has_one(harness: HandlerHarness) -> None:
    harness.owned = {"j"}
    harness.add(REQUEST)
    assert harness.tick() == RETRY_SECONDS
    harness.clock.advance(10 * UNKNOWN_JOB_SECONDS)
    assert harness.tick() == RETRY_SECONDS
    harness.running = {"j"}
    assert harness.tick() == harness.idle
    assert harness.cancelled == [("j", Cancellation.OPERATOR)]


def test_request_for_an_unknown_job_is_kept_for_a_while(harness: HandlerHarness) -> None:
    """The result of its claim may not have arrived yet."""
    harness.add(REQUEST)
    assert harness.tick() == RETRY_SECONDS
    harness.clock.advance(UNKNOWN_JOB_SECONDS)
    assert harness.tick() == harness.idle
    harness.running = {"j"}
    assert harness.tick() == harness.idle
    assert harness.cancelled == []


def test_requested_reload_is_answered(harness: HandlerHarness) -> None:
    problem = Problem("a.yaml", "is wrong")
    harness.reloads = [ConfigError([problem]), LedgerError("no"), None]
    for id in "abc":
        harness.add(NodeRequest(id, "ours", RequestKind.RELOAD))
        harness.tick()
        until(lambda: harness.open_requests() == [])
    answers = harness.ledger.read(lambda tx: nodes.find_answers(tx, ["a", "b", "c"]))
    found = {id: orjson.loads(text) for id, text in answers.items()}
    assert [found[id]["status"] for id in "abc"] == ["reloaded", "refused", "refused"]
    assert (found["b"]["problems"], found["c"]["problems"]) == (["no"], [str(problem)])


def test_request_about_waits_wakes_their_timer(harness: HandlerHarness) -> None:
    harness.add(NodeRequest("w", "ours", RequestKind.WAITS))
    harness.tick()
    assert (harness.wakes, harness.open_requests()) == (1, [])


# Two nodes


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
    loop = running.gateway.loops.pop("requests")
    loop.stop()
    loop.join()


def test_job_of_another_node_is_cancelled(worker: tuple[Running, Gate], requester: Running) -> None:
    [id] = start_jobs(worker)
    assert jobs.cancel(requester.gateway, id) is JobStatus.RUNNING
    job = requester.job(id)
    assert (job["status"], job["last_error"], job["attempt"]) == ("dead", "cancelled", 1)
    assert worker[0].gateway.busy == 0
    assert requests(requester) == [id]


def test_job_is_cancelled_by_a_version_that_only_posts_a_notice(
    worker: tuple[Running, Gate], requester: Running
) -> None:
    [id] = start_jobs(worker)
    owner, now = worker[0].gateway.boot, requester.gateway.clock.now()
    fields = {"job_id": id, "owner": owner, "reason": Cancellation.OPERATOR.value}
    notice = Notice("jobs", cancel_requests.REQUESTED, fields)
    requester.gateway.ledger.write(lambda tx: notices.post(tx, notice, now, job_id=id))
    assert requester.ended(id)["last_error"] == "cancelled"
    assert worker[0].gateway.busy == 0


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
    unheard = "the node that runs it has not answered the cancel request"
    with pytest.raises(Refused, match=unheard) as refused:
        jobs.cancel(requester.gateway, id)
    assert refused.value.details["run"] == f"ductile job cancel {id} --force"
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
