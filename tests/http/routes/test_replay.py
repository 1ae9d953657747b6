"""Retry and replay: another payload, and jobs that may not run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.site import OK, Site
from tests.http.conftest import Served
from tests.http.harness import CONFIG, running_api

ECHO = """\
#!/usr/bin/env python3
import json, sys
request = json.load(sys.stdin)
event = request.get("event") or {}
seen = {"payload": request["payload"], "type": event.get("type"), "event": event.get("payload")}
print(json.dumps({"status": "ok", "result": seen}))
"""


@pytest.fixture
def echo(site: Site, serve: Callable[[], Served]) -> Served:
    site.plugin("echo", ECHO)
    steps = [{"id": "one", "uses": "echo", "with": {"x": "{payload.n}"}}]
    site.settings["pipelines"] = [{"name": "main", "on": "main.go", "steps": steps}]
    return serve()


def run(served: Served, path: str, body: dict[str, Any]) -> str:
    job_id = str(served.post(path, body).json["job_id"])
    served.running.ended(job_id)
    return job_id


def result_of(served: Served, job_id: str) -> dict[str, Any]:
    result: dict[str, Any] = served.get(f"/job/{job_id}").json["result"]["result"]
    return result


def test_replay_with_a_payload_runs_with_it(echo: Served) -> None:
    old = run(echo, "/plugin/echo/poll", {"payload": {"n": 1}})
    assert result_of(echo, run(echo, f"/job/{old}/replay", {}))["payload"] == {"n": 1}
    for payload in ({"n": 2}, [3], 0, "", False):
        new = run(echo, f"/job/{old}/replay", {"payload": payload})
        assert result_of(echo, new)["payload"] == payload
    assert echo.get(f"/job/{old}").json["payload"] == {"n": 1}


def test_replayed_payload_of_a_step_is_that_of_its_event(echo: Served) -> None:
    old = run(echo, "/pipeline/main", {"payload": {"n": 1, "same": True}})
    new = run(echo, f"/job/{old}/replay", {"payload": {"n": 2}})
    seen = result_of(echo, new)
    assert (seen["type"], seen["event"]["n"], seen["event"]["x"]) == ("main.go", 2, 2)
    assert "same" not in seen["event"]


def test_null_is_not_taken_for_an_absent_payload_or_flag(echo: Served) -> None:
    old = run(echo, "/plugin/echo/poll", {})
    for body in ({"payload": None}, {"dry_run": None}):
        answer = echo.post(f"/job/{old}/replay", body)
        assert (answer.status, answer.json["code"]) == (400, "usage")
        assert "must" in answer.json["error"]
    for path in ("/plugin/echo/poll", "/pipeline/main", f"/job/{old}/retry", "/system/reload"):
        assert echo.post(path, {"dry_run": None}).status == 400, path
    answer = echo.post("/jobs/cancel", {"filter": {"plugin": None, "status": "queued"}})
    assert (answer.status, "null" in answer.json["error"]) == (400, True)
    assert len(echo.get("/jobs").json["jobs"]) == 1


def test_job_over_the_hop_limit_can_be_neither_retried_nor_replayed(
    site: Site, serve: Callable[[], Served]
) -> None:
    site.plugin("source", """echo '{"status":"ok","events":[{"type":"evt"}]}'\n""")
    site.settings["service"]["max_hops"] = 1
    site.settings["routes"] = [{"from": "source", "event_type": "evt", "to": "source"}]
    served = serve()
    served.post("/plugin/source/poll", {})
    dead = served.running.notice("job.dead").job_id
    job = served.get(f"/job/{dead}").json
    assert job["last_error"] == "hop 2 exceeds the limit of 1"
    for action in ("retry", "replay"):
        for dry_run in (True, False):
            answer = served.post(f"/job/{dead}/{action}", {"dry_run": dry_run})
            assert (answer.status, answer.json["code"]) == (409, "refused")
            assert "hop 2 exceeds the limit of 1" in answer.json["error"]
    wanted = {"filter": {"status": "dead"}}
    bulk = served.post("/jobs/retry", {**wanted, "dry_run": True}).json
    assert (bulk["count"], [job["job_id"] for job in bulk["refused"]]) == (0, [dead])
    # As many as the preview has counted: it left out those that are refused.
    bulk = served.post("/jobs/retry", {**wanted, "expected": bulk["count"]}).json
    assert (bulk["jobs"], [job["job_id"] for job in bulk["refused"]]) == ([], [dead])
    assert served.post("/jobs/retry", {**wanted, "expected": 1}).json["code"] == "count_changed"
    assert served.get(f"/job/{dead}").json == job
    site.settings["service"]["max_hops"] = 2
    site.write()
    served.post("/system/reload", {})
    assert served.post(f"/job/{dead}/retry", {}).status == 202
    served.running.notice("job.succeeded", dead)


def test_step_over_the_depth_of_its_run_can_not_be_retried(
    site: Site, serve: Callable[[], Served]
) -> None:
    site.plugin("echo", OK)
    steps = [{"uses": "echo"}, {"split": [{"uses": "echo"}]}]
    site.settings["pipelines"] = [{"name": "main", "on": "go", "max_depth": 2, "steps": steps}]
    served = serve()
    served.post("/pipeline/main", {})
    dead = served.running.notice("job.dead").job_id
    answer = served.post(f"/job/{dead}/retry", {})
    assert (answer.status, "exceeds max_depth 2" in answer.json["error"]) == (409, True)


def test_replay_with_a_payload_needs_the_scope_of_the_command() -> None:
    tokens = "".join(
        f"      - {{token: {name}-token-0123456789, scopes: {scopes}, name: {name}}}\n"
        for name, scopes in (("jobs", "['jobs:rw']"), ("both", "['jobs:rw', 'echo:rw']"))
    )
    with running_api(CONFIG + tokens) as api:
        old = api.ask("POST", "/plugin/echo/poll", {"payload": {"n": 1}}).json["job_id"]
        assert api.ask("GET", f"/job/{old}?wait=20").json["status"] == "succeeded"
        path = f"/job/{old}/replay"
        for body in ({"payload": {"n": 2}}, {"payload": 0}, {"payload": {}, "dry_run": True}):
            answer = api.ask("POST", path, body, token="jobs-token-0123456789")
            assert (answer.status, answer.json["code"]) == (403, "forbidden"), body
            assert answer.json["scope"] == "echo:rw"
            answer = api.ask("POST", path, body, token="both-token-0123456789")
            assert answer.status in (200, 202)
        assert api.ask("POST", path, {}, token="jobs-token-0123456789").status == 202
        recorded = [e for e in api.ask("GET", "/audit").json["entries"] if e["target"] == old]
    assert [e["details"] for e in recorded] == [None, *[{"payload_replaced": True}] * 2]
