"""Relays: what is sent to which instance, and which responses count as delivered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from ductile.core.delivery.relay import METHOD, PEER, SIGNATURE, TIMESTAMP, compute_relay_signature
from ductile.core.pipelines.intents import SendRelay
from ductile.engine.outbox.policy import UNREADABLE, OutboundRequest, SendResult
from ductile.engine.outbox.relay import NOT_ALLOWED, REJECTED, RelayPolicy
from ductile.store import notices
from ductile.store.engines.api import BEGINNING, Ledger
from ductile.store.outbox import relays
from tests.conftest import FakeClock
from tests.engine.outbox.harness import (
    FAILURE,
    HOUR,
    INSTANCE,
    OWNER,
    RECEIPT,
    RELAY_SECRET,
    RelayHarness,
)
from tests.engine.site import Running, Site
from tests.store.conftest import execute
from tests.waiting import WAIT_LIMIT, until

Make = Callable[..., RelayHarness]


@pytest.fixture
def make(site: Site, ledger: Ledger, clock: FakeClock) -> Make:
    return lambda *send, **more: RelayHarness(site, ledger, clock, *send, **more)


@pytest.fixture
def outbox(make: Make) -> RelayHarness:
    return make()


class TestRequest:
    @pytest.mark.parametrize(
        ("configured", "signed"),
        [
            ("/ingest/peer/home", "/behind/ingest/peer/home"),
            ("/in%20gest/peer/h%6Fme", "/behind/in gest/peer/home"),
        ],
    )
    def test_signature_covers_the_decoded_path_of_the_whole_url(
        self, outbox: RelayHarness, configured: str, signed: str
    ) -> None:
        outbox.set_instances({**INSTANCE, "ingress_path": configured})
        outbox.reload()
        outbox.put()
        outbox.tick()
        (request,) = outbox.requests
        assert request.url == f"https://lab.example/behind{configured}"
        assert METHOD == "POST"
        expected = compute_relay_signature(
            RELAY_SECRET, signed, request.headers[TIMESTAMP], request.body
        )
        assert request.headers[SIGNATURE] == f"sha256={expected}"
        assert not request.plain_http

    def test_each_send_has_its_own_signature(self, make: Make) -> None:
        outbox = make(lambda _: FAILURE)
        outbox.put()
        outbox.run(2)
        first, second = outbox.requests
        assert first.body == second.body
        assert first.headers[SIGNATURE] != second.headers[SIGNATURE]

    def test_sender_is_the_current_name_of_the_service(
        self, site: Site, outbox: RelayHarness
    ) -> None:
        outbox.put()
        site.settings["service"]["name"] = "renamed"
        outbox.reload()
        outbox.tick()
        (request,) = outbox.requests
        assert request.headers[PEER] == "renamed"
        sent = orjson.loads(request.body)
        assert sent["origin"]["instance"] == "renamed"
        assert sent["event"] == {"type": "made", "payload": {"n": 1.5}}

    @pytest.mark.parametrize("body", ["garbage", "[]", "{}", '{"origin": 1}', ""])
    def test_unreadable_row_is_its_own_failure(self, outbox: RelayHarness, body: str) -> None:
        bad, good = outbox.put(), outbox.put()
        outbox.execute(f"UPDATE relay_deliveries SET body = '{body}' WHERE id = '{bad}'")
        outbox.tick()
        assert len(outbox.sent) == 1
        assert outbox.status(good) == "delivered"
        row = outbox.row(bad)
        assert (row["status"], row["error_detail"]) == ("failed", UNREADABLE)

    def test_event_type_that_is_no_longer_allowed_is_not_sent(self, outbox: RelayHarness) -> None:
        allowed, refused = outbox.put(event_type="made"), outbox.put(event_type="secret")
        outbox.set_instances({**INSTANCE, "allow": ["made"]})
        outbox.reload()
        outbox.tick()
        assert len(outbox.sent) == 1
        assert outbox.status(allowed) == "delivered"
        row = outbox.row(refused)
        assert (row["status"], row["error_detail"]) == ("failed", NOT_ALLOWED)

    @pytest.mark.parametrize("change", [{"enabled": False}, {"name": "attic"}])
    def test_events_for_a_missing_instance_wait_and_delay_no_other(
        self, outbox: RelayHarness, change: dict[str, Any]
    ) -> None:
        waiting = outbox.put()
        outbox.set_instances({**INSTANCE, **change}, {**INSTANCE, "name": "new"})
        outbox.reload()
        other = outbox.put(instance="new")
        outbox.run(60)
        assert (outbox.status(other), outbox.status(waiting)) == ("delivered", "pending")
        outbox.set_instances(INSTANCE)
        outbox.reload()
        outbox.tick()
        assert outbox.status(waiting) == "delivered"

    def test_hanging_instance_does_not_delay_another(self, make: Make) -> None:
        released = threading.Event()

        def send(request: OutboundRequest) -> SendResult:
            assert "slow" not in request.url or released.wait(WAIT_LIMIT)
            return RECEIPT

        outbox = make(send)
        slow = {**INSTANCE, "name": "slow", "base_url": "https://slow.example/"}
        outbox.set_instances(INSTANCE, slow)
        outbox.reload()
        count = relays.MAX_IN_FLIGHT + 2
        hanging = [outbox.put(instance="slow") for _ in range(count)]
        others = [outbox.put() for _ in range(count)]
        outbox.worker.tick(outbox.clock.now())
        until(lambda: len(outbox.claimed()[OWNER]) == relays.MAX_IN_FLIGHT)
        outbox.worker.tick(outbox.clock.now())
        until(lambda: [outbox.status(id) for id in others] == ["delivered"] * count)
        assert {outbox.status(id) for id in hanging} == {"pending"}
        released.set()
        outbox.run(5)
        assert {outbox.status(id) for id in hanging} == {"delivered"}

    def test_reload_does_not_change_a_send_in_flight(self, make: Make) -> None:
        def send(_request: OutboundRequest) -> SendResult:
            outbox.set_instances()
            outbox.reload()
            return RECEIPT

        outbox = make(send)
        id = outbox.put()
        outbox.tick()
        assert outbox.status(id) == "delivered"


class TestResult:
    @pytest.mark.parametrize(
        ("result", "error"),
        [
            (
                SendResult(200, None, b"<html>log in</html>"),
                "HTTP 200, but not a gateway's receipt",
            ),
            (SendResult(202, None, b'{"secret": "x"}'), "HTTP 202, but not a gateway's receipt"),
            (SendResult(204), "HTTP 204, but not a gateway's receipt"),
            (SendResult(403, "HTTP 403 Forbidden", b"why"), "HTTP 403 Forbidden"),
            (SendResult(400, "HTTP 400 Bad Request", b"<html>"), "HTTP 400 Bad Request"),
            (SendResult(None, "the connection was refused"), "the connection was refused"),
            (SendResult(None, f"at {RELAY_SECRET}.example"), "at [REDACTED].example"),
        ],
    )
    def test_anything_but_a_receipt_is_retried_and_none_of_its_text_is_stored(
        self, make: Make, result: SendResult, error: str
    ) -> None:
        outbox = make(lambda _: result)
        id = outbox.put()
        outbox.tick()
        row = outbox.row(id)
        assert (row["status"], row["error_detail"]) == ("failed", error)
        stored = outbox.ledger.read(lambda tx: notices.list_after(tx, BEGINNING))
        payloads = [notice.payload for notice in stored if notice.topic == relays.TOPIC]
        assert len(payloads) == 2
        assert RELAY_SECRET not in "".join(payloads)

    def test_event_that_the_gateway_rejects_permanently_is_dead_at_once(self, make: Make) -> None:
        """An older version accepts shorter names; the same bytes get the same response."""
        body = b'{"error": "event.dedupe_key must be shorter", "code": "bad_request"}'
        outbox = make(lambda _: SendResult(400, "HTTP 400 Bad Request", body))
        id = outbox.put()
        outbox.run(60)
        row = outbox.row(id)
        assert (row["status"], row["attempt_count"], len(outbox.sent)) == ("dead", 1, 1)
        assert row["error_detail"] == f"HTTP 400 Bad Request: {REJECTED}"


@pytest.fixture
def running(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A gateway whose relay worker counts its ticks and is not due again for an hour."""
    monkeypatch.setattr(RelayPolicy, "poll_seconds", HOUR)
    site.settings["instances"] = [INSTANCE]
    with site.opened() as running:
        yield running


def test_enqueue_and_retry_wake_the_worker(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, ticks = running.gateway, 0
    next_due = RelayPolicy.next_due

    def counted(*arguments: Any) -> Any:
        nonlocal ticks
        ticks += 1
        return next_due(*arguments)

    monkeypatch.setattr(RelayPolicy, "next_due", counted)
    gateway.start()
    until(lambda: ticks > 0)
    before, now = ticks, gateway.clock.now()
    given = SendRelay("j-1", "nowhere", "e", "made", "{}")
    gateway.ledger.write(lambda tx: relays.enqueue_relay(tx, given, id="r", now=now))
    until(lambda: ticks > before)
    execute(
        gateway.ledger,
        "UPDATE relay_deliveries SET status = 'dead', next_retry_at = NULL, attempt_count = 9",
    )
    before = ticks
    gateway.ledger.write(lambda tx: relays.retry_relay(tx, "r", now))
    until(lambda: ticks > before)
