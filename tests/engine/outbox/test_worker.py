"""What the outbox worker does for every kind of row: claim, send, settle, and recover."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import orjson
import pytest

from ductile.core.values.redact import Redactor
from ductile.engine.outbox import worker as module
from ductile.engine.outbox.policy import UNREADABLE, OutboundRequest, SendResult
from ductile.engine.outbox.worker import MAX_IN_FLIGHT, NORMALIZE_EVERY, START_WITHIN
from ductile.engine.recovery.dead_nodes import LOST_AFTER
from ductile.errors import LedgerBroken, LedgerBusy
from ductile.log import configure
from ductile.store.engines.api import Ledger
from tests.conftest import FakeClock
from tests.engine.outbox.harness import (
    FAILURE,
    OWNER,
    RECEIPT,
    OutboxHarness,
    RelayHarness,
    WebhookHarness,
    on_both,
    on_postgres,
)
from tests.engine.site import Site
from tests.waiting import WAIT_LIMIT, until

Make = Callable[..., OutboxHarness]


@pytest.fixture(params=[WebhookHarness, RelayHarness], ids=["webhook", "relay"])
def make(request: pytest.FixtureRequest, site: Site, ledger: Ledger, clock: FakeClock) -> Make:
    return lambda *send, **more: request.param(site, ledger, clock, *send, **more)


@pytest.fixture
def outbox(make: Make) -> OutboxHarness:
    return make()


class Held:
    """A receiver that does not respond before `release`."""

    def __init__(self) -> None:
        self.started, self._released = threading.Semaphore(0), threading.Event()

    def __call__(self, _request: OutboundRequest) -> SendResult:
        self.started.release()
        assert self._released.wait(WAIT_LIMIT)
        return RECEIPT

    def release(self) -> None:
        self._released.set()


class TestSend:
    def test_due_rows_are_sent_and_settled(self, outbox: OutboxHarness) -> None:
        ids = [outbox.put(), outbox.put()]
        assert outbox.tick() == 0.0
        assert [outbox.status(id) for id in ids] == ["delivered"] * 2
        assert outbox.worker.count_outcomes() == {"2xx": 2}
        assert outbox.claimed() == {}

    def test_idle_worker_polls_and_a_failed_send_is_retried_when_it_is_due(
        self, make: Make
    ) -> None:
        outbox = make(lambda _request: FAILURE)
        assert outbox.tick() == outbox.policy.poll_seconds == 5.0
        outbox.put()
        outbox.tick()
        first_retry = outbox.policy.retry_seconds[0]
        assert outbox.tick() == min(first_retry, 5.0)
        outbox.clock.advance(first_retry)
        outbox.tick()
        assert len(outbox.sent) == 2

    def test_hanging_receiver_delays_no_other_row(self, make: Make) -> None:
        held = Held()
        receivers = iter([held])
        outbox = make(lambda request: next(receivers, lambda _: RECEIPT)(request))
        hanging = outbox.put()
        outbox.worker.tick(outbox.clock.now())
        assert held.started.acquire(timeout=WAIT_LIMIT)
        others = [outbox.put() for _ in range(3)]
        outbox.worker.tick(outbox.clock.now())
        until(lambda: [outbox.status(id) for id in others] == ["delivered"] * 3)
        assert outbox.status(hanging) == "pending"
        assert not outbox.worker.wait_until_idle(0.0)
        held.release()
        assert outbox.worker.wait_until_idle(WAIT_LIMIT)
        assert [outbox.status(id) for id in (hanging, *others)] == ["delivered"] * 4

    def test_error_in_send_is_the_failure_of_that_row(self, make: Make) -> None:
        def send(_request: OutboundRequest) -> SendResult:
            raise ZeroDivisionError

        outbox = make(send)
        id = outbox.put()
        outbox.tick()
        row = outbox.row(id)
        assert (row["status"], row["error_detail"]) == ("failed", "internal error")
        assert outbox.worker.count_outcomes() == {"unanswered": 1}

    def test_secret_in_an_error_is_redacted(self, make: Make) -> None:
        secret = "hunter2hunter2"
        outbox = make(lambda _request: SendResult(503, f"HTTP 503 for {secret}"))
        outbox.config = replace(outbox.config, redactor=Redactor([secret]))
        id = outbox.put()
        outbox.tick()
        detail = str(outbox.row(id)["error_detail"])
        assert "[REDACTED]" in detail
        assert secret not in detail

    def test_error_in_build_request_is_the_failure_of_that_row(
        self, outbox: OutboxHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bad, good = outbox.put(), outbox.put()
        build = outbox.policy.build_request

        def broken(row: Any, *rest: Any) -> Any:
            if row.id == bad:
                raise ZeroDivisionError
            return build(row, *rest)

        monkeypatch.setattr(outbox.policy, "build_request", broken)
        outbox.tick()
        assert (outbox.status(bad), outbox.status(good)) == ("failed", "delivered")
        assert outbox.row(bad)["error_detail"] == UNREADABLE
        assert outbox.worker.count_outcomes() == {"2xx": 1, "in_house": 1}

    def test_nothing_is_claimed_while_too_many_sends_are_in_flight(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert MAX_IN_FLIGHT == 64
        monkeypatch.setattr(module, "MAX_IN_FLIGHT", 2)
        held = Held()
        outbox = make(held)
        outbox.put(), outbox.put()
        outbox.worker.tick(outbox.clock.now())
        third = outbox.put()
        assert outbox.worker.tick(outbox.clock.now()) < 1.0
        assert outbox.row(third)["last_attempted_at"] is None
        held.release()
        assert outbox.worker.wait_until_idle(WAIT_LIMIT)
        outbox.tick()
        assert outbox.status(third) == "delivered"


class TestReturnedClaims:
    def test_row_whose_send_cannot_start_in_time_is_as_it_was_before(
        self, outbox: OutboxHarness
    ) -> None:
        id = outbox.put()
        before = outbox.row(id)
        outbox.ledger.before_write = lambda: outbox.clock.advance(START_WITHIN + 0.1)
        outbox.tick()
        assert outbox.sent == []
        assert outbox.row(id) == before
        assert outbox.claimed() == {}
        assert outbox.worker.count_outcomes() == {"given_back": 1}

    @pytest.mark.parametrize("change", ["slow commit", "clock set"])
    def test_row_whose_send_starts_in_time_is_sent(
        self, outbox: OutboxHarness, change: str
    ) -> None:
        def before_write() -> None:
            if change == "slow commit":
                outbox.clock.advance(START_WITHIN - 0.1)
            else:
                outbox.clock.moment += timedelta(hours=1)

        id = outbox.put()
        outbox.ledger.before_write = before_write
        outbox.tick()
        assert outbox.status(id) == "delivered"

    def test_row_for_which_no_thread_can_start_is_returned(
        self, outbox: OutboxHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def start(_thread: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        id = outbox.put()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            assert outbox.worker.tick(outbox.clock.now()) == 1.0
        assert outbox.worker.wait_until_idle(0.0)
        assert (outbox.status(id), outbox.claimed(), outbox.sent) == ("pending", {}, [])

    def test_row_that_is_claimed_when_a_stop_begins_is_returned(
        self, outbox: OutboxHarness
    ) -> None:
        id = outbox.put()
        outbox.ledger.before_write = lambda: outbox.worker.stop(0.0)
        outbox.tick()
        assert (outbox.status(id), outbox.claimed(), outbox.sent) == ("pending", {}, [])


class TestStop:
    def test_stop_waits_for_sends_in_flight_and_claims_nothing_more(self, make: Make) -> None:
        held = Held()
        outbox = make(held)
        first = outbox.put()
        outbox.worker.tick(outbox.clock.now())
        assert held.started.acquire(timeout=WAIT_LIMIT)
        stopper = threading.Thread(target=outbox.worker.stop, args=(WAIT_LIMIT,))
        stopper.start()
        held.release()
        stopper.join(WAIT_LIMIT)
        assert outbox.status(first) == "delivered"
        second = outbox.put()
        outbox.tick()
        assert outbox.status(second) == "pending"

    def test_stop_waits_no_longer_than_given(self, make: Make) -> None:
        held = Held()
        outbox = make(held)
        id = outbox.put()
        outbox.worker.tick(outbox.clock.now())
        outbox.worker.stop(0.01)
        assert outbox.claimed() == {OWNER: [id]}
        held.release()
        assert outbox.worker.wait_until_idle(WAIT_LIMIT)


class TestLedgerErrors:
    def test_settlement_is_repeated_until_the_ledger_is_available(self, make: Make) -> None:
        def send(_request: OutboundRequest) -> SendResult:
            outbox.ledger.failures = [(False, LedgerBusy("another process holds it"))] * 3
            return RECEIPT

        outbox = make(send)
        id = outbox.put()
        outbox.tick()
        assert (outbox.status(id), outbox.ledger.failures) == ("delivered", [])
        assert len(outbox.sent) == 1

    @pytest.mark.parametrize("committed", [True, False])
    def test_settlement_is_recorded_once_however_often_it_is_repeated(
        self, make: Make, committed: bool
    ) -> None:
        def send(_request: OutboundRequest) -> SendResult:
            outbox.ledger.failures = [(committed, LedgerBusy("the connection was lost"))]
            return FAILURE

        outbox = make(send)
        id = outbox.put()
        outbox.tick()
        row = outbox.row(id)
        assert (row["status"], row["attempt_count"]) == ("failed", 1)
        assert outbox.claimed() == {}

    def test_error_in_the_settlement_is_a_failed_send(self, make: Make) -> None:
        def send(_request: OutboundRequest) -> SendResult:
            outbox.ledger.failures = [(False, RuntimeError("a bug"))]
            return RECEIPT

        outbox = make(send)
        id = outbox.put()
        outbox.tick()
        row = outbox.row(id)
        assert (row["status"], row["attempt_count"]) == ("failed", 1)
        assert row["error_detail"] == "internal error"

    def test_row_that_cannot_be_settled_at_all_is_sent_again(self, make: Make) -> None:
        errors = [(False, RuntimeError("a bug"))] * 2

        def send(_request: OutboundRequest) -> SendResult:
            outbox.ledger.failures, errors[:] = list(errors), []
            return RECEIPT

        outbox = make(send)
        id = outbox.put()
        outbox.tick()
        assert outbox.claimed() == {OWNER: [id]}
        outbox.run(11)
        assert outbox.status(id) == "delivered"
        assert len(outbox.sent) == 2

    def test_broken_ledger_is_reported_to_the_gateway(self, make: Make) -> None:
        failure = LedgerBroken("a commit's fate is unknown")

        def send(_request: OutboundRequest) -> SendResult:
            outbox.ledger.failures = [(False, failure)]
            return RECEIPT

        outbox = make(send)
        outbox.put()
        outbox.tick()
        assert outbox.broken == [failure]

    def test_claim_whose_commit_was_not_acknowledged_is_requeued(
        self, outbox: OutboxHarness
    ) -> None:
        id = outbox.put()
        outbox.ledger.failures = [(True, LedgerBusy("the connection was lost"))]
        with pytest.raises(LedgerBusy):
            outbox.tick()
        assert outbox.claimed() == {OWNER: [id]}
        outbox.run(6)
        assert outbox.status(id) == "delivered"
        assert len(outbox.sent) == 1

    def test_row_in_flight_is_not_requeued(self, make: Make) -> None:
        held = Held()
        outbox = make(held)
        id = outbox.put()
        for _ in range(10):
            outbox.worker.tick(outbox.clock.now())
            outbox.clock.advance(5)
        held.release()
        assert outbox.worker.wait_until_idle(WAIT_LIMIT)
        assert len(outbox.sent) == 1
        assert outbox.status(id) == "delivered"


class TestOtherGateways:
    def test_next_start_sends_what_a_dead_gateway_was_sending(self, make: Make) -> None:
        before, after = make(owner="boot-before"), make(owner="boot-after")
        id = before.put()
        (claimed,) = before.claim()
        after.clock.advance(5)
        after.tick()
        assert after.sent == []
        after.worker.recover()
        after.tick()
        assert after.status(id) == "delivered"
        before.settle(claimed, FAILURE)
        assert after.status(id) == "delivered"

    @on_postgres
    def test_rows_of_a_lost_node_are_taken_over(self, make: Make) -> None:
        lost, other = make(owner="lost"), make(owner="other")
        ids = [lost.put() for _ in range(4)]
        assert len(lost.claim()) == 4
        other.run(LOST_AFTER.total_seconds() - 1)
        assert other.sent == []
        other.run(7)
        assert [other.status(id) for id in ids] == ["delivered"] * 4

    @on_postgres
    @pytest.mark.parametrize("returns_after", [0.0, LOST_AFTER.total_seconds() - 1])
    def test_rows_of_a_living_node_are_left_to_it(
        self, make: Make, ledger: Ledger, returns_after: float
    ) -> None:
        living, other = make(owner="living"), make(owner="other")
        id = living.put()
        (claimed,) = living.claim()
        other.run(returns_after)
        ledger.claim_boot("living")
        other.worker.recover()
        other.run(50)
        assert other.sent == []
        living.settle(claimed, RECEIPT)
        assert living.status(id) == "delivered"


UNPARSABLE = [
    "1700000000",
    "0garbage",
    "",
    "soon",
    "0001-01-01T00:00:00+08:00",
    "2026-02-30T10:00:00.000000Z",
    "9999-99-99T99:99:99.999999Z",
]
OTHER_FORMATS = [
    "2026-02-08 10:10:00",
    "2026-02-08T03:10:00-07:00",
    "20260208T101000Z",
    "2026-02-08T10:10Z",
    " 2026-02-08T10:10:00.000000Z",
]


class TestDueTimesOfScripts:
    @on_both
    def test_unparsable_times_are_due_now_and_logged_once(
        self, outbox: OutboxHarness, capsysbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        configure("warn", "json")
        odd = [outbox.put() for _ in UNPARSABLE]
        for id, text in zip(odd, UNPARSABLE, strict=True):
            outbox.set_due(id, text)
        ours = outbox.put()
        capsysbinary.readouterr()
        outbox.run(20)
        assert {outbox.status(id) for id in (*odd, ours)} == {"delivered"}
        lines = map(orjson.loads, capsysbinary.readouterr().out.splitlines())
        logged = [(line["level"], line["message"], line[outbox.noun]) for line in lines]
        message = "next_retry_at is not a time; due now"
        assert sorted(logged) == sorted(("warn", message, id) for id in odd)

    @on_both
    @pytest.mark.parametrize("status", ["pending", "failed"])
    def test_times_in_other_formats_are_kept(self, outbox: OutboxHarness, status: str) -> None:
        ids, began = [outbox.put() for _ in OTHER_FORMATS], outbox.clock.now()
        for id, text in zip(ids, OTHER_FORMATS, strict=True):
            outbox.set_due(id, text, status)
        outbox.policy.poll_seconds = 3600.0
        outbox.run(700)
        assert [at - began for at, _ in outbox.sent] == [timedelta(minutes=10)] * len(ids)

    @on_both
    @pytest.mark.parametrize("status", ["pending", "failed"])
    def test_row_without_a_time_is_sent_within_one_poll_without_a_warning(
        self, outbox: OutboxHarness, status: str, capsysbinary: pytest.CaptureFixture[bytes]
    ) -> None:
        configure("warn", "json")
        outbox.tick()
        id = outbox.put()
        outbox.set_due(id, None, status)
        for _ in range(5):
            outbox.tick()
            outbox.clock.advance(1)
        assert outbox.status(id) == "delivered"
        assert capsysbinary.readouterr().out == b""

    @on_both
    @pytest.mark.parametrize("text", [*UNPARSABLE, "2026-02-09 10:00:00", None])
    def test_odd_time_does_not_delay_other_rows(
        self, outbox: OutboxHarness, text: str | None
    ) -> None:
        outbox.tick()
        outbox.set_due(outbox.put(), text)
        ours = outbox.put()
        outbox.tick()
        assert outbox.status(ours) == "delivered"

    def test_outstanding_rows_are_searched_every_few_seconds_only(
        self, outbox: OutboxHarness, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        searches: list[datetime] = []
        find = outbox.policy.find_odd_times

        def counted(*arguments: Any) -> Any:
            searches.append(outbox.clock.now())
            return find(*arguments)

        monkeypatch.setattr(outbox.policy, "find_odd_times", counted)
        for _ in range(100):
            outbox.tick()
            outbox.clock.advance(0.1)
        began = searches[0]
        assert searches == [began + n * NORMALIZE_EVERY for n in range(3)]
        outbox.clock.moment -= timedelta(days=1)
        outbox.tick()
        assert len(searches) == 4
