"""The end of a pipeline run includes every job that descends from it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.engine.site import OK, Gate, Site
from tests.http.conftest import Served
from tests.http.harness import allow_long_waits

LONG = "1m"
SHORT = "100ms"


def write_pipelines(site: Site, timeout: str) -> tuple[Gate, Gate]:
    """A run whose first step starts another pipeline and a routed job, each behind a gate."""
    routed, other = site.gate("routed"), site.gate("other")
    site.plugin("source", """echo '{"status":"ok","events":[{"type":"sub.evt"}]}'\n""")
    site.plugin("routed", routed.script("routed") + OK)
    site.plugin("other", other.script("other") + OK)
    site.settings["routes"] = [{"from": "source", "event_type": "sub.evt", "to": "routed"}]
    site.settings["pipelines"] = [
        {
            "name": "main",
            "on": "main.go",
            "execution_mode": "synchronous",
            "timeout": timeout,
            "steps": [{"id": "s", "uses": "source"}],
        },
        {"name": "sub", "on": "sub.evt", "steps": [{"id": "other", "uses": "other"}]},
    ]
    return routed, other


def status_of(served: Served, job_id: str) -> dict[str, Any]:
    job: dict[str, Any] = served.get(f"/job/{job_id}").json
    return job


def test_synchronous_call_waits_for_routes_and_other_pipelines(
    site: Site, serve: Callable[[], Served]
) -> None:
    routed, other = write_pipelines(site, LONG)
    served = serve()
    with ThreadPoolExecutor() as threads:
        answer = threads.submit(served.post, "/pipeline/main", {})
        assert (routed.arrived(), other.arrived()) == ("routed", "other")
        ended = served.running.notice("pipeline.ended")
        other.open()
        [job] = served.get("/jobs?plugin=other").json["jobs"]
        served.running.notice("job.succeeded", job["job_id"])
        assert not answer.done()
        routed.open()
        found = answer.result()
    assert found.status == 200
    assert found.json["instance_id"] == ended.job_id
    jobs = [(job["plugin"], job["status"], job["depth"]) for job in found.json["tree"]]
    assert jobs == [("source", "succeeded", 0), *[(n, "succeeded", 1) for n in ("routed", "other")]]


def test_timeout_answer_names_the_run_that_continues(
    site: Site, serve: Callable[[], Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than the client waits: an answer at the end of the wait would come too late.
    allow_long_waits(monkeypatch)
    routed, other = write_pipelines(site, SHORT)
    served = serve()
    answer = served.post("/pipeline/main", {})
    assert answer.status == 202
    accepted = answer.json
    assert (accepted["timeout_exceeded"], accepted["status"]) == (True, "running")
    assert (routed.arrived(), other.arrived()) == ("routed", "other")
    job = status_of(served, accepted["job_id"])
    assert (job["status"], job["instance_id"]) == ("succeeded", accepted["instance_id"])
    path = f"/pipeline-instance/{accepted['instance_id']}"
    run = served.get(path).json
    assert (run["status"], run["tree_ended"]) == ("succeeded", False)
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(served.get, f"{path}?wait=3600")
        for gate in (other, routed):
            assert not waiting.done()
            gate.open()
        assert waiting.result().json["tree_ended"] is True


def test_wait_for_a_run_does_not_end_with_one_of_its_jobs(
    site: Site, serve: Callable[[], Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_long_waits(monkeypatch)
    gate = site.gate()
    site.plugin("quick", OK)
    site.plugin("slow", gate.script() + OK)
    steps = [{"id": "one", "uses": "quick"}, {"id": "two", "uses": "slow"}]
    site.settings["pipelines"] = [{"name": "main", "on": "main.go", "steps": steps}]
    served = serve()
    started = served.post("/pipeline/main", {}).json
    path = f"/pipeline-instance/{started['instance_id']}"
    gate.arrived()
    first = status_of(served, started["job_id"])
    assert (first["status"], first["instance_status"]) == ("succeeded", "open")
    # With `seen` a finished job that the caller does not know is an answer.
    assert served.get(f"{path}?wait=3600&seen=0").json["status"] == "open"
    with ThreadPoolExecutor() as threads:
        waits = [threads.submit(served.get, f"{path}?wait=3600{more}") for more in ("", "&seen=1")]
        assert not any(wait.done() for wait in waits)
        gate.open()
        runs = [wait.result().json for wait in waits]
    assert runs[0]["status"] == "succeeded"
    assert [job["status"] for job in runs[1]["jobs"]] == ["succeeded", "succeeded"]
    assert status_of(served, started["job_id"])["instance_status"] == "succeeded"
