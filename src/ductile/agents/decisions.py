"""Decision logs: the transactions that accept a valid log or report an invalid one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime

from ductile._fast_dataclass import dataclass
from ductile.agents.heartbeats import HeartbeatManager
from ductile.agents.reminders import ReminderScheduler
from ductile.clock import Clock
from ductile.core.agents import decision_log, reminder
from ductile.core.agents.decision_log import DecisionLog
from ductile.core.agents.reminder import NewReminder, ScheduleError
from ductile.core.values.json_values import Failure, shorten
from ductile.log import logger
from ductile.model import Json, Notice
from ductile.store import agents, notices, reminders
from ductile.store.engines.api import Tx, Work
from ductile.store.reminders import ScheduledReminder

MESSAGES = "gateway:messages"
VIOLATIONS = "gateway:violations"


@dataclass(frozen=True, slots=True)
class AcceptedLog:
    """The result of accepting a log."""

    agent_id: str
    reminder: ScheduledReminder | ScheduleError | None


class DecisionLogIntake:
    """Accepts the logs that agents post, and publishes them on `gateway:messages`."""

    def __init__(
        self,
        heartbeats: HeartbeatManager,
        scheduler: ReminderScheduler,
        clock: Clock,
        redact: Callable[[Json], Json],
    ) -> None:
        self._heartbeats, self._scheduler = heartbeats, scheduler
        self._clock, self._redact = clock, redact
        self._log = logger("agents")

    def build_acceptance(self, log: DecisionLog) -> Work[AcceptedLog]:
        """The transaction that accepts a log; call `finish_acceptance` after its commit.

        It records the heartbeat, the capabilities, the reminder and the notice for subscribers.
        Raises `HeartbeatManagerUnavailable` as a heartbeat does.
        """
        now = self._clock.now()
        new = self._build_reminder(log, now)
        self._heartbeats.record_heartbeat(log.agent_id, log.cluster_id)
        document, capabilities = self._redact(log.document), self._redact(log.capabilities)

        def work(tx: Tx) -> AcceptedLog:
            agents.record_contact(tx, log.agent_id, log.cluster_id, log.timestamp, now)
            agents.register_capabilities(tx, log.agent_id, log.capabilities, capabilities, now)
            stored = None if new is None else reminders.add_reminder(tx, new)
            notices.post(tx, Notice(MESSAGES, "decision_log", document), now)
            return AcceptedLog(log.agent_id, stored)

        return work

    def finish_acceptance(self, outcome: AcceptedLog) -> None:
        if isinstance(outcome.reminder, ScheduledReminder):
            self._scheduler.wake()
        elif outcome.reminder is ScheduleError.TOO_MANY:
            self._warn("too many reminders for schedule_reminder", outcome.agent_id)

    def _build_reminder(self, log: DecisionLog, now: datetime) -> NewReminder | None:
        """The reminder that the log requests; an invalid request is logged and ignored."""
        request = decision_log.find_reminder_request(log)
        if request is None:
            return None
        new = reminder.build_once(log.agent_id, request.delay_ms, request.payload, now)
        if isinstance(new, NewReminder):
            return new
        if new is ScheduleError.INVALID_DELAY:
            message = f"invalid delay_ms for schedule_reminder: {shorten(request.delay_ms)}"
        else:
            message = "invalid payload for schedule_reminder"
        self._warn(message, log.agent_id)
        return None

    def _warn(self, message: str, agent_id: str) -> None:
        self._log.warning(message, agent_id=agent_id)

    def build_rejection(self, violation: Failure, raw: bytes, sender: str | None) -> Work[None]:
        """The transaction that reports an invalid log, without its content."""
        now = self._clock.now()
        payload = {
            "sha256": hashlib.sha256(raw).hexdigest(),
            "size": len(raw),
            "detail": violation.reason,
            "sender": sender,
        }
        return lambda tx: notices.post(tx, Notice(VIOLATIONS, "schema_violation", payload), now)
