"""Compiles `debounce` of pipelines, routes and webhook endpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ductile.config import Settings
from ductile.config.models.debounce import DebounceSettings
from ductile.core.flow.debounce import (
    DEFAULT_WAITS,
    Debounce,
    pipeline_target,
    route_target,
    webhook_target,
)
from ductile.core.flow.keys import FlowKey, compile_key
from ductile.core.pipelines.graph import NodeKind
from ductile.core.pipelines.pipeline import Pipeline
from ductile.errors import Path, Problem


def debounces_of(settings: Settings) -> Iterator[Debounce]:
    for pipeline in settings.pipelines:
        if pipeline.debounce is not None:
            yield _compile(pipeline_target(pipeline.name), pipeline.debounce)
    for route in settings.routes:
        if route.debounce is not None:
            yield _compile(route_target(route.from_, route.event_type, route.to), route.debounce)
    for endpoint in settings.webhooks.endpoints:
        if endpoint.debounce is not None:
            yield _compile(webhook_target(endpoint.path), endpoint.debounce)


def problems(settings: Settings, pipelines: Mapping[str, Pipeline]) -> Iterator[Problem]:
    """What can never be debounced: only one job can wait for a whole run."""
    debounced: list[tuple[Path, str | None]] = [
        (("pipelines", index, "debounce"), pipeline.name)
        for index, pipeline in enumerate(settings.pipelines)
        if pipeline.debounce is not None
    ]
    debounced += [
        (("webhooks", "endpoints", index, "debounce"), endpoint.pipeline)
        for index, endpoint in enumerate(settings.webhooks.endpoints)
        if endpoint.debounce is not None
    ]
    for at, name in debounced:
        found = None if name is None else pipelines.get(name)
        if found is not None and found.nodes[found.entry].kind is NodeKind.SPLIT:
            yield Problem(f"pipeline {name} starts with a split, which cannot be debounced", at)
    called = {endpoint.pipeline for endpoint in settings.webhooks.endpoints}
    for index, pipeline in enumerate(settings.pipelines):
        has_event = pipeline.on or pipeline.on_hook or pipeline.name in called
        if pipeline.debounce is not None and not has_event:
            message = "no event starts this pipeline; its schedules are not debounced"
            yield Problem(message, ("pipelines", index, "debounce"))


def _compile(target: str, debounce: DebounceSettings) -> Debounce:
    key = None if debounce.key is None else compile_key(debounce.key)
    assert key is None or isinstance(key, FlowKey), "the configuration's models have checked it"
    max_wait = debounce.max_wait or debounce.wait * DEFAULT_WAITS
    return Debounce(target, debounce.wait, max_wait, key)
