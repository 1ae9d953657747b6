"""The doctor reports agents whose heartbeats arrive more slowly than their limit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from ductile.model import Notice
from ductile.operations.doctor import DoctorContext, agents
from ductile.store import notices
from tests.engine.site import Site


def test_agent_that_is_evicted_repeatedly_is_found(site: Site) -> None:
    now = datetime.now(UTC)
    evictions = [("slow", 5), ("slow", 20), ("stopped", 10), ("better", 70), ("better", 5)]
    with site.opened() as site_run:
        for agent, minutes in evictions:
            payload = {"agent_id": agent, "reason": "evicted"}
            notice = Notice("gateway:capabilities", "agent.removed", payload)
            at = now - timedelta(minutes=minutes)
            site_run.gateway.ledger.write(lambda tx, n=notice, at=at: notices.post(tx, n, at))
    context = DoctorContext(site.write(), site.environ, now)
    try:
        [finding] = agents.slow(context)
    finally:
        context.close()
    assert finding.what == "agent slow was evicted 2 times within an hour"
    assert finding.run is not None
    assert "agent show slow" in finding.run
