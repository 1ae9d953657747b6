"""The doctor reports relay messages for a gateway that does not respond."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ductile.core.delivery.retry_policy import mark_rejected
from ductile.core.pipelines.intents import SendRelay
from ductile.operations.doctor import DoctorContext, Finding
from ductile.operations.doctor.relays import LONG, waiting
from ductile.store.outbox import relays
from tests.engine.site import Site

LAB = {
    "name": "lab",
    "base_url": "https://lab.example",
    "ingress_path": "/ingest/peer/ductile",
    "secret": "a-shared-secret-of-two",
}


def found(site: Site, *instances: dict[str, Any], age: timedelta) -> list[Finding]:
    """The findings for one relay of this age to the lab, and a dead one."""
    now = datetime.now(UTC)
    given = SendRelay("j", "lab", "e", "made", "{}")
    with site.opened() as site_run:
        for id in ("r-1", "dead"):
            work = lambda tx, id=id: relays.enqueue_relay(tx, given, id=id, now=now - age)  # noqa: E731
            site_run.gateway.ledger.write(work)
        site_run.gateway.ledger.write(_fail)
    site.settings["instances"] = list(instances)
    context = DoctorContext(site.write(), site.environ, now)
    try:
        return list(waiting(context))
    finally:
        context.close()


def _fail(tx: Any) -> None:
    later = datetime.now(UTC) + timedelta(days=30)
    for claimed in relays.claim(tx, ["lab"], "boot", later):
        if claimed.id == "dead":
            relays.settle(tx, claimed, "boot", mark_rejected(0, "no luck"), later)
        else:
            relays.undo_claim(tx, claimed, "boot")


@pytest.mark.parametrize(
    ("instances", "why"),
    [([], "removed or renamed"), ([{**LAB, "enabled": False}], "the instance is disabled")],
)
def test_those_for_an_instance_that_sends_nothing(
    site: Site, instances: list[dict[str, Any]], why: str
) -> None:
    [finding] = found(site, *instances, age=timedelta(0))
    assert finding.what == "pending relays to lab: 1"
    assert why in finding.why
    assert finding.run is not None
    assert finding.run.startswith("ductile relay list --instance lab")


def test_those_that_an_instance_has_not_taken_for_long(site: Site) -> None:
    [finding] = found(site, LAB, age=LONG + timedelta(seconds=1))
    assert "15 minutes" in finding.why


def test_those_of_a_moment_ago_are_no_finding(site: Site) -> None:
    assert found(site, LAB, age=timedelta(0)) == []
