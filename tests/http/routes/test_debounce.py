"""Debounce and limits of runs in a running gateway, and what `job why` says."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.http.harness import CONFIG, ECHO, ApiHarness, running_api
from tests.http.routes.test_webhooks import SECRET, post, sign
from tests.waiting import until

HOOKS = f"""\
webhooks:
  listen: 127.0.0.1:0
  endpoints:
    - path: /hook/quick
      plugin: echo
      secret: {SECRET}
      debounce: {{wait: 500ms, key: "{{payload.repo}}"}}
    - {{path: /hook/slow, pipeline: slow, secret: {SECRET}}}
pipelines:
  - {{name: slow, on: changed, debounce: {{wait: 1h}}, steps: [{{uses: echo}}]}}
  - name: queued
    on: queued.now
    concurrency: {{key: "{{payload.account}}"}}
    steps: [{{id: ask, wait: {{approval: "go on?"}}}}, {{uses: echo}}]
  - name: skipped
    on: skipped.now
    concurrency: {{on_full: skip}}
    steps: [{{id: ask, wait: {{approval: "go on?"}}}}]
"""


@pytest.fixture(scope="module")
def api(webhook_route: str) -> Iterator[ApiHarness]:
    with running_api(CONFIG + HOOKS, plugins={"echo": ECHO}) as api:
        yield api


def send(api: ApiHarness, path: str, **payload: object) -> str:
    body = json.dumps(payload).encode()
    answer = post(api, path, body, X_Hub_Signature_256=sign(body))
    assert answer.status == 202
    return str(answer.json["job_id"])


def status(api: ApiHarness, job_id: str) -> str:
    return str(api.ask("GET", f"/job/{job_id}").json["status"])


def why(api: ApiHarness, job_id: str) -> str:
    return "\n".join(api.ask("GET", f"/job/{job_id}/why").json["why"])


def test_last_delivery_of_each_key_starts_a_job(api: ApiHarness) -> None:
    first = send(api, "/hook/quick", repo="a", push=1)
    other = send(api, "/hook/quick", repo="b", push=1)
    last = send(api, "/hook/quick", repo="a", push=2)
    assert status(api, first) == "skipped"
    assert f"superseded by job {last} (debounce)" in why(api, first)
    until(lambda: status(api, last) == status(api, other) == "succeeded")


def test_waiting_run_shows_until_when(api: ApiHarness) -> None:
    first = send(api, "/hook/slow", push=1)
    second = send(api, "/hook/slow", push=2)
    job = api.ask("GET", f"/job/{second}").json
    assert job["waits_for"] == f"debounced until {job['next_retry_at']}"
    assert f"It is queued: {job['waits_for']}." in why(api, second)
    assert status(api, first) == "skipped"
    run = api.ask("GET", f"/pipeline-instance/{job['instance_id']}").json
    assert run["status"] == "open"


def test_operator_starts_a_waiting_run_at_once(api: ApiHarness) -> None:
    waiting = send(api, "/hook/slow", push=3)
    assert api.ask("POST", f"/job/{waiting}/retry").status in (200, 202)
    until(lambda: status(api, waiting) == "succeeded")


def test_cancelled_run_makes_place_for_the_next(api: ApiHarness) -> None:
    waiting = send(api, "/hook/slow", push=4)
    assert api.ask("POST", f"/job/{waiting}/cancel").status in (200, 202)
    assert status(api, waiting) == "dead"
    following = send(api, "/hook/slow", push=5)
    assert status(api, following) == "queued"
    assert "superseded" not in why(api, waiting)


def test_start_by_name_is_not_debounced(api: ApiHarness) -> None:
    answer = api.ask("POST", "/pipeline/slow", b'{"payload": {}}')
    assert answer.status == 202
    until(lambda: status(api, answer.json["job_id"]) == "succeeded")


def start(api: ApiHarness, name: str) -> dict[str, object]:
    body = b'{"payload": {"account": "a"}}'
    answer = api.ask("POST", f"/pipeline/{name}", body=body)
    assert answer.status == 202
    return dict(answer.json)


def test_run_over_the_limit_names_the_run_that_it_waits_for(api: ApiHarness) -> None:
    first, second = start(api, "queued"), start(api, "queued")
    reason = "pipeline queued has 1 of 1 runs with the key 'a' (concurrency)"
    waiting = f"It is queued: {reason}: {first['instance_id']}."
    assert waiting in why(api, str(second["job_id"]))
    run = api.ask("GET", f"/pipeline-runs/{second['instance_id']}").json
    assert run["reason"].startswith(reason)
    assert run["steps"][0]["reason"] == run["reason"]
    assert api.ask("POST", f"/job/{second['job_id']}/retry").status == 409
    until(lambda: "approval" in why(api, str(first["job_id"])))
    assert api.ask("POST", f"/job/{first['job_id']}/cancel").status in (200, 202)
    until(lambda: "approval" in why(api, str(second["job_id"])))


def test_skipped_start_is_answered_with_the_reason(api: ApiHarness) -> None:
    first, second = start(api, "skipped"), start(api, "skipped")
    assert (first["status"], second["status"]) == ("queued", "skipped")
    assert str(first["instance_id"]) in str(second["reason"])
    assert status(api, str(second["job_id"])) == "skipped"
