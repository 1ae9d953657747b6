"""Decision logs: checked, their reminders kept, published (004, FR-10.7)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime

from ductile.agents.heartbeats import HeartbeatManager
from ductile.agents.reminders import CronScheduler
from ductile.clock import Clock
from ductile.core.agents import decision_log, reminder
from ductile.core.agents.decision_log import DecisionLog
from ductile.core.agents.reminder import NewReminder, ScheduleError
from ductile.core.values.json_values import Failure, shorten
from ductile.log import logger
from ductile.model import Json, Notice
from ductile.record import dataclass
from ductile.store import agents, notices, reminders
from ductile.store.engines.api import Tx, Work
from ductile.store.reminders import Scheduled

MESSAGES = "gateway:messages"
VIOLATIONS = "gateway:violations"


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the commit of a log came to, besides the log."""

    agent_id: str
    reminder: Scheduled | ScheduleError | None


class SchemaInterceptor:
    """Between whoever posts a log and those who follow `gateway:messages`."""

    def __init__(
        self,
        heartbeats: HeartbeatManager,
        cron: CronScheduler,
        clock: Clock,
        redact: Callable[[Json], Json],
    ) -> None:
        self._heartbeats, self._cron, self._clock, self._redact = heartbeats, cron, clock, redact
        self._log = logger("agents")

    def accepting(self, log: DecisionLog) -> Work[Accepted]:
        """The transaction that takes a log in; after its commit call `accepted`.

        One commit for all of it: the sign of life, what the agent can do, its reminder, and the
        log for those who follow. Raises `HeartbeatManagerUnavailable` as a heartbeat does.
        """
        now = self._clock.now()
        asked = self._asked(log, now)
        self._heartbeats.record_heartbeat(log.agent_id, log.cluster_id)
        document, capable = self._redact(log.document), self._redact(log.capabilities)

        def work(tx: Tx) -> Accepted:
            agents.sign(tx, log.agent_id, log.cluster_id, log.timestamp, now)
            agents.register(tx, log.agent_id, log.capabilities, capable, now)
            kept = reminders.add(tx, asked) if isinstance(asked, NewReminder) else asked
            notices.post(tx, Notice(MESSAGES, "decision_log", document), now)
            return Accepted(log.agent_id, kept)

        return work

    def accepted(self, outcome: Accepted) -> None:
        if isinstance(outcome.reminder, Scheduled):
            self._cron.added()
        elif outcome.reminder is ScheduleError.TOO_MANY:
            self._warn("too many reminders for schedule_reminder", outcome.agent_id)

    def _asked(self, log: DecisionLog, now: datetime) -> NewReminder | None:
        """The reminder that the log asks for; one that cannot be kept is only warned of."""
        asked = decision_log.reminder_of(log)
        if asked is None:
            return None
        new = reminder.once(log.agent_id, asked.delay_ms, asked.payload, now)
        if isinstance(new, NewReminder):
            return new
        if new is ScheduleError.INVALID_DELAY:
            what = f"invalid delay_ms for schedule_reminder: {shorten(asked.delay_ms)}"
        else:
            what = "invalid payload for schedule_reminder"
        self._warn(what, log.agent_id)
        return None

    def _warn(self, message: str, agent_id: str) -> None:
        self._log.warning(message, agent_id=agent_id)

    def rejecting(self, violation: Failure, raw: bytes, sender: str | None) -> Work[int]:
        """The transaction that tells of a log that breaks the rules, and nothing of its content."""
        now = self._clock.now()
        payload = {
            "sha256": hashlib.sha256(raw).hexdigest(),
            "size": len(raw),
            "detail": violation.reason,
            "sender": sender,
        }
        return lambda tx: notices.post(tx, Notice(VIOLATIONS, "schema_violation", payload), now)
