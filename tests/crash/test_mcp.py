"""SIGKILL of the gateway after every success that a tool reports: what it reported is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.crash.gateway_process import GatewayProcess
from tests.engine.site import OK, Site
from tests.http.mcp.agent import Agent

TOKEN = "crash-token-0123456789"
APPROVAL = {"id": "ask", "wait": {"approval": "Pay?", "timeout": "1h"}}


class Restarted:
    """An agent whose gateway is killed after each of its calls."""

    def __init__(self, start_gateway: Callable[..., GatewayProcess]) -> None:
        self._start = start_gateway
        self._begin()

    def _begin(self) -> None:
        self.gateway = self._start().ready()
        host, _, port = str(self.gateway.wait_for_log("ready")["api"]).rpartition(":")
        self.agent = Agent((host, int(port)), TOKEN)

    def call(self, tool: str, /, **given: Any) -> dict[str, Any]:
        done = self.agent.call(tool, **given)
        self.kill()
        return done

    def kill(self) -> None:
        self.gateway.kill()
        self._begin()

    def get(self, path: str) -> Any:
        return self.gateway.client.get(path).json


def test_reported_success_survives_a_kill(
    site: Site, start_gateway: Callable[..., GatewayProcess]
) -> None:
    site.plugin("note", OK)
    tokens = [{"token": TOKEN, "scopes": ["*"], "name": "agent"}]
    site.settings["api"] = {
        "enabled": True,
        "listen": "127.0.0.1:0",
        "mcp": True,
        "auth": {"tokens": tokens},
    }
    site.settings["pipelines"] = [{"name": "ask", "on": "go", "steps": [APPROVAL]}]
    agent = Restarted(start_gateway)

    paused = agent.call("pause", action="pause", kind="plugin", name="note", reason="quiet")
    assert paused["done"] is True
    assert [row["reason"] for row in agent.get("/pauses")["pauses"]] == ["quiet"]

    job_id = agent.call("run", plugin="note", command="poll")["job_id"]
    assert agent.get(f"/job/{job_id}")["status"] == "queued"

    assert agent.call("cancel", job_id=job_id)["done"] is True
    assert agent.get(f"/job/{job_id}")["status"] == "dead"

    agent.call("retry", job_id=job_id)
    assert agent.get(f"/job/{job_id}")["status"] == "queued"

    agent.call("cancel", job_id=job_id)
    copy = agent.call("replay", job_id=job_id)["job_id"]
    assert agent.get(f"/job/{copy}")["replay_of"] == job_id

    run_id = agent.call("run", pipeline="ask")["run_id"]
    [approval] = agent.agent.call("approve")["approvals"]
    assert approval["status"] == "waiting"
    id = str(approval.get("approval_id") or approval.get("id"))
    assert agent.call("approve", approval_id=id, decision="approve")["done"] is True
    assert agent.get(f"/approvals/{id}")["status"] == "approved"
    assert agent.agent.call("runs", run_id=run_id, wait_s=25)["status"] == "succeeded"

    lease = {"name": "fixer", "scopes": ["note:rw"], "budget": {"runs": 2}}
    secret = agent.gateway.client.post("/tokens", lease).json["token"]
    agent.kill()
    agent.agent.token = secret
    agent.call("run", plugin="note", command="poll")
    agent.agent.token = TOKEN
    [token] = agent.get("/tokens")["tokens"]
    assert token["budget"]["runs"] == {"limit": 2, "left": 1}

    setting = {"path": "plugins.note.parallelism", "value": 2}
    assert agent.agent.call("config", action="set", **setting)["in_force"] is True
    agent.gateway.kill()
    assert "parallelism: 2" in (site.folder / "config.yaml").read_text()
