"""`ductile status`: plugins with their last runs and stored state, and the queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from ductile.core.jobs.limits import document
from ductile.core.values.redact import hide_secret_keys
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.recovery import removed_plugins
from ductile.operations.alerts.rules import describe_alerts
from ductile.operations.flow.pauses import show_pause
from ductile.operations.plugin_health import HealthCheck
from ductile.operations.reports.failures import list_failures
from ductile.operations.reports.plugin_list import OFFERED, absent_plugin, list_plugins
from ductile.operations.waits.describe import count_waits
from ductile.store.engines.api import Ledger, Tx
from ductile.store.flow.pauses import load_pauses
from ductile.store.jobs.read import count_jobs

MAX_STATE_SHOWN = 4096
"""Bytes; a larger state of a plugin is not shown: `system plugin-facts` shows all of it."""


def status(
    compiled: CompiledConfig,
    unready: Mapping[str, str],
    ledger: Ledger,
    checks: Mapping[str, HealthCheck],
    now: datetime,
) -> dict[str, Any]:
    """Plugins with their health, breakers, stored state and last runs, and the queue depth."""
    waiting, running = count_jobs(ledger)
    alerts = ledger.read(lambda tx: describe_alerts(tx, compiled.alert_rules, now))
    failures = ledger.read(lambda tx: list_failures(tx, now))["failures"]
    last = {row["plugin"]: row for row in ledger.read(lambda tx: tx.dicts("last_runs"))}
    stored = ledger.read(lambda tx: _read_states(tx, compiled))
    every = list_plugins(compiled, unready, ledger, now) + _missing(compiled, ledger)
    paused = ledger.read(lambda tx: load_pauses(tx, now)).system
    rows = [row for row in every if row["state"] != OFFERED]
    for row in rows:
        check = checks.get(row["name"])
        row["health"] = None if check is None else asdict(check)
        row["last_run"] = last.get(row["name"])
        row["plugin_state"] = stored.get(row["name"])
    return {
        "queue_depth": waiting,
        "running": running,
        **ledger.read(count_waits),
        "paused": None if paused is None else show_pause(paused),
        **alerts,
        "failures": failures,
        "plugins": rows,
    }


def _missing(compiled: CompiledConfig, ledger: Ledger) -> list[dict[str, Any]]:
    """The plugins that no root has and for which jobs wait."""
    waiting = removed_plugins.count_jobs_of_absent_plugins(ledger, compiled)
    return [
        absent_plugin(name, "missing", f"{compiled.absence(name)}; queued jobs: {jobs}", None)
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
