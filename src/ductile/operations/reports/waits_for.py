"""Why a queued job does not run yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.clock import from_text, to_text
from ductile.core.flow.pauses import NO_PAUSES, Pauses
from ductile.core.jobs.commands import INIT
from ductile.core.pipelines.graph import WAIT_PLUGIN
from ductile.engine.config.compiled import CompiledConfig
from ductile.errors import Path
from ductile.operations.cluster.placement import describe_other_nodes, describe_pipelines
from ductile.operations.flow.holds import (
    JobStart,
    describe_debounced,
    describe_held_jobs,
    describe_holds,
    find_held_run,
)
from ductile.operations.waits.describe import describe_waits
from ductile.store.engines.api import Tx
from ductile.store.engines.queries import NEVER
from ductile.store.flow.pauses import load_pauses

MOST_RUNNING = 1000
"""Running jobs that are considered when explaining why others are queued."""


@dataclass(frozen=True, slots=True)
class RunningJobs:
    """The running jobs, as far as they keep others in the queue."""

    of_plugin: Mapping[str, int]
    with_key: Mapping[tuple[str, str, str], str]
    """The job that holds a plugin, command and dedupe key."""
    first_of_schedule: Mapping[tuple[str, str], str]
    """The oldest queued or running job of a plugin and schedule."""
    oldest: Mapping[str, JobStart]
    """Of each plugin the job that started first."""
    starts: Mapping[str, JobStart]
    """By id."""


BUSY = "all workers are busy"
LIMITS = {"parallelism": "(parallelism)", "concurrency": "(concurrency)", "rate": "rate limit of"}
"""Settings of a plugin, and how the reasons name them."""
NOTHING_RUNS = RunningJobs({}, {}, {}, {}, {})


def with_reasons(
    tx: Tx,
    rows: Sequence[Mapping[str, Any]],
    compiled: CompiledConfig,
    unready: Mapping[str, str],
    *,
    served: bool,
    now: datetime,
) -> list[dict[str, Any]]:
    """The rows, each with `waits_for`; `served` says whether a gateway runs here."""
    running = _running_jobs(tx, rows) if served else None
    is_queued = any(row["status"] == "queued" for row in rows)
    pauses = load_pauses(tx, now) if is_queued else NO_PAUSES
    holds: Mapping[str, str] = {}
    if is_queued and served:
        start = partial(_describe_start, compiled)
        holds = describe_holds(tx, rows, compiled.tx_config, now, start)
    queued = {row["plugin"] for row in rows if row["status"] == "queued"}
    absent = {
        name: compiled.plugin_settings(name).nodes
        for name in queued
        if not compiled.expects(name) or name in compiled.placed_elsewhere
    }
    elsewhere = describe_other_nodes(tx, queued, absent)
    unknown = {row.get("pipeline") or "" for row in rows if row["status"] == "queued"}
    unknown -= {"", *compiled.tx_config.router.pipelines}
    unknown_here = describe_pipelines(tx, unknown)
    steps = [
        row["id"] for row in rows if row["plugin"] == WAIT_PLUGIN and row["status"] == "queued"
    ]
    waiting, debounced = describe_waits(tx, steps), describe_debounced(tx, rows)
    parked = [
        row["id"]
        for row in rows
        if row["status"] == "queued" and row.get("pipeline") and not row.get("next_retry_at")
    ]
    held = describe_held_jobs(tx, parked, compiled.tx_config)
    return [
        {
            **row,
            "waits_for": waiting.get(row["id"])
            or held.get(row["id"])
            or debounced.get(row["id"])
            or unknown_here.get(row.get("pipeline") or "")
            or waits_for(row, compiled, unready, running, pauses, elsewhere, holds),
        }
        for row in rows
    ]


def _running_jobs(tx: Tx, rows: Sequence[Mapping[str, Any]]) -> RunningJobs:
    """Read only if one of these jobs is ready."""
    if not any(row["status"] == "queued" and not row.get("next_retry_at") for row in rows):
        return NOTHING_RUNS
    found = tx.all("running_now", limit=MOST_RUNNING)
    first: dict[tuple[str, str], str] = {}
    for plugin, schedule_id, id in tx.all("scheduled_jobs", limit=MOST_RUNNING):
        first.setdefault((plugin, schedule_id), id)
    oldest: dict[str, JobStart] = {}
    starts: dict[str, JobStart] = {}
    for plugin, command, _, id, started_at in found:
        starts[id] = start = (started_at or "", command, id)
        oldest[plugin] = min(start, oldest.get(plugin, start))
    return RunningJobs(
        Counter(plugin for plugin, *_ in found),
        {(plugin, command, key): id for plugin, command, key, id, _ in found if key is not None},
        first,
        oldest,
        starts,
    )


def waits_for(
    row: Mapping[str, Any],
    compiled: CompiledConfig,
    unready: Mapping[str, str],
    running: RunningJobs | None = NOTHING_RUNS,
    pauses: Pauses = NO_PAUSES,
    elsewhere: Mapping[str, str] = MappingProxyType({}),
    holds: Mapping[str, str] = MappingProxyType({}),
) -> str | None:
    """Why a queued job does not run yet; `running` is None if no gateway runs here.

    `elsewhere` names, by plugin that this node does not have, the nodes that do; `holds` has the
    limits that hold jobs, by job id.
    """
    if row["status"] != "queued":
        return None
    name = row["plugin"]
    if row.get("next_retry_at"):
        return f"its retry is due at {row['next_retry_at']}"
    if name in elsewhere:
        return elsewhere[name]
    if gone := compiled.gone(name):
        return f"{gone}: the job ends within a minute"
    if absence := compiled.absence(name):
        return absence
    if name in compiled.held():
        refusal = compiled.registry.refusal(name)
        return f"plugin {name} is refused: {refusal.reason if refusal else ''}"
    if pause := pauses.holding(name, row.get("pipeline")):
        return pause.describe()
    if name in unready and row["command"] != INIT:
        return f"plugin {name} is unhealthy: {unready[name]}"
    if running is None:
        # Other nodes of the same database may be running.
        return f"no gateway is running{' here' if compiled.settings.state.url else ''}"
    blocked = holds.get(row["id"]) or _blocked_by(row, compiled, running)
    return blocked or _describe_busy(compiled, running)


def _describe_busy(compiled: CompiledConfig, running: RunningJobs) -> str:
    """With the job that has run longest: its end frees a worker."""
    if not running.oldest:
        return BUSY
    plugin, start = min(running.oldest.items(), key=lambda item: item[1])
    return f"{BUSY}{_describe_start(compiled, plugin, start)}"


def find_setting(
    tx: Tx, job: Mapping[str, Any], compiled: CompiledConfig, reason: str
) -> Path | None:
    """The setting that makes a queued job wait for this reason; None if it is not a limit."""
    run = find_held_run(tx, job["id"])
    if run is not None and run.held_since != NEVER:
        pipeline = compiled.tx_config.router.pipelines.get(run.pipeline)
        return None if pipeline is None else (*pipeline.at, "concurrency")
    if reason.startswith(BUSY):
        return ("service", "max_workers")
    plugin = ("plugins", job["plugin"])
    return next(((*plugin, key) for key, sign in LIMITS.items() if sign in reason), None)


def _describe_start(compiled: CompiledConfig, plugin: str, start: JobStart) -> str:
    """A running job, since when, and when its time is up."""
    return f": job {start[2]}{_describe_deadline(compiled, plugin, start)}"


def _describe_deadline(compiled: CompiledConfig, plugin: str, start: JobStart | None) -> str:
    if start is None or not start[0] or plugin not in compiled.plans:
        return ""
    started_at, command, _ = start
    timeout = compiled.plans[plugin].timeout(command)
    deadline = to_text(from_text(started_at) + timedelta(seconds=timeout))
    return f" since {started_at}, whose time limit ends at {deadline}"


def _blocked_by(
    row: Mapping[str, Any], compiled: CompiledConfig, running: RunningJobs
) -> str | None:
    """The running jobs that keep this one from running at the same time."""
    name = row["plugin"]
    cap, count = compiled.caps.get(name), running.of_plugin.get(name, 0)
    if cap is not None and count >= cap:
        start = running.oldest.get(name)
        blocker = _describe_start(compiled, name, start) if start else ""
        return f"plugin {name} runs {count} of {cap} jobs (parallelism){blocker}"
    key = row.get("dedupe_key")
    other = None if key is None else running.with_key.get((name, row["command"], key))
    if other:
        since = _describe_deadline(compiled, name, running.starts.get(other))
        return f"job {other} with the same dedupe key is running{since}"
    schedule = row.get("schedule_id")
    if schedule not in compiled.serial_schedules.get(name, ()):
        return None
    first = running.first_of_schedule.get((name, str(schedule)))
    earlier = first is not None and first != row["id"]
    if first is None or not earlier:
        return None
    since = _describe_deadline(compiled, name, running.starts.get(first))
    return f"job {first} of the same schedule has not ended (if_running: queue){since}"
