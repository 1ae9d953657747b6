"""Compiles the configured schedule entries for the decisions in core."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path as FilePath
from zoneinfo import ZoneInfo

from ductile.config import Loaded, Settings
from ductile.config.models.schedule import PipelineScheduleSettings, ScheduleSettings
from ductile.config.models.units import format_duration
from ductile.core.schedules.decide import (
    SHORTEST,
    After,
    At,
    CatchUp,
    Cron,
    Every,
    IfRunning,
    Monthly,
    Schedule,
)
from ductile.core.schedules.window import Window
from ductile.errors import Path, Problem, Severity

PIPELINE_PREFIX = "pipeline:"
START = "start"
"""What a pipeline's entry shows instead of a command."""


def schedules_of(settings: Settings, local: ZoneInfo) -> tuple[Schedule, ...]:
    """Every entry of every enabled plugin and pipeline; without its own zone, in `local`."""
    return tuple(_all(settings, local))


def local_zone(environ: Mapping[str, str]) -> ZoneInfo:
    """The machine's time zone by its IANA name; UTC if it has none."""
    names = [environ.get("TZ", "").lstrip(":")]
    with contextlib.suppress(OSError):
        names.append(FilePath("/etc/timezone").read_text(encoding="utf-8").strip())
    with contextlib.suppress(OSError):
        _, _, name = str(FilePath("/etc/localtime").resolve()).partition("/zoneinfo/")
        names.append(name)
    for name in names:
        with contextlib.suppress(ValueError, OSError, KeyError):
            if name:
                return ZoneInfo(name)
    return ZoneInfo("UTC")


def past(loaded: Loaded, now: datetime) -> Iterator[Problem]:
    """A warning for each `at` in the past: perhaps the year is wrong."""
    message = "this moment is past: it fires at once, unless it has fired before"
    for owner, entries in _groups(loaded.settings).items():
        for index, entry in enumerate(entries):
            if entry.at is not None and entry.at < now:
                path: Path = (*owner, "schedules", index, "at")
                place = loaded.locate(path)
                yield Problem(message, path, *place, severity=Severity.WARNING)


def _groups(settings: Settings) -> dict[Path, tuple[PipelineScheduleSettings, ...]]:
    """The entries of enabled plugins and of pipelines, by the place of their owner."""
    groups: dict[Path, tuple[PipelineScheduleSettings, ...]] = {
        ("plugins", name): plugin.schedules
        for name, plugin in settings.plugins.items()
        if plugin.enabled
    }
    for index, pipeline in enumerate(settings.pipelines):
        groups["pipelines", index] = pipeline.schedules
    return groups


def _all(settings: Settings, local: ZoneInfo) -> Iterator[Schedule]:
    for name, plugin in settings.plugins.items():
        if plugin.enabled:
            for entry in plugin.schedules:
                yield _schedule(name, entry, local)
    for pipeline in settings.pipelines:
        for timed in pipeline.schedules:
            owner = f"{PIPELINE_PREFIX}{pipeline.name}"
            yield replace(_schedule(owner, timed, local), pipeline=pipeline.name)


def _schedule(plugin: str, entry: PipelineScheduleSettings, local: ZoneInfo) -> Schedule:
    zone = ZoneInfo(entry.timezone) if entry.timezone else local
    bounded = entry.window is not None or entry.not_on
    return Schedule(
        plugin=plugin,
        id=entry.id,
        rule=_rule(entry),
        zone=zone,
        command=entry.command if isinstance(entry, ScheduleSettings) else START,
        payload=dict(entry.payload),
        jitter=entry.jitter,
        window=Window.parse(entry.window, zone, entry.not_on) if bounded else None,
        catch_up=CatchUp(entry.catch_up),
        if_running=IfRunning(entry.if_running),
        priority=entry.priority if isinstance(entry, ScheduleSettings) else 0.0,
    )


def _rule(entry: PipelineScheduleSettings) -> Every | Monthly | Cron | At | After:
    if entry.every is not None:
        if entry.every == "monthly":
            return Monthly()
        return Every(max(float(entry.every), SHORTEST))
    if entry.cron is not None:
        return Cron(entry.cron)
    if entry.at is not None:
        return At(entry.at)
    assert entry.after is not None
    return After(entry.after)


def described(schedule: Schedule) -> str:
    """The rule in the words of the configuration."""
    match schedule.rule:
        case Every(seconds):
            return f"every {format_duration(seconds)}"
        case Monthly():
            return "monthly"
        case Cron(expr):
            return f"cron {expr}"
        case At(moment):
            return f"at {moment.isoformat()}"
        case After(seconds):
            return f"after {format_duration(seconds)}"
