"""What a gateway does right now, on one page: what runs, waits, failed, and comes next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ductile
from ductile.clock import to_text
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.services import Services
from ductile.operations import schedule_report, status
from ductile.store.engines.api import Tx

MOST_ROWS = 50
FAILURES_AMONG = 1000
"""How many of the newest attempts are looked at for failures."""


def overview(gateway: Services) -> dict[str, Any]:
    now, compiled, unready = gateway.clock.now(), gateway.compiled, gateway.unready
    runs = bool(gateway.loops)
    boot = gateway.started_at if runs else None
    rows = schedule_report.listing(compiled, unready, gateway.ledger, now, boot)
    schedules = sorted((row for row in rows if row["next_run"]), key=lambda row: row["next_run"])
    return {
        "at": to_text(now),
        "running_gateway": runs,
        "version": ductile.__version__,
        "name": compiled.settings.service.name,
        "uptime_seconds": int((now - gateway.started_at).total_seconds()) if runs else None,
        "workers": gateway.workers,
        "plugins": len(compiled.plans),
        "state_dir": str(gateway.state_dir),
        **gateway.ledger.read(lambda tx: _queue(tx, compiled)),
        "held": _held(compiled, unready),
        "next": [
            {key: row[key] for key in ("plugin", "schedule", "rule", "next_run", "state")}
            for row in schedules[:MOST_ROWS]
        ],
    }


def _queue(tx: Tx, compiled: CompiledConfig) -> dict[str, Any]:
    waiting = tx.dicts("waiting_by_plugin")
    later = tx.all("waiting_for_a_retry")[0][0]
    return {
        "queue": {
            "ready": sum(row["jobs"] for row in waiting),
            "retrying": later,
            "running": tx.all("running_count")[0][0],
        },
        "running": tx.dicts("running_jobs", limit=MOST_ROWS),
        "waiting": waiting[:MOST_ROWS],
        "failures": tx.dicts("recent_failures", among=FAILURES_AMONG, limit=MOST_ROWS),
        "breakers": status.tripped_breakers(tx, compiled, MOST_ROWS),
    }


def _held(compiled: CompiledConfig, unready: Mapping[str, str]) -> dict[str, str]:
    """Plugins whose jobs wait, and why."""
    refused = {r.name: r.reason for r in compiled.registry.refused if r.name in compiled.held()}
    return {**refused, **unready}
