"""Instances that are under way while the configuration changes, on both engines."""

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
from tests.store.jobs.test_pipelines import FINAL, House, _filters

BRANCHES = [{"uses": "b"}, {"uses": "c"}]
FAN = {"id": "fan", "split": BRANCHES}
AFTER = {"id": "after", "uses": "j"}
SECOND = {"id": "second", "split": [{"uses": "d"}]}

Step = dict[str, object]
Make = Callable[..., House]


def pipeline(*steps: Step) -> dict[str, object]:
    return {"name": "p", "on": "go", "steps": list(steps)}


@pytest.fixture
def make(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Make:
    def build_house(*steps: Step) -> House:
        return House(ledger, clock, entropy, [pipeline(*steps)])

    return build_house


def taken(house: House, count: int) -> list[ClaimedJob]:
    claims = [house.take() for _ in range(count)]
    return [claimed for claimed in claims if claimed is not None]


def steps_of(house: House, instance: str) -> list[tuple[object, object, object]]:
    rows = house.rows("jobs_of_instance", id=instance, limit=100)
    return [(row["step"], row["status"], row["last_error"]) for row in rows]


def reason_of(house: House, instance: str) -> object:
    [row] = house.rows("scope", id=instance)
    return row["reason"]


def retry(house: House, status: JobStatus) -> None:
    [row] = house.rows("jobs", **_filters(status=status))
    job = house.ledger.read(lambda tx: read.load_job(tx, str(row["id"])))
    assert job is not None
    assert house.ledger.write(lambda tx: requeue.retry_job(tx, job, 4, house.clock.now()))


@pytest.mark.parametrize(
    "now",
    [
        pytest.param((FAN, AFTER), id="nothing"),
        pytest.param(({"id": "renamed", "split": BRANCHES}, AFTER), id="renamed split"),
        pytest.param(({"uses": "a"}, AFTER), id="no split"),
        pytest.param((FAN, {"uses": "a"}, AFTER), id="a step between"),
    ],
)
def test_a_join_follows_its_split_whatever_a_reload_made_of_that(
    make: Make, now: tuple[Step, ...]
) -> None:
    house = make(FAN, AFTER)
    instance = house.start("p", {})
    claims = taken(house, 2)
    house.reload([pipeline(*now)])
    for claimed in claims:
        house.end(claimed)
    joined = house.payload_of("after")
    assert [(one["branch"], one["result"]) for one in joined["branches"]] == [
        ("0", "b"),
        ("1", "c"),
    ]
    assert house.run() == ["after"]
    assert house.scope(instance) == "ended"


def test_a_split_that_was_the_last_step_is_the_end_though_a_step_follows_it_now(make: Make) -> None:
    house = make(FAN)
    instance = house.start("p", {})
    claims = taken(house, 2)
    house.reload([pipeline(FAN, AFTER)])
    for claimed in claims:
        house.end(claimed)
    assert (house.run(), house.scope(instance)) == ([], "ended")


LOST = [
    pytest.param(
        [pipeline(FAN)], "step after no longer exists in pipeline p", id="the join is gone"
    ),
    pytest.param([], "step after no longer exists in pipeline p", id="the pipeline is gone"),
    pytest.param(
        [pipeline(FAN, {"id": "after", "uses": "e"})],
        "step after of pipeline p is now e.handle, not j.handle",
        id="the join is another",
    ),
]


@pytest.mark.parametrize(("now", "why"), LOST)
def test_a_join_that_a_reload_took_away_fails_saying_so_and_runs_once_it_is_back(
    make: Make, now: list[dict[str, object]], why: str
) -> None:
    house = make(FAN, AFTER)
    instance = house.start("p", {})
    claims = taken(house, 2)
    house.reload(now)
    for claimed in claims:
        house.end(claimed)
    house.run()
    assert steps_of(house, instance)[-1] == ("after", "failed", why)
    assert house.scope(instance) == "failed"
    house.reload([pipeline(FAN, AFTER)])
    retry(house, JobStatus.FAILED)
    assert house.run() == ["after"]
    assert house.scope(instance) == "ended"


def test_a_step_put_before_a_split_does_not_make_the_split_run_again(make: Make) -> None:
    fan = {"split": BRANCHES}
    house = make(fan, {"uses": "j"})
    instance = house.start("p", {})
    claims = taken(house, 2)
    house.reload([pipeline({"uses": "a"}, fan, {"uses": "j"})])
    for claimed in claims:
        house.end(claimed)
    house.run()
    why = "step step_2 of pipeline p is now a split, not j.handle"
    assert [step for step in steps_of(house, instance) if step[1] != "succeeded"] == [
        ("step_2", "failed", why)
    ]
    assert len(steps_of(house, instance)) == 3


def test_where_a_split_that_was_to_follow_is_gone_the_instance_has_failed_and_says_why(
    make: Make,
) -> None:
    house = make(FAN, SECOND)
    instance = house.start("p", {})
    claims = taken(house, 2)
    house.reload([pipeline(FAN)])
    for claimed in claims:
        house.end(claimed)
    why = "step second no longer exists in pipeline p"
    assert (house.scope(instance), reason_of(house, instance)) == ("failed", why)
    assert house.announced(instance) == ["pipeline.failed"]
    stored = house.ledger.read(lambda tx: notices.list_after(tx, BEGINNING))
    [told] = [notice for notice in stored if notice.type == "pipeline.failed"]
    assert orjson.loads(told.payload)["reason"] == why


def test_why_a_split_inside_has_failed_is_told_of_the_instance_that_ends_later(make: Make) -> None:
    inner = {"steps": [FAN, SECOND]}
    house = make({"id": "out", "split": [inner, {"uses": "d"}]}, AFTER)
    instance = house.start("p", {})
    first, second, last = taken(house, 3)
    house.reload([pipeline({"id": "out", "split": [FAN, {"uses": "d"}]}, AFTER)])
    house.end(first)
    house.end(second)
    assert house.scope(instance) == "open"
    house.end(last)
    assert house.scope(instance) == "failed"
    assert reason_of(house, instance) == "step out.0.second no longer exists in pipeline p"
    assert house.run() == []


@pytest.mark.parametrize("now", [[pipeline(FAN, AFTER)], []], ids=["there", "gone"])
def test_a_scope_of_an_older_version_asks_what_follows_its_split_now(
    make: Make, now: list[dict[str, object]]
) -> None:
    house = make(FAN, AFTER)
    instance = house.start("p", {})
    execute(house.ledger, "UPDATE scopes SET join_step = NULL")
    claims = taken(house, 2)
    house.reload(now)
    for claimed in claims:
        house.end(claimed)
    ran = house.run()
    if now:
        assert (ran, house.scope(instance)) == (["after"], "ended")
    else:
        assert (ran, house.scope(instance)) == ([], "failed")
        assert reason_of(house, instance) == "step fan no longer exists in pipeline p"


def test_a_queued_job_whose_step_is_another_by_now_does_not_run_as_that(make: Make) -> None:
    house = make({"uses": "a"}, {"uses": "b"})
    instance = house.start("p", {})
    house.end(taken(house, 1)[0])
    house.reload([pipeline({"uses": "a"}, {"uses": "c"}, {"uses": "b"})])
    house.run()
    why = "step step_2 of pipeline p is now c.handle, not b.handle"
    assert steps_of(house, instance) == [
        ("step_1", "succeeded", None),
        ("step_2", "failed", why),
    ]


def test_a_step_that_was_put_at_the_end_runs_in_instances_that_are_under_way(make: Make) -> None:
    house = make({"uses": "a"}, {"uses": "b"})
    instance = house.start("p", {})
    house.end(taken(house, 1)[0])
    house.reload([pipeline({"uses": "a"}, {"uses": "b"}, {"uses": "c"})])
    assert house.run() == ["step_2", "step_3"]
    assert house.scope(instance) == "ended"


def test_what_a_failed_attempt_had_claimed_is_not_carried_on(make: Make) -> None:
    house = make({"id": "one", "uses": "a", "baggage": {"old": "payload.x"}}, {"uses": "b"})
    house.start("p", {"x": 1, "y": 2})
    house.run(a=FINAL)
    house.reload(
        [pipeline({"id": "one", "uses": "a", "baggage": {"new": "payload.y"}}, {"uses": "b"})]
    )
    retry(house, JobStatus.FAILED)
    house.end(taken(house, 1)[0])
    [last] = taken(house, 1)
    carried = {key: value for key, value in orjson.loads(last.context).items() if key != "ductile"}
    assert carried == {"new": 2}
