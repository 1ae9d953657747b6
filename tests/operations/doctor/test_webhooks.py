"""The doctor reports webhook endpoints that refused requests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ductile.operations.doctor import DoctorContext, webhooks
from tests.engine.site import Site

AT = "2026-02-08T10:00:00.000000Z"


def test_refused_relayed_events_lead_to_the_clock_or_the_secret(site: Site) -> None:
    site.settings["remote_ingress"] = {"peers": [{"name": "home", "secret": "s" * 16}]}
    row = {"endpoint": "/ingest/peer/home", "requests": 1, "last_at": AT}
    answers: dict[str, Any] = {"refused_webhooks": [row]}
    context = DoctorContext(site.write(), site.environ, datetime.now(UTC))
    context.ask = lambda _: answers
    row["reason"] = webhooks.OUT_OF_TIME
    [finding] = webhooks.refused(context)
    assert finding.what.startswith("relay endpoint /ingest/peer/home refused 1 request")
    assert finding.run == "timedatectl status"
    row["reason"] = webhooks.MISMATCH
    [finding] = webhooks.refused(context)
    assert f"its secret: {site.folder}/config.yaml:" in finding.why
    assert str(finding.run).startswith("${EDITOR:-vi} +")
    row |= {"endpoint": "/ingest/peer/", "reason": "unknown peer"}
    [finding] = webhooks.refused(context)
    assert str(finding.run).startswith("ductile config show remote_ingress")


def test_refused_requests_are_reported_per_endpoint_with_their_reasons(site: Site) -> None:
    site.settings["webhooks"] = {
        "endpoints": [{"path": "/hook/a", "name": "shop", "plugin": "echo", "secret": "s" * 16}]
    }
    rows = [
        {"endpoint": "/hook/a", "reason": "too large", "requests": 2, "last_at": AT},
        {"endpoint": "/hook/a", "reason": "forged", "requests": 7, "last_at": AT},
        {"endpoint": None, "reason": "no endpoint has this path", "requests": 1, "last_at": AT},
    ]
    answers: dict[str, Any] = {"refused_webhooks": rows}
    context = DoctorContext(site.write(), site.environ, datetime.now(UTC))
    context.ask = lambda _: answers
    listener, endpoint = webhooks.refused(context)
    assert listener.what == "the webhook listener refused 1 request in the last hour"
    assert endpoint.what == "webhook endpoint /hook/a refused 9 requests in the last hour"
    assert endpoint.why == f"7: forged; 2: too large; the last one at {AT}"
    assert endpoint.run is not None
    assert endpoint.run.startswith("ductile config show webhook:shop")
    rows[1]["reason"] = webhooks.MISMATCH
    _, endpoint = webhooks.refused(context)
    assert f"its secret: {site.folder}/config.yaml:" in endpoint.why
    assert str(endpoint.run).startswith("ductile config set webhook:shop.secret - ")
    rows[0]["reason"] = rows[1]["reason"] = webhooks.OUT_OF_TIME
    _, endpoint = webhooks.refused(context)
    assert endpoint.run == "timedatectl status"
    rows[0]["reason"] = f"{webhooks.MISSING}x-signature"
    _, endpoint = webhooks.refused(context)
    assert f"its signature_header: {site.folder}/config.yaml:" in endpoint.why
    assert str(endpoint.run).startswith("${EDITOR:-vi} +")
    assert " && ductile system reload" in str(endpoint.run)
    answers.clear()
    assert list(webhooks.refused(context)) == []
    context.ask = None
    assert list(webhooks.refused(context)) == []
