"""Bulk cancellation: only jobs that match the filter are ended."""

from __future__ import annotations

import pytest

from ductile.engine.gateway import Gateway
from ductile.model import JobStatus
from ductile.operations import bulk, jobs
from tests.http.harness import CONFIG, ApiHarness, running_api
from tests.waiting import until

ONE_WORKER = CONFIG.replace("max_workers: 2", "max_workers: 1")
SLOW = "#!/bin/sh\ncat > /dev/null\nexec sleep 60\n"


def trigger(api: ApiHarness) -> str:
    job_id: str = api.ask("POST", "/plugin/echo/poll", "{}").json["job_id"]
    return job_id


def status(api: ApiHarness, job_id: str) -> str:
    found: str = api.ask("GET", f"/job/{job_id}").json["status"]
    return found


def is_running(api: ApiHarness, job_id: str) -> None:
    until(lambda: status(api, job_id) == "running")


def test_job_that_starts_meanwhile_is_not_cancelled_as_queued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running_api(ONE_WORKER, plugins={"echo": SLOW}) as api:
        first = trigger(api)
        is_running(api, first)
        second, third = trigger(api), trigger(api)
        whole = bulk._end_queued

        def late(gateway: Gateway, found: list[str]) -> frozenset[str]:
            jobs.cancel(gateway, first)
            is_running(api, second)
            return whole(gateway, found)

        monkeypatch.setattr(bulk, "_end_queued", late)
        answer = api.ask("POST", "/jobs/cancel", {"filter": {"status": "queued"}}).json
        assert answer["jobs"] == [third]
        refusal = {"job_id": second, "error": f"job {second} is running now", "code": "refused"}
        assert answer["refused"] == [refusal]
        assert status(api, second) == "running"


def test_filter_for_running_jobs_leaves_queued_ones() -> None:
    with running_api(ONE_WORKER, plugins={"echo": SLOW}) as api:
        running = trigger(api)
        is_running(api, running)
        waiting = trigger(api)
        answer = api.ask("POST", "/jobs/cancel", {"filter": {"status": "running"}}).json
        assert (answer["jobs"], answer["refused"]) == ([running], [])
        is_running(api, waiting)
        until(lambda: status(api, running) == "dead")
        listed = {job["job_id"]: job["cancelled"] for job in api.ask("GET", "/jobs").json["jobs"]}
        assert listed == {running: True, waiting: False}
        for wanted, job_id in (("true", running), ("false", waiting)):
            found = api.ask("GET", f"/jobs?acknowledged={wanted}").json["jobs"]
            assert [job["job_id"] for job in found] == [job_id]
        with pytest.raises(jobs.Refused, match="is running now"):
            jobs.cancel(api.gateway, waiting, only=JobStatus.QUEUED)


def test_filter_without_status_cancels_running_and_queued_jobs() -> None:
    with running_api(ONE_WORKER, plugins={"echo": SLOW}) as api:
        running = trigger(api)
        is_running(api, running)
        waiting = [trigger(api) for _ in range(3)]
        answer = api.ask("POST", "/jobs/cancel", {"filter": {"plugin": "echo"}}).json
        assert answer["jobs"] == [running, *waiting]
        rows = [api.ask("GET", f"/job/{job_id}").json for job_id in waiting]
        assert [(row["status"], row["started_at"]) for row in rows] == [("dead", None)] * 3


def test_queued_jobs_are_cancelled_in_few_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "JOBS_PER_COMMIT", 2)
    with running_api(working=False) as api:
        ids = [trigger(api) for _ in range(5)]
        sizes = []
        whole = jobs.end_queued

        def counted(gateway: Gateway, job_ids: list[str]) -> frozenset[str]:
            sizes.append(len(job_ids))
            return whole(gateway, job_ids)

        monkeypatch.setattr(jobs, "end_queued", counted)
        which = {"filter": {"status": "queued"}}
        planned = api.ask("POST", "/jobs/cancel", {**which, "dry_run": True}).json
        assert (planned["jobs"], sizes) == (ids, [])
        answer = api.ask("POST", "/jobs/cancel", which).json
        assert (answer["jobs"], sizes) == (ids, [2, 2, 1])
        assert api.ask("GET", "/analytics/queue").json["queued"] == 0
