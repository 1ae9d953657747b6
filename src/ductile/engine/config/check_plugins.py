"""Checks names, commands and hooks in the configuration against the plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from fnmatch import fnmatchcase

from ductile.config import Settings
from ductile.config.models.http import EndpointSettings
from ductile.config.models.plugin import PluginSettings
from ductile.core.jobs.commands import DEFAULT_TIMEOUTS, HANDLE
from ductile.core.pipelines.pipeline import Pipeline
from ductile.core.values.json_values import shorten
from ductile.core.values.scopes import find_unused
from ductile.core.values.suggest import count_edits, nearest
from ductile.core.waits.announce import APPROVAL_EVENTS
from ductile.errors import Path, Problem, Severity
from ductile.plugins.manifest import Manifest
from ductile.plugins.registry import Registry

Commands = Mapping[str, frozenset[str]]
MAX_EDITS = 2
"""Typing errors in an event type that is probably a declared one."""
NO_END = "the wait never ends, unless its run is cancelled"


def problems(
    settings: Settings, plugins: Commands, missing: Mapping[str, str]
) -> Iterator[Problem]:
    """`plugins` maps known plugins to their commands; `missing` maps disabled entries to the
    plugins that they name and no root has."""
    for name, target in missing.items():
        # An entry of a removed plugin may stay disabled without a warning.
        if close := nearest(target, plugins.keys() - missing.keys()):
            message = f"no plugin root has a plugin named {target}"
            yield _warning(message, ("plugins", name), nearest=close)
    for index, endpoint in enumerate(settings.webhooks.endpoints):
        yield from _endpoint(settings, plugins, endpoint, ("webhooks", "endpoints", index))
    for name, plugin in settings.plugins.items():
        if plugin.enabled and name in plugins:
            yield from _commands(name, plugin, plugins[name])


def _endpoint(
    settings: Settings, plugins: Commands, endpoint: EndpointSettings, at: Path
) -> Iterator[Problem]:
    """Problems of the plugin or pipeline that an endpoint names."""
    if endpoint.pipeline is not None:
        names = [pipeline.name for pipeline in settings.pipelines]
        if endpoint.pipeline not in names:
            close, found = nearest(endpoint.pipeline, names), shorten(endpoint.pipeline)
            yield Problem("an unknown pipeline", (*at, "pipeline"), found=found, nearest=close)
    if endpoint.plugin is None:
        return
    known = plugins.get(endpoint.plugin)
    if known is None:
        close, found = nearest(endpoint.plugin, plugins), shorten(endpoint.plugin)
        yield Problem("an unknown plugin", (*at, "plugin"), found=found, nearest=close)
    elif HANDLE not in known:
        yield _no_command(endpoint.plugin, HANDLE, known, "its jobs will fail", (*at, "plugin"))


def disabled(
    settings: Settings, pipelines: Mapping[str, Pipeline], names: frozenset[str]
) -> Iterator[Problem]:
    """Places that would create jobs for a disabled plugin."""
    used: dict[Path, str] = {}
    for index, endpoint in enumerate(settings.webhooks.endpoints):
        if endpoint.plugin is not None:
            used["webhooks", "endpoints", index, "plugin"] = endpoint.plugin
    for index, route in enumerate(settings.routes):
        used["routes", index, "to"] = route.to
    for pipeline in pipelines.values():
        # The steps of a pipeline are repeated in every pipeline that calls it.
        for node in pipeline.nodes.values():
            used[*node.at, "uses"] = node.plugin
    for at, plugin in used.items():
        if plugin in names:
            message = f"plugin {plugin} is disabled: jobs made for it end without being run"
            yield replace(_warning(message, at), fix=(("plugins", plugin, "enabled"), "true"))


def unused_hooks(
    settings: Settings, pipelines: Mapping[str, Pipeline], outside: Set[str]
) -> Iterator[Problem]:
    """Plugins with hooks that never fire, because all their jobs have a parent.

    `outside` are the sources of external events. A job that an `on` starts may be a root; a job
    that a hook starts fires no hook.
    """
    begun = {name for name, plugin in settings.plugins.items() if plugin.schedules}
    begun |= {endpoint.plugin for endpoint in settings.webhooks.endpoints if endpoint.plugin}
    begun |= {route.to for route in settings.routes if route.from_ in outside}
    used = {route.to for route in settings.routes}
    for pipeline in pipelines.values():
        used |= {node.plugin for node in pipeline.nodes.values()}
        if pipeline.hook is None:
            begun |= {node.plugin for node in pipeline.first_jobs()}
    for name, plugin in settings.plugins.items():
        if plugin.enabled and plugin.notify_on_complete and name in used - begun:
            message = (
                "hooks are for root jobs, and this plugin only follows other jobs: none fires, "
                "unless it is run by hand"
            )
            yield _warning(message, ("plugins", name, "notify_on_complete"))


def list_declared_events(registry: Registry) -> set[str]:
    """The event types that manifests declare."""
    return set[str]().union(*(_emitted(plugin.manifest) for plugin in registry.plugins.values()))


def declares_only_others(registry: Registry, plugin: str, kind: str) -> bool:
    """Whether a manifest declares event types, and this one is not among them."""
    found = registry.plugins.get(plugin)
    declared = _emitted(found.manifest) if found is not None else ()
    return bool(declared) and kind not in declared


def unknown_events(
    settings: Settings, pipelines: Mapping[str, Pipeline], registry: Registry
) -> Iterator[Problem]:
    """Pipelines, routes and waiting steps for an event type that no source declares.

    Declarations are optional. Where the plugins that could emit the event declare none, only a type
    that is almost equal to a declared one is reported.
    """
    declared = {name: _emitted(plugin.manifest) for name, plugin in registry.plugins.items()}
    other = {f"webhook.{endpoint.event_name}" for endpoint in settings.webhooks.endpoints}
    other |= {kind for peer in settings.remote_ingress.peers for kind in peer.accept}
    every = other.union(*declared.values())
    absent = {refusal.name for refusal in registry.refused} - declared.keys()
    routed = (
        (route.event_type, route.from_, ("routes", index, "event_type"), "the route has no effect")
        for index, route in enumerate(settings.routes)
        if route.from_ in declared
    )
    for kind, source, at, consequence in (*_awaited_events(pipelines), *routed):
        emitted = declared.get(source, every) if source and at[0] == "routes" else every
        if kind in APPROVAL_EVENTS or _is_declared(kind, emitted):
            continue
        if source is None:
            known, is_complete = every, bool(every) and not absent and all(declared.values())
        else:
            known = declared.get(source, set())
            is_complete = bool(known)
        close = nearest(kind, known)
        if is_complete or (close is not None and count_edits(kind, close) <= MAX_EDITS):
            subject = f"plugin {source}" if source else "no plugin, webhook or peer"
            verb = "does not declare" if source else "declares"
            message = f"{subject} {verb} this event type: {consequence}"
            yield replace(_warning(message, at, nearest=close), found=shorten(kind))


def _awaited_events(
    pipelines: Mapping[str, Pipeline],
) -> Iterator[tuple[str, str | None, Path, str]]:
    """Each event type that starts a pipeline or ends a wait: its source, and what follows if the
    event never comes.
    """
    # The steps of a pipeline are repeated in every pipeline that calls it.
    seen: set[Path] = set()
    for pipeline in pipelines.values():
        if pipeline.on is not None:
            consequence = "only a start by name runs the pipeline"
            yield pipeline.on, pipeline.from_plugin, (*pipeline.at, "on"), consequence
        for node in pipeline.nodes.values():
            if node.wait is not None and node.wait.event and node.at not in seen:
                seen.add(node.at)
                consequence = "only its timeout ends the wait" if node.wait.timeout else NO_END
                yield node.wait.event, None, (*node.at, "wait", "event"), consequence


def _emitted(manifest: Manifest) -> set[str]:
    return {emission.event for command in manifest.commands for emission in command.values.emit}


def emits(registry: Registry, plugin: str, command: str, kind: str) -> bool:
    """Whether the manifest says that this command emits this event type."""
    found = registry.plugins.get(plugin)
    return found is not None and any(
        emission.event == kind
        for known in found.manifest.commands
        if known.name == command
        for emission in known.values.emit
    )


def _is_declared(kind: str, declared: Set[str]) -> bool:
    return kind in declared or any("*" in one and fnmatchcase(kind, one) for one in declared)


def scopes(settings: Settings, plugins: Set[str]) -> Iterator[Problem]:
    """Scopes of tokens that grant nothing, since their plugin does not exist."""
    inline: Path = ("api", "auth", "tokens")
    granted = [((*inline, i), token.scopes) for i, token in enumerate(settings.api.auth.tokens)]
    granted += [(("tokens", i), token.scopes) for i, token in enumerate(settings.tokens)]
    for at, given in granted:
        for message in find_unused(given, plugins):
            yield _warning(message, (*at, "scopes"))


def _commands(name: str, plugin: PluginSettings, known: frozenset[str]) -> Iterator[Problem]:
    at: Path = ("plugins", name)
    for index, schedule in enumerate(plugin.schedules):
        if schedule.command not in known:
            where = (*at, "schedules", index, "command")
            yield _no_command(name, schedule.command, known, "its jobs will fail", where)
    for command in plugin.timeouts:
        # The standard commands are often set for every plugin.
        if command not in known and command not in DEFAULT_TIMEOUTS:
            where = (*at, "timeouts", command)
            yield _no_command(name, command, known, "this has no effect", where)


def _no_command(plugin: str, command: str, known: frozenset[str], effect: str, at: Path) -> Problem:
    message = f"{plugin} has no command `{command}`: {effect}"
    close = nearest(command, known)
    return _warning(message, at, allowed=", ".join(sorted(known)), nearest=close)


def _warning(
    message: str, at: Path, *, allowed: str | None = None, nearest: str | None = None
) -> Problem:
    return Problem(message, at, allowed=allowed, nearest=nearest, severity=Severity.WARNING)
