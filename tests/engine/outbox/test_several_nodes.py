"""Several nodes on one PostgreSQL that relay to one gateway: each event once."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from ductile.engine.outbox.relay import RelayPolicy
from ductile.engine.recovery import dead_nodes
from ductile.http.routes.relay_ingress import ROUTE
from tests.crash.gateway_process import GatewayProcess
from tests.engine.site import OK, Site
from tests.http import harness
from tests.http.harness import ApiHarness
from tests.waiting import until

SECRET = "a-shared-secret-of-two"
LAB = f"""{harness.CONFIG}
remote_ingress:
  peers: [{{name: home, secret: {SECRET}}}]
pipelines:
  - {{name: offsite, on: made.there, steps: [{{uses: echo}}]}}
"""
EMIT = """echo '{"status":"ok","result":1,"events":[{"type":"made","payload":{}}]}'\n"""


@pytest.fixture
def node(url: str, another: Callable[[], Site]) -> Callable[[int], Site]:
    """Makes a node that relays whatever is made to the gateway at this port."""

    def node(port: int) -> Site:
        site = another()
        site.plugin("emit", EMIT, retry={"backoff_base": "10ms"})
        site.settings["service"] |= {"name": "home", "log_level": "info"}
        site.settings["state"] = {"url": url, "dir": str(site.state)}
        site.settings["instances"] = [
            {
                "name": "lab",
                "base_url": f"http://127.0.0.1:{port}",
                "ingress_path": "/ingest/peer/home",
                "secret": SECRET,
                "timeout": "30s",
            }
        ]
        step = {"relay": {"to": "lab", "event": "made.there"}}
        site.settings["pipelines"] = [{"name": "p", "on": "made", "steps": [step]}]
        return site

    return node


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node is lost after half a second instead of fifteen."""
    monkeypatch.setattr(dead_nodes, "LOST_AFTER", timedelta(seconds=0.5))
    monkeypatch.setattr(RelayPolicy, "poll_seconds", 0.1)


def rows(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        query = "SELECT status, attempt_count, owner FROM relay_deliveries ORDER BY id"
        return connection.execute(query).fetchall()


def events(lab: ApiHarness) -> list[str]:
    """What has arrived, by the ids that the lab gave it."""
    jobs = lab.ask("GET", "/jobs?submitted_by=relay&limit=200").json["jobs"]
    return [job["source_event_id"] for job in jobs]


def requests(lab: ApiHarness) -> dict[str, int]:
    """How many requests of peers were answered, by status."""
    text = lab.ask("GET", "/metrics").raw.decode()
    route = re.escape(ROUTE)
    found = re.findall(
        rf'requests_total{{method="POST",route="{route}",status="(\d+)"}} (\d+)', text
    )
    return {status: int(count) for status, count in found}


def test_two_nodes_send_each_event_once(node: Callable[[int], Site], url: str) -> None:
    with harness.running_api(LAB) as lab:
        port = lab.address("api")[1]
        one, other = node(port), node(port)
        with one.running() as first, other.running() as second:
            for _ in range(15):
                first.put("emit")
                second.put("emit")
            until(lambda: [row[0] for row in rows(url)] == ["delivered"] * 30)
        assert len(set(events(lab))) == len(events(lab)) == 30
        assert requests(lab) == {"202": 30}
    assert {row[1:] for row in rows(url)} == {(0, None)}


def test_node_takes_over_the_sends_of_a_killed_node(
    node: Callable[[int], Site], url: str, soon: None
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        dying, other = node(port), node(port)
        life = GatewayProcess(dying)
        try:
            life.ready().put("emit")
            until(lambda: [row[2] for row in rows(url)] not in ([], [None]))
            # It has connected: it is sending.
            connection, _ = silent.accept()
            with other.running(), connection:
                owner = rows(url)[0][2]
                until(lambda: connection.recv(1 << 16))
                assert rows(url) == [("pending", 0, owner)]
                life.kill()
                silent.close()
                with harness.running_api(LAB.replace(":0", f":{port}")) as lab:
                    until(lambda: [row[0] for row in rows(url)] == ["delivered"])
                    assert len(events(lab)) == 1
        finally:
            life.end()


def test_event_that_arrived_before_the_kill_is_not_duplicated(
    node: Callable[[int], Site], url: str, soon: None
) -> None:
    with harness.running_api(LAB) as lab:
        port = lab.address("api")[1]
        dying, other = node(port), node(port)
        life = GatewayProcess(dying, "relay.sent:1")
        try:
            life.ready().put("emit")
            life.wait()
            assert [row[0] for row in rows(url)] == ["pending"]
            with other.running():
                until(lambda: [row[0] for row in rows(url)] == ["delivered"])
        finally:
            life.end()
        assert len(events(lab)) == 1
        assert requests(lab) == {"202": 2}


def test_a_node_that_stops_leaves_nothing_claimed(node: Callable[[int], Site], url: str) -> None:
    with harness.running_api(LAB) as lab:
        site = node(lab.address("api")[1])
        site.plugin("work", OK)
        with site.running() as sender:
            for _ in range(5):
                sender.put("emit")
            until(lambda: len(events(lab)) == 5)
        assert {row[2] for row in rows(url)} == {None}
