"""Open pipeline instances while the configuration changes, on both engines."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from ductile.model import JobStatus
from ductile.store import notices
from ductile.store.engines.api import BEGINNING, Ledger
from ductile.store.jobs import read, requeue
from ductile.store.jobs.claim import ClaimedJob
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.store.jobs.harness import FINAL, Pipelines, job_filters

BRANCHES = [{"uses": "b"}, {"uses": "c"}]
FAN = {"id": "fan", "split": BRANCHES}
AFTER = {"id": "after", "uses": "j"}
SECOND = {"id": "second", "split": [{"uses": "d"}]}

Step = dict[str, object]
Make = Callable[..., Pipelines]


def pipeline(*steps: Step) -> dict[str, object]:
    return {"name": "p", "on": "go", "steps": list(steps)}


@pytest.fixture
def make(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Make:
    def build(*steps: Step) -> Pipelines:
        return Pipelines(ledger, clock, entropy, [pipeline(*steps)])

    return build


def taken(harness: Pipelines, count: int) -> list[ClaimedJob]:
    claims = [harness.take() for _ in range(count)]
    return [claimed for claimed in claims if claimed is not None]


def steps_of(harness: Pipelines, instance: str) -> list[tuple[object, object, object]]:
    rows = harness.rows("jobs_of_instance", id=instance, limit=100)
    return [(row["step"], row["status"], row["last_error"]) for row in rows]


def reason_of(harness: Pipelines, instance: str) -> object:
    [row] = harness.rows("scope", id=instance)
    return row["reason"]


def retry(harness: Pipelines, status: JobStatus) -> None:
    [row] = harness.rows("jobs", **job_filters(status=status))
    job = harness.ledger.read(lambda tx: read.load_job(tx, str(row["id"])))
    assert job is not None
    assert harness.ledger.write(lambda tx: requeue.retry_job(tx, job, 4, harness.clock.now()))


@pytest.mark.parametrize(
    "now",
    [
        pytest.param((FAN, AFTER), id="nothing"),
        pytest.param(({"id": "renamed", "split": BRANCHES}, AFTER), id="renamed split"),
        pytest.param(({"uses": "a"}, AFTER), id="no split"),
        pytest.param((FAN, {"uses": "a"}, AFTER), id="a step between"),
    ],
)
def test_join_follows_its_split_after_a_reload(make: Make, now: tuple[Step, ...]) -> None:
    harness = make(FAN, AFTER)
    instance = harness.start("p", {})
    claims = taken(harness, 2)
    harness.reload([pipeline(*now)])
    for claimed in claims:
        harness.end(claimed)
    joined = harness.payload_of("after")
    assert [(one["branch"], one["result"]) for one in joined["branches"]] == [
        ("0", "b"),
        ("1", "c"),
    ]
    assert harness.run() == ["after"]
    assert harness.scope(instance) == "ended"


def test_step_added_after_a_split_does_not_follow_an_entered_one(make: Make) -> None:
    harness = make(FAN)
    instance = harness.start("p", {})
    claims = taken(harness, 2)
    harness.reload([pipeline(FAN, AFTER)])
    for claimed in claims:
        harness.end(claimed)
    assert (harness.run(), harness.scope(instance)) == ([], "ended")


LOST = [
    pytest.param([pipeline(FAN)], "step after no longer exists in pipeline p", id="join removed"),
    pytest.param([], "step after no longer exists in pipeline p", id="pipeline removed"),
    pytest.param(
        [pipeline(FAN, {"id": "after", "uses": "e"})],
        "step after of pipeline p is now e.handle, not j.handle",
        id="the join is another",
    ),
]


@pytest.mark.parametrize(("now", "why"), LOST)
def test_removed_join_fails_and_runs_when_it_is_back(
    make: Make, now: list[dict[str, object]], why: str
) -> None:
    harness = make(FAN, AFTER)
    instance = harness.start("p", {})
    claims = taken(harness, 2)
    harness.reload(now)
    for claimed in claims:
        harness.end(claimed)
    harness.run()
    assert steps_of(harness, instance)[-1] == ("after", "failed", why)
    assert harness.scope(instance) == "failed"
    harness.reload([pipeline(FAN, AFTER)])
    retry(harness, JobStatus.FAILED)
    assert harness.run() == ["after"]
    assert harness.scope(instance) == "ended"


def test_step_added_before_a_split_does_not_repeat_the_split(make: Make) -> None:
    fan = {"split": BRANCHES}
    harness = make(fan, {"uses": "j"})
    instance = harness.start("p", {})
    claims = taken(harness, 2)
    harness.reload([pipeline({"uses": "a"}, fan, {"uses": "j"})])
    for claimed in claims:
        harness.end(claimed)
    harness.run()
    why = "step step_2 of pipeline p is now a split, not j.handle"
    assert [step for step in steps_of(harness, instance) if step[1] != "succeeded"] == [
        ("step_2", "failed", why)
    ]
    assert len(steps_of(harness, instance)) == 3


def test_removed_following_split_fails_the_instance(
    make: Make,
) -> None:
    harness = make(FAN, SECOND)
    instance = harness.start("p", {})
    claims = taken(harness, 2)
    harness.reload([pipeline(FAN)])
    for claimed in claims:
        harness.end(claimed)
    why = "step second no longer exists in pipeline p"
    assert (harness.scope(instance), reason_of(harness, instance)) == ("failed", why)
    assert harness.announced(instance) == ["pipeline.failed"]
    stored = harness.ledger.read(lambda tx: notices.list_after(tx, BEGINNING))
    [posted] = [notice for notice in stored if notice.type == "pipeline.failed"]
    assert orjson.loads(posted.payload)["reason"] == why


def test_instance_has_the_reason_of_a_failed_inner_split(make: Make) -> None:
    inner = {"steps": [FAN, SECOND]}
    harness = make({"id": "out", "split": [inner, {"uses": "d"}]}, AFTER)
    instance = harness.start("p", {})
    first, second, last = taken(harness, 3)
    harness.reload([pipeline({"id": "out", "split": [FAN, {"uses": "d"}]}, AFTER)])
    harness.end(first)
    harness.end(second)
    assert harness.scope(instance) == "open"
    harness.end(last)
    assert harness.scope(instance) == "failed"
    assert reason_of(harness, instance) == "step out.0.second no longer exists in pipeline p"
    assert harness.run() == []


@pytest.mark.parametrize("now", [[pipeline(FAN, AFTER)], []], ids=["exists", "removed"])
def test_scope_without_join_columns_uses_the_current_join(
    make: Make, now: list[dict[str, object]]
) -> None:
    harness = make(FAN, AFTER)
    instance = harness.start("p", {})
    execute(harness.ledger, "UPDATE scopes SET join_step = NULL")
    claims = taken(harness, 2)
    harness.reload(now)
    for claimed in claims:
        harness.end(claimed)
    ran = harness.run()
    if now:
        assert (ran, harness.scope(instance)) == (["after"], "ended")
    else:
        assert (ran, harness.scope(instance)) == ([], "failed")
        assert reason_of(harness, instance) == "step fan no longer exists in pipeline p"


def test_step_added_at_the_end_runs_in_open_instances(make: Make) -> None:
    harness = make({"uses": "a"}, {"uses": "b"})
    instance = harness.start("p", {})
    harness.end(taken(harness, 1)[0])
    harness.reload([pipeline({"uses": "a"}, {"uses": "b"}, {"uses": "c"})])
    assert harness.run() == ["step_2", "step_3"]
    assert harness.scope(instance) == "ended"


def test_baggage_of_a_failed_attempt_is_dropped(make: Make) -> None:
    harness = make({"id": "one", "uses": "a", "baggage": {"old": "payload.x"}}, {"uses": "b"})
    harness.start("p", {"x": 1, "y": 2})
    harness.run(a=FINAL)
    harness.reload(
        [pipeline({"id": "one", "uses": "a", "baggage": {"new": "payload.y"}}, {"uses": "b"})]
    )
    retry(harness, JobStatus.FAILED)
    harness.end(taken(harness, 1)[0])
    [last] = taken(harness, 1)
    carried = {key: value for key, value in orjson.loads(last.context).items() if key != "ductile"}
    assert carried == {"new": 2}
