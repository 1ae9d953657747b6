"""Pipelines: starting, synchronous calls, and waiting for a run."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ductile.cli.client import ApiError, GatewayClient
from tests.cli.conftest import cli  # noqa: F401 - a fixture
from tests.cli.pipelines import add_pipelines, executed_steps, wait_until_running
from tests.cli.runner import CliRunner
from tests.waiting import WAIT_LIMIT, until

Request = pytest.FixtureRequest


@pytest.fixture
def flow(request: Request) -> CliRunner:
    flow: CliRunner = add_pipelines(request.getfixturevalue("cli"))
    config = (flow.root / "config.yaml").read_text()
    flow.write("config.yaml", f"{config}api: {{max_concurrent_sync: 1}}\n")
    return flow


@contextmanager
def answering(flow: CliRunner) -> Iterator[GatewayClient]:
    with flow.gateway():
        yield GatewayClient(flow.state / "ductile.sock")


def refusal(client: GatewayClient, path: str, body: dict[str, Any]) -> str:
    with pytest.raises(ApiError) as refused:
        client.post(path, body)
    return refused.value.code


def call(flow: CliRunner, path: str) -> socket.socket:
    """Send a POST without reading the response."""
    caller = socket.socket(socket.AF_UNIX)
    caller.connect(str(flow.state / "ductile.sock"))
    caller.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
    return caller


def test_synchronous_pipeline_returns_the_response_of_its_last_step(flow: CliRunner) -> None:
    with answering(flow) as client:
        answer = client.post("/pipeline/chain", {"payload": {"go": True, "name": "x"}})
        always = {"job_id", "instance_id", "status", "duration_ms", "result", "tree"}
        assert answer.keys() == always
        assert (answer["status"], answer["result"]["result"]) == ("succeeded", "two")
        assert answer["tree"][0]["job_id"] == answer["job_id"]
        steps = [(node["step"], node["depth"]) for node in answer["tree"]]
        assert steps == [("one__switch", 0), ("one", 1), ("two", 2)]
        # A last step that its `if` passes over leaves the result to the one before.
        accepted = client.post("/pipeline/chain?async=true", {"payload": {"name": "x"}})
        assert accepted["status"] == "queued"


def test_synchronous_call_returns_202_when_the_time_is_up(flow: CliRunner) -> None:
    with answering(flow) as client:
        answer = client.post("/pipeline/slowly", {})
        assert (answer["timeout_exceeded"], answer["status"]) == (True, "running")
        assert client.get(f"/job/{answer['job_id']}")["status"] == "running"
        wait_until_running(flow)
        client.post(f"/job/{answer['job_id']}/cancel", {})


@pytest.mark.parametrize("query", ["", "?async=true"])
def test_dry_run_returns_the_first_jobs_and_starts_nothing(flow: CliRunner, query: str) -> None:
    body = {"payload": {"go": True, "name": "x"}, "dedupe_key": "k", "dry_run": True}
    with answering(flow) as client:
        answer = client.post(f"/pipeline/chain{query}", body)
        assert (answer["dry_run"], answer["pipeline"]) == (True, "chain")
        assert answer["first"][0]["step"].startswith("one")
        assert (answer["deduplicated"], answer["job_id"]) == (False, None)
        assert client.get("/jobs")["jobs"] == []
        assert refusal(client, "/pipeline/nope", body) == "not_found"


def test_dry_run_reports_the_duplicate(flow: CliRunner) -> None:
    body = {"payload": {"name": "x"}, "dedupe_key": "k", "dedupe_ttl": "1h"}
    with answering(flow) as client:
        done = client.post("/pipeline/chain", body)
        answer = client.post("/pipeline/chain", {**body, "dry_run": True})
        assert (answer["deduplicated"], answer["job_id"]) == (True, done["job_id"])
        again = client.post("/pipeline/chain?async=true", body)
        assert (again["deduplicated"], again["job_id"]) == (True, done["job_id"])


def test_synchronous_calls_are_limited_and_a_disconnect_frees_one(flow: CliRunner) -> None:
    config = (flow.root / "config.yaml").read_text()
    flow.write("config.yaml", config.replace("timeout: 300ms", "timeout: 60s"))
    with answering(flow) as client:
        caller = call(flow, "/pipeline/slowly")
        wait_until_running(flow)
        chain = {"payload": {"name": "x"}}
        assert refusal(client, "/pipeline/chain", chain) == "too_many_synchronous_calls"
        assert client.post("/pipeline/chain?async=true", chain)["status"] == "queued"
        caller.close()
        until(lambda: _taken(client, chain))


def _taken(client: GatewayClient, body: dict[str, Any]) -> bool:
    try:
        return bool(client.post("/pipeline/chain", body)["status"] == "succeeded")
    except ApiError:
        return False


def test_synchronous_pipeline_with_several_entries_returns_400(flow: CliRunner) -> None:
    config = (flow.root / "config.yaml").read_text()
    flow.write(
        "config.yaml",
        config.replace("on: wide.go\n", "on: wide.go\n    execution_mode: synchronous\n"),
    )
    with answering(flow) as client:
        assert refusal(client, "/pipeline/wide", {}) == "usage"
        assert refusal(client, "/pipeline/nope", {}) == "not_found"
        started = client.post("/pipeline/wide?async=true", {})
        found = _until_over(client, started["instance_id"])
        assert (found["status"], len(found["jobs"])) == ("succeeded", 3)
        assert executed_steps(flow).count("end") == 1


def test_invalid_dedupe_key_starts_nothing(flow: CliRunner) -> None:
    with answering(flow) as client:
        assert refusal(client, "/pipeline/chain", {"dedupe_key": "k" * 1025}) == "usage"
        assert client.get("/jobs")["jobs"] == []
        client.post("/pipeline/chain?async=true", {"dedupe_key": "k\0" * 512})
        # The next step may be there already; the oldest comes last.
        *_, job = client.get("/jobs")["jobs"]
        assert job["dedupe_key"] == "k\ufffd" * 512


def test_dedupe_key_of_a_queued_or_running_first_step_is_a_duplicate(flow: CliRunner) -> None:
    body = {"dedupe_key": "k", "dedupe_ttl": "1h"}
    with answering(flow) as client:
        first = client.post("/pipeline/slowly?async=true", body)
        again = client.post("/pipeline/slowly?async=true", body)
        assert (again["deduplicated"], again["job_id"]) == (True, first["job_id"])
        assert again["status"] == "skipped"
        assert client.get(f"/job/{first['job_id']}")["dedupe_ttl"] == 3600.0
        wait_until_running(flow)
        client.post(f"/job/{first['job_id']}/cancel", {})


def test_dedupe_ttl_of_a_pipeline_overrides_the_service(flow: CliRunner) -> None:
    with answering(flow) as client:
        body = {"payload": {"name": "x"}, "dedupe_key": "k"}
        started = client.post("/pipeline/chain?async=true", body)
        assert _until_over(client, started["instance_id"])["status"] == "succeeded"
        assert client.post("/pipeline/chain?async=true", body)["deduplicated"] is True
        anyway = client.post("/pipeline/chain?async=true", {**body, "dedupe_ttl": 0})
        assert anyway["deduplicated"] is False
        assert refusal(client, "/pipeline/chain", {**body, "dedupe_ttl": -1}) == "usage"


def _until_over(client: GatewayClient, instance_id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found = client.get(f"/pipeline-instance/{instance_id}", wait=5, seen=1000)
        return found if found["status"] != "open" else None

    found: dict[str, Any] = until(look)
    return found


def test_wait_for_a_run_returns_at_each_finished_job(flow: CliRunner) -> None:
    with answering(flow) as client:
        started = client.post("/pipeline/slowly?async=true", {})
        path = f"/pipeline-instance/{started['instance_id']}"
        wait_until_running(flow)
        heard: list[dict[str, Any]] = []
        waiter = threading.Thread(
            target=lambda: heard.append(client.get(path, wait=60, seen=0)), daemon=True
        )
        waiter.start()
        client.post(f"/job/{started['job_id']}/cancel", {})
        waiter.join(WAIT_LIMIT)
        (found,) = heard
        assert (found["status"], found["jobs"][0]["status"]) == ("failed", "dead")
        assert client.get(path, wait=20)["status"] == "failed"
        with pytest.raises(ApiError, match="no pipeline instance"):
            client.get("/pipeline-instance/nope")
        for query in ("wait=x", "wait=-1", "seen=nan"):
            with pytest.raises(ApiError) as refused:
                client.get(f"{path}?{query}")
            assert refused.value.code == "usage"


def test_tree_of_a_long_chain_has_limited_depth(flow: CliRunner) -> None:
    config = (flow.root / "config.yaml").read_text()
    loop = """\
  - name: loop
    on: loop.go
    max_depth: 90
    steps:
      - {id: go, uses: echo, on_events: {turn: [turn]}}
      - {id: turn, uses: echo, on_events: {turn: [turn]}}
"""
    flow.write("config.yaml", config.replace("  - name: picky\n", f"{loop}  - name: picky\n"))
    flow.plugin(
        "echo", 'echo \'{"status":"ok","events":[{"type":"turn"}]}\'', commands="poll, handle"
    )
    with answering(flow) as client:
        started = client.post("/pipeline/loop?async=true", {})
        found = _until_over(client, started["instance_id"])
        assert found["status"] == "failed"
        assert found["jobs"][-1]["last_error"] == "step 91 of its pipeline exceeds max_depth 90"
        nodes = client.get(f"/job/{started['job_id']}/tree", flat="true")["jobs"]
        assert [node["depth"] for node in nodes] == list(range(91))
        node, depth = client.get(f"/job/{started['job_id']}/tree")["tree"], 1
        while node["children"]:
            (node,), depth = node["children"], depth + 1
        assert (depth, node["children_left_out"]) == (60, 1)


def test_malformed_start_is_refused(flow: CliRunner) -> None:
    with answering(flow) as client:
        job = client.post("/plugin/flaky/poll", {})["job_id"]
        until(lambda: client.get(f"/job/{job}")["status"] == "dead")
        before = json.dumps(client.get(f"/job/{job}"))
        assert client.post(f"/job/{job}/retry", {"dry_run": True})["dry_run"] is True
        assert client.post(f"/job/{job}/replay", {"dry_run": True})["replay_of"] == job
        assert refusal(client, f"/job/{job}/cancel", {"dry_run": True}) == "refused"
        assert json.dumps(client.get(f"/job/{job}")) == before
