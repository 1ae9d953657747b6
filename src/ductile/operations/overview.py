"""`GET /system/overview`: running and queued jobs, recent failures, and the next fires."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import ductile
from ductile.clock import to_text
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.services import Services
from ductile.operations import schedule_report
from ductile.operations.alerts.rules import list_firing
from ductile.operations.reports import plugin_list
from ductile.operations.reports.job_list import read_progress
from ductile.operations.waits.describe import count_waits
from ductile.store.engines.api import Tx

MOST_ROWS = 50
ATTEMPTS_SEARCHED = 1000
"""Number of newest attempts that are searched for failures."""


def overview(gateway: Services) -> dict[str, Any]:
    now, compiled, unready = gateway.clock.now(), gateway.compiled, gateway.unready
    is_running = bool(gateway.loops)
    boot = gateway.started_at if is_running else None
    rows = schedule_report.listing(compiled, unready, gateway.ledger, now, boot)
    schedules = sorted((row for row in rows if row["next_run"]), key=lambda row: row["next_run"])
    queue = gateway.ledger.read(lambda tx: _queue(tx, compiled))
    for job in queue["running"]:
        if progress := read_progress(gateway, job["job_id"]):
            job["progress"] = progress
    return {
        "at": to_text(now),
        "running_gateway": is_running,
        "version": ductile.__version__,
        "name": compiled.settings.service.name,
        "uptime_seconds": int(gateway.uptime) if is_running else None,
        "workers": gateway.workers,
        "plugins": len(compiled.plans),
        "state_dir": str(gateway.state_dir),
        **queue,
        "alerts": gateway.ledger.read(lambda tx: list_firing(tx, compiled.alert_rules)),
        "held": _held(compiled, unready, [row["plugin"] for row in queue["waiting"]]),
        "next": [
            {key: row[key] for key in ("plugin", "schedule", "rule", "next_run", "state")}
            for row in schedules[:MOST_ROWS]
        ],
    }


def _queue(tx: Tx, compiled: CompiledConfig) -> dict[str, Any]:
    waiting = tx.dicts("ready_by_plugin")
    retrying = tx.all("retries_waiting")[0][0]
    waits = count_waits(tx)
    return {
        "queue": {
            "ready": sum(row["jobs"] for row in waiting),
            "retrying": retrying,
            "running": tx.all("running_count")[0][0],
            **waits,
        },
        "running": tx.dicts("running_jobs", limit=MOST_ROWS),
        "waiting": waiting[:MOST_ROWS],
        "failures": tx.dicts("recent_failures", among=ATTEMPTS_SEARCHED, limit=MOST_ROWS),
        "breakers": plugin_list.tripped_breakers(tx, compiled, MOST_ROWS),
    }


def _held(
    compiled: CompiledConfig, unready: Mapping[str, str], waiting: Iterable[str]
) -> dict[str, str]:
    """The plugins whose jobs are held in the queue, with the reason; `waiting` have jobs there."""
    refused = {r.name: r.reason for r in compiled.registry.refused if r.name in compiled.held()}
    absent = {name: reason for name in waiting if (reason := compiled.absence(name))}
    return {**refused, **absent, **unready}
