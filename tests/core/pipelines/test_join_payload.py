from __future__ import annotations

from ductile.core.pipelines.join_payload import (
    MAX_JOIN,
    EndedJob,
    inner_branch,
    join_payload,
    last_jobs,
)
from ductile.core.values.json_values import size_of
from ductile.model import JobStatus

OK, DEAD = JobStatus.SUCCEEDED, JobStatus.DEAD


def job(id_, branch, parent="p", joined=False, status=OK, result="r", error=None):
    return EndedJob(id_, parent, branch, f"step.{id_}", status, result, joined, error)


def test_join_has_each_last_job_in_the_order_of_the_branches():
    jobs = [job("d", "0"), job("a", "10"), job("c", "2"), job("b", "10", parent="a")]
    payload = join_payload(jobs)
    assert [entry["job_id"] for entry in payload["branches"]] == ["d", "b", "c"]
    assert payload["branches"][0] == {
        "branch": "0",
        "step": "step.d",
        "job_id": "d",
        "status": "succeeded",
        "result": "r",
    }
    assert payload["failed"] == 0


def test_jobs_that_ended_badly_are_counted():
    jobs = [job("a", "0", status=DEAD), job("b", "1", status=JobStatus.FAILED), job("c", "2")]
    assert join_payload(jobs)["failed"] == 2


def test_entry_has_its_error_where_it_ended_badly_and_nowhere_else():
    jobs = [job("a", "0", status=DEAD, result=None, error="no such host"), job("b", "1")]
    jobs.append(job("c", "2", status=JobStatus.SKIPPED, error="if: false"))
    payload = join_payload(jobs)
    assert [entry.get("error") for entry in payload["branches"]] == ["no such host", None, None]
    assert ["error" in entry for entry in payload["branches"]] == [True, False, False]


def test_jobs_of_a_split_inside_are_last_unless_it_was_joined():
    x = job("x", "0")
    inner = [job("y", "0/0", "x"), job("z", "0/1", "x")]
    assert {j.job_id for j in last_jobs([x, *inner])} == {"y", "z"}
    assert [e["branch"] for e in join_payload([x, *inner])["branches"]] == ["0", "0"]
    joined = [job("y", "0/0", "x", joined=True), job("z", "0/1", "x", joined=True)]
    assert [j.job_id for j in last_jobs([x, *joined, job("j", "0", "x")])] == ["j"]


def test_a_branch_is_named_as_seen_from_the_split_that_ends():
    assert inner_branch("", "a") == "a"
    assert inner_branch("a", "0") == "a/0"
    payload = join_payload([job("y", "a/0/b")], branch="a")
    assert payload["branches"][0]["branch"] == "0"


def test_large_results_are_left_to_be_found_by_their_job():
    jobs = [job("a", "0", result="x" * 700_000), job("b", "1", result="y" * 400_000)]
    jobs.append(job("c", "2", result="small"))
    payload = join_payload(jobs)
    assert size_of(payload) <= MAX_JOIN
    assert ["result" in entry for entry in payload["branches"]] == [False, True, True]


def test_a_payload_just_within_the_bound_is_kept_whole():
    jobs = [job("a", "0", result="x" * (MAX_JOIN - 300))]
    payload = join_payload(jobs)
    assert "result" in payload["branches"][0]
    assert size_of(payload) <= MAX_JOIN


def test_errors_of_many_jobs_are_left_to_be_found_by_their_job_as_well():
    jobs = [job(f"{n:03}", "0", status=DEAD, result=None, error="x" * 8192) for n in range(200)]
    payload = join_payload(jobs)
    assert size_of(payload) <= MAX_JOIN
    kept = ["error" in entry for entry in payload["branches"]]
    assert kept.count(True) > 100
    assert payload["failed"] == len(kept) == 200
