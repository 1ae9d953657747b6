"""Every documented response is returned once by a real gateway, and compared with its model.

`ApiHarness.ask` compares; this test makes sure that no documented response is left out.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import apsw
import pytest

from ductile.core.delivery.retry_policy import mark_rejected
from ductile.core.pipelines.intents import SendRelay
from ductile.http.route_table import ENDPOINTS
from ductile.store import nodes
from ductile.store.engines.api import Tx
from ductile.store.nodes import NodeRecord
from ductile.store.outbox import relays
from tests.core.agents.test_decision_log import LOG
from tests.http import contract
from tests.http.client import Client
from tests.http.harness import CONFIG, ECHO, Answer, ApiHarness, running_api
from tests.http.routes.pages.test_ui import cookie_of, log_in, page_headers
from tests.waiting import WAIT_LIMIT, until

FACT = ECHO.replace('"result":"done"', '"result":"done","state_updates":{"n":1}')
FAIL = "#!/bin/sh\nexit 78\n"
HANG = "#!/bin/sh\nexec sleep 60\n"
MORE = """\
gateway: {allowed_networks: ["127.0.0.0/8"]}
plugins:
  echo: {schedules: [{id: hourly, every: 1h, command: poll}]}
pipelines:
  - {name: async, on: x, steps: [{id: one, uses: echo}]}
  - {name: broken, on: b, steps: [{id: one, uses: fail}]}
  - {name: hanging, on: h, steps: [{id: one, uses: hang}]}
  - {name: asking, on: a, steps: [{id: ask, wait: {approval: "Pay?", timeout: 1h}}]}
  - {name: sync, on: y, execution_mode: synchronous, steps: [{id: one, uses: echo}]}
"""
MORE += """\
alerts:
  - {name: failures, on: job.dead, to: echo, wait: 0s}
instances:
  - {name: other, base_url: "http://127.0.0.1:1", ingress_path: /x, secret: 0123456789ab}
"""
DRY_RUN = {"dry_run": True}
NOT_HERE = {("GET", "/events", 200), ("GET", "/healthz", 503)}
"""A response that does not end, and one of a broken ledger: they have tests of their own."""


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(CONFIG + MORE, plugins={"echo": FACT, "fail": FAIL, "hang": HANG}) as api:
        yield api


def act(
    api: ApiHarness, path: str, body: dict[str, Any] | None = None, method: str = "POST"
) -> Answer:
    """Call a route as a dry run and then in earnest; return the second response."""
    planned = api.ask(method, path, {**(body or {}), **DRY_RUN})
    assert planned.status == 200, planned.raw
    done = api.ask(method, path, body or {})
    assert done.status in (200, 201, 202), done.raw
    return done


def get(api: ApiHarness, path: str) -> Any:
    answer = api.ask("GET", path)
    assert answer.status == 200, (path, answer.raw)
    return answer


def use_jobs(api: ApiHarness) -> None:
    done = act(api, "/plugin/echo/poll", {"payload": {"n": 1}, "dedupe_key": "k"}).json["job_id"]
    assert get(api, f"/job/{done}?wait=20").json["status"] == "succeeded"
    failed = act(api, "/plugin/fail/poll").json["job_id"]
    assert get(api, f"/job/{failed}?wait=20").json["status"] in ("failed", "dead")
    for path in (
        f"/job/{done}/tree",
        f"/job/{done}/tree?flat=true",
        f"/job/{failed}/why",
        f"/job/{done}/log/stream",
    ):
        get(api, path)
    act(api, f"/job/{failed}/acknowledge")
    act(api, f"/job/{failed}/retry")
    act(api, f"/job/{done}/replay")
    get(api, f"/job/{failed}?wait=20")
    running = act(api, "/plugin/hang/poll").json["job_id"]
    act(api, f"/job/{running}/cancel")
    assert get(api, "/jobs/failures").json["failures"]
    act(api, "/jobs/acknowledge", {"filter": {"plugin": "fail"}})
    act(api, "/jobs/retry", {"filter": {"plugin": "fail"}})
    act(api, "/jobs/cancel", {"filter": {"plugin": "fail"}})
    for path in ("/jobs", "/queue", "/job-logs?include_result=true", f"/job-ids?begins={done[:8]}"):
        get(api, path)
    get(api, "/analytics/summary")
    get(api, "/analytics/hours")
    get(api, "/analytics/queue")


def use_pipelines_and_schedules(api: ApiHarness) -> None:
    for path in ("/pipelines", "/pipeline/sync"):
        get(api, path)
    started = act(api, "/pipeline/async").json
    assert act(api, "/pipeline/sync").json["status"] == "succeeded"
    get(api, f"/pipeline-instance/{started['instance_id']}?wait=20")
    get(api, "/pipeline-runs")
    get(api, f"/pipeline-runs/{started['instance_id']}")
    broken = act(api, "/pipeline/broken").json["instance_id"]
    get(api, f"/pipeline-runs/{broken}?wait=20")
    act(api, f"/pipeline-runs/{broken}/retry")
    hanging = act(api, "/pipeline/hanging").json["instance_id"]
    act(api, f"/pipeline-runs/{hanging}/cancel")
    for action, status in (("approve", "approved"), ("reject", "rejected")):
        assert api.ask("POST", "/pipeline/asking", {}).status == 202
        until(lambda: api.ask("GET", "/approvals?status=waiting").json["approvals"])
        [waiting] = get(api, "/approvals?status=waiting").json["approvals"]
        act(api, f"/approvals/{waiting['id']}/{action}", {"comment": "because"})
        shown = get(api, f"/approvals/{waiting['id']}").json
        assert (shown["status"], shown["comment"]) == (status, "because")
    get(api, "/scheduler/jobs")
    get(api, "/scheduler/next?name=echo")
    get(api, "/scheduler/explain?name=echo")
    act(api, "/scheduler/echo/hourly/pause")
    act(api, "/scheduler/echo/hourly/resume")
    get(api, "/system/breaker/echo")
    act(api, "/system/reset/echo")
    for path in ("/plugins/echo", "/pipelines/sync", "/system"):
        act(api, f"{path}/pause", {"reason": "upgrade", "duration": "1h"})
    get(api, "/pauses")
    # A message of an alert may still run: it could write the state.
    until(lambda: not api.ask("GET", "/jobs?plugin=echo&status=running").json["jobs"])
    act(api, "/plugins/echo/state", {"key": "a", "value": 1})
    for path in ("/plugins/echo", "/pipelines/sync", "/system"):
        act(api, f"{path}/resume")


def use_alerts(api: ApiHarness) -> None:
    until(lambda: get(api, "/alerts").json["alerts"][0]["notified_at"] is not None)
    groups = [row["group"] for row in get(api, "/alerts/failures").json["groups"]]
    assert "plugin:fail" in groups
    act(api, "/alerts/failures/test")
    act(api, "/alerts/failures/silence", {"duration": "2h"})
    assert get(api, "/alerts").json["alerts"][0]["silenced_until"] is not None
    act(api, "/alerts/failures/unsilence")
    assert get(api, "/alerts/failures").json["silenced_until"] is None


def use_nodes(api: ApiHarness) -> None:
    name = get(api, "/nodes").json["node"]
    act(api, f"/node/{name}/drain")
    act(api, f"/node/{name}/resume")
    gone = NodeRecord("gone", "old", "1", "hash", {}, (), (), 1)

    def work(tx: Tx) -> None:
        nodes.register(tx, gone, is_only_node=False)
        nodes.stop(tx, "old")

    api.gateway.ledger.write(work)
    act(api, "/node/gone/forget")
    act(api, "/nodes/reload")


def use_authoring(api: ApiHarness) -> None:
    get(api, "/config/check")
    get(api, "/config/plan")
    newest = get(api, "/config/history").json["snapshots"][0]["id"]
    get(api, f"/config/diff?from={newest}&to={newest}")
    for path, body in (("/config/apply", {}), ("/config/revert", {"snapshot": newest})):
        planned = api.ask("POST", path, {**body, **DRY_RUN}).json
        plan = planned["plan"]["id"]
        assert api.ask("POST", path, {**body, "plan": plan}).status == 200
    get(api, f"/config/watch?plan={plan}")
    get(api, "/plugins/echo/validate")
    setting = {"path": "service.name", "value": "renamed", **DRY_RUN}
    assert api.ask("POST", "/config/set", setting).status == 200
    assert api.ask("POST", "/plugins", {"name": "fresh", **DRY_RUN}).status == 200
    assert api.ask("POST", "/plugins", {"name": "fresh", "language": "sh"}).status == 201
    assert api.ask("POST", "/plugins/echo/test/poll", {}).status == 200
    assert api.ask("POST", "/plugins/echo/compare", {"limit": 1}).status == 200
    [row] = get(api, "/jobs?plugin=echo&status=succeeded&command=poll&limit=1").json["jobs"]
    get(api, f"/job/{row['job_id']}/bundle")
    get(api, "/pipelines/sync/compare")


def use_system(api: ApiHarness) -> None:
    use_nodes(api)
    use_authoring(api)
    reads = "/ /healthz /metrics /system/status /system/overview /config/view /system/reload"
    more = "/plugins /plugin/echo /plugin/echo/openapi.json /skills /openapi.json /docs /notices"
    for path in (
        *reads.split(),
        *more.split(),
        "/.well-known/ai-plugin.json",
        "/tokens",
        "/audit",
        "/nodes",
    ):
        get(api, path)
    get(api, "/system/plugin-facts/echo")
    act(api, "/system/reload")
    act(api, "/system/backup")
    get(api, "/system/backup?wait=20")
    created = act(api, "/tokens", {"name": "t", "scopes": ["jobs:ro"]}).json
    act(api, f"/token/{created['id']}/rotate")
    act(api, "/token/t/revoke")


def use_dashboard(api: ApiHarness) -> None:
    local = Client(api.gateway.socket_path)
    opened = log_in(api, code=local.request("POST", "/ui/code", {}).json["code"])
    get(api, "/ui/session")
    headers = page_headers(api, Cookie=cookie_of(opened))
    assert api.ask("DELETE", "/ui/session", token=None, headers=headers).status == 200
    assert api.ask("DELETE", "/ui/sessions").status == 200


def use_relays(api: ApiHarness) -> None:
    sent, now = SendRelay("j", "other", "e", "x.y", "{}"), api.gateway.clock.now()

    def add_dead_relays(tx: Tx, *ids: str) -> None:
        for id in ids:
            relays.enqueue_relay(tx, sent, id=id, now=now)
        for claimed in relays.claim(tx, ["other"], "boot", now):
            assert relays.settle(tx, claimed, "boot", mark_rejected(0, "refused"), now)

    api.gateway.ledger.write(lambda tx: add_dead_relays(tx, "r1", "r2"))
    assert len(get(api, "/relays").json["relays"]) == 2
    act(api, "/relays", {"to": "other", "event": "x.y", "payload": {"a": 1}})
    act(api, "/relay/r1/retry")
    act(api, "/relays/retry")
    api.gateway.ledger.write(lambda tx: add_dead_relays(tx, "r3", "r4"))
    act(api, "/relay/r3/discard")
    act(api, "/relays/discard")


def use_agents(api: ApiHarness) -> None:
    beat = {"type": "heartbeat", "agent_id": "a", "cluster_id": "c"}
    assert api.ask("POST", "/gateway/heartbeat", beat).status == 200
    assert api.ask("POST", "/gateway/messages", LOG).status == 202
    for path in ("/gateway/heartbeats", "/gateway/capabilities"):
        assert get(api, path).json["agents"]
    kept = act(api, "/gateway/cron", {"agent_id": "a", "delay_ms": 3_600_000}).json
    assert get(api, "/gateway/cron").json["reminders"]
    act(api, f"/gateway/cron/{kept['id']}/forget")


def use_webhooks(api: ApiHarness) -> None:
    new = {"source_identifier": "s", "event_type": "e", "target_session": "x"}
    webhook = act(api, "/gateway/webhook-configs", {**new, "plugin": "echo"}).json
    get(api, "/gateway/webhook-configs")
    signature = hmac.new(webhook["secret"].encode(), b"{}", hashlib.sha256).hexdigest()
    received = api.ask(
        "POST",
        f"/gateway/webhooks/{webhook['id']}",
        b"{}",
        token=None,
        headers={"X-Observatory-Signature": f"sha256={signature}"},
    )
    assert received.status == 202, received.raw
    outbound = {**new, "event_type": "out", "target_url": "http://127.0.0.1:9/"}
    target = act(api, "/gateway/webhook-configs", outbound).json["id"]
    sent = act(api, "/gateway/deliveries", {"webhook_id": target}).json["delivery_id"]
    get(api, "/gateway/deliveries")
    get(api, f"/gateway/deliveries/{sent}")
    act(api, "/gateway/deliveries/retry", {"status": "dead"})
    act(api, "/gateway/deliveries/discard")
    act(api, f"/gateway/deliveries/{received.json['delivery_id']}/retry")
    with closing(apsw.Connection(str(api.root / "data/state.db"))) as db:
        db.set_busy_timeout(int(WAIT_LIMIT * 1000))
        id = received.json["delivery_id"]
        kill = "UPDATE webhook_deliveries SET status = 'dead' WHERE id = ? AND owner IS NULL"
        # The worker that sends it owns it for a moment.
        until(lambda: [db.execute(kill, (id,)), db.changes()][1])
    act(api, f"/gateway/deliveries/{id}/discard")
    path = f"/gateway/webhook-configs/{target}"
    assert api.ask("DELETE", f"{path}?dry_run=true").status == 200
    assert api.ask("DELETE", path).status == 200


def test_every_documented_response_is_compared_with_its_model(api: ApiHarness) -> None:
    contract.checked.clear()
    use_jobs(api)
    use_pipelines_and_schedules(api)
    use_alerts(api)
    use_system(api)
    use_dashboard(api)
    use_relays(api)
    use_agents(api)
    use_webhooks(api)
    documented = {(e.method, e.path, status) for e in ENDPOINTS for status in e.responses}
    assert documented - contract.checked == NOT_HERE
