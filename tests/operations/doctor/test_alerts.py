"""The doctor and the status report alerts that fire, and messages that did not arrive."""

from __future__ import annotations

from ductile.operations import overview
from ductile.operations.alerts import rules
from tests.engine.site import Site
from tests.operations.doctor.harness import examine, find_one
from tests.waiting import until

FAIL = """echo '{"status": "error", "error": "no line", "retry": false}'\nexit 1\n"""


def test_firing_alert_and_undelivered_message_are_found(site: Site) -> None:
    site.plugin("work", FAIL)
    site.plugin("page", FAIL)
    site.settings["alerts"] = [{"name": "broken", "on": "job.dead", "to": "page", "wait": "0s"}]
    with site.running() as running:
        gateway = running.gateway
        until(lambda: bool(gateway.ledger.read(lambda tx: tx.all("alert_rules"))))
        running.run("work")
        until(lambda: bool(rules.list_rules(gateway)["undelivered"]))
        [shown] = overview.overview(gateway)["alerts"]
        assert (shown["rule"], shown["group"], shown["state"]) == (
            "broken",
            "plugin:work",
            "firing",
        )
    findings = examine(site)
    shows = find_one(findings, "alert broken fires for plugin:work").run
    assert shows is not None
    assert "alert show broken" in shows
    lost = find_one(findings, "did not reach page")
    assert lost.why == "no line"
