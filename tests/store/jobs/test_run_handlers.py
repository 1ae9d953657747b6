"""`on_failure`, `on_success` and `always` in the ledger, on both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from ductile.clock import Ids
from ductile.model import JobStatus
from ductile.store.engines.api import Ledger
from ductile.store.jobs import close, read, requeue
from tests.conftest import CountingEntropy, FakeClock
from tests.store.jobs.harness import FINAL, SPLIT, Pipelines, job_filters
from tests.waiting import WAIT_LIMIT

HANDLERS = {
    "on_failure": [{"id": "failure", "uses": "d"}],
    "on_success": [{"id": "success", "uses": "d"}],
    "always": [{"id": "ended", "uses": "e"}],
}
Make = Callable[..., Pipelines]


@pytest.fixture
def make(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Make:
    def build(*steps: dict[str, object], **more: Any) -> Pipelines:
        handlers = more.pop("handlers", HANDLERS)
        pipeline = {"name": "p", "on": "go", "steps": list(steps), **handlers}
        others = more.pop("others", [])
        return Pipelines(ledger, clock, entropy, [pipeline, *others], **more)

    return build


def jobs_of(harness: Pipelines, step: str) -> list[dict[str, Any]]:
    """The jobs of a step, the oldest first, with the payload that entered them."""
    rows = harness.rows("jobs", **job_filters())
    found = [row for row in reversed(rows) if row["step_path"] == step]
    return [{**row, "entered": harness.event_of(row)["payload"]} for row in found]


def retry(harness: Pipelines, step: str) -> None:
    job_id = str(jobs_of(harness, step)[0]["id"])
    job = harness.ledger.read(lambda tx: read.load_job(tx, job_id))
    assert job is not None
    assert harness.ledger.write(lambda tx: requeue.retry_job(tx, job, 4, harness.clock.now()))


def test_failed_run_starts_on_failure_and_always_once(make: Make) -> None:
    harness = make({"uses": "a"}, {"id": "bad", "uses": "b"}, {"uses": "c"})
    instance = harness.start("p", {"x": 1})
    assert harness.run(b=FINAL) == ["step_1", "bad", "failure", "ended"]
    [bad], [failure] = jobs_of(harness, "bad"), jobs_of(harness, "failure")
    message = "Pipeline p failed at step bad: no"
    assert failure["entered"] == {
        "pipeline": "p",
        "instance_id": instance,
        "status": "failed",
        "failed_step": "bad",
        "failed_job_id": bad["id"],
        "error": "no",
        "message": message,
        "text": message,
        "payload": {"x": 1},
    }
    assert (failure["parent_job_id"], failure["submitted_by"]) == (bad["id"], "hook")
    assert failure["pipeline"] == "p.on_failure"
    assert jobs_of(harness, "ended")[0]["entered"] == failure["entered"]
    assert harness.scope(instance) == "failed"


def test_succeeded_run_starts_on_success_and_always_once(make: Make) -> None:
    harness = make({"uses": "a"}, {"uses": "b"})
    instance = harness.start("p", {"x": 1})
    assert harness.run() == ["step_1", "step_2", "success", "ended"]
    [success] = jobs_of(harness, "success")
    entered = success["entered"]
    assert (entered["status"], entered["failed_step"], entered["error"]) == (
        "succeeded",
        None,
        None,
    )
    assert (entered["failed_job_id"], entered["payload"]) == (None, {"x": 1})
    assert success["parent_job_id"] == jobs_of(harness, "step_2")[0]["id"]
    assert harness.scope(instance) == "ended"


def test_failed_handler_starts_no_handler_and_keeps_the_status_of_the_run(make: Make) -> None:
    harness = make({"uses": "a"})
    instance = harness.start("p", {})
    assert harness.run(d=FINAL, e=FINAL) == ["step_1", "success", "ended"]
    assert harness.scope(instance) == "ended"
    assert harness.announced(instance) == ["pipeline.ended"]


def test_retried_run_that_fails_again_starts_on_failure_again(make: Make) -> None:
    harness = make({"uses": "a"})
    harness.start("p", {})
    assert harness.run(a=FINAL) == ["step_1", "failure", "ended"]
    retry(harness, "step_1")
    assert harness.run(a=FINAL) == ["step_1", "failure", "ended"]
    retry(harness, "step_1")
    assert harness.run() == ["step_1", "success", "ended"]
    assert [len(jobs_of(harness, step)) for step in ("failure", "success", "ended")] == [2, 1, 3]


def test_job_that_waits_for_its_retry_starts_no_handler(make: Make) -> None:
    harness = make({"uses": "a"})
    harness.start("p", {})
    assert harness.run(a={"status": "error", "error": "again"}) == ["step_1"]


def test_failed_branch_starts_on_failure_once(make: Make) -> None:
    harness = make(*SPLIT)
    harness.start("p", {})
    harness.run(c=FINAL)
    [failure] = jobs_of(harness, "failure")
    assert failure["entered"]["failed_step"] == "fan.1.step_1"
    assert failure["entered"]["error"] == "no"


def test_failed_branch_that_was_joined_is_not_the_failed_step(make: Make) -> None:
    first, fan, after = SPLIT
    harness = make(first, {**fan, "join": "always"}, after)
    harness.start("p", {})
    harness.run(c=FINAL, j=FINAL)
    assert jobs_of(harness, "failure")[0]["entered"]["failed_step"] == "after"
    harness.start("p", {})
    assert harness.run(c=FINAL)[-2:] == ["success", "ended"]
    assert jobs_of(harness, "success")[0]["entered"]["failed_step"] is None


def test_cancelled_run_starts_on_failure(make: Make) -> None:
    harness = make({"uses": "a"})
    harness.start("p", {})
    job_id = str(jobs_of(harness, "step_1")[0]["id"])
    base, now = harness.entropy.uuid(), harness.clock.now()

    def cancel(tx: Any) -> bool:
        job = read.load_job(tx, job_id)
        assert job is not None
        dead = JobStatus.DEAD
        return close.end_queued(tx, job, dead, "cancelled", now, harness.tx_config, Ids(base))

    assert harness.ledger.write(cancel)
    assert harness.run() == ["failure", "ended"]
    assert jobs_of(harness, "failure")[0]["entered"]["error"] == "cancelled"


def test_deduplicated_run_starts_no_handler(make: Make) -> None:
    harness = make({"uses": "a"}, handlers={"always": HANDLERS["always"]})
    harness.start("p", {}, dedupe_key="k")
    assert harness.run() == ["step_1", "ended"]
    assert harness.scope(harness.start("p", {}, dedupe_key="k")) == "skipped"
    assert harness.run() == []


def test_handlers_of_a_called_pipeline_do_not_run(make: Make) -> None:
    outer = {"name": "outer", "on": "out", "steps": [{"call": "p"}]}
    harness = make({"uses": "a"}, others=[outer])
    harness.start("outer", {})
    assert harness.run() == ["step_1.step_1"]


def test_loop_through_the_event_of_a_handler_ends_at_the_hop_limit(make: Make) -> None:
    again = {"status": "ok", "result": "", "events": [{"type": "go", "payload": {}}]}
    harness = make({"uses": "a"}, handlers={"on_failure": [{"uses": "b"}]}, max_hops=6)
    harness.start("p", {})
    assert len(harness.run(a=FINAL, b=again)) == 7
    [dead] = harness.rows("jobs", **job_filters(status="dead"))
    assert "hop 7 exceeds the limit of 6" in str(dead["last_error"])


def test_handler_of_a_long_run_is_within_the_hop_limit(make: Make) -> None:
    harness = make(*[{"uses": "a"}] * 6, max_hops=6)
    harness.start("p", {})
    assert harness.run()[-2:] == ["success", "ended"]


def test_handler_has_a_context_with_the_origin_of_the_run(make: Make) -> None:
    claim = [{"uses": "d", "baggage": {"failed.step": "payload.failed_step"}}, {"uses": "c"}]
    harness = make({"uses": "a"}, handlers={"on_failure": claim})
    instance = harness.start("p", {})
    harness.end(harness.take(), FINAL)  # type: ignore[arg-type]
    claimed = harness.take()
    assert claimed is not None
    own = orjson.loads(claimed.context)["ductile"]
    assert own["origin"]["submitted_by"] == "api"
    assert own["pipeline_instance_id"] != instance
    harness.end(claimed)
    last = harness.take()
    assert last is not None
    assert orjson.loads(last.context)["failed"] == {"step": "step_1"}


def test_last_jobs_that_end_at_the_same_time_start_handlers_once(make: Make) -> None:
    harness = make({"split": [{"uses": "a"}, {"uses": "b"}, {"uses": "c"}]})
    harness.start("p", {})
    claimed = [harness.take() for _ in range(3)]
    threads = [threading.Thread(target=harness.end, args=(one,)) for one in claimed]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_LIMIT)
    assert harness.run() == ["success", "ended"]


def test_reload_that_removes_a_handler_fails_its_queued_job(make: Make) -> None:
    harness = make({"uses": "a"})
    harness.start("p", {})
    harness.end(harness.take())  # type: ignore[arg-type]
    harness.reload([{"name": "p", "on": "go", "steps": [{"uses": "a"}]}])
    harness.run()
    [success] = jobs_of(harness, "success")
    assert "no longer exists in pipeline p.on_success" in str(success["last_error"])
