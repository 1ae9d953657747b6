from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from ductile.core.pipelines.baggage import root_context
from ductile.core.pipelines.build_router import build_router
from ductile.core.pipelines.compiler.compile import compile_pipelines
from ductile.core.pipelines.hooks import RootEnd
from ductile.core.pipelines.intents import JoinStep, OpenScope, Routing, SpawnJob, StartPipeline
from ductile.core.pipelines.lineage import Done, SplitScope
from ductile.core.pipelines.pipeline import Compiled
from ductile.core.pipelines.router import Router
from ductile.core.pipelines.routes import Routes, compile_routes
from ductile.model import Event, JobStatus, SubmittedBy
from tests.core.pipelines.compiler.test_compile import PLUGINS

NOW = datetime(2026, 2, 8, 10, tzinfo=UTC)
A, B, C, D = ({"uses": name} for name in "abcd")


def pipeline(*steps, name="p", on="go", **keys):
    return {"name": name, "on": on, "steps": list(steps), **keys}


def router(*pipelines, routes=(), max_hops=20, plugins=PLUGINS) -> Router:
    compiled = compile_pipelines(pipelines, plugins, max_hops=max_hops)
    assert isinstance(compiled, Compiled), [str(problem) for problem in compiled]
    found = compile_routes(routes, plugins)
    assert isinstance(found, Routes), found
    return build_router(found.routes, compiled, max_hops)


def event(type_="go", payload=None, source="a", id_="e1", key=None) -> Event:
    return Event(type_, {} if payload is None else payload, key, source, NOW, id_)


def done(path="", pipeline_="p", context=None, hops=0, plugin="a", branch="") -> Done:
    return Done(
        job_id="j1",
        plugin=plugin,
        submitted_by="scheduler",
        hops=hops,
        context=context or {},
        pipeline=pipeline_ if path else "",
        step_path=path,
        branch=branch,
    )


def context(depth=1, limit=5):
    root = root_context(instance_id="i", max_depth=limit, origin={"plugin": "first"})
    return {**root, "ductile": {**root["ductile"], "route_depth": depth}}


def test_the_next_step_follows_once_for_each_event():
    routing = router(pipeline(A, B)).route(
        done("step_1", context=context()), (event("x"), event("y", id_="e2"))
    )
    assert [(job.plugin, job.event.event_id) for job in routing.jobs()] == [
        ("b", "e1"),
        ("b", "e2"),
    ]
    first = next(routing.jobs())
    assert (first.pipeline, first.step_path, first.parent_job_id, first.hops) == (
        "p",
        "step_2",
        "j1",
        1,
    )
    assert first.submitted_by is SubmittedBy.ROUTE


def test_the_last_step_leads_nowhere():
    assert router(pipeline(A)).route(done("step_1"), (event("x"),)).intents == ()


def test_steps_inherit_no_dedupe_key_and_first_steps_do():
    table = router(pipeline(A, B), pipeline(C, name="q", on="x"))
    spawned = list(table.route(done("step_1"), (event("x", key="k"),)).jobs())
    assert [(job.plugin, job.dedupe_key) for job in spawned] == [("b", None), ("c", "k")]


def test_step_that_a_reload_removed_is_reported():
    routing = router(pipeline(A)).route(done("gone"), (event("x"),))
    assert (routing.intents, routing.unrouted[0].reason) == (
        (),
        "step gone no longer exists in pipeline p",
    )


def test_a_split_opens_a_scope_for_each_event_that_enters_it():
    table = router(pipeline(A, {"id": "s", "split": [B, {"id": "x", "uses": "c"}]}, D))
    routing = table.route(done("step_1", hops=3), (event("x"), event("y", id_="e2")))
    assert [type(intent) for intent in routing.intents] == [OpenScope, OpenScope]
    scope = routing.intents[0]
    assert isinstance(scope, OpenScope)
    assert (scope.pipeline, scope.split, scope.branch, scope.parent_job_id, scope.hops) == (
        "p",
        "s",
        "",
        "j1",
        5,
    )
    children = [child for child in scope.children if isinstance(child, SpawnJob)]
    assert [(child.step_path, child.branch, child.hops) for child in children] == [
        ("s.0.step_1", "0", 5),
        ("s.1.x", "x", 5),
    ]


SPLIT = {"id": "s", "split": [A, B]}


def entered(*steps) -> OpenScope:
    """The scope of a pipeline's first split."""
    start = router(pipeline(*steps)).start("p", event(), submitted_by=SubmittedBy.API)
    assert start is not None
    (scope,) = start.children
    assert isinstance(scope, OpenScope)
    return scope


def joined(table: Router, join: JoinStep | None, split="s"):
    scope = SplitScope("p", split, "", None, 0, {}, join)
    return table.join(scope, [], now=NOW, event_id="e")


def test_a_split_remembers_the_step_that_follows_it():
    assert entered(SPLIT, C).join == JoinStep("step_1", "c", "handle")
    assert entered(SPLIT).join == JoinStep()
    second = {"id": "t", "split": [C]}
    assert entered(SPLIT, second).join == JoinStep("t", "", "handle")


def test_join_is_the_step_that_followed_the_split_when_it_was_entered():
    join = entered(SPLIT, {"id": "j", "uses": "c"}).join
    renamed = router(pipeline({"id": "other", "split": [A]}, D, {"id": "j", "uses": "c"}))
    assert [(job.plugin, job.step_path) for job in joined(renamed, join).jobs()] == [("c", "j")]


def test_nothing_follows_a_split_that_nothing_followed_when_it_was_entered():
    assert joined(router(pipeline(SPLIT, C)), entered(SPLIT).join) == Routing()


@pytest.mark.parametrize(
    "now",
    [
        pytest.param([pipeline(A)], id="step gone"),
        pytest.param([pipeline(A, name="q")], id="pipeline gone"),
        pytest.param([pipeline(SPLIT, {"id": "j", "uses": "d"})], id="another plugin"),
        pytest.param([pipeline(SPLIT, {"id": "j", "uses": "c.poll"})], id="another command"),
        pytest.param([pipeline(A, {"id": "j", "split": [C]})], id="a split"),
    ],
)
def test_join_whose_step_is_lost_is_created_and_reported_by_its_claim(now):
    table = router(*now)
    (job,) = joined(table, entered(SPLIT, {"id": "j", "uses": "c"}).join).jobs()
    assert (job.pipeline, job.step_path, job.plugin, job.command) == ("p", "j", "c", "handle")
    assert table.lost("p", "j", "c", "handle") is not None


def test_lost_join_that_is_a_split_is_reported():
    routing = joined(router(pipeline(A, C)), entered(SPLIT, {"id": "t", "split": [C]}).join)
    assert routing.intents == ()
    assert [item.reason for item in routing.unrouted] == ["step t no longer exists in pipeline p"]


def test_scope_without_recorded_join_continues_with_the_current_step():
    table = router(pipeline(SPLIT, C))
    assert [job.plugin for job in joined(table, None).jobs()] == ["c"]
    for lost in ("gone", "step_1"):
        routing = joined(table, None, split=lost)
        assert (routing.intents, len(routing.unrouted)) == ((), 1)


def test_a_job_is_lost_whose_step_is_gone_or_is_another_by_now():
    table = router(pipeline(A, {"id": "s", "split": [B]}))
    assert table.lost("p", "step_1", "a", "handle") is None
    assert table.lost("p", "x", "a", "handle") == "step x no longer exists in pipeline p"
    assert table.lost("q", "x", "a", "handle") == "step x no longer exists in pipeline q"
    other = "step step_1 of pipeline p is now a.handle, not a.poll"
    assert table.lost("p", "step_1", "a", "poll") == other
    assert (
        table.lost("p", "s", "a", "handle") == "step s of pipeline p is now a split, not a.handle"
    )


def test_default_limit_does_not_hold_for_a_pipeline_that_has_grown():
    start = router(pipeline(A, B)).start("p", event(), submitted_by=SubmittedBy.API)
    assert start is not None
    late = {**start.context("i")}
    late["ductile"] = {**late["ductile"], "route_depth": 2}
    grown = router(pipeline(A, B, C))
    (job,) = grown.route(done("step_2", context=late, hops=1), (event("x"),)).jobs()
    assert (job.plugin, job.dead) == ("c", None)


def test_routes_fan_out_by_exact_plugin_and_type():
    routes = [
        {"from": "a", "event_type": "x", "to": "b"},
        {"from": "a", "event_type": "x", "to": "c"},
        {"from": "a", "event_type": "x.y", "to": "d"},
        {"from": "b", "event_type": "x", "to": "d"},
    ]
    routing = router(routes=routes).route(done(), (event("x", key="k"),))
    assert [(job.plugin, job.command, job.pipeline, job.dedupe_key) for job in routing.jobs()] == [
        ("b", "handle", "", "k"),
        ("c", "handle", "", "k"),
    ]


def test_an_event_starts_the_pipelines_whose_on_it_is():
    condition = {"path": "payload.n", "op": "gt", "value": 5}
    table = router(
        pipeline(A, name="any", on="x"),
        pipeline(A, name="mine", on="x", from_plugin="a"),
        pipeline(A, name="others", on="x", from_plugin="b"),
        pipeline(A, name="picky", on="x", **{"if": condition}),
        pipeline(A, name="else", on="y"),
    )
    routing = table.route(done(plugin="a"), (event("x", {"n": 1}),))
    assert [i.pipeline for i in routing.intents if isinstance(i, StartPipeline)] == ["any", "mine"]
    assert [(u.pipeline, u.reason) for u in routing.unrouted] == [
        ("picky", "its `if` payload.n gt 5 is false: payload.n is 1, a number")
    ]


def test_pipelines_own_if_can_read_the_emitters_context_and_may_fail():
    condition = {"path": "context.tier", "op": "eq", "value": "W"}
    slow = {"path": "payload.x", "op": "regex", "value": "a*"}
    table = router(
        pipeline(A, name="condition", on="x", **{"if": condition}),
        pipeline(A, name="slow", on="x", **{"if": slow}),
    )
    source = done(context={**context(), "tier": "W"})
    routing = table.route(source, (event("x", {"x": "a" * 2_000_000}),))
    assert [i.pipeline for i in routing.intents if isinstance(i, StartPipeline)] == ["condition"]
    assert "too long for regex" in routing.unrouted[0].reason


def test_an_instance_has_a_root_context_with_its_origin():
    table = router(pipeline(A, B, on="x"))
    (start,) = table.route(done(hops=2), (event("x"),)).intents
    assert isinstance(start, StartPipeline)
    (job,) = start.children
    assert isinstance(job, SpawnJob)
    assert (job.hops, job.parent_job_id) == (3, "j1")
    assert start.context("i9") == {
        "ductile": {
            "pipeline_instance_id": "i9",
            "route_depth": 0,
            "route_max_depth": 2,
            "route_max_depth_computed": True,
            "route_first_hop": 3,
            "origin": {
                "plugin": "a",
                "event_type": "x",
                "event_id": "e1",
                "job_id": "j1",
                "submitted_by": "scheduler",
            },
        }
    }


def test_external_event_goes_to_plugin_routes_and_pipelines():
    routes = [
        {"from": "a", "event_type": "webhook.github", "to": "b"},
        {"from": "a", "event_type": "webhook.github", "to": "a"},
    ]
    table = router(pipeline(C, on="webhook.github"), routes=routes)
    arrived = event("webhook.github", key="d1")
    routing = table.arrive(
        arrived, plugin="a", submitted_by=SubmittedBy.WEBHOOK, baggage={"trace": "t"}
    )
    jobs = list(routing.jobs())
    assert [job.plugin for job in jobs] == ["a", "b", "c"]
    assert {(job.parent_job_id, job.hops, job.dedupe_key) for job in jobs} == {(None, 0, "d1")}
    assert {job.submitted_by for job in jobs} == {SubmittedBy.WEBHOOK}
    start = routing.intents[-1]
    assert isinstance(start, StartPipeline)
    assert start.context("i")["trace"] == "t"


def test_a_pipeline_by_name_starts_whatever_its_conditions():
    table = router(pipeline(A, **{"if": {"path": "payload.x", "op": "exists"}}))
    start = table.start("p", event("go", key="k"), submitted_by=SubmittedBy.API)
    assert start is not None
    (job,) = start.children
    assert isinstance(job, SpawnJob)
    assert (job.submitted_by, job.dedupe_key) == (SubmittedBy.API, "k")
    assert table.start("nope", event(), submitted_by=SubmittedBy.API) is None


def hook(name, signal, *steps, **keys):
    return {"name": name, "on-hook": signal, "steps": list(steps), **keys}


def end(**more) -> RootEnd:
    given = {
        "job_id": "j1",
        "plugin": "a",
        "command": "poll",
        "status": JobStatus.DEAD,
        "submitted_by": "scheduler",
        "attempt": 4,
        "error": "boom",
        "duration_ms": 1.0,
    }
    return RootEnd(**(given | more))


def test_a_root_jobs_end_starts_hook_pipelines_as_roots():
    succeeded = {"path": "payload.status", "op": "eq", "value": "succeeded"}
    table = router(
        hook("done", "job.completed", A, B),
        hook("failed", "job.failed", A, from_plugin="a"),
        hook("others", "job.failed", A, from_plugin="b"),
        hook("picky", "job.completed", A, **{"if": succeeded}),
        hook("late", "job.timed_out", A),
    )
    routing = table.hooks(end(), now=NOW, event_ids=["e1", "e2", "e3"])
    starts = [intent for intent in routing.intents if isinstance(intent, StartPipeline)]
    assert [start.pipeline for start in starts] == ["done", "failed"]
    for start in starts:
        (job,) = start.children
        assert isinstance(job, SpawnJob)
        assert (job.parent_job_id, job.hops, job.submitted_by) == (None, 0, SubmittedBy.HOOK)
        assert job.event.payload["error"] == "boom"
        assert start.origin["job_id"] == "j1"
    assert [unrouted.pipeline for unrouted in routing.unrouted] == ["picky"]


def test_a_hook_never_triggers_a_hook():
    table = router(hook("h", "job.completed", A))
    assert table.hooks(end(submitted_by="hook"), now=NOW, event_ids=["e"]).intents == ()


def test_an_event_named_like_a_hook_starts_no_hook_pipeline():
    table = router(hook("h", "job.failed", A))
    assert table.route(done(), (event("job.failed"),)).intents == ()


class LookupsOnly(Mapping):
    """Counts look-ups, and refuses to be walked through."""

    def __init__(self, entries: Mapping) -> None:
        self.entries, self.lookups = entries, 0

    def __getitem__(self, key):
        self.lookups += 1
        return self.entries[key]

    def __iter__(self):
        raise AssertionError("routing iterates over an index")

    def __len__(self) -> int:
        raise AssertionError("routing measures an index")


def test_routing_cost_does_not_grow_with_the_number_of_routes():
    def lookups(count: int) -> list[int]:
        plugins = {f"p{n}": frozenset({"handle"}) for n in range(count)}
        table = router(
            *[pipeline(*[{"uses": f"p{n}"}] * 2, name=f"l{n}", on=f"on.{n}") for n in range(count)],
            routes=[
                {"from": f"p{n}", "event_type": f"route.{n}", "to": f"p{n}"} for n in range(count)
            ],
            plugins=plugins,
        )
        names = ("pipelines", "routes", "triggers", "hook_triggers")
        indexes = {name: LookupsOnly(getattr(table, name)) for name in names}
        events = (event("on.5"), event("route.5"), event("nobody"))
        ended = done("step_1", pipeline_="l5", plugin="p5")
        routed = replace(table, **indexes).route(ended, events)
        # To the next step, to another pipeline, along a route.
        assert [type(one) for one in routed.intents] == [SpawnJob, StartPipeline, SpawnJob]
        return [index.lookups for index in indexes.values()]

    assert lookups(100) == lookups(10)


def test_a_pipeline_with_schedules_only_is_started_by_no_event():
    raw = {"name": "p", "schedules": [{"every": "1h"}], "steps": [{"uses": "a"}]}
    found = router(raw)
    arrived = found.arrive(event(""), plugin=None, submitted_by=SubmittedBy.WEBHOOK)
    assert arrived.intents == ()
    assert found.start("p", event(), submitted_by=SubmittedBy.SCHEDULER) is not None


def test_an_external_event_starts_its_pipeline_once():
    found = router(pipeline({"uses": "a"}), pipeline({"uses": "b"}, name="other"))
    given = {"plugin": None, "submitted_by": SubmittedBy.WEBHOOK}
    named = found.arrive(event(), pipeline="other", **given).intents
    assert [intent.pipeline for intent in named if isinstance(intent, StartPipeline)] == [
        "other",
        "p",
    ]
