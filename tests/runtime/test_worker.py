"""A worker at its edges, with a slot that the test holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from ductile.model import Cancellation, Ending, Launch, Outcome
from ductile.runtime.worker import Worker
from tests.runtime.site import OK, Running, Site, until

WAIT = 10.0
DONE = Outcome(Ending.EXITED, exit_code=0, stdout=b'{"status": "ok", "result": 1}')


class Slot:
    """Runs nothing; each run ends when the test says so."""

    def __init__(self) -> None:
        self.started = threading.Semaphore(0)
        self.finish = threading.Semaphore(0)
        self.on_cancel: Callable[[], None] = lambda: None
        self.error: Exception | None = None

    def run(self, launch: Launch) -> Outcome:
        self.started.release()
        assert self.finish.acquire(timeout=WAIT)
        if self.error is not None:
            raise self.error
        return DONE

    def cancel(self, grace: float) -> None:
        self.on_cancel()


class Bench:
    """One worker on a gateway that has not been started."""

    def __init__(self, house: Running) -> None:
        self.house, self.slot = house, Slot()
        self.worker = Worker(house.gateway, self.slot)
        self.thread = threading.Thread(target=self.worker.loop)
        self.thread.start()

    def running(self) -> None:
        assert self.slot.started.acquire(timeout=WAIT)

    def end(self) -> None:
        self.house.gateway.stopping.set()
        self.slot.finish.release(100)
        self.house.gateway.bell.ring(10)
        self.thread.join(WAIT)
        assert not self.thread.is_alive()


@pytest.fixture
def bench(site: Site) -> Iterator[Bench]:
    site.plugin("echo", OK)
    with site.opened() as house:
        bench = Bench(house)
        yield bench
        bench.end()


def test_a_cancel_never_hits_the_job_that_follows(bench: Bench) -> None:
    """The first ends by itself just as it is cancelled, and the next begins in its slot."""
    first, second = bench.house.put("echo"), bench.house.put("echo")
    bench.running()
    overtaken: list[bool] = []

    def on_cancel() -> None:
        bench.slot.finish.release()
        overtaken.append(bench.slot.started.acquire(timeout=0.5))

    bench.slot.on_cancel = on_cancel
    bench.worker.cancel(Cancellation.OPERATOR, job_id=first)
    assert overtaken == [False]
    bench.running()
    bench.slot.finish.release()
    assert bench.house.ended(second)["status"] == "succeeded"


def test_a_cancel_of_a_job_that_runs_elsewhere_does_nothing(bench: Bench) -> None:
    bench.slot.on_cancel = lambda: pytest.fail("it was cancelled")
    bench.house.put("echo")
    bench.running()
    assert bench.worker.cancel(Cancellation.OPERATOR, job_id="another") is False
    bench.slot.finish.release()


def test_a_bug_in_a_slot_costs_an_attempt_and_not_the_worker(bench: Bench) -> None:
    bench.slot.error = RuntimeError("a bug")
    id = bench.house.put("echo")
    bench.running()
    bench.slot.finish.release()
    assert "a bug" in bench.house.tried(id)["last_error"]
    bench.slot.error = None
    again = bench.house.put("echo")
    bench.running()
    bench.slot.finish.release()
    assert bench.house.ended(again)["status"] == "succeeded"


def test_a_bug_after_a_settlement_does_not_end_the_worker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done once an attempt's end is durable is no reason to stop working."""

    def broken(settlement: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(bench.house.gateway, "settled", broken)
    ids = [bench.house.put("echo") for _ in range(3)]
    for id in ids:
        assert bench.slot.started.acquire(timeout=3), "the worker is dead"
        bench.slot.finish.release()
        assert bench.house.ended(id)["status"] == "succeeded"


def test_an_attempt_whose_preparation_fails_unexpectedly_is_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`perform` promises it: whatever goes wrong in there is the attempt's failure."""
    workspaces = type(bench.house.gateway.blueprint.workspaces)

    def broken(self: object, job: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(workspaces, "provide", broken)
        id = bench.house.put("echo")
        until_not_running(bench, id)
    again = bench.house.put("echo")
    assert bench.slot.started.acquire(timeout=3), "the worker is dead"
    bench.slot.finish.release()
    assert bench.house.ended(again)["status"] == "succeeded"


def until_not_running(bench: Bench, id: str) -> None:
    def told() -> bool:
        kinds = {kind for kind, job in bench.house.told() if job == id}
        return bool(kinds & {"job.failed", "job.retrying", "job.dead"})

    until(told, 5)
