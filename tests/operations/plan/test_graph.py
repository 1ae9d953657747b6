"""The edges that a plan predicts are the ways that events take after the reload."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from ductile.core.pipelines.graph import Node, NodeKind
from ductile.core.pipelines.intents import Routing, SpawnJob
from ductile.core.pipelines.lineage import Done
from ductile.core.pipelines.router import Router
from ductile.core.pipelines.step_io import SWITCH_FALSE, SWITCH_TRUE
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.model import Event
from ductile.operations.plan.graph import compare_graphs, list_edges
from ductile.operations.plan.jobs import JobRules, QueuedGroup, compare_jobs
from tests.conftest import FakeClock
from tests.engine.site import OK, Site

PLUGINS = ("a", "b", "c")
EVENTS = ("new", "old")
NOON = datetime(2026, 2, 8, 12, tzinfo=UTC)


def change_at_random(site: Site, random: Random) -> None:
    """Write other routes and pipelines."""
    site.settings["routes"] = [
        {"from": source, "event_type": event, "to": random.choice(PLUGINS)}
        for source in PLUGINS
        for event in EVENTS
        if random.random() < 0.4
    ]
    site.settings["pipelines"] = [
        {
            "name": name,
            "on": random.choice(EVENTS),
            **({"from_plugin": random.choice(PLUGINS)} if random.random() < 0.5 else {}),
            "steps": make_steps(random),
        }
        for name in ("one", "two", "three")
        if random.random() < 0.7
    ]


def make_steps(random: Random) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    for id in ("x", "y", "z"):
        steps.append({"id": id, "uses": random.choice(PLUGINS)})
        if random.random() < 0.3:
            steps[-1]["if"] = {"path": "payload.n", "op": "gt", "value": random.randint(0, 1)}
    return random.sample(steps, random.randint(1, 3))


def actual_edges(router: Router) -> Iterator[tuple[str, str, str]]:
    """Every way that an event of a job takes: from a plugin, or from a step to the next one."""
    for event in EVENTS:
        for plugin in PLUGINS:
            for job in route(router, Done("j", plugin, "api", 0, {}), event).jobs():
                target = f"{job.pipeline}/{job.step_path}" if job.pipeline else job.plugin
                yield plugin, event, target
        for pipeline in router.pipelines.values():
            for node in pipeline.nodes.values():
                for job in onward(router, node):
                    yield f"{pipeline.name}/{node.path}", "", f"{job.pipeline}/{job.step_path}"


def onward(router: Router, node: Node) -> Iterator[SpawnJob]:
    """The jobs of its pipeline that an event of a step's job starts."""
    done = Done("j", node.plugin, "api", 0, {}, node.pipeline, node.path)
    types = (SWITCH_TRUE, SWITCH_FALSE) if node.kind is NodeKind.SWITCH else EVENTS
    for type in types:
        for intent in route(router, done, type).intents:
            # Its event starts pipelines as well, as that of any job of the plugin.
            if isinstance(intent, SpawnJob) and intent.pipeline:
                yield intent


def route(router: Router, done: Done, type: str) -> Routing:
    return router.route(done, [Event(type, {}, None, done.plugin, NOON, "e")])


def predicted_ways(edges: set[str]) -> Iterator[tuple[str, str, str]]:
    """The same, from the edges of a plan."""
    for edge in edges:
        start, _, rest = edge.partition(" --")
        event, _, target = rest.rpartition("--> ")
        for source in PLUGINS if start == "*" else (start,):
            yield source, "" if "/" in source else event, target


@pytest.mark.parametrize("seed", range(3))
def test_predicted_edges_are_taken_after_random_changes(site: Site, seed: int) -> None:
    random = Random(seed)
    for name in PLUGINS:
        site.plugin(name, OK)
    with site.opened(clock=FakeClock()) as running:
        gateway = running.gateway
        for _ in range(6):
            before = gateway.compiled.tx_config.router
            change_at_random(site, random)
            built = build(site.load(), boot_marker="", environ=site.environ)
            found = compare_graphs(gateway.compiled, built)
            edges = set(list_edges(before)) - set(found["edges_removed"])
            edges |= set(found["edges_added"])
            gateway.reload()
            actual = set(actual_edges(gateway.compiled.tx_config.router))
            assert actual == set(predicted_ways(edges))


def follow(router: Router, node: Node) -> set[object]:
    """Everything that a job of this step leads to, but for pipelines that its events start."""
    found = set[object]()
    rest = [node]
    for step in rest:
        place = (step.pipeline, step.path)
        if place in found:
            continue
        found |= {place, (*place, str(step.condition))}
        for job in onward(router, step):
            found.add((*place, job.step_path, job.plugin))
            following = router.node(job.pipeline, job.step_path)
            assert following is not None
            rest.append(following)
    done = Done("j", node.plugin, "api", 0, {})
    routed = [job for event in EVENTS for job in route(router, done, event).jobs()]
    return found | {("route", job.event.type, job.plugin) for job in routed if not job.pipeline}


def rules_of(compiled: CompiledConfig) -> JobRules:
    return JobRules(compiled, unready={}, removed={}, elsewhere=())


@pytest.mark.parametrize("seed", range(3))
def test_queued_jobs_are_followed_by_other_steps_exactly_where_predicted(
    site: Site, seed: int
) -> None:
    random = Random(seed)
    for name in PLUGINS:
        site.plugin(name, OK)
    effects = set[str | None]()
    for _ in range(8):
        change_at_random(site, random)
        old = build(site.load(), boot_marker="", environ=site.environ)
        kept = deepcopy(site.settings)
        change_at_random(site, random)
        for name in ("routes", "pipelines"):
            if random.random() < 0.5:
                site.settings[name] = kept[name]
        for pipeline in site.settings["pipelines"]:
            if random.random() < 0.5:
                pipeline["steps"][-1]["uses"] = random.choice(PLUGINS)
        new = build(site.load(), boot_marker="", environ=site.environ)
        before, after = old.tx_config.router, new.tx_config.router
        for pipeline in before.pipelines.values():
            for path, node in pipeline.nodes.items():
                group = QueuedGroup(
                    node.plugin, node.command, pipeline.name, path, None, False, 1, "example"
                )
                rows = compare_jobs([group], rules_of(old), rules_of(new))
                now = after.node(pipeline.name, path)
                expected = None
                if now is None or now.plugin != node.plugin:
                    expected = "fails"
                elif follow(before, node) != follow(after, now):
                    expected = "routed differently"
                assert [row["effect"] for row in rows] == ([] if expected is None else [expected])
                effects.add(expected)
    assert effects == {None, "fails", "routed differently"}
