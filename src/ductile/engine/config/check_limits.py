"""Limits that can never take effect, and pipelines that start themselves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ductile.config import Settings
from ductile.core.pipelines.pipeline import Pipeline
from ductile.engine.config.check_plugins import emits
from ductile.errors import Problem, Severity
from ductile.plugins.registry import Registry


def problems(
    settings: Settings, pipelines: Mapping[str, Pipeline], registry: Registry
) -> Iterator[Problem]:
    yield from _starting_themselves(settings, pipelines, registry)
    yield from _never_full(settings, registry)


def _never_full(settings: Settings, registry: Registry) -> Iterator[Problem]:
    """An `on_full` of a plugin that never takes effect, because fewer jobs can run at once."""
    for name, own in settings.plugins.items():
        limit, plugin = own.concurrency, registry.plugins.get(name)
        if limit is None or plugin is None or limit.on_full == "queue":
            continue
        cap, workers = own.parallelism, settings.service.max_workers
        if cap is None and not plugin.manifest.concurrency_safe:
            cap = 1
        if cap is not None and limit.limit > cap:
            reason = f"at most {cap} of its jobs run at once (parallelism)"
        elif settings.state.url is None and limit.limit >= workers:
            reason = f"a job is judged when a worker is free, and there are {workers} workers"
        else:
            continue
        message = f"on_full: {limit.on_full} never takes effect with limit {limit.limit}: {reason}"
        path = ("plugins", name, "concurrency")
        yield Problem(message, path, severity=Severity.WARNING)


def _starting_themselves(
    settings: Settings, pipelines: Mapping[str, Pipeline], registry: Registry
) -> Iterator[Problem]:
    """A pipeline whose own step starts it again, while its only place is taken by itself."""
    for index, own in enumerate(settings.pipelines):
        limit, pipeline = own.concurrency, pipelines.get(own.name)
        if limit is None or pipeline is None or limit.limit > 1 or limit.key is not None:
            continue
        if limit.on_full == "queue" or pipeline.on is None:
            continue
        for node in pipeline.nodes.values():
            is_source = pipeline.from_plugin in (None, node.plugin)
            if is_source and emits(registry, node.plugin, node.command, pipeline.on):
                consequence = "is always skipped" if limit.on_full == "skip" else "cancels the run"
                message = (
                    f"step {node.path} emits {pipeline.on}, which starts this pipeline again: "
                    f"with limit 1, no key and on_full {limit.on_full}, that start {consequence}"
                )
                yield Problem(message, ("pipelines", index, "concurrency"))
                break
