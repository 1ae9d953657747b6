"""Compiles the alert rules, and checks their targets against plugins and pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from ductile.config import Settings
from ductile.config.models.alerts import AlertSettings
from ductile.core.alerts.conditions import OF_AGENTS, OF_CONFIGURATION, OF_PLUGINS, Condition
from ductile.core.alerts.node_subjects import DISK, OF_NODE
from ductile.core.alerts.rules import AlertRule, Grouping, matches
from ductile.core.alerts.state_machine import AlertPolicy
from ductile.core.delivery.ssrf import Forbidden, check_addresses, parse_url
from ductile.core.jobs.commands import HANDLE
from ductile.core.pipelines.pipeline import Pipeline
from ductile.core.values.json_values import shorten
from ductile.core.values.suggest import nearest
from ductile.engine.observability.parts import CRITICAL
from ductile.errors import Path, Problem, Severity, errors_of

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


UNKNOWN_TARGET = "an unknown plugin or pipeline"


def problems(
    settings: Settings,
    pipelines: Mapping[str, Pipeline],
    plugins: Commands,
    disabled: frozenset[str],
) -> Iterator[Problem]:
    """Targets that cannot get a message, and rules that can report nothing but their target."""
    # Their own problems are reported instead.
    uncompiled = {pipeline.name for pipeline in settings.pipelines} - pipelines.keys()
    for index, entry in enumerate(settings.alerts):
        at: Path = ("alerts", index)
        found = list(_target_problems(entry, (*at, "to"), pipelines, plugins, disabled, uncompiled))
        found += _unmatched_patterns(entry, (*at, "only"), settings, plugins)
        yield from found
        if not errors_of(found):
            yield from _own_problems(entry, at, pipelines, plugins, uncompiled)
    yield from _dead_man_problems(settings)


def _dead_man_problems(settings: Settings) -> Iterator[Problem]:
    """A monitor that no request may be sent to, as far as its URL shows it."""
    if settings.dead_man is None:
        return
    networks = settings.gateway.allowed_networks
    try:
        target = parse_url(settings.dead_man.url, networks)
        if target.literal:
            check_addresses(target, [target.host], networks)
        elif not target.secure and not networks:
            raise Forbidden("without TLS (http:) only addresses in allowed_networks are allowed")
    except Forbidden as error:
        yield Problem(f"no request is sent to the monitor: {error}", ("dead_man", "url"))


def _target_problems(
    entry: AlertSettings,
    at: Path,
    pipelines: Mapping[str, Pipeline],
    plugins: Commands,
    disabled: frozenset[str],
    uncompiled: Set[str],
) -> Iterator[Problem]:
    name = entry.to
    if name in disabled and name not in pipelines:
        yield Problem("this plugin is disabled, so no message arrives", at, found=shorten(name))
    elif name in plugins and name in pipelines:
        yield Problem("both a plugin and a pipeline have this name; rename one", at, found=name)
    elif name in pipelines or name in uncompiled:
        return
    elif name not in plugins:
        known = {*plugins, *pipelines, *uncompiled}
        yield Problem(
            UNKNOWN_TARGET,
            at,
            found=shorten(name),
            allowed=", ".join(sorted(known)) or "a plugin with the command `handle`",
            nearest=nearest(name, known),
        )
    elif HANDLE not in plugins[name]:
        yield Problem(f"{name} has no command `{HANDLE}`, so it cannot get messages", at)


def _unmatched_patterns(
    entry: AlertSettings, at: Path, settings: Settings, plugins: Commands
) -> Iterator[Problem]:
    """Patterns of `only` that match nothing: the rule reports nothing, or less than it seems to.

    One that may match a name of the ledger is reported only if it is similar to another name.
    """
    names, is_open = _list_names(entry, settings, plugins)
    unmatched = [
        pattern for pattern in entry.only if not any(matches([pattern], name) for name in names)
    ]
    # Only paths of endpoints begin with a slash.
    certain = [one for one in unmatched if not is_open or one.startswith("/")]
    nothing = "nothing that the rule watches has this name"
    if certain and len(certain) == len(entry.only):
        found, close = shorten(", ".join(certain)), nearest(certain[0], names)
        yield Problem(f"{nothing}: the rule reports nothing", at, found=found, nearest=close)
        return
    for pattern in unmatched:
        found, close = shorten(pattern), nearest(pattern, names)
        if pattern in certain:
            yield Problem(nothing, at, found=found, nearest=close, severity=Severity.WARNING)
        elif close is not None:
            text = "nothing in the configuration has this name"
            yield Problem(text, at, found=found, nearest=close, severity=Severity.WARNING)


def _list_names(
    entry: AlertSettings, settings: Settings, plugins: Commands
) -> tuple[set[str], bool]:
    """What the rule can watch by the configuration, and whether the ledger may have more."""
    watched, names = {Condition(word) for word in entry.on}, set[str]()
    if watched & OF_CONFIGURATION:
        names |= {*plugins, *(pipeline.name for pipeline in settings.pipelines)}
        for plugin, own in settings.plugins.items():
            names |= {f"{plugin}/{schedule.id}" for schedule in own.schedules}
        for pipeline in settings.pipelines:
            names |= {f"{pipeline.name}/{schedule.id}" for schedule in pipeline.schedules}
    if Condition.WEBHOOK_SILENT in watched:
        names |= {endpoint.path for endpoint in settings.webhooks.endpoints}
    if Condition.DELIVERY_DEAD in watched:
        names |= {instance.name for instance in settings.instances}
    if Condition.DISK_FREE in watched:
        names.add(DISK)
    if Condition.HEALTH in watched:
        names |= CRITICAL
    # Agents and their webhooks are in the ledger, and so are the other nodes.
    is_shared = settings.state.url is not None
    return names, bool(watched & OF_AGENTS or (is_shared and watched & OF_NODE))


def _own_problems(
    entry: AlertSettings,
    at: Path,
    pipelines: Mapping[str, Pipeline],
    plugins: Commands,
    uncompiled: Set[str],
) -> Iterator[Problem]:
    """A rule whose only possible subject is its own target: alert jobs raise no alerts."""
    watched = {Condition(word) for word in entry.on}
    pipeline = pipelines.get(entry.to)
    own = {entry.to} if pipeline is None else {node.plugin for node in pipeline.nodes.values()}
    known: set[str]
    if watched <= OF_PLUGINS:
        known, what = {name for name in plugins if _watches(entry, name)}, "plugin"
    elif watched == {Condition.RUN_FAILED} and pipeline is not None:
        names = pipelines.keys() | uncompiled
        known, what = {name for name in names if _watches(entry, name)}, "pipeline"
        own = {entry.to}
    else:
        return
    if known and known <= own:
        subjects = ", ".join(sorted(known))
        yield Problem(
            f"the rule can only report its own target ({what} {subjects}), and alert jobs raise no "
            "alerts; choose another target",
            (*at, "to"),
            found=shorten(entry.to),
        )


def _watches(entry: AlertSettings, name: str) -> bool:
    return not entry.only or matches(entry.only, name)
