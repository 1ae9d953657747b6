"""Who sends a request, as jobs and the audit log name it."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator

import pytest

from ductile.http.middleware.caller import user_name
from tests.http.client import Client
from tests.http.harness import ADMIN, CONFIG, READER, ApiHarness, running_api

PIPELINES = "pipelines: [{name: flow, on: never, steps: [{uses: echo}]}]\n"
USER = f"user:{pwd.getpwuid(os.getuid()).pw_name}"


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(CONFIG + PIPELINES, working=False) as api:
        yield api


def submitter(api: ApiHarness, job_id: str) -> tuple[str, str | None]:
    shown = api.ask("GET", f"/job/{job_id}").json
    return shown["submitted_by"], shown["submitter"]


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "normal-route"}])
def test_job_names_the_token_that_submitted_it(api: ApiHarness, headers: dict[str, str]) -> None:
    path = "/plugin/echo/peek"
    queued = api.ask("POST", path, "{}", token=READER, headers=headers).json
    assert submitter(api, queued["job_id"]) == ("api", "token:reader")
    [newest] = api.ask("GET", "/jobs?limit=1").json["jobs"]
    assert newest["submitter"] == "token:reader"


def test_job_of_the_local_socket_names_the_user(api: ApiHarness) -> None:
    client = Client(api.gateway.socket_path)
    queued = client.post("/plugin/echo/poll", {}, X_Ductile_Client="cli").json
    assert submitter(api, queued["job_id"])[1] == USER


def test_first_jobs_of_a_pipeline_name_the_token(api: ApiHarness) -> None:
    started = api.ask("POST", "/pipeline/flow", "{}", token=ADMIN).json
    [job] = [j for j in api.ask("GET", "/jobs").json["jobs"] if j["pipeline"] == "flow"]
    assert started["instance_id"] == job["scope_id"]
    assert job["submitter"] == "token:admin"


def test_replayed_job_names_the_token_that_replayed_it(api: ApiHarness) -> None:
    job_id = api.ask("POST", "/plugin/echo/peek", "{}", token=READER).json["job_id"]
    assert api.ask("POST", f"/job/{job_id}/cancel").status == 202
    replayed = api.ask("POST", f"/job/{job_id}/replay").json
    assert submitter(api, replayed["job_id"]) == ("api", "token:admin")
    assert submitter(api, job_id) == ("api", "token:reader")


def test_unknown_user_is_named_by_its_number() -> None:
    assert user_name(4_000_000_000) == "4000000000"
