"""Relayed events become jobs, on both engines."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import orjson
import pytest

from ductile.clock import to_text
from ductile.core.delivery.relay import Peer, RelayedEvent, RelayRequest, sign_request
from ductile.core.jobs.limits import LONGEST_DEDUPE_KEY, LONGEST_NAME
from ductile.engine.ingress.relay import RelayIngressRules, ReplayedRelay
from ductile.engine.scheduling.retention import RetentionCleaner
from ductile.store.outbox.relays import Receipt
from tests.conftest import FakeClock
from tests.engine.site import OK, Running, Site

SECRET = "a-shared-secret-of-two"
PATH = "/ingest/peer/home"


@pytest.fixture(params=["sqlite", "postgres"])
def running(request: pytest.FixtureRequest, site: Site) -> Iterator[Running]:
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").database()
        site.settings["state"] = {"url": url, "dir": str(site.state)}
    site.plugin("echo", OK)
    site.settings["remote_ingress"] = {
        "allowed_clock_skew": "2d",
        "peers": [{"name": "home", "secret": SECRET, "baggage": {"allow": ["trace"]}}],
    }
    site.settings["pipelines"] = [{"name": "p", "on": "made", "steps": [{"uses": "echo"}]}]
    with site.opened() as running:
        yield running


def verify(running: Running, body: dict[str, Any], late: float = 0.0) -> RelayedEvent:
    raw, now = orjson.dumps(body), running.gateway.clock.now()
    at = now - timedelta(seconds=late)
    headers = sign_request("home", Peer("home", SECRET), PATH, raw, at)
    request = RelayRequest(PATH, {name.lower(): [value] for name, value in headers.items()}, raw)
    relayed = RelayIngressRules(running.gateway.compiled).verify(request, now)
    assert isinstance(relayed, RelayedEvent), relayed
    return relayed


def accept(running: Running, relayed: RelayedEvent) -> Receipt:
    gateway = running.gateway
    ingress = RelayIngressRules(gateway.compiled)
    return gateway.ledger.write(ingress.accept(relayed, gateway.clock, gateway.entropy))


def event(event_id: str | None = "e-1", **more: Any) -> dict[str, Any]:
    return {"event": {"type": "made", **more}, "origin": {"event_id": event_id}}


def test_event_becomes_the_first_job_of_a_pipeline(running: Running) -> None:
    receipt = accept(running, verify(running, event()))
    assert receipt.job_id is not None
    job = running.job(receipt.job_id)
    assert (job["submitted_by"], job["dedupe_key"]) == ("relay", "relay:home::e-1")


def test_longest_names_are_stored(running: Running) -> None:
    sign = "\U0001f980"
    body = event(sign * (LONGEST_NAME // 4), dedupe_key=sign * (LONGEST_DEDUPE_KEY // 4))
    first, again = verify(running, body), verify(running, body, late=1)
    receipt = accept(running, first)
    assert receipt.job_id is not None
    assert accept(running, again) == Receipt(
        receipt.receiver_event_id, receipt.job_id, duplicate=True
    )


def test_replayed_request_stores_nothing(running: Running) -> None:
    relayed = verify(running, event(None))
    accept(running, relayed)
    with pytest.raises(ReplayedRelay):
        accept(running, relayed)
    assert [type for type, _ in running.list_notices()].count("job.queued") == 1


def test_signature_is_kept_until_its_timestamp_expires(running: Running) -> None:
    """A request dated two days ahead is valid for four days."""
    ledger, now = running.gateway.ledger, running.gateway.clock.now()
    relayed = verify(running, event(None), late=-2 * 86400 + 60)
    accept(running, relayed)
    clock = FakeClock(now)
    cleaner = RetentionCleaner(ledger, lambda: running.gateway.compiled, clock)
    own = {"peer": "home", "signature": relayed.signature, "now": to_text(now)}
    clock.advance(4 * 86400)
    cleaner.tick(clock.now())
    assert ledger.write(lambda tx: tx.run("insert_relay_signature", **own)) == 0
    clock.advance(60)
    cleaner.tick(clock.now())
    assert ledger.write(lambda tx: tx.run("insert_relay_signature", **own)) == 1
