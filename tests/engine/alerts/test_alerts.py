"""A running gateway reports failures to a plugin or pipeline, and pings an outside monitor."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from ductile.clock import to_text
from ductile.core.alerts.outage import Outage
from ductile.engine.alerts import alert_loop
from ductile.engine.alerts.dead_man import DeadManPinger
from ductile.engine.observability.health import HealthMonitor
from ductile.engine.observability.parts import MONITOR, UNDELIVERED
from ductile.engine.outbox.policy import OutboundRequest, SendResult
from tests.conftest import FakeClock
from tests.engine.site import OK, Running, Site
from tests.postgres import Server
from tests.waiting import until

FAIL = """echo '{"status": "error", "error": "disk is gone", "retry": false}'\nexit 1\n"""


def read_messages(site: Site) -> list[dict[str, Any]]:
    path = site.folder / "messages"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


@pytest.fixture(params=["sqlite", "postgres"])
def alerting(request: pytest.FixtureRequest, site: Site) -> Site:
    """A plugin that fails while a file exists, and one that writes messages to a file."""
    if request.param == "postgres":
        server: Server = request.getfixturevalue("postgres")
        site.settings["state"] = {"url": server.database(), "dir": str(site.state)}
    broken = site.folder / "broken"
    broken.touch()
    site.plugin("work", f"if [ -e {broken} ]; then\n{FAIL}fi\n{OK}")
    site.plugin("page", f"cat >> {site.folder}/messages\necho >> {site.folder}/messages\n{OK}")
    site.settings["alerts"] = [{"name": "broken", "on": ["job.dead"], "to": "page", "wait": "0s"}]
    return site


def wait_for_rules(running: Running) -> None:
    """A rule watches what happens after it was first evaluated."""
    ledger = running.gateway.ledger
    until(lambda: bool(ledger.read(lambda tx: tx.all("alert_rules"))))


def event_of(request: dict[str, Any]) -> dict[str, Any]:
    event: dict[str, Any] = request["event"]
    return event


def test_failure_and_recovery_reach_the_plugin(alerting: Site) -> None:
    with alerting.running() as running:
        wait_for_rules(running)
        failed = running.run("work")
        until(lambda: len(read_messages(alerting)) == 1)
        (alerting.folder / "broken").unlink()
        running.run("work")
        until(lambda: len(read_messages(alerting)) == 2)
    first, second = map(event_of, read_messages(alerting))
    assert first["type"] == "alert.firing"
    assert first["payload"]["first_error"] == "disk is gone"
    assert f"ductile job why {failed['id']}" in first["payload"]["message"]
    assert second["type"] == "alert.resolved"
    assert second["payload"]["group"] == "plugin:work"


def test_failure_of_the_last_boot_is_reported_at_the_next_start(alerting: Site) -> None:
    with alerting.running() as running:
        wait_for_rules(running)
    rules, alerting.settings["alerts"] = alerting.settings["alerts"], []
    with alerting.running() as running:
        running.run("work")
    alerting.settings["alerts"] = rules
    with alerting.running() as running:
        until(lambda: len(read_messages(alerting)) == 1)


def test_pipeline_gets_the_message_and_its_failure_raises_no_alert(alerting: Site) -> None:
    alerting.plugin("last", FAIL)
    alerting.settings["pipelines"] = [
        {
            "name": "escalate",
            "on": "page.me",
            "steps": [{"id": "page", "uses": "page"}, {"id": "last", "uses": "last"}],
        }
    ]
    alerting.settings["alerts"] = [
        {"name": "broken", "on": ["job.dead", "run.failed"], "to": "escalate", "wait": "0s"}
    ]
    with alerting.running() as running:
        wait_for_rules(running)
        running.run("work")
        running.notice("pipeline.failed")
        health = running.gateway.health
        assert health is not None
        until(lambda: UNDELIVERED in {part.part for part in health.check()})
        parts = {part.part: part for part in health.check()}
        assert not parts[UNDELIVERED].critical
        assert "did not reach escalate" in parts[UNDELIVERED].error
        running.run("page", "poll")
    assert [event_of(one)["type"] for one in read_messages(alerting) if one.get("event")] == [
        "alert.firing"
    ]


def test_outage_that_ended_before_the_evaluation_is_reported_once(
    alerting: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_loop, "LEVEL_SECONDS", 0.2)
    alerting.settings["alerts"] = [{"name": "sick", "on": "health", "to": "page", "wait": "0s"}]
    with alerting.running() as running:
        wait_for_rules(running)
        health, now = running.gateway.health, running.gateway.clock.now()
        assert health is not None
        outage = Outage("scheduler", "no connection", now - timedelta(seconds=3), now)
        health.outages.update([outage], now)
        until(lambda: len(read_messages(alerting)) == 2)
        until(lambda: health.outages.read() == ())
    first, second = (event_of(one)["payload"] for one in read_messages(alerting))
    assert first["since"] == second["since"] == to_text(outage.since)
    assert "no connection (until " in first["first_error"]
    assert (first["news"], second["news"]) == ("firing", "resolved")


class Sender:
    def __init__(self, *errors: str | None) -> None:
        self._errors, self.sent = list(errors), list[OutboundRequest]()

    def __call__(self, request: OutboundRequest) -> SendResult:
        self.sent.append(request)
        error = self._errors.pop(0)
        return SendResult(None if error else 200, error)


def test_dead_man_pings_at_its_interval_and_counts_failures(site: Site, clock: FakeClock) -> None:
    site.settings["dead_man"] = {"url": "https://monitor.example/secret", "every": "5m"}
    site.settings["gateway"] = {"allowed_networks": ["10.0.0.0/8"]}
    with site.opened(clock=clock) as running:
        sender = Sender(None, "HTTP 500", None)
        pinger = DeadManPinger(running.gateway, sender)
        assert pinger.tick(clock.now()) == 300
        clock.advance(100)
        assert pinger.tick(clock.now()) == 200
        clock.advance(200)
        pinger.tick(clock.now())
        assert running.gateway.counters.read_dead_man() == {"ok": 1, "failed": 1}
    assert [(one.url, one.networks) for one in sender.sent] == [
        ("https://monitor.example/secret", ("10.0.0.0/8",))
    ] * 2


def test_failed_request_to_the_monitor_is_a_part_that_fails_until_one_succeeds(
    site: Site, clock: FakeClock
) -> None:
    site.settings["dead_man"] = {"url": "https://monitor.example/secret", "every": "5m"}
    with site.opened(clock=clock) as running:
        pinger = DeadManPinger(running.gateway, Sender("HTTP 404", None))
        health = HealthMonitor(running.gateway)

        def failing() -> dict[str, tuple[str, bool]]:
            return {part.part: (part.error, part.critical) for part in health.check()}

        pinger.tick(clock.now())
        why = "a request to it failed: HTTP 404"
        assert failing() == {MONITOR: (why, False)}
        clock.advance(10)
        assert pinger.tick(clock.now()) == 290
        # The next one is sent at once if the URL is corrected.
        site.settings["dead_man"]["url"] = "https://monitor.example/right"
        site.write()
        running.gateway.reload()
        assert pinger.tick(clock.now()) == 300
        assert failing() == {}


def test_dead_man_without_a_section_sends_nothing(site: Site, clock: FakeClock) -> None:
    with site.opened(clock=clock) as running:
        assert DeadManPinger(running.gateway, Sender()).tick(clock.now()) == 60
