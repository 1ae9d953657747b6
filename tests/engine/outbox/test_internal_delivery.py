"""Webhook deliveries to a session of this gateway: published, and handed to its target."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from ductile.engine.outbox import internal_delivery
from ductile.store import notices
from ductile.store.engines.api import BEGINNING, Ledger
from ductile.store.jobs import read
from tests.conftest import FakeClock
from tests.engine.outbox.harness import WebhookHarness
from tests.engine.site import OK, Site

Make = Callable[..., WebhookHarness]


@pytest.fixture
def make(site: Site, ledger: Ledger, clock: FakeClock) -> Make:
    return lambda *send, **more: WebhookHarness(site, ledger, clock, *send, **more)


@pytest.fixture
def outbox(make: Make) -> WebhookHarness:
    return make()


def add_internal(outbox: WebhookHarness, **more: Any) -> int:
    return outbox.add_webhook("deploy.finished", target_url=None, **more)


def read_job(outbox: WebhookHarness, id: str) -> dict[str, Any]:
    job: dict[str, Any] = outbox.ledger.read(lambda tx: read.describe_job(tx, id))
    return job


def count_queued(outbox: WebhookHarness) -> int:
    return len(outbox.ledger.read(lambda tx: tx.all("pending_jobs", limit=10)))


def test_event_is_published_to_its_session(outbox: WebhookHarness) -> None:
    id = outbox.put(add_internal(outbox), '{"ok": true}', inbound=True)
    assert outbox.row(id)["target_url"] == "internal://session/s-1"
    outbox.run(35)
    assert outbox.status(id) == "delivered"
    (event,) = outbox.notices("WebhookEvent")
    assert event["payload"] == {"ok": True}
    assert (event["event_type"], event["agent_intent"]) == ("deploy.finished", "review")
    assert event["job_ids"] == []
    stored = outbox.ledger.read(lambda tx: notices.list_after(tx, BEGINNING))
    assert {n.topic for n in stored if n.type == "WebhookEvent"} == {"session:s-1"}
    assert outbox.worker.count_outcomes() == {"in_house": 1}


def test_large_payload_is_omitted_from_the_notice(outbox: WebhookHarness) -> None:
    id = outbox.put(add_internal(outbox), json.dumps("x" * 100_000))
    outbox.tick()
    (event,) = outbox.notices("WebhookEvent")
    assert (event["payload"], event["payload_omitted"]) == (None, True)
    assert len(outbox.row(id)["payload"]) > 100_000


def test_integer_beyond_64_bits_is_passed_on_as_text(outbox: WebhookHarness) -> None:
    text = '{"id": 18446744073709551616}'
    outbox.put(add_internal(outbox, plugin="echo"), text)
    outbox.tick()
    (event,) = outbox.notices("WebhookEvent")
    assert event["payload"] == {"body": text}
    assert read_job(outbox, event["job_ids"][0])["payload"]["payload"] == {"body": text}


def test_plugin_of_the_webhook_gets_the_event_as_a_job(outbox: WebhookHarness) -> None:
    id = outbox.put(add_internal(outbox, plugin="echo"), '{"ok": true}')
    outbox.tick()
    assert outbox.status(id) == "delivered"
    (event,) = outbox.notices("WebhookEvent")
    job = read_job(outbox, event["job_ids"][0])
    assert (job["plugin"], job["command"]) == ("echo", "handle")
    assert (job["status"], job["submitted_by"]) == ("queued", "webhook")
    assert job["payload"]["type"] == "deploy.finished"
    assert job["payload"]["payload"] == {"ok": True}
    assert job["source_event_id"] == outbox.row(id)["message_id"]


def test_pipeline_of_the_webhook_is_started(outbox: WebhookHarness) -> None:
    outbox.put(add_internal(outbox, pipeline="flow"), '{"ok": true}')
    outbox.tick()
    (event,) = outbox.notices("WebhookEvent")
    job = read_job(outbox, event["job_ids"][0])
    assert (job["submitted_by"], job["pipeline"]) == ("webhook", "flow")


@pytest.mark.parametrize("target", [{"plugin": "missing"}, {"pipeline": "missing"}])
def test_unknown_target_is_a_failed_send_and_is_retried(
    site: Site, outbox: WebhookHarness, target: dict[str, str]
) -> None:
    id = outbox.put(add_internal(outbox, **target))
    outbox.tick()
    row = outbox.row(id)
    assert (row["status"], row["attempt_count"]) == ("failed", 1)
    assert "missing" in row["error_detail"]
    assert outbox.notices("WebhookEvent") == []
    site.plugin("missing", OK)
    site.settings["pipelines"].append(
        {"name": "missing", "on": "never", "steps": [{"uses": "echo"}]}
    )
    outbox.reload()
    outbox.run(60)
    assert outbox.status(id) == "delivered"


def test_job_and_settlement_are_committed_together(
    outbox: WebhookHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    id = outbox.put(add_internal(outbox, plugin="echo"))
    write_intents = internal_delivery.close.write_intents

    def write_and_fail(*arguments: Any) -> Any:
        write_intents(*arguments)
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(internal_delivery.close, "write_intents", write_and_fail)
        outbox.tick()
    row = outbox.row(id)
    assert (row["status"], row["error_detail"]) == ("failed", "internal error")
    assert count_queued(outbox) == 0
    outbox.run(31)
    assert outbox.status(id) == "delivered"
    assert count_queued(outbox) == 1


def test_delivery_that_was_taken_over_makes_one_job(make: Make) -> None:
    first, second = make(owner="first"), make(owner="second")
    first.put(add_internal(first, plugin="echo"))
    (claimed,) = first.claim()
    result = first.policy.build_request(claimed, first.config, first.clock.now())
    second.worker.recover()
    second.clock.advance(5)
    second.tick()
    first.settle(claimed, result)
    assert count_queued(first) == 1
    assert len(first.notices("WebhookEvent")) == 1


def test_secrets_of_the_config_are_not_published(site: Site, make: Make) -> None:
    outbox = make()
    site.plugin("echo", OK, config={"api_key": "a-canary-of-the-config"})
    outbox.reload()
    outbox.put(add_internal(outbox), '{"leak": "a-canary-of-the-config"}')
    outbox.tick()
    assert len(outbox.notices("WebhookEvent")) == 1
    assert "canary" not in str(outbox.notices("WebhookEvent"))
