"""Tools × tokens: a tool can do exactly what its token can do over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from ductile.http.mcp.catalog import TOOLS
from ductile.http.route_table import ENDPOINTS
from tests.http.harness import ADMIN, ApiHarness, running_api
from tests.http.mcp.agent import MCP_CONFIG, ToolError, agent_of

SCOPES = {(endpoint.method, endpoint.path): endpoint.token_scope for endpoint in ENDPOINTS}
GRANTS: dict[str, tuple[str, ...]] = {
    "nobody": ("nothing:ro",),
    "echo-reader": ("echo:ro",),
    "echo-writer": ("echo:rw",),
    **{
        f"{noun}-{level}": (f"{noun}:{level}",)
        for noun in ("plugin", "jobs", "events", "system", "agents", "approvals")
        for level in ("ro", "rw")
    },
}
DRY = {"dry_run": True}
WITH_PIPELINE = f"{MCP_CONFIG}pipelines: [{{name: asked, on: x, steps: [{{uses: echo}}]}}]\n"
CALLS: list[tuple[str, str, str, dict[str, Any]]] = [
    ("GET", "/system/overview", "overview", {}),
    ("GET", "/skills", "find", {}),
    ("GET", "/plugins", "find", {"name": "echo"}),
    ("GET", "/jobs", "jobs", {}),
    ("GET", "/job/{job_id}", "job", {"job_id": "x"}),
    ("GET", "/job/{job_id}/tree", "job", {"job_id": "x", "part": "tree"}),
    ("GET", "/job-logs", "job", {"job_id": "x", "part": "log"}),
    ("GET", "/pipeline-runs", "runs", {}),
    ("GET", "/pipeline-runs/{run_id}", "runs", {"run_id": "x"}),
    ("GET", "/scheduler/jobs", "schedules", {}),
    ("GET", "/gateway/deliveries", "deliveries", {}),
    ("GET", "/gateway/webhook-configs", "deliveries", {"what": "webhooks"}),
    ("GET", "/gateway/heartbeats", "deliveries", {"what": "agents"}),
    ("GET", "/gateway/cron", "deliveries", {"what": "reminders"}),
    ("GET", "/audit", "audit", {}),
    ("POST", "/plugin/{plugin}/{command}", "run", {"plugin": "echo", "command": "poll", **DRY}),
    ("POST", "/plugin/{plugin}/{command}", "run", {"plugin": "echo", "command": "peek", **DRY}),
    ("POST", "/pipeline/{name}", "run", {"pipeline": "x", **DRY}),
    ("POST", "/job/{job_id}/retry", "retry", {"job_id": "x", **DRY}),
    ("POST", "/pipeline-runs/{run_id}/retry", "retry", {"run_id": "x", **DRY}),
    ("POST", "/jobs/retry", "retry", {"filter": {"plugin": "echo"}, **DRY}),
    ("POST", "/gateway/deliveries/retry", "retry", {"deliveries": "dead", **DRY}),
    ("POST", "/gateway/deliveries/{delivery_id}/retry", "retry", {"delivery_id": 7, **DRY}),
    ("POST", "/job/{job_id}/cancel", "cancel", {"job_id": "x", **DRY}),
    ("POST", "/pipeline-runs/{run_id}/cancel", "cancel", {"run_id": "x", **DRY}),
    ("POST", "/jobs/cancel", "cancel", {"filter": {"plugin": "echo"}, **DRY}),
    ("POST", "/job/{job_id}/replay", "replay", {"job_id": "x", **DRY}),
    *(
        ("POST", f"{path}/{action}", "pause", {"action": action, **given, **DRY})
        for action in ("pause", "resume")
        for path, given in (
            ("/plugins/{name}", {"kind": "plugin", "name": "echo"}),
            ("/pipelines/{name}", {"kind": "pipeline", "name": "x"}),
            ("/system", {"kind": "gateway"}),
            ("/scheduler/{plugin}/{schedule}", {"kind": "schedule", "name": "echo/x"}),
        )
    ),
    (
        "POST",
        "/system/reset/{plugin}",
        "pause",
        {"action": "reset_breaker", "kind": "plugin", "name": "echo", **DRY},
    ),
    ("GET", "/approvals", "approve", {}),
    ("GET", "/approvals/{approval_id}", "approve", {"approval_id": "x"}),
    *(
        (
            "POST",
            f"/approvals/{{approval_id}}/{decision}",
            "approve",
            {"approval_id": "x", "decision": decision, **DRY},
        )
        for decision in ("approve", "reject")
    ),
    ("GET", "/config/check", "config", {"action": "check"}),
    ("GET", "/config/view", "config", {"action": "view"}),
    ("POST", "/system/reload", "config", {"action": "reload", **DRY}),
    ("GET", "/config/plan", "config", {"action": "plan"}),
    ("GET", "/config/history", "config", {"action": "history"}),
    ("GET", "/config/watch", "config", {"action": "watch", "plan": "none"}),
    ("POST", "/config/apply", "config", {"action": "apply", **DRY}),
    ("POST", "/config/revert", "config", {"action": "revert", **DRY}),
    (
        "POST",
        "/config/set",
        "config",
        {"action": "set", "path": "service.name", "value": "n", **DRY},
    ),
    ("POST", "/plugins", "plugin", {"action": "scaffold", "name": "fresh", **DRY}),
    ("GET", "/plugins/{plugin}/validate", "plugin", {"action": "validate", "name": "echo"}),
    ("POST", "/plugins/{plugin}/compare", "plugin", {"action": "compare", "name": "echo"}),
]
"""A call of a tool for each route that decides whether the call is allowed."""
PARAMETERS = {"plugin": "echo", "command": "poll", "name": "x", "schedule": "x", "delivery_id": "7"}


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(WITH_PIPELINE, working=False) as api:
        yield api


@pytest.fixture(scope="module")
def tokens(api: ApiHarness) -> dict[str, str]:
    return {
        name: api.ask("POST", "/tokens", {"name": name, "scopes": list(scopes)}).json["token"]
        for name, scopes in GRANTS.items()
    }


def test_each_route_of_each_tool_is_tried() -> None:
    declared = {route for tool in TOOLS.values() for route in tool.routes}
    assert declared | {route for tool in TOOLS.values() for route in tool.also} <= SCOPES.keys()
    tried = {(method, path) for method, path, _, _ in CALLS}
    assert declared - tried == {("POST", "/plugins/{plugin}/test/{command}")}  # Below: it runs.
    assert {tool for _, _, tool, _ in CALLS} == TOOLS.keys()


def fill(path: str, given: dict[str, Any]) -> str:
    values = {**PARAMETERS, **{key: str(value) for key, value in given.items()}}
    parts = [values.get(part[1:-1], "x") if part[:1] == "{" else part for part in path.split("/")]
    return "/".join(parts)


@pytest.mark.parametrize("name", GRANTS)
def test_tool_is_refused_exactly_where_its_route_is(
    api: ApiHarness, tokens: dict[str, str], name: str
) -> None:
    agent = agent_of(api, tokens[name])
    wrong = []
    for method, path, tool, given in CALLS:
        body = DRY if method == "POST" else None
        status = api.ask(method, fill(path, given), body, token=tokens[name]).status
        try:
            agent.call(tool, **given)
            code = None
        except ToolError as error:
            code = error.code
        if (status == 403) != (code == "forbidden"):
            wrong.append((tool, given, status, code))
    assert wrong == []


@pytest.mark.parametrize("name", GRANTS)
def test_tools_are_listed_by_the_scopes_of_their_routes(
    api: ApiHarness, tokens: dict[str, str], name: str
) -> None:
    """A tool is listed if and only if one of its calls is not refused."""
    allowed = set()
    for method, path, tool, given in CALLS:
        body = DRY if method == "POST" else None
        if api.ask(method, fill(path, given), body, token=tokens[name]).status != 403:
            allowed.add(tool)
    listed = agent_of(api, tokens[name]).tools().keys()
    assert allowed <= listed
    # The scope of some plugin may be enough for these, of `echo` it is not.
    assert listed - allowed <= {"run", "plugin"}


def test_trial_of_a_plugin_needs_the_scope_of_its_command(
    api: ApiHarness, tokens: dict[str, str]
) -> None:
    def try_it(name: str, command: str) -> str | None:
        try:
            agent_of(api, tokens[name]).call("plugin", action="test", name="echo", command=command)
        except ToolError as error:
            return str(error.code)
        return None

    assert [try_it("echo-reader", "peek"), try_it("echo-writer", "poll")] == [None, None]
    assert [try_it("echo-reader", "poll"), try_it("system-rw", "poll")] == ["forbidden"] * 2


def test_every_tool_is_listed_for_the_administrator_within_the_limit(api: ApiHarness) -> None:
    listed = agent_of(api).ask("tools/list")
    assert {tool["name"] for tool in listed["tools"]} == TOOLS.keys()
    assert 12 <= len(TOOLS) <= 16
    # Two approximations: 3.5 bytes per token, and every word and punctuation mark as a token.
    text = json.dumps(listed, separators=(",", ":"))
    assert len(text.encode()) / 3.5 < 4000
    assert len(re.findall(r"\w+|[^\w\s]", text)) < 4000


def test_annotations_follow_the_routes(api: ApiHarness) -> None:
    for name, shown in agent_of(api).tools().items():
        writes = any(method != "GET" for method, _ in TOOLS[name].routes)
        assert shown["annotations"]["readOnlyHint"] is not writes, name
        assert shown["outputSchema"]["type"] == "object"
        assert ("dry_run" in shown["inputSchema"]["properties"]) is writes, name


def test_wrong_or_missing_token_is_refused(api: ApiHarness) -> None:
    for token in ("wrong-token-0123456789", None):
        assert api.ask("POST", "/mcp", {}, token=token).status == 401
    assert api.ask("GET", "/mcp").status == 405


def test_mcp_is_not_served_unless_enabled() -> None:
    with running_api(working=False) as api:
        refused = api.ask("POST", "/mcp", {}, token=ADMIN)
        assert (refused.status, "api.mcp: true" in refused.json["error"]) == (404, True)


def test_lease_is_charged_for_runs_of_tools(api: ApiHarness) -> None:
    body = {"name": "mcp-lease", "scopes": ["echo:rw", "system:ro"], "budget": {"runs": 1}}
    token = api.ask("POST", "/tokens", body).json["token"]
    agent = agent_of(api, token)
    started = agent.call("run", plugin="echo", command="poll", idempotency_key="a")
    assert agent.call("run", plugin="echo", command="poll", idempotency_key="a") == started
    for tool, given in (
        ("run", {"plugin": "echo", "command": "poll"}),
        ("plugin", {"action": "test", "name": "echo", "command": "poll"}),
    ):
        with pytest.raises(ToolError) as refused:
            agent.call(tool, **given)
        assert refused.value.code == "budget_spent"
        create = "ductile token create --for mcp-lease-2 --scopes echo:rw,system:ro"
        assert refused.value.error["fix"].startswith(f"an operator can run: {create}")
    entries = agent.call("audit", token="mcp-lease")["entries"]
    assert [row["action"] for row in entries] == ["plugin.run"]


def test_plan_is_applied_and_taken_back(api: ApiHarness) -> None:
    agent, file = agent_of(api), api.root / "config.yaml"
    before = file.read_bytes()
    file.write_text(WITH_PIPELINE + "plugins: {echo: {parallelism: 2}}\n")
    try:
        planned = agent.call("config", action="plan")
        for given in ({}, {"plan": "another"}):
            with pytest.raises(ToolError) as refused:
                agent.call("config", action="apply", **given)
            assert refused.value.code == ("plan_changed" if given else "plan_needed")
        assert agent.call("config", action="apply", plan=planned["id"])["done"] is True
        watched = agent.call("config", action="watch", plan=planned["id"])
        assert [row["name"] for row in watched["subjects"]] == ["echo"]
        back = agent.call("config", action="revert", **DRY)
        assert (back["done"], file.read_bytes() == before) == (False, False)
        done = agent.call("config", action="revert", plan=back["plan"]["id"])
        assert (done["done"], done["snapshot_id"]) == (True, back["returns_to"])
        [newest, older] = agent.call("config", action="history")["snapshots"]
        assert (newest["in_force"], older["in_force"]) == (True, False)
    finally:
        assert file.read_bytes() == before


def test_start_is_reported_to_a_token_that_may_not_read_its_end(
    api: ApiHarness, tokens: dict[str, str]
) -> None:
    """As a refusal, the caller would start it again."""
    agent = agent_of(api, tokens["plugin-rw"])
    for given in ({"plugin": "echo", "command": "poll"}, {"pipeline": "asked"}):
        started = agent.call("run", wait_s=1, **given)
        assert (started["done"], "jobs:ro" in started["note"]) == (False, True)
        assert api.ask("GET", f"/job/{started['job_id']}").status == 200
