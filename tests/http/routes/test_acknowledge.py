"""Acknowledging failures: they need no operator, and bulk retries leave them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.http.harness import CONFIG, ApiHarness, running_api
from tests.waiting import until

FAIL = "#!/bin/sh\ncat > /dev/null\necho no luck >&2\nexit 1\n"
ONE_ATTEMPT = f"{CONFIG}plugins: {{echo: {{retry: {{max_attempts: 1}}}}}}\n"


@pytest.fixture
def api() -> Iterator[ApiHarness]:
    with running_api(ONE_ATTEMPT, plugins={"echo": FAIL}) as api:
        yield api


def fail(api: ApiHarness, plugin: str = "echo") -> str:
    job_id: str = api.ask("POST", f"/plugin/{plugin}/poll", "{}").json["job_id"]
    until(lambda: status(api, job_id) == "dead")
    return job_id


def status(api: ApiHarness, job_id: str) -> str:
    found: str = api.ask("GET", f"/job/{job_id}").json["status"]
    return found


def failing(api: ApiHarness) -> list[tuple[str, int]]:
    rows = api.ask("GET", "/jobs/failures").json["failures"]
    assert api.ask("GET", "/system/status?health=last").json["failures"] == rows
    return [(row["job_id"], row["jobs"]) for row in rows]


def listed(api: ApiHarness, query: str) -> list[str]:
    return [job["job_id"] for job in api.ask("GET", f"/jobs?{query}").json["jobs"]]


def test_acknowledged_job_is_left_until_it_is_retried(api: ApiHarness) -> None:
    first, second = fail(api), fail(api)
    assert failing(api) == [(second, 2)]
    path = f"/job/{second}/acknowledge"
    assert api.ask("POST", path, {"dry_run": True}).json == {
        "job_id": second,
        "status": "dead",
        "dry_run": True,
    }
    assert failing(api) == [(second, 2)]
    for _ in range(2):
        answer = api.ask("POST", path, {})
        assert (answer.status, answer.json["acknowledged"]) == (202, True)
    assert failing(api) == [(first, 1)]
    job = api.ask("GET", f"/job/{second}").json
    assert (job["status"], job["acknowledged_by"]) == ("dead", "token:admin")
    assert listed(api, "acknowledged=true") == [second]
    assert listed(api, "status=dead&plugin=echo&command=poll&acknowledged=false") == [first]
    [entry, _] = api.ask("GET", "/audit?action=job.acknowledge").json["entries"]
    assert (entry["actor"], entry["target"]) == ("token:admin", second)
    notices = api.ask("GET", "/notices?last=50").json["notices"]
    assert [row["type"] for row in notices].count("job.acknowledged") == 1

    retried = api.ask("POST", "/jobs/retry", {"filter": {"plugin": "echo"}}).json
    assert retried["jobs"] == [first]
    asked = {"filter": {"plugin": "echo", "acknowledged": True}}
    until(lambda: status(api, first) == "dead")
    assert api.ask("POST", "/jobs/retry", asked).json["jobs"] == [second]
    assert api.ask("GET", f"/job/{second}").json["acknowledged_at"] is None
    until(lambda: status(api, second) == "dead")
    assert failing(api) == [(second, 2)]


def test_many_are_acknowledged_after_a_preview(api: ApiHarness) -> None:
    ids = [fail(api) for _ in range(3)]
    chosen = {"filter": {"status": "dead", "plugin": "echo"}}
    preview = api.ask("POST", "/jobs/acknowledge", {**chosen, "dry_run": True}).json
    assert (preview["jobs"], preview["count"]) == (ids, 3)
    changed = api.ask("POST", "/jobs/acknowledge", {**chosen, "expected": 2})
    assert (changed.status, changed.json["code"]) == (409, "count_changed")
    assert failing(api) == [(ids[-1], 3)]
    assert api.ask("POST", "/jobs/acknowledge", {**chosen, "expected": 3}).json["jobs"] == ids
    assert failing(api) == []
    assert api.ask("POST", "/jobs/acknowledge", chosen).json["count"] == 0


def test_replay_acknowledges_the_job_that_it_replaces(api: ApiHarness) -> None:
    old = fail(api)
    assert api.ask("POST", f"/job/{old}/replay", {"dry_run": True}).status == 200
    assert failing(api) == [(old, 1)]
    new = api.ask("POST", f"/job/{old}/replay", {}).json["job_id"]
    until(lambda: status(api, new) == "dead")
    assert failing(api) == [(new, 1)]


def test_bulk_retry_leaves_cancelled_jobs_that_nobody_asks_for() -> None:
    with running_api(CONFIG, plugins={"echo": FAIL}, working=False) as api:
        job_id = api.ask("POST", "/plugin/echo/poll", "{}").json["job_id"]
        assert api.ask("POST", f"/job/{job_id}/cancel", {}).status == 202
        assert failing(api) == []
        for chosen in ({"plugin": "echo"}, {"status": "dead"}):
            assert api.ask("POST", "/jobs/retry", {"filter": chosen}).json["jobs"] == []
        chosen = {"status": "dead", "acknowledged": True}
        assert api.ask("POST", "/jobs/retry", {"filter": chosen}).json["jobs"] == [job_id]


def test_only_a_failure_can_be_acknowledged() -> None:
    with running_api(working=False) as api:
        job_id = api.ask("POST", "/plugin/echo/poll", "{}").json["job_id"]
        answer = api.ask("POST", f"/job/{job_id}/acknowledge", {})
        assert (answer.status, answer.json["code"]) == (409, "refused")
        assert "only failed and dead jobs can be acknowledged" in answer.json["error"]
