"""Pauses of a plugin, a pipeline or the whole gateway: their jobs stay queued."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum

from ductile._fast_dataclass import dataclass

LONGEST_REASON = 500
"""Characters."""


class PauseKind(StrEnum):
    SYSTEM = "system"
    PLUGIN = "plugin"
    PIPELINE = "pipeline"


@dataclass(frozen=True, slots=True)
class Pause:
    kind: PauseKind
    name: str
    """The plugin or pipeline; empty for the gateway."""
    paused_at: str
    paused_by: str
    reason: str | None = None
    until: datetime | None = None
    """When it ends by itself; None means that it is resumed by a command."""
    until_text: str | None = None

    def has_ended(self, now: datetime) -> bool:
        return self.until is not None and self.until <= now

    def describe(self) -> str:
        """Who paused what, why and until when, and the command that resumes it."""
        is_system = self.kind is PauseKind.SYSTEM
        what = "the gateway" if is_system else f"{self.kind} {self.name}"
        why = f" ({self.reason})" if self.reason else ""
        until = f" until {self.until_text}" if self.until_text else ""
        command = f"ductile {self.kind} resume{'' if is_system else f' {self.name}'}"
        return (
            f"{what} is paused since {self.paused_at} by {self.paused_by}{why}{until}; "
            f"`{command}` resumes it"
        )


@dataclass(frozen=True, slots=True)
class Pauses:
    """The pauses that are in force."""

    system: Pause | None = None
    plugins: Mapping[str, Pause] = field(default_factory=dict)
    pipelines: Mapping[str, Pause] = field(default_factory=dict)
    unknown: frozenset[str] = frozenset()
    """Pipelines that only other nodes know: this node starts none of their jobs."""

    @property
    def held_pipelines(self) -> frozenset[str]:
        """The pipelines whose jobs this node does not start."""
        return self.unknown.union(self.pipelines)

    def holding(self, plugin: str, pipeline: str | None) -> Pause | None:
        """The pause that keeps a job of this plugin and pipeline queued; the widest first."""
        return (
            self.system
            or self.plugins.get(plugin)
            or (self.pipelines.get(pipeline) if pipeline else None)
        )


NO_PAUSES = Pauses()


def collect_pauses(pauses: Iterable[Pause], now: datetime) -> Pauses:
    """The pauses that have not ended, by what they hold."""
    system: Pause | None = None
    plugins: dict[str, Pause] = {}
    pipelines: dict[str, Pause] = {}
    for pause in pauses:
        if pause.has_ended(now):
            continue
        if pause.kind is PauseKind.SYSTEM:
            system = pause
        elif pause.kind is PauseKind.PLUGIN:
            plugins[pause.name] = pause
        else:
            pipelines[pause.name] = pause
    return Pauses(system, plugins, pipelines)
