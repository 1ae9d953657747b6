"""`Idempotency-Key` and dedupe keys return the existing job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.http.harness import (
    CONFIG,
    ECHO,
    READER,
    Answer,
    ApiHarness,
    boot,
    plugin,
    running_api,
    write,
)

BAD = "#!/bin/sh\nexit 1\n"
PIPELINES = """\
plugins: {bad: {retry: {max_attempts: 1}}}
pipelines:
  - {name: slow, on: never, steps: [{uses: echo}]}
  - {name: now, on: never, execution_mode: synchronous, steps: [{uses: echo}]}
"""


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(CONFIG + PIPELINES, plugins={"echo": ECHO, "bad": BAD}) as api:
        yield api


def post(api: ApiHarness, path: str, key: str, body: str = "{}", **more: str) -> Answer:
    return api.ask("POST", path, body, headers={"Idempotency-Key": key}, **more)


@pytest.mark.parametrize("path", ["/plugin/echo/poll", "/pipeline/slow", "/pipeline/now"])
def test_repeated_key_returns_the_same_job(api: ApiHarness, path: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(api, path, "k1"), range(8)))
    assert {answer.status for answer in answers} == {200 if path.endswith("now") else 202}
    assert len({answer.json["job_id"] for answer in answers}) == 1
    assert post(api, path, "k2").json["job_id"] != answers[0].json["job_id"]


def failed(api: ApiHarness) -> str:
    """A finished job that may be retried."""
    job_id: str = api.ask("POST", "/plugin/bad/poll", "{}").json["job_id"]
    assert api.ask("GET", f"/job/{job_id}?wait=20").json["status"] == "dead"
    return job_id


def test_job_is_retried_once_per_key(api: ApiHarness) -> None:
    job_id = failed(api)
    first = post(api, f"/job/{job_id}/retry", "r1")
    assert (first.status, first.json["attempt"]) == (202, 2)
    assert api.ask("GET", f"/job/{job_id}?wait=20").json["status"] == "dead"
    again = post(api, f"/job/{job_id}/retry", "r1")
    assert (again.status, again.json) == (202, first.json)
    assert api.ask("GET", f"/job/{job_id}").json["attempt"] == 2
    assert post(api, f"/job/{job_id}/retry", "r2").json["attempt"] == 3


def test_job_is_replayed_once_per_key(api: ApiHarness) -> None:
    job_id = failed(api)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(api, f"/job/{job_id}/replay", "p1"), range(8)))
    assert {answer.status for answer in answers} == {202}
    assert len({answer.json["job_id"] for answer in answers}) == 1
    assert answers[0].json["replay_of"] == job_id
    other = post(api, f"/job/{job_id}/replay", "p2").json["job_id"]
    assert other != answers[0].json["job_id"]
    assert post(api, f"/job/{job_id}/replay", "p2", '{"step": "x"}').status == 422


def test_bulk_retry_runs_once_per_key(api: ApiHarness) -> None:
    job_id = failed(api)
    body = '{"filter": {"plugin": "bad", "status": "dead"}}'
    first = post(api, "/jobs/retry", "m1", body)
    assert job_id in first.json["jobs"]
    assert api.ask("GET", f"/job/{job_id}?wait=20").json["status"] == "dead"
    assert post(api, "/jobs/retry", "m1", body).json == first.json
    assert api.ask("GET", f"/job/{job_id}").json["attempt"] == 2


def test_key_is_kept_by_the_ledger_and_not_by_the_boot(tmp_path: Path) -> None:
    write(tmp_path, "config.yaml", CONFIG)
    plugin(tmp_path, "echo", ECHO)
    with boot(tmp_path) as first:
        boot_id = first.gateway.boot
        answer = post(first, "/plugin/echo/poll", "b1")
    with boot(tmp_path) as second:
        assert second.gateway.boot != boot_id
        again = post(second, "/plugin/echo/poll", "b1")
        assert (again.status, again.json) == (202, answer.json)
        assert post(second, "/plugin/echo/poll", "b1", '{"payload": 1}').status == 422
        assert post(second, "/plugin/echo/poll", "b2").json["job_id"] != answer.json["job_id"]
        listed = second.ask("GET", "/jobs").json["jobs"]
    assert len(listed) == 2


def test_repeated_key_with_another_body_returns_422(api: ApiHarness) -> None:
    assert post(api, "/plugin/echo/poll", "k3", '{"payload": 1}').status == 202
    other = post(api, "/plugin/echo/poll", "k3", '{"payload": 2}')
    assert (other.status, other.json["code"]) == (422, "idempotency_key_reused")


def test_key_belongs_to_one_token_and_path(api: ApiHarness) -> None:
    first = post(api, "/plugin/echo/peek", "k4").json["job_id"]
    assert post(api, "/plugin/echo/peek", "k4", token=READER).json["job_id"] != first
    assert post(api, "/plugin/echo/poll", "k4").json["job_id"] != first


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
def test_invalid_key_is_refused(api: ApiHarness, key: str) -> None:
    assert post(api, "/plugin/echo/poll", key).status == 400


def test_dry_run_checks_the_key_and_does_not_use_it(api: ApiHarness) -> None:
    body = {"filter": {"plugin": "bad"}}
    dry, wet = json.dumps({**body, "dry_run": True}), json.dumps(body)
    assert post(api, "/jobs/retry", "x" * 256, dry).status == 400
    assert post(api, "/jobs/retry", "k6", dry).status == 200
    assert post(api, "/jobs/retry", "k6", wet).status == 200


def test_refused_request_does_not_use_the_key(api: ApiHarness) -> None:
    assert post(api, "/plugin/echo/poll", "k5", "[").status == 400
    assert post(api, "/plugin/echo/poll", "k5").status == 202


def test_dedupe_key_returns_the_existing_job(api: ApiHarness) -> None:
    body = '{"dedupe_key": "d1", "dedupe_ttl": "1h"}'
    first = api.ask("POST", "/plugin/echo/poll", body).json
    again = api.ask("POST", "/plugin/echo/poll", body).json
    assert first["deduplicated"] is False
    assert again["deduplicated"] is True
    assert again["job_id"] == first["job_id"]
