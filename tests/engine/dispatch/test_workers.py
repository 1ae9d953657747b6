"""The states that attempts pass, slots that are lost with buffered jobs, and large answers."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator

import pytest

from ductile.engine.dispatch import prefetch
from ductile.engine.dispatch.attempt import Attempt, AttemptState
from ductile.engine.dispatch.attempt_judge import LARGE_ANSWER
from ductile.model import Ending, Outcome, Settlement
from ductile.runner.connection import SlotLost
from tests.engine.dispatch import fakes
from tests.engine.dispatch.fakes import Backlog, backlog
from tests.engine.site import Site
from tests.waiting import WAIT_LIMIT, until

SUCCEEDED = "succeeded"
LARGE = Outcome(
    Ending.EXITED,
    exit_code=0,
    stdout=b'{"status": "ok", "result": "%s"}' % (b"x" * 2 * LARGE_ANSWER),
)


@pytest.fixture
def pair(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backlog]:
    """Two workers that run the first two of eight jobs, and prefetch without a limit of time."""
    monkeypatch.setattr(prefetch, "LONGEST_WAIT", float("inf"))
    monkeypatch.setattr(prefetch, "SHORT_JOB", float("inf"))
    with backlog(site, slots=2, jobs=8) as under_test:
        yield under_test


def retrying(pair: Backlog) -> set[str]:
    """The jobs whose attempt has failed."""
    return {id for kind, id in pair.running.list_notices() if kind == "job.retrying" and id}


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The names of the states that the attempts of each job pass."""
    passed: dict[str, list[str]] = defaultdict(list)
    move_to = Attempt.move_to

    def record(self: Attempt, state: AttemptState) -> None:
        move_to(self, state)
        passed[self.job.id].append(state.name)

    monkeypatch.setattr(Attempt, "move_to", record)
    return passed


ENDED = ["RUNNING", "JUDGING", "SETTLING", "DONE"]


def test_the_states_of_jobs_that_run(states: dict[str, list[str]], pair: Backlog) -> None:
    pair.finish(*pair.slots)
    pair.until_buffered()
    pair.finish_everything()
    until(lambda: not pair.dispatcher.owned_jobs())
    assert states[pair.ids[0]] == ["STARTING", *ENDED]
    assert states[pair.ids[4]] == ["BUFFERED", *ENDED]


def test_the_states_of_a_job_whose_slot_dies(states: dict[str, list[str]], pair: Backlog) -> None:
    pair.finish(*pair.slots)
    pair.until_buffered()
    lost = pair.slots[0]
    lost.error = SlotLost("it died", launch_taken=True)
    lost.finish()
    assert lost.failed.wait(WAIT_LIMIT)
    lost.error = None
    lost.may_be_replaced.set()
    until(lambda: len(retrying(pair)) == 1)
    [id] = retrying(pair)
    until(lambda: "DONE" in states[id])
    assert states[id][:6] == ["STARTING", "RUNNING", "SLOT_LOST", "JUDGING", "SETTLING", "DONE"]
    returned = [states[id][:2] for id in pair.ids[4:]]
    assert returned.count(["BUFFERED", "PREFETCHED"]) == 2


def test_slot_that_dies_loses_its_running_job_and_not_the_buffered_ones(pair: Backlog) -> None:
    pair.finish(*pair.slots)
    pair.until_buffered()
    lost = pair.slots[0]
    lost.error = SlotLost("it died", launch_taken=True)
    lost.finish()
    assert lost.failed.wait(WAIT_LIMIT)
    lost.error = None
    lost.may_be_replaced.set()
    until(lambda: len(retrying(pair)) == 1)
    assert retrying(pair) < set(pair.ids[2:4])

    def others_succeeded() -> bool:
        for slot in pair.slots:
            slot.finish()
        return pair.statuses()[4:] == [SUCCEEDED] * 4

    until(others_succeeded)
    assert [pair.running.job(id)["attempt"] for id in pair.ids[4:]] == [1] * 4


def test_a_bug_in_a_slot_client_fails_the_buffered_jobs_too(pair: Backlog) -> None:
    """They may have started: they must not start a second time uncounted."""
    pair.finish(*pair.slots)
    pair.until_buffered()
    pair.slots[0].error = RuntimeError("a bug")
    pair.slots[0].finish()
    until(lambda: len(retrying(pair)) == 3)
    assert len(retrying(pair) & set(pair.ids[4:])) == 2
    pair.slots[0].error = None
    pair.slots[0].waiting.clear()


def test_large_answers_are_judged_one_at_a_time(
    pair: Backlog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten mebibytes of braces take three hundred as dictionaries."""
    lock, was_free, both = threading.Lock(), [], threading.Barrier(2)
    judge = Attempt.judge

    def judge_alone(self: Attempt, outcome: Outcome) -> Settlement:
        was_free.append(lock.acquire(blocking=False))
        try:
            # The barrier breaks unless the other arrives while this one is here.
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(0.2)
            return judge(self, outcome)
        finally:
            lock.release()

    monkeypatch.setattr(Attempt, "judge", judge_alone)
    for slot in pair.slots:
        slot.outcome = LARGE
    pair.finish(*pair.slots)
    until(lambda: pair.statuses().count(SUCCEEDED) == 2)
    assert was_free == [True, True]
    monkeypatch.undo()
    for slot in pair.slots:
        slot.outcome = fakes.SUCCEEDED
    pair.finish_everything()


def test_a_slot_continues_while_its_large_answer_is_judged(pair: Backlog) -> None:
    pair.finish(*pair.slots)
    pair.until_buffered()
    pair.slots[0].outcome = LARGE
    pair.finish(pair.slots[0])
    until(lambda: pair.statuses().count(SUCCEEDED) == 3)
    pair.slots[0].outcome = fakes.SUCCEEDED
    pair.finish_everything()
    assert pair.statuses() == [SUCCEEDED] * 8
