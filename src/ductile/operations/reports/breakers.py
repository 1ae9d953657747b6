"""The circuit breakers of a plugin: show and reset them."""

from __future__ import annotations

from typing import Any

from ductile.core.values.suggest import did_you_mean
from ductile.engine.services import Services
from ductile.errors import NotFound
from ductile.operations.reports.plugin_list import next_probe_at
from ductile.store import breakers
from ductile.store.engines.api import Tx

MAX_TRANSITIONS = 100


def show_breakers(services: Services, plugin: str) -> dict[str, Any]:
    """Return the breakers of a plugin, also of commands that have never failed, and their history.

    Raises `NotFound` for an unknown plugin.
    """

    def work(tx: Tx) -> dict[str, Any]:
        rows = {row["command"]: row for row in _read(tx, services, plugin)}
        for entry in services.compiled.schedules:
            if entry.plugin == plugin:
                rows.setdefault(entry.command, _closed(plugin, entry.command))
        return {
            "plugin": plugin,
            "breakers": [
                {**row, "next_probe_at": next_probe_at(row, services.compiled)}
                for row in rows.values()
            ],
            "transitions": tx.dicts("breaker_transitions", plugin=plugin, limit=MAX_TRANSITIONS),
        }

    return services.ledger.read(work)


def _read(tx: Tx, services: Services, plugin: str) -> list[dict[str, Any]]:
    """Return the stored breakers; a plugin that was removed may have left some."""
    rows, compiled = tx.dicts("breakers", plugin=plugin), services.compiled
    if not rows and plugin not in compiled.settings.plugins and plugin not in compiled.plans:
        raise NotFound(f"there is no plugin {plugin!r}{did_you_mean(plugin, compiled.plans)}")
    return rows


def _closed(plugin: str, command: str) -> dict[str, Any]:
    absent = ("opened_at", "last_failure_at", "last_job_id", "probe_job_id", "updated_at", "cause")
    row = {"plugin": plugin, "command": command, "state": "closed", "failure_count": 0}
    return {**row, **dict.fromkeys(absent)}


class BreakerReset:
    """The transaction that closes the breakers of a plugin and returns their commands."""

    def __init__(self, services: Services, plugin: str, *, dry: bool) -> None:
        self._services, self._plugin, self._dry = services, plugin, dry
        self._now = services.clock.now()

    def __call__(self, tx: Tx) -> list[str]:
        rows = _read(tx, self._services, self._plugin)
        if self._dry:
            return [row["command"] for row in rows if row["state"] != "closed"]
        return breakers.reset_breakers(tx, self._plugin, self._now)
