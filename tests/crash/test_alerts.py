"""SIGKILL between the transition of an alert and its message: none is lost, none is doubled."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.gateway_process import GatewayProcess
from tests.engine.site import OK, Site
from tests.postgres import Server
from tests.waiting import until

FAIL = """echo '{"status": "error", "error": "disk is gone", "retry": false}'\nexit 1\n"""
FAILPOINTS = ("alert.planned", "alert.transition", "alert.notified", "alert.committed")


@pytest.fixture(params=["sqlite", "postgres"])
def alerting(request: pytest.FixtureRequest, site: Site) -> Site:
    if request.param == "postgres":
        server: Server = request.getfixturevalue("postgres")
        site.settings["state"] = {"url": server.database(), "dir": str(site.state)}
    broken = site.folder / "broken"
    site.plugin("also", FAIL)
    broken.touch()
    soon = {"backoff_base": "10ms"}
    site.plugin("fails", f"if [ -e {broken} ]; then\n{FAIL}fi\n{OK}", retry=soon)
    page = f"cat >> {site.folder}/messages\necho >> {site.folder}/messages\n{OK}"
    site.plugin("page", page, retry=soon)
    site.settings["alerts"] = [{"name": "broken", "on": "job.dead", "to": "page", "wait": "0s"}]
    return site


def list_sent(site: Site) -> list[str]:
    """The messages that arrived, by their event id: the plugin of a killed gateway runs again."""
    path = site.folder / "messages"
    lines = path.read_text().splitlines() if path.exists() else []
    events: list[Any] = []
    for line in lines:
        try:
            events.append(json.loads(line)["event"])
        except ValueError:
            continue  # cut off by the kill
    ids = {one["event_id"]: one for one in events}
    return [f"{one['type']} {one['payload']['group']}" for one in ids.values()]


@pytest.mark.parametrize(
    ("failpoint", "count"), [(name, 1 + index % 2) for index, name in enumerate(FAILPOINTS)]
)
def test_kill_loses_and_doubles_no_alert(
    alerting: Site,
    start_gateway: Callable[..., GatewayProcess],
    failpoint: str,
    count: int,
) -> None:
    """The first evaluation stores the rule; then come the failure, and with `count` 2 the end."""
    with alerting.running() as running:
        until(lambda: bool(running.gateway.ledger.read(lambda tx: tx.all("alert_rules"))))
        if count == 2:
            running.run("fails")
            until(lambda: list_sent(alerting) == ["alert.firing plugin:fails"])
            (alerting.folder / "broken").unlink()
    process = start_gateway(failpoint)
    process.ready()
    process.put("fails")
    assert process.wait() == -9
    last = start_gateway().ready()
    last.put("also")
    sent = ["alert.firing plugin:fails", "alert.resolved plugin:fails"][:count]
    expected = sorted([*sent, "alert.firing plugin:also"])
    # What the killed gateway was running is run again, perhaps after the rest.
    until(lambda: len(list_sent(alerting)) >= len(expected))
    for status in ("running", "queued"):
        path = f"/jobs?plugin=page&status={status}"
        until(lambda path=path: not last.client.get(path).json["jobs"])  # type: ignore[misc]
    assert sorted(list_sent(alerting)) == expected
