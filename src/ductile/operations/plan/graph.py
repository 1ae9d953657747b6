"""The difference of two routers as graphs: edges between plugins, events and steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ductile.core.pipelines.graph import Node
from ductile.core.pipelines.pipeline import Pipeline
from ductile.core.pipelines.router import Router
from ductile.engine.config.compiled import CompiledConfig

_STEP_FIELDS = (
    "kind",
    "plugin",
    "command",
    "condition",
    "config_of",
    "with_",
    "baggage",
    "relay",
    "wait",
    "join_always",
)
_PIPELINE_FIELDS = (
    "on",
    "hook",
    "from_plugin",
    "condition",
    "execution_mode",
    "timeout",
    "workspace",
    "author_depth",
)
_ROUTE_FIELDS = ("priority", "debounce")
_FLOW_FIELDS = (*_ROUTE_FIELDS, "concurrency")
"""Of pipelines, as they are configured."""
Fields = Mapping[str, Any]


def compare_graphs(old: CompiledConfig, new: CompiledConfig) -> dict[str, Any]:
    """The edges that appear and disappear, and the routes, pipelines and steps that differ."""
    before, after = old.tx_config.router, new.tx_config.router
    edges, new_edges = set(list_edges(before)), set(list_edges(after))
    return {
        "edges_added": sorted(new_edges - edges),
        "edges_removed": sorted(edges - new_edges),
        # Those that are added or removed are edges.
        "routes": [
            row for row in _compare_fields(_routes(old), _routes(new)) if row["change"] == "changed"
        ],
        "pipelines": _compare_fields(_pipelines(old), _pipelines(new)),
        "steps": _compare_fields(_steps(before), _steps(after)),
    }


def list_edges(router: Router) -> Iterator[str]:
    """Every way that an event can take, such as `feed --item.new--> store`."""
    for (source, event), targets in router.routes.items():
        for target in targets:
            yield f"{source} --{event}--> {target}"
    for pipeline in router.pipelines.values():
        yield _entering_edge(pipeline)
        for node in pipeline.nodes.values():
            yield from _edges_from(node)


def _entering_edge(pipeline: Pipeline) -> str:
    entry = f"{pipeline.name}/{pipeline.entry}"
    if pipeline.on is None:
        return f"{pipeline.from_pipeline or '*'} --{pipeline.hook}--> {entry}"
    return f"{pipeline.from_plugin or '*'} --{pipeline.on}--> {entry}"


def _edges_from(node: Node) -> Iterator[str]:
    start = f"{node.pipeline}/{node.path}"
    for label, path in (("", node.next), ("otherwise", node.otherwise)):
        if path is not None:
            yield f"{start} --{label}--> {node.pipeline}/{path}"
    for branch in node.branches:
        yield f"{start} --{branch.label}--> {node.pipeline}/{branch.entry}"
    for event, targets in node.on_events.items():
        for target in targets:
            place = f"{target.pipeline}/{target.path}" if target.path else target.pipeline
            yield f"{start} --{event}--> {place}"


def find_differing_steps(old: Router, new: Router, pipeline: str, step_path: str) -> list[str]:
    """The steps that can follow this one in either configuration and differ, with their edges."""
    before, after = _reachable(old, pipeline, step_path), _reachable(new, pipeline, step_path)
    return sorted(
        f"{name}/{path}"
        for name, path in before | after
        if _signature(old.node(name, path)) != _signature(new.node(name, path))
    )


def _reachable(router: Router, pipeline: str, step_path: str) -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    rest = [(pipeline, step_path)]
    while rest:
        place = rest.pop()
        node = router.node(*place)
        if node is None or place in found:
            continue
        found.add(place)
        for target in node.follows():
            following = router.pipelines.get(target.pipeline)
            if following is not None:
                rest.append((target.pipeline, target.path or following.entry))
    return found


def _signature(node: Node | None) -> object:
    if node is None:
        return None
    return _fields(node, _STEP_FIELDS), sorted(_edges_from(node))


def _fields(described: Node | Pipeline, names: tuple[str, ...]) -> dict[str, Any]:
    """The values to compare; a condition as its text, since compiled patterns are never equal."""
    values = {name: getattr(described, name) for name in names}
    return {**values, "condition": str(values["condition"] or "")}


def _routes(compiled: CompiledConfig) -> dict[str, Fields]:
    return {
        f"{route.from_} --{route.event_type}--> {route.to}": {
            name: getattr(route, name) for name in _ROUTE_FIELDS
        }
        for route in compiled.settings.routes
    }


def _pipelines(compiled: CompiledConfig) -> dict[str, Fields]:
    written = {pipeline.name: pipeline for pipeline in compiled.settings.pipelines}
    return {
        # The steps of an `on_failure` are a pipeline without settings of its own.
        name: _fields(pipeline, _PIPELINE_FIELDS)
        | {field: getattr(written.get(name), field, None) for field in _FLOW_FIELDS}
        for name, pipeline in compiled.tx_config.router.pipelines.items()
    }


def _steps(router: Router) -> dict[str, Fields]:
    return {
        f"{name}/{path}": _fields(node, _STEP_FIELDS)
        for name, pipeline in router.pipelines.items()
        for path, node in pipeline.nodes.items()
    }


def _compare_fields(old: Mapping[str, Fields], new: Mapping[str, Fields]) -> list[dict[str, Any]]:
    """The names that were added, removed or changed; of the changed ones, the fields."""
    found: list[dict[str, Any]] = []
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        if before is None or after is None:
            change = "added" if before is None else "removed"
            found.append({"name": name, "change": change, "fields": []})
        elif fields := [key for key in before if before[key] != after[key]]:
            shown = [_SHOWN.get(field, field) for field in fields]
            found.append({"name": name, "change": "changed", "fields": shown})
    return found


_SHOWN = {"with_": "with", "condition": "if", "config_of": "config", "author_depth": "max_depth"}
"""The words of the configuration for fields with other names."""
