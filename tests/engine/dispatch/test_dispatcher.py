"""The dispatcher at its edges, with a slot that the test holds."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator, Sequence

import orjson
import pytest

from ductile.clock import SystemClock
from ductile.engine.dispatch import dispatcher
from ductile.engine.dispatch.dispatcher import Dispatcher
from ductile.engine.dispatch.workers import LARGE_ANSWER
from ductile.model import Cancellation, Ending, Launch, Outcome, Settlement
from ductile.runner.client import Broken, Link
from ductile.store.engines.api import Tx
from ductile.store.jobs.settle import settle
from ductile.store.tx_config import TxConfig
from tests.engine.site import OK, Running, Site
from tests.waiting import WAIT_LIMIT, until

DONE = Outcome(Ending.EXITED, exit_code=0, stdout=b'{"status": "ok", "result": 1}')


class Slot:
    """Runs nothing; each run ends when the test says so."""

    def __init__(self) -> None:
        ours, self._theirs = socket.socketpair()
        self.link = Link(0, ours.detach())
        self.due = float("inf")
        self.sending = self.heard = False
        self.started = threading.Semaphore(0)
        self.on_cancel: Callable[[], None] = lambda: None
        self.error: Exception | None = None
        self.outcome = DONE
        self.broken: Broken | None = None
        self.mended = threading.Event()

    @property
    def lined_up(self) -> int:
        return 0

    @property
    def has_room(self) -> bool:
        return True

    def begin(self, launch: Launch, place: int) -> None:
        self.started.release()
        if self.broken is not None:
            raise self.broken

    def line_up(self, launch: Launch, place: int) -> bool:
        return False

    def recall(self) -> None:
        pytest.fail("nothing is lined up")

    def go_on(self) -> None:
        pytest.fail("nothing is lined up")

    def finish(self, count: int = 1) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._theirs.send(b"." * count)

    def look(self) -> Outcome | None:
        try:
            self.link.sock.recv(1)
        except BlockingIOError:
            return None
        if self.error is not None:
            raise self.error
        return self.outcome

    def mend(self, broken: Broken) -> Outcome | None:
        assert self.mended.wait(WAIT_LIMIT)
        return Outcome(Ending.LOST, reason=str(broken)) if broken.taken else None

    def cancel(self, grace: float) -> None:
        self.on_cancel()

    def abandon(self) -> None:
        pass

    def close(self) -> None:
        self.link.close()
        self._theirs.close()


class Bench:
    """A dispatcher with its slots, on a gateway that has not been started."""

    def __init__(self, house: Running, slots: Sequence[Slot]) -> None:
        self.house, self.slots = house, slots
        self.slot = slots[0]
        self.dispatcher = Dispatcher(house.gateway, self.slots)
        self.thread = threading.Thread(target=self.dispatcher.loop)
        self.thread.start()

    def running(self) -> None:
        assert self.slot.started.acquire(timeout=WAIT_LIMIT), "the dispatcher is dead"

    def end(self) -> None:
        self.house.gateway.stopping.set()
        for slot in self.slots:
            slot.mended.set()
            slot.finish(100)
        self.house.gateway.work_signal.wake()
        self.thread.join(WAIT_LIMIT)
        assert not self.thread.is_alive()
        self.dispatcher.close()
        for slot in self.slots:
            slot.close()


@pytest.fixture
def bench(site: Site) -> Iterator[Bench]:
    site.plugin("echo", OK)
    with site.opened() as house:
        bench = Bench(house, [Slot()])
        yield bench
        bench.end()


@pytest.fixture
def pair(site: Site) -> Iterator[Bench]:
    site.plugin("echo", OK, manifest="concurrency_safe: true\n")
    with site.opened() as house:
        bench = Bench(house, [Slot(), Slot()])
        yield bench
        bench.end()


def test_a_cancel_never_hits_the_job_that_follows(bench: Bench) -> None:
    """The first ends by itself just as it is cancelled, and the next begins in its slot."""
    first, second = bench.house.put("echo"), bench.house.put("echo")
    bench.running()
    overtaken: list[bool] = []

    def on_cancel() -> None:
        bench.slot.finish()
        overtaken.append(bench.slot.started.acquire(timeout=0.5))

    bench.slot.on_cancel = on_cancel
    bench.dispatcher.cancel(Cancellation.OPERATOR, job_id=first)
    assert overtaken == [False]
    bench.running()
    bench.slot.finish()
    assert bench.house.ended(second)["status"] == "succeeded"


def test_a_cancel_of_a_job_that_runs_elsewhere_does_nothing(bench: Bench) -> None:
    bench.slot.on_cancel = lambda: pytest.fail("it was cancelled")
    bench.house.put("echo")
    bench.running()
    assert bench.dispatcher.cancel(Cancellation.OPERATOR, job_id="another") is False
    bench.slot.finish()


def test_a_bug_in_a_slot_costs_an_attempt_and_not_the_dispatcher(bench: Bench) -> None:
    bench.slot.error = RuntimeError("a bug")
    id = bench.house.put("echo")
    bench.running()
    bench.slot.finish()
    assert "a bug" in bench.house.tried(id)["last_error"]
    bench.slot.error = None
    again = bench.house.put("echo")
    bench.running()
    bench.slot.finish()
    assert bench.house.ended(again)["status"] == "succeeded"


def test_a_bug_after_a_settlement_does_not_end_the_dispatcher(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is done once an attempt's end is durable is no reason to stop working."""

    def broken(settlement: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(bench.house.gateway, "settled", broken)
    ids = [bench.house.put("echo") for _ in range(3)]
    for id in ids:
        bench.running()
        bench.slot.finish()
        assert bench.house.ended(id)["status"] == "succeeded"


def test_an_attempt_whose_preparation_fails_unexpectedly_is_failed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever goes wrong in there is the attempt's failure."""
    workspaces = type(bench.house.gateway.compiled.workspaces)

    def broken(self: object, job: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(workspaces, "provide", broken)
        id = bench.house.put("echo")
        until_not_running(bench, id)
    again = bench.house.put("echo")
    bench.running()
    bench.slot.finish()
    assert bench.house.ended(again)["status"] == "succeeded"


def test_an_attempt_that_cannot_even_be_failed_leaves_its_slot_free(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row stays `running`, in nobody's hand: for the loop that looks for orphans."""

    def broken(self: object, plugin: str, command: str) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(type(bench.house.gateway.compiled), "rules", broken)
        id = bench.house.put("echo")
        bench.house.notice("job.started", id)
        until(lambda: bench.dispatcher._workers.idle)
    again = bench.house.put("echo")
    bench.running()
    assert bench.dispatcher.in_hand() == {again}
    bench.slot.finish()
    assert bench.house.ended(again)["status"] == "succeeded"
    assert bench.house.job(id)["status"] == "running"


def until_not_running(bench: Bench, id: str) -> None:
    def told() -> bool:
        kinds = {kind for kind, job in bench.house.told() if job == id}
        return bool(kinds & {"job.failed", "job.retrying", "job.dead"})

    until(told)


# Slots that break


def broken_first(pair: Bench, *, taken: bool) -> tuple[Slot, Slot, str]:
    """The slot that broke under the first job, the other, and that job."""
    for slot in pair.slots:
        slot.broken = Broken("it died", taken=taken)
    id = pair.house.put("echo")
    found: list[Slot] = []

    def began() -> bool:
        found.extend(slot for slot in pair.slots if slot.started.acquire(blocking=False))
        return bool(found)

    until(began)
    for slot in pair.slots:
        slot.broken = None
    [sound] = [slot for slot in pair.slots if slot is not found[0]]
    return found[0], sound, id


def test_a_slot_that_is_being_replaced_holds_nobody_up(pair: Bench) -> None:
    broken, sound, first = broken_first(pair, taken=True)
    second = pair.house.put("echo")
    assert sound.started.acquire(timeout=WAIT_LIMIT)
    sound.finish()
    assert pair.house.ended(second)["status"] == "succeeded"
    assert pair.house.job(first)["status"] == "running"
    broken.mended.set()
    assert pair.house.tried(first)["last_error"] == "it died"


def test_a_launch_that_a_new_slot_has_taken_goes_on_there(pair: Bench) -> None:
    broken, _, id = broken_first(pair, taken=False)
    broken.mended.set()
    broken.finish()
    job = pair.house.ended(id)
    assert (job["status"], job["attempt"]) == ("succeeded", 1)


def test_of_two_that_end_together_a_bug_in_the_settling_of_one_spares_the_other(
    pair: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursed, sound = pair.house.put("echo"), pair.house.put("echo")
    for slot in pair.slots:
        assert slot.started.acquire(timeout=WAIT_LIMIT)
    together: list[int] = []

    def settled(
        tx: Tx, settlement: Settlement, tx_config: TxConfig, base_id: str
    ) -> Settlement | None:
        together.append(pair.dispatcher.busy)
        if settlement.job_id == cursed:
            raise RuntimeError("a bug")
        return settle(tx, settlement, tx_config, base_id)

    monkeypatch.setattr(dispatcher, "settle", settled)
    # In the dispatcher's own thread: it finds both ended when it looks next.
    pair.dispatcher.ask(lambda: [slot.finish() for slot in pair.slots] and None)
    assert pair.house.ended(sound)["status"] == "succeeded"
    assert together[0] == 0, "they did not end together"
    assert pair.house.job(cursed)["status"] == "running"
    until(lambda: not pair.dispatcher.in_hand())


def test_an_answer_that_takes_long_to_judge_is_settled_like_any_other(bench: Bench) -> None:
    result = "x" * 2 * LARGE_ANSWER
    stdout = orjson.dumps({"status": "ok", "result": result})
    bench.slot.outcome = Outcome(Ending.EXITED, exit_code=0, stdout=stdout)
    id = bench.house.put("echo")
    bench.running()
    bench.slot.finish()
    job = bench.house.ended(id)
    assert (job["status"], job["result"]["result"]) == ("succeeded", result)


def test_without_a_thread_to_be_had_the_dispatcher_does_it_itself(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    stdout = orjson.dumps({"status": "ok", "result": "x" * 2 * LARGE_ANSWER})
    bench.slot.outcome = Outcome(Ending.EXITED, exit_code=0, stdout=stdout)
    id = bench.house.put("echo")
    bench.running()
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    bench.slot.finish()
    assert bench.house.ended(id)["status"] == "succeeded"
    monkeypatch.undo()


class CountedClock(SystemClock):
    """Every turn of the dispatcher asks it for the time."""

    turns = 0

    def monotonic(self) -> float:
        self.turns += 1
        return super().monotonic()


def test_a_slot_that_dies_while_idle_does_not_keep_the_dispatcher_busy(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.house.put("echo")
    bench.running()
    bench.slot.finish()
    until(lambda: bench.dispatcher.busy == 0)
    bench.slot._theirs.shutdown(socket.SHUT_WR)
    clock = CountedClock()
    monkeypatch.setattr(bench.house.gateway, "clock", clock)
    assert not bench.house.gateway.stopping.wait(0.3)
    # Without end, thousands.
    assert clock.turns < 20
