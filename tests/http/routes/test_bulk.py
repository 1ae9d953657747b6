"""Many jobs at once: the filter says what is ended, however long that takes."""

from __future__ import annotations

import pytest

from ductile.engine.gateway import Gateway
from ductile.model import JobStatus
from ductile.operations import bulk, jobs
from tests.http.doors import CONFIG, House, opened
from tests.waiting import until

ONE_WORKER = CONFIG.replace("max_workers: 2", "max_workers: 1")
SLOW = "#!/bin/sh\ncat > /dev/null\nexec sleep 60\n"


def trigger(house: House) -> str:
    job_id: str = house.ask("POST", "/plugin/echo/poll", "{}").json["job_id"]
    return job_id


def status(house: House, job_id: str) -> str:
    found: str = house.ask("GET", f"/job/{job_id}").json["status"]
    return found


def is_running(house: House, job_id: str) -> None:
    until(lambda: status(house, job_id) == "running")


def test_what_begins_before_its_turn_is_no_longer_queued(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(ONE_WORKER, plugins={"echo": SLOW}) as house:
        first = trigger(house)
        is_running(house, first)
        second, third = trigger(house), trigger(house)
        whole = bulk._end_queued

        def late(gateway: Gateway, found: list[str]) -> frozenset[str]:
            jobs.cancel(gateway, first)
            is_running(house, second)
            return whole(gateway, found)

        monkeypatch.setattr(bulk, "_end_queued", late)
        answer = house.ask("POST", "/jobs/cancel", {"filter": {"status": "queued"}}).json
        assert answer["jobs"] == [third]
        told = {"job_id": second, "error": f"job {second} is running now", "code": "refused"}
        assert answer["refused"] == [told]
        assert status(house, second) == "running"


def test_a_filter_of_what_runs_leaves_what_waits() -> None:
    with opened(ONE_WORKER, plugins={"echo": SLOW}) as house:
        running = trigger(house)
        is_running(house, running)
        waiting = trigger(house)
        answer = house.ask("POST", "/jobs/cancel", {"filter": {"status": "running"}}).json
        assert (answer["jobs"], answer["refused"]) == ([running], [])
        is_running(house, waiting)
        with pytest.raises(jobs.Refused, match="is running now"):
            jobs.cancel(house.gateway, waiting, only=JobStatus.QUEUED)


def test_without_a_status_what_runs_goes_too_and_nothing_begins() -> None:
    with opened(ONE_WORKER, plugins={"echo": SLOW}) as house:
        running = trigger(house)
        is_running(house, running)
        waiting = [trigger(house) for _ in range(3)]
        answer = house.ask("POST", "/jobs/cancel", {"filter": {"plugin": "echo"}}).json
        assert answer["jobs"] == [running, *waiting]
        rows = [house.ask("GET", f"/job/{job_id}").json for job_id in waiting]
        assert [(row["status"], row["started_at"]) for row in rows] == [("dead", None)] * 3


def test_what_waits_ends_in_few_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "JOBS_PER_COMMIT", 2)
    with opened(working=False) as house:
        ids = [trigger(house) for _ in range(5)]
        sizes = []
        whole = jobs.end_queued

        def counted(gateway: Gateway, job_ids: list[str]) -> frozenset[str]:
            sizes.append(len(job_ids))
            return whole(gateway, job_ids)

        monkeypatch.setattr(jobs, "end_queued", counted)
        which = {"filter": {"status": "queued"}}
        planned = house.ask("POST", "/jobs/cancel", {**which, "dry_run": True}).json
        assert (planned["jobs"], sizes) == (ids, [])
        answer = house.ask("POST", "/jobs/cancel", which).json
        assert (answer["jobs"], sizes) == (ids, [2, 2, 1])
        assert house.ask("GET", "/analytics/queue").json["queued"] == 0
