"""Whole pipelines, run through the simulate in memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ductile.core.pipelines.build_router import build_router
from ductile.core.pipelines.compiler.compile import compile_pipelines
from ductile.core.pipelines.pipeline import Compiled
from ductile.core.values.json_values import are_equal
from ductile.model import JobStatus
from tests.core.pipelines.compiled import NOW, Answer, Simulation
from tests.core.pipelines.compiler.test_compile import PLUGINS
from tests.core.pipelines.test_router import A, B, C, D, end, hook, pipeline, router


def simulate(*pipelines, seed=0, routes=(), max_hops=20, **plugins) -> Simulation:
    silent = {name: lambda payload, context: Answer() for name in PLUGINS}
    return Simulation(
        router(*pipelines, routes=routes, max_hops=max_hops), {**silent, **plugins}, seed
    )


def emits(*events, result="done"):
    return lambda payload, context: Answer([(type_, {"e": type_}) for type_ in events], result)


def fails(payload, context):
    return Answer(fails=True)


def test_steps_run_in_order_with_the_previous_result():
    run = simulate(pipeline(A, B, C), a=emits("made", result="one"))
    run.start("p", {"x": 1})
    assert run.ran() == ["step_1", "step_2", "step_3"]
    assert run.job("step_2").column["payload"] == {"e": "made", "result": "one"}
    assert run.job("step_3").column["payload"] == {"e": "made", "result": "done"}
    assert run.job("step_3").column["type"] == "ductile.step.succeeded"


def test_steps_after_a_call_run_and_share_the_context():
    inner = pipeline({**B, "baggage": {"found": "payload.x"}}, name="inner", on="i")
    run = simulate(
        inner, pipeline(A, {"call": "inner"}, {"uses": "c", "with": {"f": "{context.found}"}})
    )
    run.start("p", {"x": 7})
    assert run.job("step_3").seen["f"] == 7


def test_with_or_baggage_that_fails_fails_its_own_step_and_no_other():
    run = simulate(pipeline(A, {"uses": "b", "with": {"x": "{payload.gone}"}}, C))
    run.start("p", {})
    assert run.ran() == ["step_1"]
    assert run.job("step_2").status is JobStatus.FAILED
    assert run.job("step_2").error == "with: payload.gone does not exist"


@pytest.mark.parametrize(
    ("x", "ran"), [(1, ["s", "s__switch", "step_1"]), (2, ["s__switch", "step_1"])]
)
def test_a_false_if_continues_with_the_next_step(x, ran):
    condition = {"path": "payload.x", "op": "eq", "value": 1}
    run = simulate(pipeline({"id": "s", "uses": "a", "if": condition}, B))
    run.start("p", {"x": x})
    assert run.ran() == ran
    switch, last = run.job("s__switch"), run.job("step_1")
    assert (switch.spawn.plugin, switch.result["matched"]) == ("core.switch", x == 1)
    assert last.spawn.parent_job_id == (run.job("s").id if x == 1 else switch.id)
    assert last.column["payload"]["x"] == x
    assert last.spawn.hops == len(ran) - 1


def test_an_if_on_a_split_or_call_skips_all_of_it():
    no = {"path": "payload.x", "op": "exists"}
    inner = pipeline(A, name="inner", on="i")
    steps = [{"split": [A, B], "if": no}, {"call": "inner", "if": no}, C]
    run = simulate(inner, pipeline(*steps))
    run.start("p", {})
    assert run.ran() == ["step_1__switch", "step_2__switch", "step_3"]


def test_listed_event_goes_to_its_targets_instead_of_the_next_step():
    steps = [
        {"id": "v", "uses": "check", "on_events": {"bad": ["fix", "notify"], "worse": ["other"]}},
        {"id": "fix", "steps": [B, C]},
        {"id": "end", "uses": "d"},
    ]
    other = pipeline(A, A, name="other", on="o")
    bad = simulate(pipeline(*steps), other, check=emits("bad"))
    bad.start("p", {})
    assert bad.ran() == ["fix.step_1", "fix.step_2", "v", "v@notify"]
    good = simulate(pipeline(*steps), other, check=emits("good"))
    good.start("p", {})
    assert good.ran() == ["end", "v"]
    both = simulate(pipeline(*steps), other, check=emits("good", "worse", "good"))
    both.start("p", {})
    assert both.ran() == ["end", "end", "step_1", "step_2", "v"]
    assert {row.spawn.pipeline for row in both.jobs.values()} == {"p", "other"}
    assert {row.scope for row in both.jobs.values()} == {next(iter(both.scopes))}


def test_a_silent_step_can_be_diverted_too():
    step = {"id": "v", "uses": "a", "on_events": {"ductile.step.succeeded": ["b"]}}
    run = simulate(pipeline(step, C))
    run.start("p", {})
    assert run.ran() == ["v", "v@b"]


def test_a_loop_ends_dead_with_its_reason_and_nothing_else_stops():
    loop = {"id": "loop", "uses": "b", "on_events": {"again": ["loop"]}}
    first = {"uses": "a", "on_events": {"again": ["loop"]}}
    run = simulate(
        pipeline(first, loop, C, max_depth=6), pipeline(D, name="q", on="again"),
        a=emits("again"), b=emits("again"),
    )  # fmt: skip
    run.start("p", {})
    dead = [row for row in run.jobs.values() if row.status is JobStatus.DEAD]
    assert [row.error for row in dead] == ["step 7 of its pipeline exceeds max_depth 6"]
    assert Counter(run.ran()) == {"step_1": 1 + 6, "loop": 5}


def test_a_loop_of_routes_ends_at_twenty_hops():
    routes = [
        {"from": "a", "event_type": "ping", "to": "b"},
        {"from": "b", "event_type": "ping", "to": "a"},
    ]
    run = simulate(routes=routes, a=emits("ping"), b=emits("ping"))
    run.arrive("start", {}, plugin="a")
    dead = [row for row in run.jobs.values() if row.status is JobStatus.DEAD]
    assert [(row.spawn.hops, row.error) for row in dead] == [(21, "hop 21 exceeds the limit of 20")]
    assert len(run.ran()) == 21


def test_a_loop_of_pipelines_ends_at_twenty_hops():
    run = simulate(pipeline(A, on="ping"), a=emits("ping"))
    run.arrive("ping", {})
    assert [row.error for row in run.jobs.values() if row.error] == [
        "hop 21 exceeds the limit of 20"
    ]
    assert len(run.scopes) == 22


def test_an_explicit_depth_raises_the_hops_of_its_own_pipeline():
    run = simulate(pipeline(*[A] * 30, max_depth=30))
    run.start("p", {})
    assert len(run.ran()) == 30
    unlimited = simulate(pipeline(*[A] * 30, max_depth=0))
    unlimited.start("p", {})
    assert len(unlimited.ran()) == 30


def test_every_split_that_is_entered_is_a_hop():
    run = simulate(pipeline(*[{"split": [A]} for _ in range(30)], max_depth=5))
    run.start("p", {})
    (dead,) = [row for row in run.jobs.values() if row.status is JobStatus.DEAD]
    assert (dead.error, dead.spawn.hops) == ("step 6 of its pipeline exceeds max_depth 5", 5)
    assert len(run.ran()) == 4
    depths = [row.accumulated["ductile"]["route_depth"] for row in run.contexts.values()]
    assert sorted(depths) == [0, 2, 3, 4, 5]


def test_splits_of_pipelines_that_start_each_other_end_at_twenty_hops():
    run = simulate(pipeline({"split": [A]}, on="ping"), a=emits("ping"))
    run.arrive("ping", {})
    assert [row.error for row in run.jobs.values() if row.error] == [
        "hop 21 exceeds the limit of 20"
    ]
    assert len(run.ran()) == 10


def test_the_step_after_a_split_runs_once_after_all_branches():
    steps = [
        A,
        {"id": "s", "split": [B, {"steps": [C, {"uses": "d"}]}]},
        {"id": "after", "uses": "a"},
    ]
    for seed in range(10):
        run = simulate(pipeline(*steps), seed=seed, d=emits("x", "y"))
        run.start("p", {"in": 1})
        after = run.job("after")
        payload = after.column["payload"]
        assert payload["failed"] == 0
        assert [
            (e["branch"], e["step"], e["status"], e["result"]) for e in payload["branches"]
        ] == [
            ("0", "s.0.step_1", "succeeded", "done"),
            ("1", "s.1.step_2", "succeeded", "done"),
        ]
        assert after.spawn.parent_job_id == run.job("step_1").id
        assert after.entering == run.job("step_1").own
        assert after.join_of is not None


def test_failed_branch_stops_the_chain_and_its_retry_completes_it_once():
    answers = iter([Answer(fails=True), Answer()])
    run = simulate(pipeline({"split": [A, B]}, C), b=lambda payload, context: next(answers))
    run.start("p", {})
    assert run.ran() == ["step_1.0.step_1"]
    assert {scope.state for scope in run.scopes.values()} == {"failed"}
    run.retry(run.job("step_1.1.step_1").id)
    assert run.ran() == ["step_1.0.step_1", "step_1.1.step_1", "step_2"]
    assert {scope.state for scope in run.scopes.values()} == {"ended"}


def test_join_always_continues_and_counts_the_failures():
    run = simulate(pipeline({"split": [A, B], "join": "always"}, C), b=fails)
    run.start("p", {})
    payload = run.job("step_2").column["payload"]
    assert payload["failed"] == 1
    assert [entry["status"] for entry in payload["branches"]] == ["succeeded", "dead"]


def test_splits_inside_splits_join_inside_out():
    inner = {"id": "in", "split": [A, B]}
    run = simulate(
        pipeline({"id": "out", "split": [{"steps": [C, inner, D]}, inner | {"id": "in2"}]}, A)
    )
    run.start("p", {})
    entries = run.job("step_1").column["payload"]["branches"]
    assert [(entry["branch"], entry["step"]) for entry in entries] == [
        ("0", "out.0.step_2"),
        ("in2", "out.1.in2.0.step_1"),
        ("in2", "out.1.in2.1.step_1"),
    ]


def test_split_directly_after_a_split_runs_once():
    first, second = {"id": "one", "split": [A, B]}, {"id": "two", "split": [C]}
    run = simulate(pipeline({"id": "out", "split": [{"steps": [first, second]}]}, D))
    run.start("p", {})
    entries = run.job("step_1").column["payload"]["branches"]
    assert [entry["step"] for entry in entries] == ["out.0.two.0.step_1"]
    entered = run.job("out.0.two.0.step_1").column["payload"]["branches"]
    assert [entry["step"] for entry in entered] == ["out.0.one.0.step_1", "out.0.one.1.step_1"]


def test_targets_of_on_events_belong_to_the_split():
    steps = [{"id": "s", "split": [{"uses": "a", "on_events": {"x": ["late"]}}]}, B]
    run = simulate(pipeline(*steps, {"id": "late", "uses": "c"}), a=emits("x"))
    run.start("p", {})
    entries = run.job("step_1").column["payload"]["branches"]
    assert [(entry["branch"], entry["step"]) for entry in entries] == [("0", "late")]


def test_routed_jobs_do_not_belong_to_the_split():
    routes = [{"from": "a", "event_type": "x", "to": "d"}]
    other = pipeline(D, name="q", on="x")
    run = simulate(pipeline({"split": [A]}, B), other, routes=routes, a=emits("x"), d=fails)
    run.start("p", {})
    assert run.job("step_2").column["payload"]["failed"] == 0
    routed = next(row for row in run.jobs.values() if row.spawn.plugin == "d" and not row.scope)
    assert (routed.spawn.pipeline, routed.entering) == ("", run.job("step_1.0.step_1").own)


def test_branches_do_not_merge_their_baggage():
    split = {"split": [{**A, "baggage": {"x": "payload.x"}}, {**B, "baggage": {"x": "payload.y"}}]}
    run = simulate(pipeline({**C, "baggage": {"kept": "payload.x"}}, split, D))
    run.start("p", {"x": 1, "y": 2})
    own = run.contexts[run.job("step_3").own or ""].accumulated
    assert (own["kept"], "x" in own) == (1, False)


def test_the_origin_of_a_chain_stays_through_other_pipelines():
    run = simulate(
        pipeline(A, B, name="one", on="x"), pipeline(C, D, name="two", on="y"),
        b=emits("y"),
    )  # fmt: skip
    run.arrive("x", {})
    origins = [row.accumulated["ductile"]["origin"] for row in run.contexts.values()]
    assert len(origins) == 6
    assert all(origin == origins[0] for origin in origins)
    assert (origins[0]["event_type"], origins[0]["submitted_by"]) == ("x", "webhook")


def test_hook_pipelines_run_all_their_steps_also_behind_an_if():
    condition = {"path": "payload.status", "op": "neq", "value": "succeeded"}
    run = simulate(hook("h", "job.failed", {"id": "s", **A, "if": condition}, B))
    for intent in run.router.hooks(end(), now=NOW, event_ids=["x1", "x2"]).intents:
        run.write(intent, None, None)
    run.run()
    assert run.ran() == ["s", "s__switch", "step_1"]


def steps_strategy() -> st.SearchStrategy[list[dict[str, object]]]:
    condition = {"path": "payload.n", "op": "gt", "value": 1}
    leaf = st.sampled_from("abcd").map(lambda name: {"uses": name})
    guarded = leaf.map(lambda step: {**step, "if": condition})

    def grow(inner: st.SearchStrategy[dict[str, object]]) -> st.SearchStrategy[dict[str, object]]:
        lists = st.lists(inner, min_size=1, max_size=3)
        return (
            lists.map(lambda steps: {"steps": steps})
            | lists.map(lambda steps: {"split": steps})
            | lists.map(lambda steps: {"split": steps, "if": condition})
        )

    return st.lists(st.recursive(leaf | guarded, grow, max_leaves=5), min_size=1, max_size=3)


@settings(max_examples=80, deadline=None)
@given(steps_strategy(), st.integers(0, 1000), st.integers(0, 3), st.integers(0, 2))
def test_any_pipeline_runs_to_its_end_with_exact_lineage_in_any_order(steps, seed, n, events):
    found = compile_pipelines([pipeline(*steps, max_depth=0)], PLUGINS)
    assert isinstance(found, Compiled)
    longest = found.pipelines["p"].longest
    # The limits that would have been worked out are the ones that must never be in the way.
    unset = replace(found.pipelines["p"], author_depth=None)
    plugins = {name: lambda payload, context: Answer([("x", {"n": n})] * events) for name in "abcd"}
    run = Simulation(build_router((), Compiled({"p": unset})), plugins, seed)
    run.start("p", {"n": n})
    assert {row.status for row in run.jobs.values()} == {JobStatus.SUCCEEDED}
    assert {scope.state for scope in run.scopes.values()} == {"ended"}
    splits = {scope.id for scope in run.scopes.values() if scope.opened is not None}
    assert run.joins == Counter(splits)
    depths = [row.accumulated["ductile"]["route_depth"] for row in run.contexts.values()]
    assert longest is not None
    assert max(depths) <= longest
    for row in run.contexts.values():
        if row.above is not None:
            above = run.contexts[row.above].accumulated
            assert row.accumulated["ductile"]["origin"] == above["ductile"]["origin"]
            for key, value in above.items():
                assert key == "ductile" or are_equal(row.accumulated[key], value)
    orders = Simulation(run.router, run.plugins, seed + 1)
    orders.start("p", {"n": n})
    assert orders.ran() == run.ran()
