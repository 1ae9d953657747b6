"""What a configuration says of plugins that they do not bear out: names, commands, hooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from ductile.config import Settings
from ductile.config.models.plugin import PluginSettings
from ductile.core.jobs.commands import DEFAULT_TIMEOUTS, HANDLE
from ductile.core.pipelines.compile import Pipeline
from ductile.core.values.json_values import shorten
from ductile.core.values.scopes import find_unused
from ductile.core.values.suggest import nearest
from ductile.errors import Path, Problem, Severity

Commands = Mapping[str, frozenset[str]]


def problems(
    settings: Settings, plugins: Commands, missing: Mapping[str, str]
) -> Iterator[Problem]:
    """`plugins` are those that are known, with their commands; `missing` those that are
    disabled, with the plugin that each means and no root has."""
    for name, target in missing.items():
        # One that is gone for good may stay disabled without a word.
        if close := nearest(target, plugins.keys() - missing.keys()):
            message = f"no plugin root has a plugin named {target}"
            yield _warning(message, ("plugins", name), nearest=close)
    for index, endpoint in enumerate(settings.webhooks.endpoints):
        at = ("webhooks", "endpoints", index, "plugin")
        known = plugins.get(endpoint.plugin)
        if known is None:
            close, found = nearest(endpoint.plugin, plugins), shorten(endpoint.plugin)
            yield Problem("an unknown plugin", at, found=found, nearest=close)
        elif HANDLE not in known:
            yield _no_command(endpoint.plugin, HANDLE, known, "its jobs will fail", at)
    for name, plugin in settings.plugins.items():
        if plugin.enabled and name in plugins:
            yield from _commands(name, plugin, plugins[name])


def disabled(
    settings: Settings, pipelines: Mapping[str, Pipeline], names: frozenset[str]
) -> Iterator[Problem]:
    """Where a job would be made for one of the plugins that are disabled."""
    used: dict[Path, str] = {}
    for index, endpoint in enumerate(settings.webhooks.endpoints):
        used["webhooks", "endpoints", index, "plugin"] = endpoint.plugin
    for index, route in enumerate(settings.routes):
        used["routes", index, "to"] = route.to
    for pipeline in pipelines.values():
        # A pipeline that others call has its steps in each of them.
        for node in pipeline.nodes.values():
            used[*node.at, "uses"] = node.plugin
    for at, plugin in used.items():
        if plugin in names:
            message = f"plugin {plugin} is disabled: jobs made for it end without being run"
            yield _warning(message, at)


def unheard(
    settings: Settings, pipelines: Mapping[str, Pipeline], outside: Set[str]
) -> Iterator[Problem]:
    """Plugins with hooks that nothing here ever fires, for all their jobs have a parent.

    `outside` are the sources of events that no job of ours emits. What an `on` starts may well
    be a root; what a hook starts fires none.
    """
    begun = {name for name, plugin in settings.plugins.items() if plugin.schedules}
    begun |= {endpoint.plugin for endpoint in settings.webhooks.endpoints}
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


def scopes(settings: Settings, plugins: Set[str]) -> Iterator[Problem]:
    """Of tokens that are to open what is not there."""
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
        # The standard ones are often set for every plugin alike.
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
