"""What a configuration names that no plugin bears out: plugins, and commands of theirs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ductile.config import Settings
from ductile.config.plugin import COMMAND_TIMEOUTS, PluginSettings
from ductile.core.node import COMMAND
from ductile.core.steps import nearest
from ductile.core.values import shown
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
            close, found = nearest(endpoint.plugin, plugins), shown(endpoint.plugin)
            yield Problem("an unknown plugin", at, found=found, nearest=close)
        elif COMMAND not in known:
            yield _no_command(endpoint.plugin, COMMAND, known, "its jobs will fail", at)
    for name, plugin in settings.plugins.items():
        if plugin.enabled and name in plugins:
            yield from _commands(name, plugin, plugins[name])


def _commands(name: str, plugin: PluginSettings, known: frozenset[str]) -> Iterator[Problem]:
    at: Path = ("plugins", name)
    for index, schedule in enumerate(plugin.schedules):
        if schedule.command not in known:
            where = (*at, "schedules", index, "command")
            yield _no_command(name, schedule.command, known, "its jobs will fail", where)
    for command in plugin.timeouts:
        # The standard ones are often set for every plugin alike.
        if command not in known and command not in COMMAND_TIMEOUTS:
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
