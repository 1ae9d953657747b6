"""Compiles the alert rules, and checks their targets against plugins and pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ductile.config import Settings
from ductile.config.models.alerts import AlertSettings
from ductile.core.alerts.conditions import OF_PLUGINS, Condition
from ductile.core.alerts.machine import AlertPolicy
from ductile.core.alerts.rules import AlertRule, Grouping, matches
from ductile.core.jobs.commands import HANDLE
from ductile.core.pipelines.compile import Pipeline
from ductile.core.values.json_values import shorten
from ductile.core.values.suggest import nearest
from ductile.errors import Path, Problem

Commands = Mapping[str, frozenset[str]]


def rules_of(settings: Settings, pipelines: Mapping[str, Pipeline]) -> tuple[AlertRule, ...]:
    """The rules of a configuration whose targets have been checked."""
    return tuple(_rule(entry, pipelines) for entry in settings.alerts)


def _rule(entry: AlertSettings, pipelines: Mapping[str, Pipeline]) -> AlertRule:
    return AlertRule(
        name=entry.name,
        on=frozenset(Condition(word) for word in entry.on),
        target=entry.to,
        policy=AlertPolicy(entry.after, entry.for_, entry.wait, entry.repeat),
        is_pipeline=entry.to in pipelines,
        grouping=Grouping(entry.group),
        only=entry.only,
        queue_age=entry.over.queue_age,
        disk_free=entry.over.disk_limit,
    )


def problems(
    settings: Settings,
    pipelines: Mapping[str, Pipeline],
    plugins: Commands,
    disabled: frozenset[str],
) -> Iterator[Problem]:
    """Targets that cannot get a message, and rules that can report nothing but their target."""
    for index, entry in enumerate(settings.alerts):
        at: Path = ("alerts", index)
        found = list(_target_problems(entry, (*at, "to"), pipelines, plugins, disabled))
        yield from found or _own_problems(entry, at, pipelines, plugins)


def _target_problems(
    entry: AlertSettings,
    at: Path,
    pipelines: Mapping[str, Pipeline],
    plugins: Commands,
    disabled: frozenset[str],
) -> Iterator[Problem]:
    name = entry.to
    if name in disabled and name not in pipelines:
        yield Problem("this plugin is disabled, so no message arrives", at, found=shorten(name))
    elif name in plugins and name in pipelines:
        yield Problem("both a plugin and a pipeline have this name; rename one", at, found=name)
    elif name in pipelines:
        return
    elif name not in plugins:
        known = {*plugins, *pipelines}
        yield Problem(
            "an unknown plugin or pipeline",
            at,
            found=shorten(name),
            allowed=", ".join(sorted(known)) or "a plugin with the command `handle`",
            nearest=nearest(name, known),
        )
    elif HANDLE not in plugins[name]:
        yield Problem(f"{name} has no command `{HANDLE}`, so it cannot get messages", at)


def _own_problems(
    entry: AlertSettings, at: Path, pipelines: Mapping[str, Pipeline], plugins: Commands
) -> Iterator[Problem]:
    """A rule whose only possible subject is its own target: alert jobs raise no alerts."""
    watched = {Condition(word) for word in entry.on}
    pipeline = pipelines.get(entry.to)
    own = {entry.to} if pipeline is None else {node.plugin for node in pipeline.nodes.values()}
    known: set[str]
    if watched <= OF_PLUGINS:
        known, what = {name for name in plugins if _watches(entry, name)}, "plugin"
    elif watched == {Condition.RUN_FAILED} and pipeline is not None:
        known, what = {name for name in pipelines if _watches(entry, name)}, "pipeline"
        own = {entry.to}
    else:
        return
    if known and known <= own:
        names = ", ".join(sorted(known))
        yield Problem(
            f"the rule can only report its own target ({what} {names}), and alert jobs raise no "
            "alerts; choose another target",
            (*at, "to"),
            found=shorten(entry.to),
        )


def _watches(entry: AlertSettings, name: str) -> bool:
    return not entry.only or matches(entry.only, name)
