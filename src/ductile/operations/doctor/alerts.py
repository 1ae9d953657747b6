"""Checks of alerts: those that fire, and messages that did not arrive."""

from __future__ import annotations

from collections.abc import Iterator

from ductile.operations.alerts.rules import list_firing
from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, error, warning
from ductile.store.alerts import rows

MAX_SHOWN = 10


def firing(context: DoctorContext) -> Iterator[Finding]:
    """Alerts that fire now."""
    if context.rows is None or context.compiled is None:
        return
    rules = context.compiled.alert_rules
    for row in context.rows.read(lambda tx: list_firing(tx, rules))[:MAX_SHOWN]:
        yield warning(
            "alerts",
            f"alert {row['rule']} fires for {row['group']} since {row['since']}",
            row["last_error"] or "no error was recorded",
            context.command(f"alert show {row['rule']}"),
        )


def undelivered(context: DoctorContext) -> Iterator[Finding]:
    """Messages of alerts that were not delivered: their job is dead, or does not start."""
    if context.rows is None:
        return
    now = context.now
    for row in context.rows.read(lambda tx: rows.list_undelivered(tx, now))[:MAX_SHOWN]:
        job_id = row["job_id"]
        yield error(
            "alerts",
            f"alert {row['rule']} of {row['created_at']} did not reach {row['target']}",
            row["error"] or "its job is dead",
            context.command(f"job why {job_id}" if job_id else f"alert show {row['rule']}"),
        )
