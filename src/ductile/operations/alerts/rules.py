"""List, show, test and silence alert rules."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from ductile.clock import Ids, to_text
from ductile.config.models.units import format_duration
from ductile.core.alerts import message
from ductile.core.alerts.causes import Causes, encode
from ductile.core.alerts.rules import AlertRule
from ductile.core.alerts.state_machine import AlertState, News
from ductile.core.values.suggest import did_you_mean
from ductile.engine.services import Services
from ductile.errors import NotFound, UsageError
from ductile.model import Notice
from ductile.store import notices
from ductile.store.alerts import evaluate, rows
from ductile.store.alerts.rows import AlertRow, RuleRow
from ductile.store.engines.api import Tx

MAX_MESSAGES = 50
MAX_FIRING = 50
TEST_GROUP = "test"


def find_rule(services: Services, name: str) -> AlertRule:
    """The rule of the configuration; raises `NotFound`."""
    rules = {rule.name: rule for rule in services.compiled.alert_rules}
    if name not in rules:
        hint = did_you_mean(name, rules)
        known = ", ".join(sorted(rules)) or "none"
        raise NotFound(f"there is no alert rule {name!r}{hint}; there are: {known}")
    return rules[name]


def list_rules(services: Services) -> dict[str, Any]:
    """Every rule with its state, and the messages that did not arrive."""
    rules, now = services.compiled.alert_rules, services.clock.now()

    def work(tx: Tx) -> dict[str, Any]:
        known = rows.list_rules(tx)
        listed = [
            _summarize(rule, known.get(rule.name), rows.list_of_rule(tx, rule.name), now)
            for rule in rules
        ]
        return {"alerts": listed, "undelivered": _read_undelivered(tx, now)}

    return services.ledger.read(work)


def show_rule(services: Services, name: str) -> dict[str, Any]:
    """A rule with the alerts of its groups, and its last messages."""
    rule, now = find_rule(services, name), services.clock.now()

    def work(tx: Tx) -> dict[str, Any]:
        found = rows.list_of_rule(tx, name)
        summary = _summarize(rule, rows.list_rules(tx).get(name), found, now)
        policy = rule.policy
        return {
            **summary,
            "after": policy.after,
            "for": format_duration(policy.lasts),
            "wait": format_duration(policy.wait),
            "repeat": format_duration(policy.repeat),
            "group": rule.grouping.value,
            "only": list(rule.only),
            "groups": [_show_alert(row) for row in found],
            "messages": tx.dicts("notifications_of_rule", rule=name, limit=MAX_MESSAGES),
        }

    return services.ledger.read(work)


def list_firing(tx: Tx, rules: tuple[AlertRule, ...]) -> list[dict[str, Any]]:
    """The alerts of configured rules that fire."""
    names = {rule.name for rule in rules}
    firing = [
        row
        for row in rows.list_active(tx)
        if row.alert.state is AlertState.FIRING and row.rule in names
    ]
    return [{"rule": row.rule, **_describe_alert(row)} for row in firing[:MAX_FIRING]]


def describe_alerts(tx: Tx, rules: tuple[AlertRule, ...], now: datetime) -> dict[str, Any]:
    """For `status`: the alerts that fire, and the messages that did not arrive."""
    return {"alerts": list_firing(tx, rules), "undelivered_alerts": _read_undelivered(tx, now)}


def _summarize(
    rule: AlertRule, known: RuleRow | None, found: list[AlertRow], now: datetime
) -> dict[str, Any]:
    by_state = {state: [r for r in found if r.alert.state is state] for state in AlertState}
    firing = by_state[AlertState.FIRING]
    worst = firing or by_state[AlertState.PENDING]
    sent = [row.alert.notified_at for row in found if row.alert.notified_at is not None]
    is_silenced = known is not None and known.is_silenced(now)
    return {
        "rule": rule.name,
        "on": sorted(condition.value for condition in rule.on),
        "to": rule.target,
        "target": "pipeline" if rule.is_pipeline else "plugin",
        "state": worst[0].alert.state.value if worst else AlertState.OK.value,
        "firing": len(firing),
        "pending": len(by_state[AlertState.PENDING]),
        "since": _time(min((r.alert.since for r in worst if r.alert.since), default=None)),
        "last_error": _last_error(worst),
        "notified_at": _time(max(sent, default=None)),
        "silenced_until": _time(known.silenced_until) if known and is_silenced else None,
        "silenced_by": known.silenced_by if known and is_silenced else None,
    }


def _last_error(found: list[AlertRow]) -> str | None:
    last = found[0].causes.last if found else None
    return (last.last_error or None) if last else None


def _show_alert(row: AlertRow) -> dict[str, Any]:
    return {
        **_describe_alert(row),
        "flapping": row.alert.is_flapping,
        "causes": encode(row.causes)["items"],
    }


def _describe_alert(row: AlertRow) -> dict[str, Any]:
    first, last = row.causes.first, row.causes.last
    return {
        "group": row.group,
        "state": row.alert.state.value,
        "since": _time(row.alert.since),
        "count": row.causes.count,
        "first_error": (first.first_error or None) if first else None,
        "last_error": (last.last_error or None) if last else None,
        "notified_at": _time(row.alert.notified_at),
        "updated_at": row.updated_at,
    }


def _read_undelivered(tx: Tx, now: datetime) -> list[dict[str, Any]]:
    found = rows.list_undelivered(tx, now)
    return [
        {
            "rule": row["rule"],
            "group": row["alert_group"],
            "to": row["target"],
            "job_id": row["job_id"],
            "run_id": row["run_id"],
            "created_at": row["created_at"],
            "error": row["error"],
        }
        for row in found
    ]


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else to_text(moment)


class AlertTest:
    """The transaction that sends a test message; with `dry` it only reads."""

    def __init__(self, services: Services, name: str, *, dry: bool = False) -> None:
        self._rule, self._dry = find_rule(services, name), dry
        self._tx_config = services.compiled.tx_config
        settings = services.compiled.settings
        self._gateway, self._dashboard = settings.service.name, settings.api.dashboard
        self._now, self._base_id = services.clock.now(), services.entropy.uuid()

    def __call__(self, tx: Tx) -> dict[str, Any]:
        rule = self._rule
        result = {"rule": rule.name, "to": rule.target, "job_id": None, "run_id": None}
        if self._dry:
            return result
        tx.hold("alerts", TEST_GROUP, wait=True)
        key = {"rule": rule.name, "group": TEST_GROUP}
        number = tx.all("next_notification_number", **key)[0][0]
        payload = message.compose(
            gateway=self._gateway,
            rule=rule.name,
            group=TEST_GROUP,
            news=News.TEST,
            state=AlertState.OK,
            since=None,
            causes=Causes(),
            now=self._now,
            dashboard=self._dashboard,
        )
        ids = Ids(self._base_id)
        sent = evaluate.send(
            tx, rule, TEST_GROUP, number, News.TEST, payload, self._tx_config, ids, self._now
        )
        return {**result, "job_id": sent.job_id, "run_id": sent.run_id}


class AlertSilence:
    """The transaction that silences a rule or ends its silence; with `dry` it only reads."""

    def __init__(self, services: Services, name: str, by: str, *, dry: bool = False) -> None:
        self._rule, self._by, self._dry = find_rule(services, name), by, dry
        self._now = services.clock.now()

    def choose_end(self, seconds: float | None, until: datetime | None) -> datetime:
        """When the silence ends; raises `UsageError` unless exactly one future end is given."""
        if (seconds is None) == (until is None):
            raise UsageError("a silence needs either duration or until")
        end = self._now + timedelta(seconds=seconds) if seconds is not None else until
        if end is None or end <= self._now:
            raise UsageError("the end of the silence is not in the future")
        return end

    def silence(self, tx: Tx, until: datetime) -> dict[str, Any]:
        return self._set(tx, to_text(until))

    def unsilence(self, tx: Tx) -> dict[str, Any]:
        return self._set(tx, None)

    def _set(self, tx: Tx, until: str | None) -> dict[str, Any]:
        name = self._rule.name
        by = self._by if until is not None else None
        result = {"rule": name, "silenced_until": until, "silenced_by": by}
        if self._dry:
            return result
        position, now = notices.last_position(tx), to_text(self._now)
        # A rule that no gateway has evaluated yet has no row.
        tx.run("insert_alert_rule", name=name, xact=position.xact, notice_id=position.id, now=now)
        tx.run("silence_alert_rule", name=name, until=until, by=by)
        kind = "alert.silenced" if until is not None else "alert.unsilenced"
        fields = {"rule": name, "until": until, "by": self._by}
        notices.post(tx, Notice(evaluate.TOPIC, kind, fields), self._now)
        return result
