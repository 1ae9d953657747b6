"""Reminders: taken in durably, fired once, whatever dies meanwhile (004, FR-10.5 and FR-10.6)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from ductile.clock import Clock
from ductile.core.agents import reminder as core
from ductile.core.agents.reminder import NewReminder, ScheduleError
from ductile.log import logger
from ductile.model import Json
from ductile.store import reminders
from ductile.store.engines.api import Ledger
from ductile.store.reminders import Flawed, Scheduled

POLL_SECONDS = 1.0
"""Within this a row is found that another process has written."""
STRAIGHTEN_EVERY = timedelta(minutes=1)


class CronScheduler:
    """The rows of `cron_jobs` are all that it knows: a restart takes up where it stood."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        redact: Callable[[Json], Json],
        wake: Callable[[], None],
    ) -> None:
        self._ledger, self._clock, self._redact, self._wake = ledger, clock, redact, wake
        self._straightened: datetime | None = None
        self._told: dict[int, str] = {}
        """Rows that cannot be fired, and what was logged of each."""
        self._log = logger("agents")

    def schedule_once(
        self, agent_id: str, delay_ms: int, payload: Json
    ) -> Scheduled | ScheduleError:
        """Remind an agent once, after that many milliseconds."""
        return self.schedule(core.once(agent_id, delay_ms, payload, self._clock.now()))

    def schedule(self, new: NewReminder | ScheduleError) -> Scheduled | ScheduleError:
        """Keep a reminder; it is durable when this returns."""
        if isinstance(new, ScheduleError):
            return new
        kept = self._ledger.write(lambda tx: reminders.add(tx, new))
        self.added()
        return kept

    def added(self) -> None:
        """A row was committed, by whatever transaction."""
        self._wake()

    def tick(self, now: datetime) -> float:
        """Fire what is due; the seconds until this is worth calling again."""
        self._straighten(now)
        due = self._ledger.read(reminders.first)
        if due is not None and due <= now:
            self._fire(now)
            due = self._ledger.read(lambda tx: reminders.first(tx, after=now))
        wait = POLL_SECONDS if due is None else (due - now).total_seconds()
        return min(max(wait, 0.0), POLL_SECONDS)

    def _straighten(self, now: datetime) -> None:
        last = self._straightened
        if last is None or abs(now - last) >= STRAIGHTEN_EVERY:
            self._straightened = now
            if self._ledger.read(reminders.has_odd):
                self._ledger.write(reminders.straighten)
            if last is None or now < last:
                self._hasten(now)

    def _hasten(self, now: datetime) -> None:
        """Where the clock has gone back, or may have before the start, none waits for a time
        that it had reached."""
        behind: int | None = 0
        while behind is not None:
            look = partial(reminders.late_by_rule, now=now, behind=behind)
            late, behind = self._ledger.read(look)
            if late:
                self._ledger.write(partial(reminders.move, late=late))
                self._log.info("the clock was ahead: reminders come by their rule", count=len(late))

    def _fire(self, now: datetime) -> None:
        flawed: list[Flawed] = []
        behind = ("", 0)
        while True:
            fire = partial(reminders.fire_due, now=now, redact=self._redact, behind=behind)
            page = self._ledger.write(fire)
            for id, agent_id in page.fired:
                self._log.info("reminded", agent_id=agent_id, reminder_id=id)
            flawed += page.flawed
            if page.behind is None:
                break
            behind = page.behind
        self._tell(flawed)

    def _tell(self, flawed: list[Flawed]) -> None:
        """Each once, and again when something else is wrong with it."""
        for row in flawed:
            if self._told.get(row.id) != row.reason:
                self._log.warning(
                    "a reminder is skipped",
                    agent_id=row.agent_id,
                    reminder_id=row.id,
                    reason=row.reason,
                )
        self._told = {row.id: row.reason for row in flawed}
