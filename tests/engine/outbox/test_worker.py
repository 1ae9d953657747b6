"""The courier: what it does with a lane's parcels, whatever becomes of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

import pytest

from ductile.engine.outbox import worker as module
from ductile.engine.outbox.queue import OutboundRequest, SendResult
from ductile.engine.outbox.worker import OutboxWorker
from ductile.errors import LedgerBroken, LedgerBusy
from tests.conftest import FakeClock
from tests.waiting import WAIT_LIMIT


def parcel(id: str, url: str = "https://example.com/") -> OutboundRequest:
    return OutboundRequest(id, url, b"{}", {}, 10.0)


class Queue:
    """A lane whose parcels are given to it, and which remembers what became of them."""

    name = "queue"

    def __init__(self, *ids: str) -> None:
        self.waiting = [parcel(id) for id in ids]
        self.settled: dict[str, SendResult] = {}
        self.given_back: list[str] = []
        self.claims = 0
        self.while_claiming: Callable[[], None] = lambda: None
        self.before_settling: Callable[[str], None] = lambda _id: None

    def recover(self) -> None: ...

    def claim(self, now: datetime) -> tuple[Sequence[OutboundRequest], float]:
        self.claims += 1
        self.while_claiming()
        taken, self.waiting = self.waiting, []
        return taken, 5.0

    def settle(self, parcel: OutboundRequest, answer: SendResult, now: datetime) -> None:
        self.before_settling(parcel.id)
        self.settled[parcel.id] = answer

    def give_back(self, parcel: OutboundRequest) -> None:
        self.given_back.append(parcel.id)


class Broken:
    def __init__(self) -> None:
        self.errors: list[LedgerBroken] = []

    def __call__(self, error: LedgerBroken) -> None:
        self.errors.append(error)


def carrying(
    lane: Queue,
    clock: FakeClock,
    send: Callable[[OutboundRequest], SendResult] = lambda _parcel: SendResult(200),
    broken: Callable[[LedgerBroken], None] | None = None,
) -> OutboxWorker:
    return OutboxWorker(lane, send, clock, broken or Broken())


def test_what_is_claimed_is_sent_and_settled(clock: FakeClock) -> None:
    lane = Queue("a", "b")
    courier = carrying(lane, clock)
    assert courier.tick(clock.now()) == 5.0
    assert courier.idle(WAIT_LIMIT)
    assert lane.settled == {"a": SendResult(200), "b": SendResult(200)}
    assert courier.outcomes() == {"2xx": 2}


def test_one_that_hangs_delays_nobody(clock: FakeClock) -> None:
    lane, over, others = Queue("hangs", "a", "b"), threading.Event(), threading.Semaphore(0)

    def send(parcel: OutboundRequest) -> SendResult:
        if parcel.id == "hangs":
            assert over.wait(WAIT_LIMIT)
        else:
            others.release()
        return SendResult(200)

    courier = carrying(lane, clock, send)
    courier.tick(clock.now())
    for _ in range(2):
        assert others.acquire(timeout=WAIT_LIMIT)
    lane.waiting = [parcel("later")]
    courier.tick(clock.now())
    assert others.acquire(timeout=WAIT_LIMIT)
    assert not courier.idle(0.0)
    over.set()
    assert courier.idle(WAIT_LIMIT)
    assert lane.settled.keys() == {"hangs", "a", "b", "later"}


def test_a_bug_in_sending_is_that_parcels_failure(clock: FakeClock) -> None:
    lane = Queue("bad", "good")

    def send(parcel: OutboundRequest) -> SendResult:
        if parcel.id == "bad":
            raise ZeroDivisionError
        return SendResult(204)

    courier = carrying(lane, clock, send)
    courier.tick(clock.now())
    assert courier.idle(WAIT_LIMIT)
    assert lane.settled == {"bad": SendResult(None, "internal error"), "good": SendResult(204)}
    assert courier.outcomes() == {"unanswered": 1, "2xx": 1}


def test_a_bug_in_settling_ends_nobody_else(clock: FakeClock) -> None:
    lane = Queue("bad", "good")

    def settling(id: str) -> None:
        if id == "bad":
            raise ZeroDivisionError

    lane.before_settling = settling
    courier = carrying(lane, clock)
    courier.tick(clock.now())
    assert courier.idle(WAIT_LIMIT)
    assert lane.settled == {"good": SendResult(200)}


def test_what_stays_in_the_house_is_settled_and_not_sent(clock: FakeClock) -> None:
    lane, sent = Queue(), []
    lane.waiting = [parcel("a", url="")]

    def send(parcel: OutboundRequest) -> SendResult:
        sent.append(parcel.id)
        return SendResult(200)

    courier = carrying(lane, clock, send)
    courier.tick(clock.now())
    assert courier.idle(WAIT_LIMIT)
    assert sent == []
    assert lane.settled == {"a": SendResult(None)}
    assert courier.outcomes() == {"in_house": 1}


def test_a_send_that_cannot_start_within_a_second_is_given_back(clock: FakeClock) -> None:
    """A claim whose commit took so long: its slots will be free again before it has begun."""
    lane, sent = Queue("a", "b"), []

    def send(parcel: OutboundRequest) -> SendResult:
        sent.append(parcel.id)
        return SendResult(200)

    lane.while_claiming = lambda: clock.advance(1.1)
    courier = carrying(lane, clock, send)
    courier.tick(clock.now())
    assert courier.idle(WAIT_LIMIT)
    assert sent == []
    assert sorted(lane.given_back) == ["a", "b"]
    assert lane.settled == {}
    assert courier.outcomes() == {"given_back": 2}


def test_a_parcel_for_which_no_thread_can_be_started_is_given_back(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = Queue("a")
    courier = carrying(lane, clock)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        assert courier.tick(clock.now()) == 5.0
    assert lane.given_back == ["a"]
    assert courier.idle(0)


def no_thread(_self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_one_that_starts_in_time_is_not(clock: FakeClock) -> None:
    lane = Queue("a")
    lane.while_claiming = lambda: clock.advance(0.9)
    courier = carrying(lane, clock)
    courier.tick(clock.now())
    assert courier.idle(WAIT_LIMIT)
    assert lane.settled.keys() == {"a"}


def test_a_clock_that_was_set_while_claiming_delays_nothing(clock: FakeClock) -> None:
    lane = Queue("a")

    def set_the_clock() -> None:
        clock.moment += timedelta(hours=1)

    lane.while_claiming = set_the_clock
    courier = carrying(lane, clock)
    courier.tick(clock.now())
    assert courier.idle(WAIT_LIMIT)
    assert lane.settled.keys() == {"a"}


def test_nothing_more_is_claimed_while_too_many_are_under_way(
    clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_AT_ONCE", 2)
    lane, over = Queue("a", "b"), threading.Event()

    def send(_parcel: OutboundRequest) -> SendResult:
        assert over.wait(WAIT_LIMIT)
        return SendResult(200)

    courier = carrying(lane, clock, send)
    courier.tick(clock.now())
    lane.waiting = [parcel("c")]
    assert courier.tick(clock.now()) < 1.0
    assert lane.claims == 1
    over.set()
    assert courier.idle(WAIT_LIMIT)
    courier.tick(clock.now())
    assert courier.idle(WAIT_LIMIT)
    assert lane.settled.keys() == {"a", "b", "c"}


def test_a_busy_ledger_is_asked_again_until_the_end_is_recorded(clock: FakeClock) -> None:
    lane, tries = Queue("a"), []

    def settling(id: str) -> None:
        tries.append(id)
        if len(tries) < 3:
            raise LedgerBusy("another process holds it")

    lane.before_settling = settling
    courier = carrying(lane, clock)
    courier.tick(clock.now())
    assert courier.idle(WAIT_LIMIT)
    assert len(tries) == 3
    assert lane.settled == {"a": SendResult(200)}


def test_a_broken_ledger_stops_the_gateway(clock: FakeClock) -> None:
    lane, broken = Queue("a"), Broken()
    failure = LedgerBroken("a commit's fate is unknown")

    def settling(_id: str) -> None:
        raise failure

    lane.before_settling = settling
    courier = carrying(lane, clock, broken=broken)
    courier.tick(clock.now())
    assert courier.idle(WAIT_LIMIT)
    assert broken.errors == [failure]


def test_a_stop_waits_for_what_is_under_way_and_claims_no_more(clock: FakeClock) -> None:
    lane, started, over = Queue("a"), threading.Event(), threading.Event()

    def send(_parcel: OutboundRequest) -> SendResult:
        started.set()
        assert over.wait(WAIT_LIMIT)
        return SendResult(200)

    courier = carrying(lane, clock, send)
    courier.tick(clock.now())
    assert started.wait(WAIT_LIMIT)
    stopper = threading.Thread(target=courier.stop, args=(WAIT_LIMIT,))
    stopper.start()
    over.set()
    stopper.join(WAIT_LIMIT)
    assert lane.settled == {"a": SendResult(200)}
    lane.waiting = [parcel("b")]
    courier.tick(clock.now())
    assert lane.claims == 1


def test_a_stop_does_not_wait_longer_than_it_is_told(clock: FakeClock) -> None:
    lane, over = Queue("a"), threading.Event()

    def send(_parcel: OutboundRequest) -> SendResult:
        assert over.wait(WAIT_LIMIT)
        return SendResult(200)

    courier = carrying(lane, clock, send)
    courier.tick(clock.now())
    courier.stop(0.01)
    assert lane.settled == {}
    over.set()
    assert courier.idle(WAIT_LIMIT)


def test_what_was_claimed_when_the_stop_came_is_given_back(clock: FakeClock) -> None:
    lane = Queue("a")
    courier = carrying(lane, clock)
    lane.while_claiming = lambda: courier.stop(0.0)
    courier.tick(clock.now())
    assert courier.idle(WAIT_LIMIT)
    assert lane.given_back == ["a"]
    assert lane.settled == {}
