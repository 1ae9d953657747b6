"""The plugins of a configuration: state, reason, breakers, environment and start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from ductile.clock import from_text, to_text
from ductile.core.flow.pauses import NO_PAUSES, Pauses
from ductile.core.schedules.breaker import describe_count
from ductile.engine.config.compiled import CompiledConfig
from ductile.operations.flow.pauses import show_pause
from ductile.operations.reports.conditions import describe_place
from ductile.operations.reports.repair import find_entrypoint_flaw
from ductile.plugins.registry import Plugin
from ductile.runner.warm.slots import WarmSlots
from ductile.store.engines.api import Ledger, Tx
from ductile.store.flow.pauses import load_pauses

OFFERED = "available"
MOST_BREAKERS = 1000


def plugins(
    compiled: CompiledConfig,
    unready: Mapping[str, str],
    tripped: Sequence[Mapping[str, Any]] = (),
    pauses: Pauses = NO_PAUSES,
    warm_slots: WarmSlots | None = None,
) -> list[dict[str, Any]]:
    """Every plugin that was found or configured, with its state and the reason for it.

    `tripped` are the breakers that are not closed; the reason of a ready plugin describes them,
    its pause, or why its program cannot start.
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
                "reason": reason or _describe_holds(compiled, pauses, breakers, name),
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
        rows.append(absent_plugin(refusal.name, "refused", refusal.reason, refusal.path))
    for shadowed in compiled.registry.shadowed:
        reason = f"shadowed by {shadowed.by}"
        rows.append(absent_plugin(shadowed.name, "shadowed", reason, shadowed.path))
    for name, manifest in compiled.registry.offered.items():
        reason = f"not configured; {manifest.description}"
        rows.append(absent_plugin(name, OFFERED, reason, None) | {"version": manifest.version})
    for name in compiled.registry.disabled:
        place = describe_place(compiled, ("plugins", name, "enabled"))
        rows.append(absent_plugin(name, "disabled", f"enabled: false, {place}", None))
    return sorted(rows, key=lambda row: (str(row["name"]), str(row["state"])))


def _describe_holds(
    compiled: CompiledConfig,
    pauses: Pauses,
    breakers: Sequence[Mapping[str, Any]],
    plugin: str,
) -> str | None:
    """What keeps the jobs of a loaded plugin from running, or has them fail."""
    if (pause := pauses.plugins.get(plugin)) is not None:
        return pause.describe()
    if breakers:
        return "; ".join(map(describe_breaker, breakers))
    flaw = find_entrypoint_flaw(compiled.plans[plugin])
    return None if flaw is None else f"its jobs fail: {flaw.what}"


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


def absent_plugin(name: str, state: str, reason: str, path: object) -> dict[str, Any]:
    return {
        "name": name,
        "state": state,
        "reason": reason,
        "paused": None,
        "path": str(path) if path else None,
        "commands": {},
    }


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
