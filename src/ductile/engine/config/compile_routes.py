"""Compiles routes and pipelines against the plugins of the configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ductile.config import Loaded, Settings, bundled
from ductile.config.redact import redact_problems
from ductile.core.flow.debounce import route_target
from ductile.core.pipelines.build_router import build_router
from ductile.core.pipelines.compiler.compile import compile_pipelines
from ductile.core.pipelines.pipeline import Compiled, PartlyCompiled, Pipeline
from ductile.core.pipelines.router import Router
from ductile.core.pipelines.routes import Routes, compile_routes
from ductile.core.values.redact import Redactor
from ductile.engine.config import (
    check_limits,
    check_plugins,
    check_relay,
    compile_alerts,
    compile_debounce,
)
from ductile.errors import ConfigError, Problem, errors_of
from ductile.plugins.registry import Registry


class _AnyCommand(frozenset[str]):
    """The commands of a plugin that is configured but not loaded: any command may exist."""

    def __contains__(self, command: object) -> bool:
        return True


def compile_router(loaded: Loaded, registry: Registry) -> tuple[Router, tuple[Problem, ...]]:
    """The router and its warnings; `ConfigError` with every problem and its place."""
    settings, plugins = loaded.settings, _commands_of(registry)
    document = settings.model_dump(mode="json", by_alias=True, exclude_none=True)
    sources = frozenset(_sources(settings))
    pipelines = compile_pipelines(
        document.get("pipelines", []),
        plugins,
        instances=frozenset(instance.name for instance in settings.instances),
        sources=sources,
        max_hops=settings.service.max_hops,
    )
    routes = compile_routes(document.get("routes", []), plugins, sources=sources)
    found = [
        *(pipelines.problems if isinstance(pipelines, PartlyCompiled) else pipelines.warnings),
        *(routes if isinstance(routes, list) else routes.warnings),
        *_check_sections(settings, pipelines.pipelines, plugins, sources, registry),
    ]
    hinted = (_hinted(_located(problem, loaded), registry) for problem in found)
    located = tuple(redact_problems(hinted, loaded.secrets))
    if errors := errors_of(located):
        raise ConfigError(errors)
    assert isinstance(pipelines, Compiled)
    assert isinstance(routes, Routes)
    router = build_router(
        routes.routes,
        pipelines,
        settings.service.max_hops,
        compile_debounce.debounces_of(settings),
        Redactor(loaded.secrets),
        {
            route_target(route.from_, route.event_type, route.to): route.priority
            for route in settings.routes
            if route.priority
        },
    )
    return router, located


def _commands_of(registry: Registry) -> dict[str, frozenset[str]]:
    plugins: dict[str, frozenset[str]] = {
        name: frozenset(command.name for command in plugin.manifest.commands)
        for name, plugin in registry.plugins.items()
    }
    absent = {refusal.name for refusal in registry.refused} | registry.disabled
    for name in absent - plugins.keys():
        plugins[name] = _AnyCommand()
    return plugins


def _check_sections(
    settings: Settings,
    compiled: Mapping[str, Pipeline],
    plugins: Mapping[str, frozenset[str]],
    sources: frozenset[str],
    registry: Registry,
) -> Iterator[Problem]:
    """The problems of every section that refers to plugins or pipelines."""
    yield from check_relay.problems(settings, compiled)
    yield from compile_debounce.problems(settings, compiled)
    yield from check_plugins.problems(settings, plugins, registry.missing)
    yield from check_plugins.disabled(settings, compiled, registry.disabled)
    yield from check_plugins.unused_hooks(settings, compiled, sources)
    yield from check_plugins.scopes(settings, plugins.keys() | registry.offered.keys())
    yield from check_plugins.unknown_events(settings, compiled, registry)
    yield from compile_alerts.problems(settings, compiled, plugins, registry.disabled)
    yield from check_limits.problems(settings, compiled, registry)


def _located(problem: Problem, loaded: Loaded) -> Problem:
    file, line, column = loaded.locate(problem.path)
    return replace(problem, file=file, line=line, column=column)


def _hinted(problem: Problem, registry: Registry) -> Problem:
    """With a hint if the unknown name is a bundled plugin that is not configured."""
    name = (problem.found or "").strip('"').partition(".")[0]
    is_target = problem.message == compile_alerts.UNKNOWN_TARGET
    if not is_target and (problem.message != "an unknown plugin" or problem.allowed is not None):
        return problem
    line = f"`{name}: {{}}` under plugins"
    if name in registry.offered:
        fix = (("plugins", name, "enabled"), "true")
        return replace(problem, allowed=f"{line}, which loads the bundled plugin", fix=fix)
    if bundled.has_plugin(name):
        root = f'"{bundled.ROOT}" in plugin_roots'
        return replace(problem, allowed=f"{root} and {line}, which load the bundled plugin")
    return problem


def _sources(settings: Settings) -> Iterator[str]:
    """The names besides plugins that `from` and `from_plugin` accept: webhooks and peers."""
    for endpoint in settings.webhooks.endpoints:
        yield endpoint.event_name
    for peer in settings.remote_ingress.peers:
        yield f"relay:{peer.name}"
