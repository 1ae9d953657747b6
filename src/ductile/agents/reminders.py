"""Reminders: stored durably and fired once, also after a crash."""

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
from ductile.store.reminders import ScheduledReminder, UnreadableReminder

POLL_SECONDS = 1.0
"""A row that another process has written is found within this time."""
NORMALIZE_EVERY = timedelta(minutes=1)


class ReminderScheduler:
    """Fires the rows of `cron_jobs`. It has no other state, so a restart continues."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        redact: Callable[[Json], Json],
        wake: Callable[[], None],
    ) -> None:
        self._ledger, self._clock, self._redact, self._wake = ledger, clock, redact, wake
        self._normalized_at: datetime | None = None
        self._logged_flaws: dict[int, str] = {}
        """The logged reason of each row that cannot fire."""
        self._log = logger("agents")

    def schedule_once(
        self, agent_id: str, delay_ms: int, payload: Json
    ) -> ScheduledReminder | ScheduleError:
        """Remind an agent once, in `delay_ms` milliseconds."""
        return self.schedule(core.build_once(agent_id, delay_ms, payload, self._clock.now()))

    def schedule(self, new: NewReminder | ScheduleError) -> ScheduledReminder | ScheduleError:
        """Store a reminder; it is durable when this returns."""
        if isinstance(new, ScheduleError):
            return new
        stored = self._ledger.write(lambda tx: reminders.add_reminder(tx, new))
        self.wake()
        return stored

    def wake(self) -> None:
        """Check for due reminders soon; to be called after a transaction that adds one."""
        self._wake()

    def tick(self, now: datetime) -> float:
        """Fire the due reminders; returns the seconds until the next call."""
        self._normalize(now)
        due = self._ledger.read(reminders.next_fire_at)
        if due is not None and due <= now:
            self._fire(now)
            due = self._ledger.read(lambda tx: reminders.next_fire_at(tx, after=now))
        wait = POLL_SECONDS if due is None else (due - now).total_seconds()
        return min(max(wait, 0.0), POLL_SECONDS)

    def _normalize(self, now: datetime) -> None:
        """Rewrite times that scripts wrote in other formats, and correct those of a wrong clock."""
        last = self._normalized_at
        if last is None or abs(now - last) >= NORMALIZE_EVERY:
            self._normalized_at = now
            if self._ledger.read(reminders.has_foreign_time):
                unreadable = self._ledger.write(partial(reminders.normalize_times, now=now))
                for id, agent_id in unreadable:
                    self._log.warning(
                        "next_fire_at is not a time; due now", agent_id=agent_id, reminder_id=id
                    )
            if last is None or now < last:
                self._correct_late(now)

    def _correct_late(self, now: datetime) -> None:
        """Move recurring reminders to the next time of their schedule if a clock was set back."""
        behind: int | None = 0
        while behind is not None:
            find = partial(reminders.list_delayed, now=now, after=behind)
            late, behind = self._ledger.read(find)
            if late:
                self._ledger.write(partial(reminders.reschedule_delayed, delayed=late))
                self._log.info("rescheduled reminders: the clock was ahead", count=len(late))

    def _fire(self, now: datetime) -> None:
        flawed: list[UnreadableReminder] = []
        behind = ("", 0)
        while True:
            fire = partial(reminders.fire_due, now=now, redact=self._redact, after=behind)
            page = self._ledger.write(fire)
            for id, agent_id in page.fired:
                self._log.info("reminder fired", agent_id=agent_id, reminder_id=id)
            flawed += page.unreadable
            if page.next_after is None:
                break
            behind = page.next_after
        self._log_flawed(flawed)

    def _log_flawed(self, flawed: list[UnreadableReminder]) -> None:
        """Log each row once per reason."""
        for row in flawed:
            if self._logged_flaws.get(row.id) != row.reason:
                self._log.warning(
                    "reminder skipped",
                    agent_id=row.agent_id,
                    reminder_id=row.id,
                    reason=row.reason,
                )
        self._logged_flaws = {row.id: row.reason for row in flawed}
