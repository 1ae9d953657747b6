"""The rows of alerts: rules with their positions, the state of each group, and messages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import moment_of, to_text
from ductile.core.alerts.causes import Causes, decode, encode
from ductile.core.alerts.state_machine import Alert, AlertState
from ductile.core.jobs.limits import document
from ductile.store.engines.api import Position, Row, Tx

MAX_LISTED = 1000
UNDELIVERED_FOR = timedelta(days=7)
"""How long a message that did not arrive is reported."""
LATE_AFTER = timedelta(minutes=10)
"""How long the job of a message may wait in the queue."""
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
"""For a time that a script wrote and that cannot be read."""


class AlertConflict(RuntimeError):
    """Another process has changed the alert since this transaction read it."""


@dataclass(frozen=True, slots=True)
class RuleRow:
    """What the ledger knows of a rule."""

    name: str
    position: Position
    """The last notice that it has evaluated."""
    created_at: datetime
    seen_at: datetime
    """When a gateway last had the rule in its configuration."""
    silenced_until: datetime | None = None
    silenced_by: str | None = None

    def is_silenced(self, now: datetime) -> bool:
        return self.silenced_until is not None and now < self.silenced_until


@dataclass(frozen=True, slots=True)
class AlertRow:
    """The stored state of one (rule, group)."""

    rule: str
    group: str
    alert: Alert
    causes: Causes
    """What fails; after a recovery what failed last."""
    updated_at: str | None = None


def list_rules(tx: Tx) -> dict[str, RuleRow]:
    return {row[0]: _parse_rule(row) for row in tx.all("alert_rules")}


def _parse_rule(row: Row) -> RuleRow:
    name, xact, notice_id, created_at, seen_at, until, by = row
    return RuleRow(
        name,
        Position(xact, notice_id),
        moment_of(created_at) or LONG_AGO,
        moment_of(seen_at) or LONG_AGO,
        None if until is None else moment_of(until),
        by,
    )


def load_alert(tx: Tx, rule: str, group: str) -> AlertRow:
    """The stored alert, or a new one that is ok."""
    row = tx.one("alert", rule=rule, group=group)
    return AlertRow(rule, group, Alert(), Causes()) if row is None else parse_alert(row)


def list_active(tx: Tx) -> list[AlertRow]:
    """The alerts that time alone may change."""
    return [parse_alert(row) for row in tx.all("active_alerts")]


def list_of_rule(tx: Tx, rule: str) -> list[AlertRow]:
    """The alerts of a rule: first those that fail, then the newest."""
    return [parse_alert(row) for row in tx.all("alerts_of_rule", rule=rule, limit=MAX_LISTED)]


def parse_alert(row: Row) -> AlertRow:
    rule, group, state, number, since, armed, notified, reported, flapping, flips, causes, at = row
    times = document(flips)
    alert = Alert(
        state=AlertState(state),
        number=number,
        since=_parse_time(since),
        armed_at=_parse_time(armed),
        notified_at=_parse_time(notified),
        is_reported=bool(reported),
        flips=tuple(filter(None, map(_parse_time, times if isinstance(times, list) else ()))),
        is_flapping=bool(flapping),
    )
    return AlertRow(rule, group, alert, decode(document(causes)), at)


def store_alert(tx: Tx, row: AlertRow, before: int, now: datetime) -> None:
    """Write the alert; raises `AlertConflict` if its number is not `before` any more."""
    alert = row.alert
    changed = tx.run(
        "store_alert",
        rule=row.rule,
        group=row.group,
        state=alert.state.value,
        number=alert.number,
        since=_format_time(alert.since),
        armed_at=_format_time(alert.armed_at),
        notified_at=_format_time(alert.notified_at),
        reported=int(alert.is_reported),
        flapping=int(alert.is_flapping),
        flips=orjson.dumps([to_text(at) for at in alert.flips]).decode(),
        causes=orjson.dumps(encode(row.causes)).decode(),
        now=to_text(now),
        before=before,
    )
    if changed != 1:
        raise AlertConflict(f"alert {row.rule}/{row.group} was changed by another process")


def delete_rule(tx: Tx, name: str) -> None:
    """Forget a rule that no configuration has any more, with its alerts and messages."""
    for query in ("delete_notifications_of_rule", "delete_alerts_of_rule", "delete_alert_rule"):
        tx.run(query, name=name)


def list_undelivered(tx: Tx, now: datetime, limit: int = 100) -> list[dict[str, Any]]:
    """Messages whose job or run has failed or does not start, the newest first."""
    times = {"since": to_text(now - UNDELIVERED_FOR), "late": to_text(now - LATE_AFTER)}
    return tx.dicts("undelivered_notifications", limit=limit, **times)


def _parse_time(text: Any) -> datetime | None:
    return moment_of(text) if isinstance(text, str) else None


def _format_time(moment: datetime | None) -> str | None:
    return None if moment is None else to_text(moment)
