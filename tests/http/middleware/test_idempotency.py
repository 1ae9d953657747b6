"""`Idempotency-Key` and dedupe over HTTP: the existing job is the answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.http.doors import CONFIG, ECHO, READER, Answer, House, opened

BAD = "#!/bin/sh\nexit 1\n"
PIPELINES = """\
plugins: {bad: {retry: {max_attempts: 1}}}
pipelines:
  - {name: slow, on: never, steps: [{uses: echo}]}
  - {name: now, on: never, execution_mode: synchronous, steps: [{uses: echo}]}
"""


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with opened(CONFIG + PIPELINES, plugins={"echo": ECHO, "bad": BAD}) as house:
        yield house


def post(house: House, path: str, key: str, body: str = "{}", **more: str) -> Answer:
    return house.ask("POST", path, body, headers={"Idempotency-Key": key}, **more)


@pytest.mark.parametrize("path", ["/plugin/echo/poll", "/pipeline/slow", "/pipeline/now"])
def test_the_same_key_answers_with_the_same_job(house: House, path: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(house, path, "k1"), range(8)))
    assert {answer.status for answer in answers} == {200 if path.endswith("now") else 202}
    assert len({answer.json["job_id"] for answer in answers}) == 1
    assert post(house, path, "k2").json["job_id"] != answers[0].json["job_id"]


def failed(house: House) -> str:
    """A job that has ended and may be retried."""
    job_id: str = house.ask("POST", "/plugin/bad/poll", "{}").json["job_id"]
    assert house.ask("GET", f"/job/{job_id}?wait=20").json["status"] == "dead"
    return job_id


def test_a_job_is_retried_once_for_a_key(house: House) -> None:
    job_id = failed(house)
    first = post(house, f"/job/{job_id}/retry", "r1")
    assert (first.status, first.json["attempt"]) == (202, 2)
    assert house.ask("GET", f"/job/{job_id}?wait=20").json["status"] == "dead"
    again = post(house, f"/job/{job_id}/retry", "r1")
    assert (again.status, again.json) == (202, first.json)
    assert house.ask("GET", f"/job/{job_id}").json["attempt"] == 2
    assert post(house, f"/job/{job_id}/retry", "r2").json["attempt"] == 3


def test_a_job_is_replayed_once_for_a_key(house: House) -> None:
    job_id = failed(house)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: post(house, f"/job/{job_id}/replay", "p1"), range(8)))
    assert {answer.status for answer in answers} == {202}
    assert len({answer.json["job_id"] for answer in answers}) == 1
    assert answers[0].json["replay_of"] == job_id
    other = post(house, f"/job/{job_id}/replay", "p2").json["job_id"]
    assert other != answers[0].json["job_id"]
    assert post(house, f"/job/{job_id}/replay", "p2", '{"step": "x"}').status == 422


def test_many_jobs_are_retried_once_for_a_key(house: House) -> None:
    job_id = failed(house)
    body = '{"filter": {"plugin": "bad", "status": "dead"}}'
    first = post(house, "/jobs/retry", "m1", body)
    assert job_id in first.json["jobs"]
    assert house.ask("GET", f"/job/{job_id}?wait=20").json["status"] == "dead"
    assert post(house, "/jobs/retry", "m1", body).json == first.json
    assert house.ask("GET", f"/job/{job_id}").json["attempt"] == 2


def test_another_body_is_refused(house: House) -> None:
    assert post(house, "/plugin/echo/poll", "k3", '{"payload": 1}').status == 202
    other = post(house, "/plugin/echo/poll", "k3", '{"payload": 2}')
    assert (other.status, other.json["code"]) == (422, "idempotency_key_reused")


def test_a_key_counts_for_one_caller_and_path(house: House) -> None:
    first = post(house, "/plugin/echo/peek", "k4").json["job_id"]
    assert post(house, "/plugin/echo/peek", "k4", token=READER).json["job_id"] != first
    assert post(house, "/plugin/echo/poll", "k4").json["job_id"] != first


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
def test_what_is_no_key(house: House, key: str) -> None:
    assert post(house, "/plugin/echo/poll", key).status == 400


def test_a_dry_run_uses_up_no_key_and_wants_a_good_one_all_the_same(house: House) -> None:
    body = {"filter": {"plugin": "bad"}}
    dry, wet = json.dumps({**body, "dry_run": True}), json.dumps(body)
    assert post(house, "/jobs/retry", "x" * 256, dry).status == 400
    assert post(house, "/jobs/retry", "k6", dry).status == 200
    assert post(house, "/jobs/retry", "k6", wet).status == 200


def test_a_refused_request_uses_up_no_key(house: House) -> None:
    assert post(house, "/plugin/echo/poll", "k5", "[").status == 400
    assert post(house, "/plugin/echo/poll", "k5").status == 202


def test_dedupe_answers_with_the_existing_job(house: House) -> None:
    body = '{"dedupe_key": "d1", "dedupe_ttl": "1h"}'
    first = house.ask("POST", "/plugin/echo/poll", body).json
    again = house.ask("POST", "/plugin/echo/poll", body).json
    assert first["deduplicated"] is False
    assert again["deduplicated"] is True
    assert again["job_id"] == first["job_id"]


def test_bytes_after_the_document_are_ignored(house: House) -> None:
    answer = house.ask("POST", "/plugin/echo/poll", '{"payload": {"a": 1}} and more')
    assert answer.status == 202
    shown = house.ask("GET", f"/job/{answer.json['job_id']}").json
    assert shown["payload"] == {"a": 1}
