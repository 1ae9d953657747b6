"""`system doctor`: what is wrong with a gateway, why, and the command that fixes it.

Each check is a function from the `DoctorContext` to findings, in the module of what it examines.
No check changes anything, and each works whether or not a gateway runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ductile.operations.doctor import (
    agents,
    alerts,
    config,
    files,
    ledger,
    nodes,
    plugins,
    process,
    relays,
    webhooks,
    work,
)
from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, Severity

__all__ = ["DoctorContext", "Finding", "Severity", "examine"]

Check = Callable[[DoctorContext], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    config.loads,
    config.listeners,
    config.environment,
    files.secrets,
    files.state,
    files.space,
    files.workspaces,
    plugins.refused,
    plugins.interpreters,
    plugins.sandboxes,
    plugins.unready,
    plugins.cold,
    process.gateway,
    process.second,
    process.ports,
    process.configuration,
    process.clock,
    ledger.health,
    ledger.readers,
    ledger.invariants,
    ledger.backups,
    nodes.drift,
    nodes.lost,
    nodes.stream,
    work.jobs,
    work.waiting,
    work.pauses,
    work.breakers,
    work.dead_letters,
    relays.waiting,
    webhooks.refused,
    agents.slow,
    work.schedules,
    alerts.firing,
    alerts.undelivered,
)


def examine(context: DoctorContext) -> list[Finding]:
    """All findings, errors first."""
    found: list[Finding] = []
    for check in CHECKS:
        try:
            found += check(context)
        except Exception as error:  # noqa: BLE001 - a failed check is a finding; the others still run
            found.append(_failed_check(check, error))
    return sorted(found, key=lambda finding: finding.severity is not Severity.ERROR)


def _failed_check(check: Any, error: Exception) -> Finding:
    name = f"{check.__module__.rpartition('.')[2]}.{check.__name__}"
    return Finding(
        Severity.ERROR,
        "doctor",
        f"the check {name} failed",
        f"{type(error).__name__}: {error}",
        None,
    )
