"""SIGKILL at any point neither loses nor repeats a wait, its notification, or its end."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.gateway_process import GatewayProcess
from tests.engine.site import OK, Site
from tests.waiting import until

PAYS = """echo '{"status": "ok", "result": 1, "events": [{"type": "paid", "payload": {}}]}'\n"""
UNREACHABLE = (OSError, http.client.HTTPException)
RETRY = {"max_attempts": 10, "backoff_base": "10ms"}


def prepare(site: Site, wait: Any) -> None:
    site.plugin("note", OK, retry=RETRY)
    site.settings["pipelines"] = [
        {
            "name": "p",
            "on": "go",
            "steps": [{"id": "hold", "wait": wait}, {"id": "next", "uses": "note"}],
        },
        {"name": "tell", "on": "approval.waiting", "steps": [{"id": "told", "uses": "note"}]},
    ]


def runs(gateway: GatewayProcess) -> list[tuple[str, str]]:
    found = gateway.client.get("/pipeline-runs").json["runs"]
    return sorted((run["pipeline"], run["status"]) for run in found)


def steps(gateway: GatewayProcess) -> list[tuple[str, str]]:
    found = gateway.client.get("/jobs").json["jobs"]
    return sorted((job["step_path"], job["status"]) for job in found)


def waiting(gateway: GatewayProcess) -> list[dict[str, Any]]:
    return list(gateway.client.get("/approvals?status=waiting").json["approvals"])


def count_waits(gateway: GatewayProcess) -> int:
    jobs = gateway.client.get("/jobs?status=queued&limit=300").json["jobs"]
    return sum("waits for" in (job["waits_for"] or "") for job in jobs)


def start_run(gateway: GatewayProcess) -> None:
    # The run is durable before the first failpoint, whether or not the response arrives.
    with contextlib.suppress(*UNREACHABLE):
        gateway.client.post("/pipeline/p?async=true", {})


@pytest.mark.parametrize("failpoint", ["claimed:1", "settled:1", "claimed:2", "settled:2"])
def test_crash_while_a_wait_begins(
    site: Site, start_gateway: Callable[..., GatewayProcess], failpoint: str
) -> None:
    prepare(site, {"approval": "Pay?", "timeout": "1h"})
    first = start_gateway(failpoint).ready()
    start_run(first)
    assert first.wait() == -9
    again = start_gateway().ready()
    [approval] = until(lambda: waiting(again))
    assert again.client.post(f"/approvals/{approval['id']}/approve", {}).status == 202
    until(lambda: runs(again) == [("p", "succeeded"), ("tell", "succeeded")])
    assert steps(again) == [(name, "succeeded") for name in ("hold", "next", "told")]


@pytest.mark.parametrize("failpoint", ["wait_ended:1", "claimed:2", "settled:2"])
def test_crash_while_a_timer_ends_a_wait(
    site: Site, start_gateway: Callable[..., GatewayProcess], failpoint: str
) -> None:
    prepare(site, "100ms")
    first = start_gateway(failpoint).ready()
    start_run(first)
    assert first.wait() == -9
    again = start_gateway().ready()
    until(lambda: runs(again) == [("p", "succeeded")])
    assert steps(again) == [("hold", "succeeded"), ("next", "succeeded")]


def test_crash_while_an_event_ends_many_waits(
    site: Site, start_gateway: Callable[..., GatewayProcess]
) -> None:
    site.plugin("note", OK, retry=RETRY)
    wait = {"wait": {"event": "paid", "timeout": "1h"}}
    site.settings["pipelines"] = [
        {
            "name": "p",
            "on": "go",
            "steps": [{"split": [wait] * 250}, {"id": "next", "uses": "note"}],
        },
    ]
    site.plugin("pay", PAYS)
    first = start_gateway("waits_ended:1").ready()
    start_run(first)
    until(lambda: count_waits(first) == 250)
    with contextlib.suppress(*UNREACHABLE):
        first.client.post("/plugin/pay/poll", {})
    assert first.wait() == -9
    again = start_gateway().ready()
    until(lambda: ("p", "succeeded") in runs(again))
    assert steps(again).count(("next", "succeeded")) == 1


@pytest.mark.parametrize("failpoint", ["commit.before:4", "commit.after:6", "commit.before:8"])
def test_crash_while_an_approval_is_decided(
    site: Site, start_gateway: Callable[..., GatewayProcess], failpoint: str
) -> None:
    prepare(site, {"approval": "Pay?", "timeout": "1h"})
    first = start_gateway().ready()
    start_run(first)
    [approval] = until(lambda: waiting(first))
    until(lambda: ("tell", "succeeded") in runs(first))
    first.kill()
    path = f"/approvals/{approval['id']}/approve"
    second = start_gateway(failpoint)
    # It is killed at one of its commits: before, in or after the decision. The further runs let it
    # reach that commit.
    while second.process.poll() is None:
        with contextlib.suppress(*UNREACHABLE):
            second.client.post(path, {})
            start_run(second)
    again = start_gateway().ready()
    until(lambda: approve_all(again))
    shown = again.client.get(f"/approvals/{approval['id']}").json
    assert shown["status"] == "approved"
    found = steps(again)
    count = sum(step == "hold" for step, _ in found)
    names = sorted(("hold", "next", "told") * count)
    assert found == [(name, "succeeded") for name in names]


def approve_all(gateway: GatewayProcess) -> bool:
    """Approve what waits; whether all runs have ended."""
    for row in waiting(gateway):
        gateway.client.post(f"/approvals/{row['id']}/approve", {})
    return all(status != "running" for _, status in runs(gateway))
