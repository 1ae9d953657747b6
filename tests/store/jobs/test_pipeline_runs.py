"""Whole runs of pipelines: what their steps get, which of them run, and where they end."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ductile.core.pipelines.build_router import build_router
from ductile.core.pipelines.compiler.compile import compile_pipelines
from ductile.core.pipelines.pipeline import Compiled
from ductile.core.pipelines.routes import Route
from ductile.core.values.json_values import are_equal
from ductile.model import SubmittedBy
from ductile.store.engines.api import Ledger
from tests.conftest import CountingEntropy, FakeClock
from tests.core.pipelines.random_steps import steps_strategy
from tests.core.pipelines.test_router import A, B, C, D, pipeline
from tests.store.jobs.harness import FINAL, MOST_JOBS, PLUGINS, Pipelines, job_filters

pytestmark = pytest.mark.parametrize("open_ledger", ["sqlite"], indirect=True)


class Runs(Pipelines):
    """Pipelines of which a test reads the rows afterwards."""

    def jobs(self, **given: object) -> list[dict[str, Any]]:
        return self.rows("jobs", **job_filters(limit=MOST_JOBS, **given))

    def job(self, step_path: str) -> dict[str, Any]:
        [row] = [row for row in self.jobs() if row["step_path"] == step_path]
        return row

    def entered(self, step_path: str) -> Any:
        """The payload of the event that created the job of a step."""
        return self.event_of(self.job(step_path))["payload"]

    def contexts(self) -> dict[str, dict[str, Any]]:
        return {id: own for id, own, _ in self.contexts_and_parents()}

    def contexts_and_parents(self) -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
        rows = self.ledger.read(lambda tx: tx.all("verify_contexts", after="", limit=100_000))
        return [(id, orjson.loads(own), orjson.loads(above or "{}")) for id, _, own, above in rows]


@pytest.fixture
def make(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy):
    def build(*pipelines: dict[str, object], **more: Any) -> Runs:
        return Runs(ledger, clock, entropy, list(pipelines), **more)

    return build


def emits(*events: str, result: str = "done") -> dict[str, object]:
    found = [{"type": type_, "payload": {"e": type_}} for type_ in events]
    return {"status": "ok", "result": result, "events": found}


def test_step_gets_the_event_and_the_result_of_the_one_before(make) -> None:
    harness = make(pipeline(A, B, C))
    harness.start("p", {"x": 1})
    assert harness.run(a=emits("made", result="one")) == ["step_1", "step_2", "step_3"]
    assert harness.entered("step_2") == {"e": "made", "result": "one"}
    assert harness.entered("step_3") == {"e": "made", "result": "b"}
    assert harness.event_of(harness.job("step_3"))["type"] == "ductile.step.succeeded"


def test_steps_after_a_call_run_and_share_the_context(make) -> None:
    inner = pipeline({**B, "baggage": {"found": "payload.x"}}, name="inner", on="i")
    harness = make(inner, pipeline(A, {"call": "inner"}, C))
    harness.start("p", {"x": 7})
    assert len(harness.run()) == 3
    assert harness.contexts()[harness.job("step_3")["event_context_id"]]["found"] == 7


@pytest.mark.parametrize(
    ("x", "ran"), [(1, ["s__switch", "s", "step_1"]), (2, ["s__switch", "step_1"])]
)
def test_step_runs_if_its_condition_holds_and_the_next_one_anyway(
    make, x: int, ran: list[str]
) -> None:
    condition = {"path": "payload.x", "op": "eq", "value": 1}
    harness = make(pipeline({"id": "s", "uses": "a", "if": condition}, B))
    harness.start("p", {"x": x})
    assert harness.run() == ran
    switch, last = harness.job("s__switch"), harness.job("step_1")
    assert switch["plugin"] == "core.switch"
    assert last["parent_job_id"] == harness.job(ran[-2])["id"]
    assert harness.entered("step_1")["x"] == x
    assert last["hops"] == len(ran) - 1


def test_an_if_on_a_split_or_call_skips_all_of_it(make) -> None:
    no = {"path": "payload.x", "op": "exists"}
    inner = pipeline(A, name="inner", on="i")
    harness = make(inner, pipeline({"split": [A, B], "if": no}, {"call": "inner", "if": no}, C))
    harness.start("p", {})
    assert harness.run() == ["step_1__switch", "step_2__switch", "step_3"]


@pytest.mark.parametrize(
    ("events", "ran"),
    [
        (["bad"], ["fix.step_1", "fix.step_2", "v", "v@j"]),
        (["good"], ["end", "v"]),
        (["good", "worse", "good"], ["end", "end", "step_1", "step_2", "v"]),
    ],
)
def test_listed_event_goes_to_its_targets_instead_of_the_next_step(
    make, events: list[str], ran: list[str]
) -> None:
    steps = [
        {"id": "v", "uses": "e", "on_events": {"bad": ["fix", "j"], "worse": ["other"]}},
        {"id": "fix", "steps": [B, C]},
        {"id": "end", "uses": "d"},
    ]
    harness = make(pipeline(*steps), pipeline(A, A, name="other", on="o"))
    instance = harness.start("p", {})
    assert sorted(harness.run(e=emits(*events))) == ran
    assert {row["scope_id"] for row in harness.jobs()} == {instance}


def test_a_silent_step_can_be_diverted_too(make) -> None:
    step = {"id": "v", "uses": "a", "on_events": {"ductile.step.succeeded": ["b"]}}
    harness = make(pipeline(step, C))
    harness.start("p", {})
    assert harness.run() == ["v", "v@b"]


def test_a_loop_ends_dead_with_its_reason_and_nothing_else_stops(make) -> None:
    loop = {"id": "loop", "uses": "b", "on_events": {"again": ["loop"]}}
    first = {"uses": "a", "on_events": {"again": ["loop"]}}
    harness = make(pipeline(first, loop, C, max_depth=6), pipeline(D, name="q", on="again"))
    harness.start("p", {})
    ran = harness.run(a=emits("again"), b=emits("again"))
    [dead] = harness.jobs(status="dead")
    assert dead["last_error"] == "step 7 of its pipeline exceeds max_depth 6"
    assert Counter(ran) == {"step_1": 1 + 6, "loop": 5}


@pytest.mark.parametrize(("step", "ran"), [(A, 21), ({"split": [A]}, 10)], ids=["step", "split"])
def test_a_loop_of_pipelines_ends_at_twenty_hops(make, step: dict[str, object], ran: int) -> None:
    harness = make(pipeline(step, on="ping"))
    harness.start("p", {})
    assert len(harness.run(a=emits("ping"))) == ran
    [dead] = harness.jobs(status="dead")
    assert (dead["hops"], dead["last_error"]) == (21, "hop 21 exceeds the limit of 20")


@pytest.mark.parametrize("depth", [30, 0], ids=["explicit", "unlimited"])
def test_an_explicit_depth_raises_the_hops_of_its_own_pipeline(make, depth: int) -> None:
    harness = make(pipeline(*[A] * 30, max_depth=depth))
    harness.start("p", {})
    assert len(harness.run()) == 30


def test_every_split_that_is_entered_is_a_hop(make) -> None:
    harness = make(pipeline(*[{"split": [A]} for _ in range(30)], max_depth=5))
    harness.start("p", {})
    assert len(harness.run()) == 4
    [dead] = harness.jobs(status="dead")
    assert (dead["last_error"], dead["hops"]) == ("step 6 of its pipeline exceeds max_depth 5", 5)
    depths = [context["ductile"]["route_depth"] for context in harness.contexts().values()]
    assert sorted(depths) == [0, 2, 3, 4, 5]


def test_splits_inside_splits_join_inside_out(make) -> None:
    inner = {"id": "in", "split": [A, B]}
    outer = {"id": "out", "split": [{"steps": [C, inner, D]}, inner | {"id": "in2"}]}
    harness = make(pipeline(outer, A))
    harness.start("p", {})
    harness.run()
    branches = harness.entered("step_1")["branches"]
    assert [(entry["branch"], entry["step"]) for entry in branches] == [
        ("0", "out.0.step_2"),
        ("in2", "out.1.in2.0.step_1"),
        ("in2", "out.1.in2.1.step_1"),
    ]


def test_split_directly_after_a_split_runs_once(make) -> None:
    first, second = {"id": "one", "split": [A, B]}, {"id": "two", "split": [C]}
    harness = make(pipeline({"id": "out", "split": [{"steps": [first, second]}]}, D))
    harness.start("p", {})
    harness.run()
    [entry] = harness.entered("step_1")["branches"]
    assert entry["step"] == "out.0.two.0.step_1"
    entered = harness.entered("out.0.two.0.step_1")["branches"]
    assert [entry["step"] for entry in entered] == ["out.0.one.0.step_1", "out.0.one.1.step_1"]


def test_targets_of_on_events_belong_to_the_split(make) -> None:
    split = {"id": "s", "split": [{"uses": "a", "on_events": {"x": ["late"]}}]}
    harness = make(pipeline(split, B, {"id": "late", "uses": "c"}))
    harness.start("p", {})
    harness.run(a=emits("x"))
    [entry] = harness.entered("step_1")["branches"]
    assert (entry["branch"], entry["step"]) == ("0", "late")


def test_routed_jobs_do_not_belong_to_the_split(make) -> None:
    other = pipeline(D, name="q", on="x")
    harness = make(pipeline({"split": [A]}, B), other, routes=(Route("a", "x", "d"),))
    harness.start("p", {})
    harness.run(a=emits("x"), d=FINAL)
    assert harness.entered("step_2")["failed"] == 0
    [routed] = [row for row in harness.jobs(plugin="d") if row["scope_id"] is None]
    split = harness.job("step_1.0.step_1")
    assert (routed["pipeline"], routed["entered_context_id"]) == ("", split["event_context_id"])


def test_branches_do_not_merge_their_baggage(make) -> None:
    split = {"split": [{**A, "baggage": {"x": "payload.x"}}, {**B, "baggage": {"x": "payload.y"}}]}
    harness = make(pipeline({**C, "baggage": {"kept": "payload.x"}}, split, D))
    harness.start("p", {"x": 1, "y": 2})
    harness.run()
    own = harness.contexts()[harness.job("step_3")["event_context_id"]]
    assert (own["kept"], "x" in own) == (1, False)


def test_the_origin_of_a_chain_stays_through_other_pipelines(make) -> None:
    harness = make(pipeline(A, B, name="one", on="go"), pipeline(C, D, name="two", on="y"))
    harness.start("one", {})
    harness.run(b=emits("y"))
    origins = [context["ductile"]["origin"] for context in harness.contexts().values()]
    assert len(origins) == 6
    assert all(origin == origins[0] for origin in origins)
    assert (origins[0]["event_type"], origins[0]["submitted_by"]) == ("go", SubmittedBy.API)


def run_in_any_order(harness: Runs, seed: int, body: dict[str, object]) -> list[str]:
    """Run jobs until none is ready, several at a time; returns their steps, sorted."""
    chance, claimed, ran = random.Random(seed), [], []
    while True:
        while len(claimed) < 4 and (one := harness.take()) is not None:
            claimed.append(one)
        if not claimed:
            return sorted(ran)
        one = claimed.pop(chance.randrange(len(claimed)))
        ran.append(one.job.step_path)
        harness.end(one, body)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(steps_strategy(), st.integers(0, 1000), st.integers(0, 3), st.integers(0, 2))
def test_any_pipeline_runs_to_its_end_with_exact_lineage_in_any_order(
    make, steps: list[dict[str, object]], seed: int, n: int, events: int
) -> None:
    found = compile_pipelines([pipeline(*steps, max_depth=0)], PLUGINS)
    assert isinstance(found, Compiled)
    longest = found.pipelines["p"].longest
    harness = make(pipeline(*steps))
    # The limits that would have been worked out are the ones that must never be in the way.
    unset = replace(found.pipelines["p"], author_depth=None)
    router = build_router((), Compiled({"p": unset}))
    harness.tx_config = replace(harness.tx_config, router=router)
    harness.rules = replace(harness.rules, router=router)
    body = {"status": "ok", "events": [{"type": "x", "payload": {"n": n}}] * events, "result": 1}
    instances, orders = [], []
    for order in (seed, seed + 1):
        instances.append(harness.start("p", {"n": n}))
        orders.append(run_in_any_order(harness, order, body))
        assert harness.scope(instances[-1]) == "ended"
    assert orders[0] == orders[1]
    assert {row["status"] for row in harness.jobs()} == {"succeeded"}
    rows = harness.contexts_and_parents()
    ours = [row for row in rows if row[1]["ductile"]["pipeline_instance_id"] in instances]
    assert longest is not None
    assert max(own["ductile"]["route_depth"] for _, own, _ in ours) <= longest
    for _, own, above in ours:
        for key, value in above.items():
            if key == "ductile":
                assert own[key]["origin"] == value["origin"]
            else:
                assert are_equal(own[key], value)
