"""Webhook deliveries: what is sent, when, how often, and how many per cycle."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook as StandardWebhook

from ductile.clock import SystemClock
from ductile.core.jobs.trace import TraceContext
from ductile.engine.outbox import webhooks as module
from ductile.engine.outbox.http_client import HttpClient
from ductile.engine.outbox.policy import UNREADABLE, SendResult
from ductile.engine.outbox.webhooks import POLL_INTERVAL_MS, EnqueueDelivery
from ductile.store.engines.api import Ledger
from ductile.store.outbox import deliveries, webhooks
from ductile.store.outbox.webhooks import NewWebhook
from tests.conftest import FakeClock
from tests.engine.outbox.harness import (
    FAILURE,
    HOUR,
    WEBHOOK_SECRET,
    WebhookHarness,
    on_postgres,
)
from tests.engine.receiver import Receiver, receiving, serve_connections, stay_silent
from tests.engine.site import Running, Site
from tests.waiting import WAIT_LIMIT, until

Make = Callable[..., WebhookHarness]


@pytest.fixture
def make(site: Site, ledger: Ledger, clock: FakeClock) -> Make:
    return lambda *send, **more: WebhookHarness(site, ledger, clock, *send, **more)


@pytest.fixture
def outbox(make: Make) -> WebhookHarness:
    return make()


def test_delivery_carries_the_trace_of_its_request(site: Site) -> None:
    site.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:9"
    trace = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", True)
    site.settings["gateway"] = {"allowed_networks": ["127.0.0.0/8"]}
    with receiving(204) as receiver, site.running() as running:
        gateway = running.gateway
        new = NewWebhook("agent", "e", "review", "s-1", target_url=receiver.url)
        now, entropy = gateway.clock.now(), gateway.entropy
        id = gateway.ledger.write(lambda tx: webhooks.add_webhook(tx, new, WEBHOOK_SECRET, now))
        gateway.ledger.write(EnqueueDelivery(id, "{}", entropy.uuid(), now, trace=trace))
        until(lambda: len(receiver.received) == 1)
    (request,) = receiver.received
    assert request.headers["traceparent"] == f"00-{trace.trace_id}-{trace.parent_span}-01"


class TestRequest:
    def test_signature_covers_the_bytes_that_are_sent(self, make: Make, clock: FakeClock) -> None:
        clock.moment = SystemClock().now()
        with receiving(204) as receiver:
            outbox = make(HttpClient(SystemClock()))
            text = '{"text": "grüße",  "n": [1, 2.50]}'
            id = outbox.put(outbox.add_webhook(target_url=receiver.url), text)
            outbox.tick()
        (request,) = receiver.received
        row = outbox.row(id)
        assert row["status"] == "delivered"
        assert request.body == text.encode()
        expected = hmac.new(WEBHOOK_SECRET.encode(), request.body, hashlib.sha256).hexdigest()
        assert request.headers["X-Observatory-Signature"] == f"sha256={expected}"
        assert row["signature"] == expected
        verified = StandardWebhook(WEBHOOK_SECRET).verify(request.body, request.headers)
        assert verified == json.loads(text)
        assert request.headers["webhook-id"] == row["message_id"]
        assert request.headers["Content-Type"] == "application/json"

    def test_every_send_of_a_delivery_has_the_same_id_and_its_own_time(self, make: Make) -> None:
        outbox = make(lambda _: FAILURE, poll_seconds=HOUR)
        outbox.put()
        outbox.run(1000)
        headers = [request.headers for request in outbox.requests]
        assert len(headers) == 4
        assert len({sent["webhook-id"] for sent in headers}) == 1
        assert len({sent["webhook-timestamp"] for sent in headers}) == 4

    def test_private_networks_and_plain_http_are_as_configured(
        self, site: Site, make: Make
    ) -> None:
        with receiving() as receiver:
            outbox = make(HttpClient(SystemClock()))
            webhook = outbox.add_webhook(target_url=receiver.url)
            allowed = outbox.put(webhook)
            outbox.tick()
            site.settings["gateway"] = {}
            outbox.reload()
            refused = outbox.put(webhook)
            outbox.tick()
        assert outbox.status(allowed) == "delivered"
        row = outbox.row(refused)
        assert (row["status"], row["attempt_count"]) == ("failed", 1)
        assert row["error_detail"].startswith("not sent: ")
        assert len(receiver.received) == 1

    def test_silent_receiver_fails_at_the_deadline(
        self, make: Make, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "SEND_TIMEOUT", 0.3)
        with serve_connections(stay_silent) as port:
            outbox = make(HttpClient(SystemClock()))
            id = outbox.put(outbox.add_webhook(target_url=f"http://127.0.0.1:{port}/"))
            outbox.tick()
        assert outbox.row(id)["error_detail"] == "no response within 0.3 s"


class TestRetries:
    def test_success_leaves_the_number_of_failed_sends(self, make: Make) -> None:
        failure = SendResult(500, "HTTP 500")
        results = iter([SendResult(None, "no response within 15 s"), failure, SendResult(200)])
        outbox = make(lambda _: next(results))
        id = outbox.put()
        outbox.run(600)
        row = outbox.row(id)
        assert (row["status"], row["attempt_count"], row["error_detail"]) == ("delivered", 2, None)

    def test_deliveries_of_a_removed_webhook_are_dead_when_they_are_due(
        self, outbox: WebhookHarness
    ) -> None:
        removed, kept = outbox.add_webhook(), outbox.add_webhook("release")
        ids = [outbox.put(removed), outbox.put(removed, inbound=True), outbox.put(kept)]
        now = outbox.clock.now()
        outbox.ledger.write(lambda tx: webhooks.remove_webhook(tx, removed, now))
        outbox.run(40)
        assert [outbox.status(id) for id in ids] == ["dead", "dead", "delivered"]
        row = outbox.row(ids[0])
        assert (row["attempt_count"], row["error_detail"]) == (0, "its webhook was removed")
        assert len(outbox.notices("WebhookDLQEvent")) == 2
        assert len(outbox.sent) == 1

    def test_text_of_the_response_is_not_stored(self, make: Make) -> None:
        outbox = make(lambda _: SendResult(500, "HTTP 500", b"its own secrets"))
        id = outbox.put()
        outbox.tick()
        assert "secrets" not in str(outbox.row(id))
        assert "secrets" not in str(outbox.notices("WebhookDeliveryEvent"))


FILL = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
INSERT INTO webhook_deliveries (webhook_id, session_id, payload, target_url, signature, status,
                                attempt_count, next_retry_at, created_at)
SELECT {webhook}, 's', '{{}}', 'https://example.com/', '',
       CASE i % 2 WHEN 0 THEN 'pending' ELSE 'failed' END, 0,
       '2026-02-08T09:00:00.000000Z', '2026-02-08T09:00:00.000000Z' FROM n
"""


def count_most_within(times: list[datetime], seconds: float) -> int:
    """The highest number of sends in any window of this length."""
    window = timedelta(seconds=seconds)
    return max(sum(start <= at < start + window for at in times) for start in times)


class TestRateLimit:
    def test_never_more_than_five_per_cycle_across_restarts(self, make: Make) -> None:
        first = make()
        first.execute(FILL.format(count=1000, webhook=first.add_webhook()))
        outboxes = []
        for boot in range(4):
            outboxes.append(make(owner=f"boot-{boot}"))
            outboxes[-1].worker.recover()
            outboxes[-1].run(33)
        times = sorted(at for outbox in outboxes for at, _ in outbox.sent)
        assert count_most_within(times, 1) <= 5
        assert count_most_within(times, 5) <= 5
        assert len(times) == 5 * 27

    @on_postgres
    def test_two_nodes_share_the_five_per_cycle(self, make: Make, clock: FakeClock) -> None:
        outboxes = [make(owner=f"boot-{n}") for n in range(2)]
        outboxes[0].execute(FILL.format(count=150, webhook=outboxes[0].add_webhook()))
        for _ in range(40):
            ready = threading.Barrier(2)

            def tick(outbox: WebhookHarness, ready: threading.Barrier = ready) -> None:
                ready.wait(WAIT_LIMIT)
                outbox.tick()

            threads = [threading.Thread(target=tick, args=(outbox,)) for outbox in outboxes]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(WAIT_LIMIT)
            clock.advance(1)
        sent = [item for outbox in outboxes for item in outbox.sent]
        assert count_most_within(sorted(at for at, _ in sent), 5) <= 5
        assert len(sent) == 40
        assert len({request.headers["webhook-id"] for _, request in sent}) == 40


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ("target_url = 'garbage'", "not sent: "),
        ("target_url = 'file:///etc/passwd'", "not sent: "),
        ("target_url = x'00ff'", "not sent: "),
        ("payload = CAST(x'ff' AS TEXT)", UNREADABLE),
        ("payload = x'00ff'", UNREADABLE),
        ("message_id = 'a' || char(10) || 'b'", "not sent: "),
        ("session_id = x'00ff', message_id = x'00ff'", None),
        ("target_url = 'internal://session/s', payload = '{'", "the payload is not JSON"),
    ],
)
def test_bad_row_is_its_own_failure(make: Make, change: str, error: str | None) -> None:
    with receiving() as receiver:
        outbox = make(HttpClient(SystemClock()))
        webhook = outbox.add_webhook(target_url=receiver.url)
        ids = [outbox.put(webhook) for _ in range(3)]
        outbox.execute(f"UPDATE webhook_deliveries SET {change} WHERE id = {ids[1]}")
        outbox.tick()
    assert [outbox.status(id) for id in (ids[0], ids[2])] == ["delivered"] * 2
    every = {"status": None, "webhook_id": None, "since": None, "before": None, "limit": 100}
    rows = outbox.ledger.read(lambda tx: tx.dicts("deliveries", **every))
    bad = next(row for row in rows if row["id"] == ids[1])
    if error is None:
        assert bad["status"] == "delivered"
    else:
        assert (bad["status"], bad["attempt_count"]) == ("failed", 1)
        assert bad["error_detail"].startswith(error)


def test_secret_that_is_not_text_fails_only_its_own_deliveries(outbox: WebhookHarness) -> None:
    bad, good = outbox.add_webhook(), outbox.add_webhook("release")
    ids = [outbox.put(bad), outbox.put(good)]
    outbox.execute(f"UPDATE webhook_configs SET secret = x'00ff' WHERE id = {bad}")
    outbox.tick()
    assert [outbox.status(id) for id in ids] == ["failed", "delivered"]
    assert outbox.row(ids[0])["error_detail"] == UNREADABLE


class TestRunningGateway:
    @pytest.fixture(autouse=True)
    def allow_loopback(self, site: Site) -> None:
        site.settings["gateway"] = {"allowed_networks": ["127.0.0.0/8"]}

    def put(self, running: Running, url: str, delay: timedelta = timedelta(0)) -> int:
        gateway = running.gateway
        now, message_id = gateway.clock.now(), gateway.entropy.uuid()
        new = NewWebhook("github", f"push-{message_id}", "review", "s-1", target_url=url)

        def work(tx: Any) -> int:
            webhook = webhooks.add_webhook(tx, new, WEBHOOK_SECRET, now)
            return EnqueueDelivery(webhook, "{}", message_id, now, delay)(tx).delivery_id

        return gateway.ledger.write(work)

    def row(self, running: Running, id: int) -> dict[str, Any]:
        return running.gateway.ledger.read(lambda tx: deliveries.find_delivery(tx, id))

    def test_enqueue_wakes_the_worker(self, site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
        assert POLL_INTERVAL_MS == 5_000
        monkeypatch.setattr(module.WebhookPolicy, "poll_seconds", HOUR)
        with receiving() as receiver, site.running() as running:
            id = self.put(running, receiver.url)
            receiver.wait(1)
            until(lambda: self.row(running, id)["status"] == "delivered")

    def test_start_sends_due_rows_and_leaves_later_ones(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module.WebhookPolicy, "poll_seconds", HOUR)
        with receiving() as receiver:
            with site.opened() as running:
                due = self.put(running, receiver.url)
                later = self.put(running, receiver.url, timedelta(hours=1))
                kept = self.row(running, later)["next_retry_at"]
            with site.running() as running:
                until(lambda: self.row(running, due)["status"] == "delivered")
                assert self.row(running, later)["next_retry_at"] == kept
            assert len(receiver.received) == 1

    def test_stop_waits_for_a_send_within_its_grace(self, site: Site) -> None:
        released = threading.Event()

        class SlowReceiver(Receiver):
            def take(self, request: Any) -> int:
                status = super().take(request)
                assert released.wait(WAIT_LIMIT)
                return status

        receiver = SlowReceiver()
        try:
            with site.running() as running:
                id = self.put(running, receiver.url)
                receiver.wait(1)
                timer = threading.Timer(0.3, released.set)
                timer.start()
                running.gateway.stop()
                timer.join()
                assert self.row(running, id)["status"] == "delivered"
        finally:
            released.set()
            receiver.close()
