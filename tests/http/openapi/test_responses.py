"""Every documented response is returned once by a real gateway, and compared with its model.

`House.ask` compares; this test makes sure that no documented response is left out.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from typing import Any

import pytest

from ductile.core.delivery.retry_policy import mark_rejected
from ductile.core.pipelines.intents import SendRelay
from ductile.http.route_table import ENDPOINTS
from ductile.store.engines.api import Tx
from ductile.store.outbox import relays
from tests.core.agents.test_decision_log import LOG
from tests.http import contract
from tests.http.doors import CONFIG, ECHO, Answer, House, opened

FACT = ECHO.replace('"result":"done"', '"result":"done","state_updates":{"n":1}')
FAIL = "#!/bin/sh\nexit 78\n"
HANG = "#!/bin/sh\nexec sleep 60\n"
MORE = """\
gateway: {allowed_networks: ["127.0.0.0/8"]}
plugins:
  echo: {schedules: [{id: hourly, every: 1h, command: poll}]}
pipelines:
  - {name: async, on: x, steps: [{id: one, uses: echo}]}
  - {name: sync, on: y, execution_mode: synchronous, steps: [{id: one, uses: echo}]}
"""
DRY_RUN = {"dry_run": True}
NOT_HERE = {("GET", "/events", 200), ("GET", "/healthz", 503)}
"""A response that does not end, and one of a broken ledger: they have tests of their own."""


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with opened(CONFIG + MORE, plugins={"echo": FACT, "fail": FAIL, "hang": HANG}) as house:
        yield house


def act(
    house: House, path: str, body: dict[str, Any] | None = None, method: str = "POST"
) -> Answer:
    """Call a route as a dry run and then in earnest; return the second response."""
    planned = house.ask(method, path, {**(body or {}), **DRY_RUN})
    assert planned.status == 200, planned.raw
    done = house.ask(method, path, body or {})
    assert done.status in (200, 201, 202), done.raw
    return done


def get(house: House, path: str) -> Any:
    answer = house.ask("GET", path)
    assert answer.status == 200, (path, answer.raw)
    return answer


def use_jobs(house: House) -> None:
    done = act(house, "/plugin/echo/poll", {"payload": {"n": 1}, "dedupe_key": "k"}).json["job_id"]
    assert get(house, f"/job/{done}?wait=20").json["status"] == "succeeded"
    failed = act(house, "/plugin/fail/poll").json["job_id"]
    assert get(house, f"/job/{failed}?wait=20").json["status"] in ("failed", "dead")
    for path in (f"/job/{done}/tree", f"/job/{done}/tree?flat=true", f"/job/{failed}/why"):
        get(house, path)
    act(house, f"/job/{failed}/retry")
    act(house, f"/job/{done}/replay")
    get(house, f"/job/{failed}?wait=20")
    running = act(house, "/plugin/hang/poll").json["job_id"]
    act(house, f"/job/{running}/cancel")
    act(house, "/jobs/retry", {"filter": {"plugin": "fail"}})
    act(house, "/jobs/cancel", {"filter": {"plugin": "fail"}})
    for path in ("/jobs", "/queue", "/job-logs?include_result=true", f"/job-ids?begins={done[:8]}"):
        get(house, path)
    get(house, "/analytics/summary")
    get(house, "/analytics/queue")


def use_pipelines_and_schedules(house: House) -> None:
    for path in ("/pipelines", "/pipeline/sync"):
        get(house, path)
    started = act(house, "/pipeline/async").json
    assert act(house, "/pipeline/sync").json["status"] == "succeeded"
    get(house, f"/pipeline-instance/{started['instance_id']}?wait=20")
    get(house, "/scheduler/jobs")
    get(house, "/scheduler/next?name=echo")
    get(house, "/scheduler/explain?name=echo")
    act(house, "/scheduler/echo/hourly/pause")
    act(house, "/scheduler/echo/hourly/resume")
    get(house, "/system/breaker/echo")
    act(house, "/system/reset/echo")


def use_system(house: House) -> None:
    reads = "/ /healthz /metrics /system/status /system/overview /config/view /system/reload"
    more = "/plugins /plugin/echo /plugin/echo/openapi.json /skills /openapi.json /docs /notices"
    for path in (*reads.split(), *more.split(), "/.well-known/ai-plugin.json", "/tokens"):
        get(house, path)
    get(house, "/system/plugin-facts/echo")
    act(house, "/system/reload")
    act(house, "/system/backup")
    get(house, "/system/backup?wait=20")
    created = act(house, "/tokens", {"name": "t", "scopes": ["jobs:ro"]}).json
    act(house, f"/token/{created['id']}/rotate")
    act(house, "/token/t/revoke")


def use_relays(house: House) -> None:
    sent, now = SendRelay("j", "other", "e", "x.y", "{}"), house.gateway.clock.now()

    def add_dead_relays(tx: Tx) -> None:
        for id in ("r1", "r2"):
            relays.enqueue_relay(tx, sent, id=id, now=now)
        for claimed in relays.claim(tx, ["other"], "boot", now):
            assert relays.settle(tx, claimed, "boot", mark_rejected(0, "refused"), now)

    house.gateway.ledger.write(add_dead_relays)
    assert len(get(house, "/relays").json["relays"]) == 2
    act(house, "/relay/r1/retry")
    act(house, "/relays/retry")


def use_agents(house: House) -> None:
    beat = {"type": "heartbeat", "agent_id": "a", "cluster_id": "c"}
    assert house.ask("POST", "/gateway/heartbeat", beat).status == 200
    assert house.ask("POST", "/gateway/messages", LOG).status == 202
    for path in ("/gateway/heartbeats", "/gateway/capabilities"):
        assert get(house, path).json["agents"]
    kept = act(house, "/gateway/cron", {"agent_id": "a", "delay_ms": 3_600_000}).json
    assert get(house, "/gateway/cron").json["reminders"]
    act(house, f"/gateway/cron/{kept['id']}/forget")


def use_webhooks(house: House) -> None:
    new = {"source_identifier": "s", "event_type": "e", "target_session": "x"}
    webhook = act(house, "/gateway/webhook-configs", {**new, "plugin": "echo"}).json
    get(house, "/gateway/webhook-configs")
    signature = hmac.new(webhook["secret"].encode(), b"{}", hashlib.sha256).hexdigest()
    received = house.ask(
        "POST",
        f"/gateway/webhooks/{webhook['id']}",
        b"{}",
        token=None,
        headers={"X-Observatory-Signature": f"sha256={signature}"},
    )
    assert received.status == 202, received.raw
    outbound = {**new, "event_type": "out", "target_url": "http://127.0.0.1:9/"}
    target = act(house, "/gateway/webhook-configs", outbound).json["id"]
    sent = act(house, "/gateway/deliveries", {"webhook_id": target}).json["delivery_id"]
    get(house, "/gateway/deliveries")
    get(house, f"/gateway/deliveries/{sent}")
    act(house, "/gateway/deliveries/retry", {"status": "dead"})
    act(house, f"/gateway/deliveries/{received.json['delivery_id']}/retry")
    path = f"/gateway/webhook-configs/{target}"
    assert house.ask("DELETE", f"{path}?dry_run=true").status == 200
    assert house.ask("DELETE", path).status == 200


def test_every_documented_response_is_compared_with_its_model(house: House) -> None:
    contract.checked.clear()
    use_jobs(house)
    use_pipelines_and_schedules(house)
    use_system(house)
    use_relays(house)
    use_agents(house)
    use_webhooks(house)
    documented = {(e.method, e.path, status) for e in ENDPOINTS for status in e.responses}
    assert documented - contract.checked == NOT_HERE
