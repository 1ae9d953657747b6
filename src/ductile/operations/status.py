"""`ductile status`: plugins, queue, last runs, and why a queued job does not run."""

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
from ductile.core.jobs.limits import document
from ductile.core.pipelines.graph import WAIT_PLUGIN
from ductile.core.schedules.breaker import describe_count
from ductile.core.values.redact import hide_secret_keys
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.recovery import removed_plugins
from ductile.operations.alerts.rules import describe_alerts
from ductile.operations.cluster.placement import describe_other_nodes, describe_pipelines
from ductile.operations.flow.holds import (
    JobStart,
    describe_debounced,
    describe_held_jobs,
    describe_holds,
)
from ductile.operations.flow.pauses import show_pause
from ductile.operations.plugin_health import HealthCheck
from ductile.operations.waits.describe import NO_WAITS, count_waits, describe_waits
from ductile.plugins.registry import Plugin
from ductile.runner.warm.slots import WarmSlots
from ductile.store.engines.api import Ledger, Tx
from ductile.store.flow.pauses import load_pauses
from ductile.store.jobs.read import count_jobs

OFFERED = "available"
MOST_BREAKERS = 1000
MAX_STATE_SHOWN = 4096
"""Bytes; a larger state of a plugin is not shown: `system plugin-facts` shows all of it."""
MOST_RUNNING = 1000
"""Running jobs that are considered when explaining why others are queued."""


def plugins(
    compiled: CompiledConfig,
    unready: Mapping[str, str],
    tripped: Sequence[Mapping[str, Any]] = (),
    pauses: Pauses = NO_PAUSES,
    warm_slots: WarmSlots | None = None,
) -> list[dict[str, Any]]:
    """Every plugin that was found or configured, with its state and the reason for it.

    `tripped` are the breakers that are not closed; the reason of a ready plugin describes them,
    or its pause.
    """
    rows = []
    for name, plugin in compiled.registry.plugins.items():
        sandbox = compiled.plans[name].sandbox
        reason = unready.get(name) or (sandbox and sandbox.refusal)
        breakers = [row for row in tripped if row["plugin"] == name]
        rows.append(
            {
                "name": name,
                "state": "unhealthy" if reason else "ready",
                "reason": reason or _describe_pause(pauses, name) or _describe_breakers(breakers),
                "paused": _shown_pause(pauses, name),
                "breakers": breakers,
                "version": plugin.manifest.version,
                "protocol": plugin.manifest.protocol,
                "commands": {c.name: c.type for c in plugin.manifest.commands},
                "uses": compiled.plugin_settings(name).uses,
                "parallelism": compiled.caps.get(name),
                "description": plugin.manifest.description,
                "path": str(plugin.directory),
                "environment": _environment_of(plugin),
                "start": describe_start(compiled, warm_slots, name),
                "sandbox": _sandbox_of(compiled, name),
            }
        )
    for refusal in compiled.registry.refused:
        rows.append(_absent(refusal.name, "refused", refusal.reason, refusal.path))
    for shadowed in compiled.registry.shadowed:
        reason = f"shadowed by {shadowed.by}"
        rows.append(_absent(shadowed.name, "shadowed", reason, shadowed.path))
    for name, manifest in compiled.registry.offered.items():
        reason = f"not configured; {manifest.description}"
        rows.append(_absent(name, OFFERED, reason, None) | {"version": manifest.version})
    for name in compiled.registry.disabled:
        rows.append(_absent(name, "disabled", "enabled: false", None))
    return sorted(rows, key=lambda row: (str(row["name"]), str(row["state"])))


def _describe_pause(pauses: Pauses, plugin: str) -> str | None:
    pause = pauses.plugins.get(plugin)
    return None if pause is None else pause.describe()


def _shown_pause(pauses: Pauses, plugin: str) -> dict[str, Any] | None:
    pause = pauses.plugins.get(plugin)
    return None if pause is None else show_pause(pause)


def _environment_of(plugin: Plugin) -> str | None:
    """The directory of the virtual environment that a Python plugin runs in."""
    environment = plugin.python.environment if plugin.python else None
    return str(environment) if environment else None


def describe_start(
    compiled: CompiledConfig, warm_slots: WarmSlots | None, name: str
) -> dict[str, Any] | None:
    """Whether jobs of a plugin are forked from a zygote, or why not; None if that was not asked
    for."""
    plan = compiled.plans.get(name)
    if plan is None or (plan.warm is None and not plan.cold_reason):
        return None
    if plan.warm is None:
        return _cold(plan.cold_reason)
    if warm_slots is None:
        return _cold("no gateway runs")
    report = warm_slots.report(plan.warm)
    if not report.is_warm:
        return _cold(compiled.redactor.text(report.reason), is_idle=report.is_idle)
    return {
        "mode": "warm",
        "reason": None,
        "memory_bytes": report.memory_kib * 1024,
        "slots": report.slots,
    }


def _cold(reason: str, *, is_idle: bool = False) -> dict[str, Any]:
    mode = "idle" if is_idle else "cold"
    return {"mode": mode, "reason": reason, "memory_bytes": 0, "slots": 0}


def _sandbox_of(compiled: CompiledConfig, name: str) -> dict[str, Any] | None:
    sandbox = compiled.plans[name].sandbox
    return None if sandbox is None else sandbox.to_document()


def _absent(name: str, state: str, reason: str, path: object) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "reason": reason,
        "paused": None,
        "path": str(path) if path else None,
        "commands": {},
    }


def _describe_breakers(tripped: Sequence[Mapping[str, Any]]) -> str | None:
    return "; ".join(map(describe_breaker, tripped)) or None


def describe_breaker(row: Mapping[str, Any]) -> str:
    """The state of a breaker that is not closed, its cause, and when its next probe is due."""
    probe = f"; next probe at {row['next_probe_at']}" if row["next_probe_at"] else ""
    cause = f"; last error: {row['cause']}" if row["cause"] else ""
    what = f"the breaker of {row['command']} is {row['state']}"
    return f"{what}: {describe_count(row['failure_count'])}{probe}{cause}"


def list_plugins(
    compiled: CompiledConfig,
    unready: Mapping[str, str],
    ledger: Ledger,
    now: datetime,
    warm_slots: WarmSlots | None = None,
) -> list[dict[str, Any]]:
    """As `plugins`, with the breakers and pauses of the ledger."""
    tripped = ledger.read(lambda tx: tripped_breakers(tx, compiled, MOST_BREAKERS))
    pauses = ledger.read(lambda tx: load_pauses(tx, now))
    return plugins(compiled, unready, tripped, pauses, warm_slots)


def tripped_breakers(tx: Tx, compiled: CompiledConfig | None, limit: int) -> list[dict[str, Any]]:
    """The breakers that are not closed, the first opened first.

    Those that hold nothing back, of removed plugins and of those with `circuit_breaker: off`, are
    left out; without `compiled` all are returned.
    """
    rows = tx.dicts("tripped_breakers", limit=MOST_BREAKERS)
    here = [row for row in rows if compiled is None or _is_in_use(row["plugin"], compiled)]
    return [{**row, "next_probe_at": next_probe_at(row, compiled)} for row in here[:limit]]


def _is_in_use(plugin: str, compiled: CompiledConfig) -> bool:
    return compiled.expects(plugin) and compiled.tx_config.breaker(plugin).threshold > 0


def next_probe_at(row: Mapping[str, Any], compiled: CompiledConfig | None) -> str | None:
    """When the schedules of an open breaker may fire again."""
    if compiled is None or row["state"] != "open" or row["opened_at"] is None:
        return None
    wait = compiled.tx_config.breaker(row["plugin"]).reset_after
    return to_text(from_text(row["opened_at"]) + timedelta(seconds=wait))


def status(
    compiled: CompiledConfig,
    unready: Mapping[str, str],
    ledger: Ledger | None,
    checks: Mapping[str, HealthCheck],
    now: datetime,
) -> dict[str, Any]:
    """Plugins with their health, breakers, stored state and last runs, and the queue depth."""
    last, stored, every, pauses = {}, {}, plugins(compiled, unready), NO_PAUSES
    waiting = running = 0
    alerts: dict[str, Any] = {"alerts": [], "undelivered_alerts": []}
    if ledger is not None:
        alerts = ledger.read(lambda tx: describe_alerts(tx, compiled.alert_rules, now))
        waiting, running = count_jobs(ledger)
        last = {row["plugin"]: row for row in ledger.read(lambda tx: tx.dicts("last_runs"))}
        stored = ledger.read(lambda tx: _read_states(tx, compiled))
        every = list_plugins(compiled, unready, ledger, now) + _missing(compiled, ledger)
        pauses = ledger.read(lambda tx: load_pauses(tx, now))
    rows = [row for row in every if row["state"] != OFFERED]
    for row in rows:
        check = checks.get(row["name"])
        row["health"] = (
            None
            if check is None
            else {
                "healthy": check.healthy,
                "detail": check.detail,
                "duration_ms": check.duration_ms,
            }
        )
        row["last_run"] = last.get(row["name"])
        row["plugin_state"] = stored.get(row["name"])
    paused = None if pauses.system is None else show_pause(pauses.system)
    waits = NO_WAITS if ledger is None else ledger.read(count_waits)
    return {
        "queue_depth": waiting,
        "running": running,
        **waits,
        "paused": paused,
        **alerts,
        "plugins": rows,
    }


def _missing(compiled: CompiledConfig, ledger: Ledger) -> list[dict[str, Any]]:
    """The plugins that no root has and for which jobs wait."""
    waiting = removed_plugins.count_jobs_of_absent_plugins(ledger, compiled)
    return [
        _absent(name, "missing", f"{compiled.absence(name)}; queued jobs: {jobs}", None)
        for name, jobs in waiting.items()
    ]


def _read_states(tx: Tx, compiled: CompiledConfig) -> dict[str, dict[str, Any]]:
    """What plugins have stored between jobs, redacted; of a large state only its size."""
    found = {}
    for name, size, text, updated_at in tx.all("plugin_states", most=MAX_STATE_SHOWN):
        value = None if text is None else document(text)
        # Secrets in a text that a script wrote and that is not an object have no names.
        shown = hide_secret_keys(value) if isinstance(value, dict) else None
        found[name] = {
            "bytes": size,
            "updated_at": updated_at,
            "value": compiled.redactor.document(shown),
        }
    return found


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
    return blocked or "all workers are busy"


def _describe_start(compiled: CompiledConfig, plugin: str, start: JobStart) -> str:
    """A running job, since when, and when its time is up."""
    return f": job {start[2]}{_describe_deadline(compiled, plugin, start)}"


def _describe_deadline(compiled: CompiledConfig, plugin: str, start: JobStart | None) -> str:
    if start is None or not start[0] or plugin not in compiled.plans:
        return ""
    started_at, command, _ = start
    timeout = compiled.plans[plugin].timeout(command)
    deadline = to_text(from_text(started_at) + timedelta(seconds=timeout))
    return f" since {started_at}, which is ended at {deadline} at the latest"


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
