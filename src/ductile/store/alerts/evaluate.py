"""The evaluation of the alert rules: a transition and its notification job are one transaction.

`plan` only reads: it says what would change. `apply` writes it. A node evaluates in a transaction
that holds the lock `alerts`, so that only one node does at a time; the guard of each row and the
key of the messages make a second message of one transition impossible even without it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import field, replace
from datetime import datetime, timedelta

from ductile._fast_dataclass import dataclass
from ductile.clock import Ids, to_text
from ductile.core.alerts import message
from ductile.core.alerts.causes import EVENTS, Cause, Causes
from ductile.core.alerts.conditions import Condition
from ductile.core.alerts.rules import AlertRule
from ductile.core.alerts.state_machine import AlertState, News, next_look, step
from ductile.core.jobs.commands import HANDLE
from ductile.core.pipelines.step_io import payload_column
from ductile.failpoint import failpoint
from ductile.model import Event, Json, NewJob, Notice, SubmittedBy
from ductile.store import notices
from ductile.store.alerts import rows
from ductile.store.alerts.events import Events
from ductile.store.alerts.levels import Levels, Watched
from ductile.store.alerts.rows import AlertRow, RuleRow
from ductile.store.engines.api import Position, Tx
from ductile.store.jobs import close, enqueue
from ductile.store.jobs.spawn import SpawnPoint
from ductile.store.tx_config import TxConfig

TOPIC = "alerts"
LOCK = ("alerts", "evaluation")
SEEN_EVERY = timedelta(minutes=10)
FORGOTTEN_AFTER = timedelta(hours=1)
"""A rule that no configuration has had for this time is deleted with its alerts."""


@dataclass(frozen=True, slots=True)
class AlertInputs:
    """What one evaluation works on."""

    rules: tuple[AlertRule, ...]
    watched: Watched
    gateway: str
    """The name in messages."""
    now: datetime
    with_levels: bool = True
    """Whether lasting conditions are read too, not only events."""
    dashboard: str | None = None
    """Its address for people."""


@dataclass(frozen=True, slots=True)
class AlertChange:
    """A row to write, and the message that follows from it."""

    rule: AlertRule
    row: AlertRow
    before: int
    """The number that was read."""
    news: News | None = None
    causes: Causes = Causes()
    """What the message reports."""


@dataclass(slots=True)
class AlertPlan:
    """What an evaluation changes."""

    new_rules: dict[str, Position] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    positions: dict[str, Position] = field(default_factory=dict)
    changes: list[AlertChange] = field(default_factory=list)
    new_endpoints: set[str] = field(default_factory=set)
    """Inbound webhooks whose silence counts from now on."""
    next_look: datetime | None = None
    has_more: bool = False
    """Whether another evaluation should follow at once."""

    def __bool__(self) -> bool:
        """Whether there is anything to write."""
        parts = (self.new_rules, self.seen, self.forgotten, self.positions, self.changes)
        return any(parts) or bool(self.new_endpoints)

    def look_at(self, moment: datetime | None) -> None:
        if moment is not None and (self.next_look is None or moment < self.next_look):
            self.next_look = moment


@dataclass(frozen=True, slots=True)
class SentAlert:
    rule: str
    group: str
    news: News
    job_id: str | None
    run_id: str | None = None


def plan(tx: Tx, inputs: AlertInputs) -> AlertPlan:
    """What changes now; nothing is written."""
    return _Planner(tx, inputs).make()


def evaluate(
    tx: Tx, inputs: AlertInputs, tx_config: TxConfig, base_id: str
) -> tuple[AlertPlan, list[SentAlert]] | None:
    """Evaluate the rules and enqueue the messages; None if another node does it now."""
    if not tx.hold(*LOCK, wait=False):
        return None
    made = plan(tx, inputs)
    return made, _apply(tx, made, inputs, tx_config, Ids(base_id))


class _Planner:
    def __init__(self, tx: Tx, inputs: AlertInputs) -> None:
        self._tx, self._inputs, self._now = tx, inputs, inputs.now
        self._events = Events(tx)
        self._levels = Levels(tx, inputs.watched, inputs.now)
        self._plan = AlertPlan()

    def make(self) -> AlertPlan:
        known = rows.list_rules(self._tx)
        names = {rule.name for rule in self._inputs.rules}
        for name, row in known.items():
            if name not in names and abs(self._now - row.seen_at) > FORGOTTEN_AFTER:
                self._plan.forgotten.append(name)
        active: dict[str, list[AlertRow]] = {}
        for alert in rows.list_active(self._tx):
            active.setdefault(alert.rule, []).append(alert)
        for rule in self._inputs.rules:
            rule_row = known.get(rule.name)
            if rule_row is None:
                self._plan.new_rules[rule.name] = notices.last_position(self._tx)
                self._plan.has_more = True
                continue
            if abs(self._now - rule_row.seen_at) > SEEN_EVERY:
                self._plan.seen.append(rule.name)
            self._plan_rule(rule, rule_row, active.get(rule.name, ()))
        self._plan.new_endpoints = self._levels.new_endpoints
        return self._plan

    def _plan_rule(self, rule: AlertRule, row: RuleRow, active: Iterable[AlertRow]) -> None:
        page = self._events.read_after(row.position)
        if page.position != row.position:
            self._plan.positions[rule.name] = page.position
            self._plan.has_more |= page.has_more
        events = _by_group(rule, self._events.select(rule, page.causes))
        lasting = None
        if self._inputs.with_levels:
            lasting = _by_group(rule, self._levels.read(rule, row))
        stored = {alert.group: alert for alert in active}
        for group in sorted({*stored, *events, *(lasting or ())}):
            alert = stored.get(group) or rows.load_alert(self._tx, rule.name, group)
            seen = None if lasting is None else lasting.get(group, [])
            self._plan_group(rule, row, alert, events.get(group, []), seen)
        if row.is_silenced(self._now):
            self._plan.look_at(row.silenced_until)

    def _plan_group(
        self,
        rule: AlertRule,
        rule_row: RuleRow,
        stored: AlertRow,
        events: list[Cause],
        lasting: list[Cause] | None,
    ) -> None:
        silenced = rule_row.is_silenced(self._now)
        causes = self._merge(rule, stored, events, lasting)
        seen = causes.observe()
        done = step(stored.alert, seen, rule.policy, self._now, silenced=silenced)
        # After the end, what failed last stays: for the message, and to be shown.
        kept = causes or stored.causes
        if done.alert != stored.alert or kept != stored.causes:
            row = replace(stored, alert=done.alert, causes=kept)
            change = AlertChange(rule, row, stored.alert.number, done.news, kept)
            self._plan.changes.append(change)
        self._plan.look_at(next_look(done.alert, seen, rule.policy, self._now, silenced=silenced))
        if done.alert.state is AlertState.FIRING and not seen.is_failing:
            self._plan.has_more = True

    def _merge(
        self, rule: AlertRule, stored: AlertRow, events: list[Cause], lasting: list[Cause] | None
    ) -> Causes:
        """What fails in the group now."""
        causes = stored.causes if stored.alert.state is not AlertState.OK else Causes()
        for cause in events:
            if cause.condition in EVENTS:
                causes = self._add_event(causes, cause)
        if lasting is not None:
            # A breaker that has opened and closed since the last evaluation is reported as well.
            lasting = [*lasting, *self._list_of_other_nodes(rule, causes)]
            known = {cause.key for cause in lasting}
            breakers = [one for one in events if one.condition is Condition.BREAKER_OPEN]
            causes = causes.update([*lasting, *(one for one in breakers if one.key not in known)])
        else:
            for cause in events:
                if cause.condition is Condition.BREAKER_OPEN:
                    causes = causes.end([cause.key]).add(cause)
        ended = [
            cause.key
            for cause in causes.items
            if cause.condition in EVENTS and self._events.has_success(cause, cause.last_at)
        ]
        return causes.end(ended)

    def _list_of_other_nodes(self, rule: AlertRule, causes: Causes) -> Iterator[Cause]:
        for cause in causes.items:
            is_watched = rule.watches(cause.condition, cause.subject)
            if is_watched and self._levels.is_of_another_node(cause):
                yield cause

    def _add_event(self, causes: Causes, cause: Cause) -> Causes:
        if cause.condition is Condition.RUN_FAILED:
            # That of its job, reported while the run was open, is the same problem.
            causes = causes.end([(Condition.JOB_DEAD.value, cause.subject, "")])
        before = next((item for item in causes.items if item.key == cause.key), None)
        if before and self._events.has_success(cause, before.last_at, until=cause.since):
            # A success was between them, so they are not failures in a row.
            causes = causes.end([cause.key])
        return causes.add(cause)


def _by_group(rule: AlertRule, causes: Iterable[Cause]) -> dict[str, list[Cause]]:
    found: dict[str, list[Cause]] = {}
    for cause in causes:
        if rule.watches(cause.condition, cause.subject):
            found.setdefault(rule.group_of(cause), []).append(cause)
    return found


def _apply(
    tx: Tx, made: AlertPlan, inputs: AlertInputs, tx_config: TxConfig, ids: Ids
) -> list[SentAlert]:
    now = to_text(inputs.now)
    for name in made.forgotten:
        rows.delete_rule(tx, name)
    for name, position in made.new_rules.items():
        tx.run("insert_alert_rule", name=name, xact=position.xact, notice_id=position.id, now=now)
    for name in made.seen:
        tx.run("see_alert_rule", name=name, now=now)
    for path in sorted(made.new_endpoints):
        # No sender has an empty id.
        tx.run("insert_receipt", endpoint=path, delivery_id="", job_id=None, now=now)
    for name, position in made.positions.items():
        tx.run("move_alert_rule", name=name, xact=position.xact, notice_id=position.id)
    return list(_write_changes(tx, made, inputs, tx_config, ids))


def _write_changes(
    tx: Tx, made: AlertPlan, inputs: AlertInputs, tx_config: TxConfig, ids: Ids
) -> Iterator[SentAlert]:
    for change in made.changes:
        rows.store_alert(tx, change.row, change.before, inputs.now)
        failpoint("alert.transition")
        if change.news is None:
            continue
        alert = change.row.alert
        ended_at = None
        if change.news is News.RESOLVED:
            ended_at = change.causes.ended_at or alert.ended_at
        payload = message.compose(
            gateway=inputs.gateway,
            rule=change.rule.name,
            group=change.row.group,
            news=change.news,
            state=alert.state,
            since=alert.since,
            causes=change.causes,
            now=inputs.now,
            ended_at=ended_at,
            dashboard=inputs.dashboard,
        )
        number = alert.number
        sent = send(
            tx,
            change.rule,
            change.row.group,
            number,
            change.news,
            payload,
            tx_config,
            ids,
            inputs.now,
        )
        failpoint("alert.notified")
        yield sent


def send(
    tx: Tx,
    rule: AlertRule,
    group: str,
    number: int,
    news: News,
    payload: Json,
    tx_config: TxConfig,
    ids: Ids,
    now: datetime,
) -> SentAlert:
    """Enqueue the job or the run that delivers a message, and record both."""
    event = Event(f"alert.{news}", payload, None, SubmittedBy.ALERT.value, now, ids.next())
    run_id: str | None = None
    if rule.is_pipeline:
        intent = tx_config.router.start(rule.target, event, submitted_by=SubmittedBy.ALERT)
        assert intent is not None, "the configuration was checked"
        spawned = close.write_intents(tx, (intent,), SpawnPoint(), tx_config, ids, now)
        run_id = spawned.scope_ids[0]
        job_id = spawned.job_ids[0] if spawned.job_ids else None
    else:
        column = payload_column(HANDLE, event)
        new = NewJob(rule.target, HANDLE, SubmittedBy.ALERT, column)
        job_id = enqueue.enqueue_job(tx, new, tx_config, id=ids.next(), now=now).job_id
    tx.run(
        "insert_notification",
        rule=rule.name,
        group=group,
        number=number,
        news=news.value,
        target=rule.target,
        job_id=job_id,
        run_id=run_id,
        message=payload["message"],
        now=to_text(now),
    )
    fields = {
        "rule": rule.name,
        "group": group,
        "state": payload["state"],
        "since": payload["since"],
        "count": payload["count"],
        "title": payload["title"],
        "job_id": job_id,
    }
    notices.post(tx, Notice(TOPIC, f"alert.{news}", fields), now, job_id=job_id)
    return SentAlert(rule.name, group, news, job_id, run_id)
