"""Dedupe keys in pipelines, on both engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from ductile.store.engines.api import Ledger
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.store.jobs.harness import FINAL, Pipelines, job_filters

HOUR = 3600.0
THERE = {"path": "payload.x", "op": "exists"}
AFTER = {"id": "after", "uses": "j"}

Make = Callable[..., Pipelines]


@pytest.fixture
def make(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Make:
    """A harness with these pipelines: name to steps, each triggered by the event of its name."""

    def build(**pipelines: list[dict[str, object]]) -> Pipelines:
        configured = [
            {"name": name, "on": name, "steps": steps} for name, steps in pipelines.items()
        ]
        return Pipelines(ledger, clock, entropy, configured)  # type: ignore[arg-type]

    return build


def drops(harness: Pipelines) -> list[tuple[object, object]]:
    """The plugins of the dropped jobs, each with the existing job."""
    found = harness.rows("jobs", **job_filters())
    return sorted(
        (row["plugin"], drop["dedupe_key"])
        for row in found
        for drop in harness.rows("dedupe_drops_of", id=row["id"])
    )


def test_instance_whose_first_jobs_are_all_duplicates_is_skipped(
    make: Make,
) -> None:
    harness = make(p=[{"id": "fan", "split": [{"uses": "a"}, {"uses": "b"}]}, AFTER])
    harness.start("p", {}, dedupe_key="k")
    assert harness.run() == ["fan.0.step_1", "fan.1.step_1", "after"]
    again = harness.start("p", {}, dedupe_key="k")
    assert harness.run() == []
    [scope] = harness.rows("scope", id=again)
    [first] = harness.rows("jobs", **job_filters(plugin="a"))
    assert scope["status"] == "skipped"
    assert scope["reason"] == f"deduplicated: job {first['id']} replaces it"
    assert harness.announced(again) == ["pipeline.skipped"]
    assert drops(harness) == [("a", "k"), ("b", "k")]


def test_repeated_event_starts_nothing(make: Make) -> None:
    harness = make(
        poll=[{"uses": "e"}],
        data=[{"id": "fan", "split": [{"uses": "a"}, {"uses": "b"}]}, AFTER],
    )
    emitted = {"status": "ok", "result": 1, "events": [{"type": "data", "dedupe_key": "k"}]}
    ran: Counter[str] = Counter()
    for _ in range(3):
        harness.start("poll", {})
        ran.update(harness.run(e=emitted))
    assert ran == {"step_1": 3, "fan.0.step_1": 1, "fan.1.step_1": 1, "after": 1}


def test_first_jobs_that_are_not_duplicates_run_and_are_joined(make: Make) -> None:
    harness = make(p=[{"id": "fan", "split": [{"uses": "a"}, {"uses": "b"}]}, AFTER])
    harness.start("p", {}, dedupe_key="k")
    harness.run(b=FINAL)
    again = harness.start("p", {}, dedupe_key="k")
    harness.end(harness.take())
    joined = harness.payload_of("after")
    assert [entry["branch"] for entry in joined["branches"]] == ["1"]
    assert harness.run() == ["after"]
    assert harness.scope(again) == "ended"
    assert drops(harness) == [("a", "k")]


def test_inner_split_of_duplicates_is_left_out_with_its_join(
    make: Make,
) -> None:
    inner = {"steps": [{"id": "in", "split": [{"uses": "a"}, {"uses": "b"}]}, {"uses": "c"}]}
    harness = make(p=[{"id": "out", "split": [inner, {"uses": "d"}]}, AFTER])
    harness.start("p", {}, dedupe_key="k")
    harness.run(d=FINAL)
    again = harness.start("p", {}, dedupe_key="k")
    assert harness.run() == ["out.1.step_1", "after"]
    assert harness.scope(again) == "ended"


def test_branches_with_the_same_target_and_key_all_run(make: Make) -> None:
    harness = make(p=[{"id": "fan", "split": [{"uses": "a"}, {"uses": "a"}]}, AFTER])
    instance = harness.start("p", {}, dedupe_key="k", dedupe_ttl=HOUR)
    assert harness.run() == ["fan.0.step_1", "fan.1.step_1", "after"]
    assert harness.scope(instance) == "ended"


def test_branches_that_begin_with_an_if_all_run_with_the_same_key(make: Make) -> None:
    guarded = [{"uses": "a", "if": THERE}, {"uses": "b", "if": THERE}]
    harness = make(p=[{"id": "fan", "split": guarded}, AFTER])
    harness.start("p", {"x": 1}, dedupe_key="k", dedupe_ttl=HOUR)
    ran = harness.run()
    assert {"fan.0.step_1", "fan.1.step_1", "after"} <= set(ran)
    again = harness.start("p", {"x": 1}, dedupe_key="k", dedupe_ttl=HOUR)
    assert (harness.run(), harness.scope(again)) == ([], "skipped")


def test_open_instance_replaces_another_one_within_a_ttl(
    make: Make,
) -> None:
    harness = make(p=[{"id": "fan", "split": [{"uses": "a"}, {"uses": "a"}]}, AFTER])
    first = harness.start("p", {}, dedupe_key="k", dedupe_ttl=HOUR)
    again = harness.start("p", {}, dedupe_key="k", dedupe_ttl=HOUR)
    assert (harness.scope(first), harness.scope(again)) == ("open", "skipped")


def test_pipelines_that_begin_with_an_if_do_not_replace_each_other(make: Make) -> None:
    harness = make(created=[{"uses": "a", "if": THERE}], updated=[{"uses": "d", "if": THERE}])
    harness.start("created", {"x": 1}, dedupe_key="k")
    assert harness.run() == ["step_1__switch", "step_1"]
    harness.start("updated", {"x": 1}, dedupe_key="k")
    assert harness.run() == ["step_1__switch", "step_1"]
    again = harness.start("updated", {"x": 1}, dedupe_key="k")
    assert (harness.run(), harness.scope(again)) == ([], "skipped")


def test_pipelines_that_begin_with_a_relay_do_not_replace_each_other(make: Make) -> None:
    relay = {"relay": {"to": "elsewhere", "event": "x"}}
    harness = make(p=[relay], q=[relay])
    harness.start("p", {}, dedupe_key="k")
    now = "'2026-02-08T10:00:00.000000Z'"
    execute(harness.ledger, f"UPDATE job_queue SET status = 'succeeded', completed_at = {now}")
    other, same = (harness.start(name, {}, dedupe_key="k") for name in "qp")
    assert (harness.scope(other), harness.scope(same)) == ("open", "skipped")
