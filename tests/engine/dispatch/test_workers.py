"""Jobs that are claimed ahead of their seat, with slots that the test holds."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator

import orjson
import pytest

from ductile.clock import Clock
from ductile.engine.dispatch import dispatcher, prefetch
from ductile.engine.dispatch.attempt import Attempt
from ductile.engine.dispatch.workers import LARGE_ANSWER
from ductile.model import Cancellation, Ending, Launch, Outcome, Settlement
from ductile.runner.client import Broken
from ductile.store.engines.sqlite import SqliteLedger
from tests.engine.dispatch.test_dispatcher import DONE, Bench
from tests.engine.dispatch.test_dispatcher import Slot as OneAtATime
from tests.engine.site import OK, Site
from tests.waiting import WAIT_LIMIT, until


class Slot(OneAtATime):
    """Can be told what comes next, and begins it when it is gone on with."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: deque[Launch] = deque()
        self.recalls = self.begun = self.given_back = 0
        self._asked_back = 0
        """How many of those that wait are recalled."""
        self.room = 2
        self.gives_back = self.lines_up = True
        self.failed = threading.Event()

    @property
    def lined_up(self) -> int:
        return len(self.waits)

    @property
    def has_room(self) -> bool:
        return len(self.waits) < self.room and not self._asked_back

    def begin(self, launch: Launch, place: int) -> None:
        self.begun += 1
        super().begin(launch, place)

    def line_up(self, launch: Launch, place: int) -> bool:
        if self.lines_up:
            self.waits.append(launch)
        return self.lines_up

    def recall(self) -> None:
        self.recalls += 1
        if self.gives_back:
            # Only a look tells of it.
            self._theirs.send(b"r" * (len(self.waits) - self._asked_back))
            self._asked_back = len(self.waits)

    def go_on(self) -> None:
        self.waits.popleft()
        self._asked_back = min(self._asked_back, len(self.waits))
        self.begun += 1
        self.started.release()

    def look(self) -> Outcome | None:
        try:
            word = self.link.sock.recv(1)
        except BlockingIOError:
            return None
        if self.error is not None:
            self.failed.set()
            raise self.error
        if word != b"r":
            return self.outcome
        if self._asked_back:
            self.waits.pop()
            self._asked_back -= 1
            self.given_back += 1
        return None

    def mend(self, broken: Broken) -> Outcome | None:
        self.waits.clear()
        self._asked_back = 0
        return super().mend(broken)


class Pair(Bench):
    slots: list[Slot]

    def __init__(self, *parts: object, jobs: int) -> None:
        super().__init__(*parts)  # type: ignore[arg-type]
        self.ids = [self.house.put("echo") for _ in range(jobs)]
        for slot in self.slots:
            assert slot.started.acquire(timeout=WAIT_LIMIT)

    def finish(self, *slots: Slot) -> None:
        """In the dispatcher's own thread: it finds all of them ended when it looks next."""
        self.dispatcher.ask(lambda: [slot.finish() for slot in slots] and None)

    def statuses(self) -> list[str]:
        return [self.house.job(id)["status"] for id in self.ids]

    def until(self, *statuses: str) -> None:
        until(lambda: self.statuses() == list(statuses))

    def go_through(self) -> None:
        """Let everything end that is there."""

        def over() -> bool:
            for slot in self.slots:
                slot.finish()
            return not set(self.statuses()) & {"queued", "running"}

        until(over)


def opened(site: Site, slots: list[Slot], jobs: int) -> Iterator[Pair]:
    site.plugin("echo", OK, manifest="concurrency_safe: true\n")
    with site.opened() as house:
        pair = Pair(house, slots, jobs=jobs)
        yield pair
        for slot in slots:
            slot.gives_back = True
        pair.end()


@pytest.fixture(autouse=True)
def no_job_waits_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is; tests of what waits too long set a limit of their own."""
    monkeypatch.setattr(prefetch, "LONGEST_WAIT", float("inf"))


@pytest.fixture
def pair(site: Site) -> Iterator[Pair]:
    """Two seats that run the first two of eight jobs."""
    yield from opened(site, [Slot(), Slot()], jobs=8)


def test_more_seats_than_a_transaction_takes_are_all_filled(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SqliteLedger, "batch_size", 2)
    # Nothing is found by looking again.
    monkeypatch.setattr(dispatcher, "TICK", 36_000.0)
    site.settings["service"]["max_workers"] = 6
    site.plugin("echo", OK)
    with site.opened() as house:
        for _ in range(6):
            house.put("echo")
        bench = Bench(house, [Slot() for _ in range(6)])
        assert all(slot.started.acquire(timeout=WAIT_LIMIT) for slot in bench.slots)
        bench.end()


@pytest.fixture
def few(site: Site) -> Iterator[Pair]:
    """The same with five jobs."""
    yield from opened(site, [Slot(), Slot()], jobs=5)


@pytest.fixture
def alone(site: Site) -> Iterator[Pair]:
    """One seat, three jobs."""
    yield from opened(site, [Slot()], jobs=3)


def place(pair: Pair, launch: Launch) -> int:
    """Of the job in the line."""
    return pair.ids.index(str(orjson.loads(launch.request)["job_id"]))


RUNS, WAITS, DONE_WELL = "running", "queued", "succeeded"


def test_where_two_end_together_more_are_claimed_than_there_are_seats(pair: Pair) -> None:
    pair.finish(*pair.slots)
    pair.until(*[DONE_WELL] * 2, *[RUNS] * 6)
    assert pair.dispatcher.busy == 2
    until(lambda: pair.dispatcher.in_hand() == set(pair.ids[2:]))
    pair.go_through()
    assert pair.statuses() == [DONE_WELL] * 8
    assert [pair.house.job(id)["attempt"] for id in pair.ids] == [1] * 8


def test_one_end_alone_claims_for_its_seat_alone(pair: Pair) -> None:
    pair.finish(pair.slots[0])
    pair.until(DONE_WELL, *[RUNS] * 2, *[WAITS] * 5)
    pair.go_through()


def test_with_one_seat_nothing_is_claimed_ahead(alone: Pair) -> None:
    """Each of the jobs sees the state that the one before it left."""
    alone.finish(*alone.slots)
    alone.until(DONE_WELL, RUNS, WAITS)
    alone.go_through()


def test_a_busy_slot_is_told_what_comes_next_and_goes_on(pair: Pair) -> None:
    pair.finish(*pair.slots)
    until(lambda: all(slot.lined_up for slot in pair.slots))
    begun = [slot.begun for slot in pair.slots]
    pair.finish(pair.slots[0])
    assert pair.slots[0].started.acquire(timeout=WAIT_LIMIT)
    until(lambda: pair.slots[0].begun > begun[0])
    pair.go_through()


def test_lines_are_equally_long_and_in_order(pair: Pair) -> None:
    pair.finish(*pair.slots)
    until(lambda: all(slot.lined_up == 2 for slot in pair.slots))
    numbers = [[place(pair, one) for one in slot.waits] for slot in pair.slots]
    assert sorted(numbers) == [[4, 6], [5, 7]]
    pair.go_through()


def test_what_comes_back_is_lined_up_again_in_order(pair: Pair) -> None:
    pair.finish(*pair.slots)
    until(lambda: all(slot.lined_up == 2 for slot in pair.slots))
    lines = [[place(pair, one) for one in slot.waits] for slot in pair.slots]
    for slot in pair.slots:
        slot.recall()
    until(lambda: all(slot.given_back == slot.lined_up == 2 for slot in pair.slots))
    again = [[place(pair, one) for one in slot.waits] for slot in pair.slots]
    assert sorted(again[0] + again[1]) == [4, 5, 6, 7]
    assert again == [sorted(line) for line in again]
    assert [line[0] for line in again] == [line[0] for line in lines]
    pair.go_through()


class Naps:
    """A clock whose naps last until somebody ends them."""

    def __init__(self, clock: Clock) -> None:
        self.now, self.monotonic = clock.now, clock.monotonic
        self.begun, self.over = threading.Semaphore(0), threading.Semaphore(0)

    def wait(self, wake: threading.Event, timeout: float) -> bool:
        assert timeout == dispatcher.NAP
        self.begun.release()
        assert self.over.acquire(timeout=WAIT_LIMIT)
        return wake.is_set()


@pytest.fixture
def naps(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> Iterator[Naps]:
    naps = Naps(pair.house.gateway.clock)
    monkeypatch.setattr(pair.house.gateway, "clock", naps)
    yield naps
    naps.over.release(1000)


def test_while_all_have_something_to_go_on_with_ends_are_settled_together(
    pair: Pair, naps: Naps
) -> None:
    pair.finish(*pair.slots)
    assert naps.begun.acquire(timeout=WAIT_LIMIT)
    commits = int(str(pair.house.gateway.ledger.health()["commits"]))
    for slot in pair.slots:
        slot.finish()
    assert pair.statuses().count(DONE_WELL) == 2
    naps.over.release()
    until(lambda: pair.statuses().count(DONE_WELL) == 4)
    assert int(str(pair.house.gateway.ledger.health()["commits"])) == commits + 1
    naps.over.release(1000)
    pair.go_through()


def test_one_that_can_have_nothing_in_line_does_not_keep_it_from_napping(
    pair: Pair, naps: Naps
) -> None:
    """It runs something long."""
    pair.slots[1].room = 0
    pair.finish(*pair.slots)
    assert naps.begun.acquire(timeout=WAIT_LIMIT)
    naps.over.release(1000)
    pair.go_through()


def test_an_end_is_settled_at_once_where_one_has_nothing_to_go_on_with(
    pair: Pair, naps: Naps
) -> None:
    pair.slots[1].lines_up = False
    pair.finish(*pair.slots)
    until(lambda: pair.slots[0].lined_up > 0)
    pair.finish(pair.slots[0])
    until(lambda: pair.statuses().count(DONE_WELL) == 3)
    assert not naps.begun.acquire(blocking=False)
    pair.go_through()


def test_what_no_slot_can_be_told_of_waits_for_a_seat(pair: Pair) -> None:
    for slot in pair.slots:
        slot.lines_up = False
    pair.finish(*pair.slots)
    pair.until(*[DONE_WELL] * 2, *[RUNS] * 6)
    pair.go_through()
    assert pair.statuses() == [DONE_WELL] * 8


@pytest.mark.parametrize("lines_up", [True, False], ids=["in a slot", "here"])
def test_what_waits_too_long_goes_back_uncounted(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, lines_up: bool
) -> None:
    for slot in pair.slots:
        slot.lines_up = lines_up
    monkeypatch.setattr(prefetch, "LONGEST_WAIT", 0.05)
    pair.finish(*pair.slots)
    pair.until(*[DONE_WELL] * 2, *[RUNS] * 2, *[WAITS] * 4)
    job = pair.house.job(pair.ids[-1])
    assert job["last_error"] == "no worker became free for it"
    assert job["max_attempts"] - job["attempt"] == 3
    until(lambda: pair.dispatcher.in_hand() == set(pair.ids[2:4]))
    pair.go_through()
    assert pair.statuses() == [DONE_WELL] * 8


def test_what_goes_back_keeps_its_place_in_line(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "LONGEST_WAIT", 0.05)
    pair.finish(*pair.slots)
    pair.until(*[DONE_WELL] * 2, *[RUNS] * 2, *[WAITS] * 4)
    pair.finish(pair.slots[0])
    until(lambda: pair.statuses()[4] == RUNS)
    assert pair.statuses()[5:] == [WAITS] * 3
    pair.go_through()


@pytest.mark.parametrize("lines_up", [True, False], ids=["in a slot", "here"])
def test_a_job_that_waits_for_a_seat_can_be_cancelled(pair: Pair, lines_up: bool) -> None:
    for slot in pair.slots:
        slot.lines_up = lines_up
    pair.finish(*pair.slots)
    pair.until(*[DONE_WELL] * 2, *[RUNS] * 6)
    if lines_up:
        until(lambda: all(slot.lined_up for slot in pair.slots))
    chosen = pair.ids[4]
    # As the gateway does: the ledger shows a claim before the dispatcher has heard of its commit.
    until(lambda: pair.dispatcher.cancel(Cancellation.OPERATOR, job_id=chosen))
    job = pair.house.ended(chosen)
    assert (job["status"], job["last_error"]) == ("dead", "cancelled")
    pair.go_through()


@pytest.mark.parametrize("which", [2, 4], ids=["for a seat", "for a line"])
def test_a_cancel_that_comes_while_a_job_is_made_ready_is_heeded(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    chosen, prepare = pair.ids[which], Attempt.prepare
    found: list[bool] = []

    def cancelled(attempt: Attempt) -> Launch | Settlement:
        if attempt.job.id == chosen:
            found.append(pair.dispatcher.cancel(Cancellation.OPERATOR, job_id=chosen))
        return prepare(attempt)

    monkeypatch.setattr(Attempt, "prepare", cancelled)
    pair.finish(*pair.slots)
    job = pair.house.ended(chosen)
    assert found == [True]
    assert (job["status"], job["last_error"]) == ("dead", "cancelled")
    pair.go_through()


def test_a_job_that_begins_while_it_is_recalled_is_cancelled_then(pair: Pair) -> None:
    for slot in pair.slots:
        slot.gives_back = False
    pair.finish(*pair.slots)
    until(lambda: all(slot.lined_up for slot in pair.slots))
    cancelled: list[int] = []
    for slot in pair.slots:
        slot.on_cancel = lambda slot=slot: cancelled.append(slot.begun)  # type: ignore[misc]
    assert pair.dispatcher.cancel(Cancellation.OPERATOR, job_id=pair.ids[4])
    until(lambda: sum(slot.recalls for slot in pair.slots) > 0)
    assert not cancelled
    pair.finish(*pair.slots)
    until(lambda: bool(cancelled))
    pair.go_through()


def test_at_a_stop_what_has_not_begun_goes_back(pair: Pair) -> None:
    pair.finish(*pair.slots)
    until(lambda: all(slot.lined_up for slot in pair.slots))
    pair.house.gateway.stopping.set()
    pair.house.gateway.work_signal.wake()
    pair.until(*[DONE_WELL] * 2, *[RUNS] * 2, *[WAITS] * 4)
    for id in pair.ids[4:]:
        job = pair.house.job(id)
        assert job["last_error"] == "the gateway stopped"
        assert job["max_attempts"] - job["attempt"] == 3


def test_an_idle_seat_has_what_is_lined_up_behind_a_busy_one(few: Pair) -> None:
    few.finish(*few.slots)
    few.until(*[DONE_WELL] * 2, *[RUNS] * 3)
    until(lambda: any(slot.lined_up for slot in few.slots))
    [holder] = [slot for slot in few.slots if slot.lined_up]
    [other] = [slot for slot in few.slots if slot is not holder]
    begun = other.begun
    few.finish(other)
    until(lambda: other.begun > begun)
    assert holder.recalls
    few.go_through()


def test_a_slot_that_breaks_loses_what_it_runs_and_not_what_is_next(pair: Pair) -> None:
    pair.finish(*pair.slots)
    until(lambda: all(slot.lined_up for slot in pair.slots))
    broken = pair.slots[0]
    broken.error = Broken("it died", taken=True)
    broken.finish()
    assert broken.failed.wait(WAIT_LIMIT)
    broken.error = None
    broken.mended.set()

    def lost() -> set[str]:
        return {id for kind, id in pair.house.told() if kind == "job.retrying" and id}

    until(lambda: len(lost()) == 1)
    assert lost() < set(pair.ids[2:4])
    until(lambda: [slot.finish() for slot in pair.slots] and pair.statuses()[4:] == [DONE_WELL] * 4)
    assert [pair.house.job(id)["attempt"] for id in pair.ids[4:]] == [1] * 4


def test_a_bug_in_a_slot_costs_what_is_next_its_attempt_too(pair: Pair) -> None:
    """It may have begun by then: to begin it again would be once too often."""
    pair.finish(*pair.slots)
    until(lambda: all(slot.lined_up for slot in pair.slots))
    pair.slots[0].error = RuntimeError("a bug")
    pair.slots[0].finish()

    def failed() -> set[str]:
        return {id for kind, id in pair.house.told() if kind == "job.retrying" and id}

    until(lambda: len(failed()) == 3)
    assert len(failed() & set(pair.ids[4:])) == 2
    pair.slots[0].error = None
    pair.slots[0].waits.clear()


def test_of_several_large_answers_one_is_judged_at_a_time(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten mebibytes of braces are three hundred of dictionaries."""
    busy, most, met, real = threading.Lock(), [], threading.Barrier(2), Attempt.judge

    def judge(self: Attempt, outcome: Outcome) -> Settlement:
        most.append(busy.acquire(blocking=False))
        try:
            # Another comes, or does not while this one is here.
            with contextlib.suppress(threading.BrokenBarrierError):
                met.wait(0.2)
            return real(self, outcome)
        finally:
            busy.release()

    monkeypatch.setattr(Attempt, "judge", judge)
    large = b'{"status": "ok", "result": "%s"}' % (b"x" * 2 * LARGE_ANSWER)
    for slot in pair.slots:
        slot.outcome = Outcome(Ending.EXITED, exit_code=0, stdout=large)
    pair.finish(*pair.slots)
    until(lambda: pair.statuses().count(DONE_WELL) == 2)
    assert most == [True, True]
    monkeypatch.undo()
    for slot in pair.slots:
        slot.outcome = DONE
    pair.go_through()


def test_an_answer_that_is_judged_aside_does_not_keep_the_slot_from_what_is_next(
    pair: Pair,
) -> None:
    pair.finish(*pair.slots)
    until(lambda: all(slot.lined_up for slot in pair.slots))
    large = b'{"status": "ok", "result": "%s"}' % (b"x" * 2 * LARGE_ANSWER)
    pair.slots[0].outcome = Outcome(Ending.EXITED, exit_code=0, stdout=large)
    pair.finish(pair.slots[0])
    until(lambda: pair.statuses().count(DONE_WELL) == 3)
    pair.slots[0].outcome = DONE
    pair.go_through()
    assert pair.statuses() == [DONE_WELL] * 8
