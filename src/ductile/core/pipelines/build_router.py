"""The look-up tables of a router, from the routes and pipelines of one configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from ductile.core.flow.debounce import Debounce
from ductile.core.jobs.limits import MAX_HOPS
from ductile.core.pipelines.pipeline import Compiled
from ductile.core.pipelines.router import Router, _Index
from ductile.core.pipelines.routes import Route
from ductile.core.values.redact import Redactor


def build_router(
    routes: Iterable[Route],
    compiled: Compiled,
    max_hops: int = MAX_HOPS,
    debounces: Iterable[Debounce] = (),
    redactor: Redactor | None = None,
    priorities: Mapping[str, float] | None = None,
) -> Router:
    """Index the configured routes and pipelines."""
    by_route: dict[tuple[str, str], list[str]] = {}
    for route in routes:
        by_route.setdefault((route.source, route.event_type), []).append(route.to)
    triggers: dict[tuple[str, str], list[str]] = {}
    hooks: dict[tuple[str, str], list[str]] = {}
    runs: dict[tuple[str, str], list[str]] = {}
    for pipeline in compiled.pipelines.values():
        if pipeline.hook is None and pipeline.on is None:
            continue  # Only its schedules and a start by name run it.
        index = runs if pipeline.from_pipeline else hooks if pipeline.hook else triggers
        source = pipeline.from_pipeline or pipeline.from_plugin or ""
        index.setdefault((pipeline.hook or pipeline.on or "", source), []).append(pipeline.name)
    return Router(
        compiled.pipelines,
        _frozen(by_route),
        _frozen(triggers),
        _frozen(hooks),
        _frozen(runs),
        max_hops,
        frozenset(
            node.wait.event
            for pipeline in compiled.pipelines.values()
            for node in pipeline.nodes.values()
            if node.wait is not None and node.wait.event
        ),
        MappingProxyType({debounce.target: debounce for debounce in debounces}),
        MappingProxyType(dict(priorities or {})),
        redactor or Redactor(),
    )


def _frozen(index: Mapping[tuple[str, str], list[str]]) -> _Index:
    return MappingProxyType({key: tuple(names) for key, names in index.items()})
