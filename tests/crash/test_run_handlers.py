"""SIGKILL while a run ends neither loses nor repeats its `on_failure` and `always`."""

from __future__ import annotations

import contextlib
import http.client
from collections.abc import Callable
from typing import Any

import pytest

from tests.crash.gateway_process import GatewayProcess
from tests.engine.site import OK, Site
from tests.waiting import until

NO = """echo '{"status": "error", "error": "no", "retry": false}'\n"""


def list_runs(gateway: GatewayProcess) -> list[dict[str, Any]]:
    return list(gateway.client.get("/pipeline-runs").json["runs"])


def has_ended(gateway: GatewayProcess) -> bool:
    return all(run["status"] != "running" for run in list_runs(gateway))


@pytest.mark.parametrize("failpoint", ["claimed:2", "ran:1", "settled:1", "settled:2"])
def test_crash_neither_loses_nor_repeats_handlers(
    site: Site, start_gateway: Callable[..., GatewayProcess], failpoint: str
) -> None:
    retry, note = {"max_attempts": 10, "backoff_base": "10ms"}, [{"uses": "note"}]
    site.plugin("fail", NO, retry=retry)
    site.plugin("note", OK, retry=retry)
    pipeline = {"name": "p", "on": "go", "steps": [{"uses": "fail"}]}
    site.settings["pipelines"] = [{**pipeline, "on_failure": note, "always": note}]
    first = start_gateway(failpoint).ready()
    # The job is durable before the first failpoint, whether or not the response arrives.
    with contextlib.suppress(OSError, http.client.HTTPException):
        first.client.post("/pipeline/p?async=true", {})
    assert first.wait() == -9
    again = start_gateway().ready()
    until(lambda: has_ended(again))
    found = sorted((run["pipeline"], run["status"]) for run in list_runs(again))
    assert found == [("p", "failed"), ("p.always", "succeeded"), ("p.on_failure", "succeeded")]
    jobs = again.client.get("/jobs").json["jobs"]
    assert sorted(job["pipeline"] for job in jobs) == ["p", "p.always", "p.on_failure"]
