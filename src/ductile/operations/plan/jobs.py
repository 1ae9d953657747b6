"""The queued and waiting jobs that another configuration holds, ends or routes differently."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.core.pipelines.router import Router
from ductile.engine.config.compiled import CompiledConfig
from ductile.operations.plan.graph import find_differing_steps


@dataclass(frozen=True, slots=True)
class QueuedGroup:
    """The queued jobs with the same plugin, command, step and configuration."""

    plugin: str
    command: str
    pipeline: str
    step_path: str
    snapshot_id: str | None
    """The configuration that they were created under."""
    is_waiting: bool
    """Whether they are waiting steps, parked until a decision, an event or a time."""
    jobs: int
    example: str
    """The id of one of them."""


@dataclass(frozen=True, slots=True)
class JobRules:
    """What one configuration does with queued jobs."""

    compiled: CompiledConfig
    unready: Mapping[str, str]
    """The plugins whose `init` has not succeeded, and why."""
    removed: Mapping[str, Collection[str]]
    """By plugin that was removed, the configurations whose jobs of it are ended."""
    elsewhere: Collection[str]
    """The plugins that another node has."""


@dataclass(frozen=True, slots=True)
class PlannedEffect:
    effect: str
    """`runs`, `held`, `ended` or `fails`."""
    reason: str | None = None


_RUNS = PlannedEffect("runs")


def decide_effect(group: QueuedGroup, rules: JobRules) -> PlannedEffect:
    """What happens to these jobs under a configuration, apart from limits and pauses."""
    compiled, plugin = rules.compiled, group.plugin
    if plugin in rules.elsewhere and not compiled.expects(plugin):
        return _RUNS
    gone = compiled.gone(plugin)
    if gone is None and group.snapshot_id in rules.removed.get(plugin, ()):
        gone = "plugin removed"
    if gone is not None:
        return PlannedEffect("ended", gone)
    if plugin in compiled.held():
        refusal = compiled.registry.refusal(plugin)
        return PlannedEffect(
            "held", f"plugin refused: {refusal.reason}" if refusal else "plugin refused"
        )
    if (absence := compiled.absence(plugin)) is not None:
        return PlannedEffect("held", absence)
    if plugin in rules.unready and group.command != "init":
        return PlannedEffect("held", rules.unready[plugin])
    return _decide_step_effect(group, compiled.tx_config.router)


def _decide_step_effect(group: QueuedGroup, router: Router) -> PlannedEffect:
    if not group.pipeline:
        return _RUNS
    lost = router.lost(group.pipeline, group.step_path, group.plugin, group.command)
    if lost is None:
        return _RUNS
    return (
        PlannedEffect("runs", f"{lost}; nothing follows its wait")
        if group.is_waiting
        else PlannedEffect("fails", lost)
    )


def compare_jobs(
    groups: Iterable[QueuedGroup], old: JobRules, new: JobRules
) -> list[dict[str, Any]]:
    """The groups whose jobs are affected in another way, or are followed by other steps."""
    found = []
    for group in groups:
        before, after = decide_effect(group, old), decide_effect(group, new)
        if before != after:
            effect = _effect(after)
            reason = after.reason or f"no longer {before.effect}: {before.reason}"
        elif after.effect in ("runs", "held") and (steps := _rerouted(group, old, new)):
            effect, reason = "routed differently", f"these differ: {', '.join(steps)}"
        else:
            continue
        found.append(_describe(group, effect, reason))
    return found


def _effect(after: PlannedEffect) -> str:
    if after.effect == "runs":
        return "routed differently" if after.reason else "released"
    return after.effect


def _rerouted(group: QueuedGroup, old: JobRules, new: JobRules) -> list[str]:
    """The steps and routes after these jobs that differ."""
    before, after = old.compiled.tx_config.router, new.compiled.tx_config.router
    steps = []
    if group.pipeline:
        steps = find_differing_steps(before, after, group.pipeline, group.step_path)
    if _routes_from(before, group.plugin) != _routes_from(after, group.plugin):
        steps.append(f"routes from {group.plugin}")
    return steps


def _routes_from(router: Router, plugin: str) -> dict[str, tuple[str, ...]]:
    return {
        event: tuple(targets)
        for (source, event), targets in router.routes.items()
        if source == plugin
    }


def _describe(group: QueuedGroup, effect: str, reason: str) -> dict[str, Any]:
    return {
        "plugin": group.plugin,
        "command": group.command,
        "pipeline": group.pipeline or None,
        "step": group.step_path or None,
        "waiting": group.is_waiting,
        "jobs": group.jobs,
        "example": group.example,
        "effect": effect,
        "reason": reason,
    }
