"""The notices that alert rules watch, and the successes that end what they report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.clock import moment_of
from ductile.core.alerts.causes import Cause, make_cause
from ductile.core.alerts.conditions import Condition
from ductile.core.alerts.rules import AlertRule
from ductile.core.jobs.limits import document
from ductile.core.schedules.breaker import describe_count
from ductile.model import CORE_PREFIX, is_ended_on_purpose
from ductile.store.engines.api import Position, StoredNotice, Tx
from ductile.store.jobs.scopes import read_cause

TYPES = frozenset({"job.dead", "job.failed", "pipeline.failed", "breaker.open"})
"""As in the queries and in the index of the table."""
BATCH = 1000
WINDOW = 200
"""Number of newest attempts or runs that are searched for a success."""


@dataclass(frozen=True, slots=True)
class EventPage:
    causes: tuple[Cause, ...]
    """In the order of the notices."""
    position: Position
    has_more: bool


@dataclass(frozen=True, slots=True)
class _RunOfJob:
    pipeline: str
    has_failed: bool

    @property
    def subject(self) -> str:
        return f"pipeline:{self.pipeline}"


class Events:
    """Reads events and successes in one transaction, each only once."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._pages: dict[Position, EventPage] = {}
        self._successes: dict[tuple[str, str, str], tuple[datetime, ...]] = {}
        self._runs: dict[str, _RunOfJob | None] = {}

    def read_after(self, position: Position) -> EventPage:
        """The failures after `position`, without those of alert jobs."""
        if position not in self._pages:
            rows = self._tx.all("alert_events", xact=position.xact, after=position.id, limit=BATCH)
            notices = [StoredNotice(*row) for row in rows]
            causes = tuple(filter(None, map(self._parse, notices)))
            end = notices[-1].position if notices else position
            self._pages[position] = EventPage(causes, end, len(rows) == BATCH)
        return self._pages[position]

    def select(self, rule: AlertRule, causes: Iterable[Cause]) -> Iterator[Cause]:
        """The failures that the rule reports; that of a run once, not also that of its job.

        A job that has failed in a run that is still open is reported as a problem of the pipeline,
        so that the failure of the run joins its alert.
        """
        for cause in causes:
            if not rule.watches(cause.condition, cause.subject):
                continue
            run = None
            if cause.condition is Condition.JOB_DEAD and cause.job_id is not None:
                run = self._find_run(cause.job_id)
            if run is None or not rule.watches(Condition.RUN_FAILED, run.subject):
                yield cause
            elif not run.has_failed:
                yield replace(cause, subject=run.subject, command="")

    def has_success(self, cause: Cause, after: datetime, until: datetime | None = None) -> bool:
        """Whether the subject has had a success after this time, and before `until`."""
        found = self._list_successes(cause)
        return any(after < at and (until is None or at < until) for at in found)

    def _list_successes(self, cause: Cause) -> tuple[datetime, ...]:
        if cause.key not in self._successes:
            kind, _, name = cause.subject.partition(":")
            if kind == "pipeline":
                rows = self._tx.all("run_successes", pipeline=name, window=WINDOW)
            elif cause.condition is Condition.JOB_DEAD:
                values: dict[str, Any] = {"plugin": name, "command": cause.command}
                rows = self._tx.all("job_successes", window=WINDOW, **values)
            else:
                rows = []
            self._successes[cause.key] = tuple(filter(None, (moment_of(row[0]) for row in rows)))
        return self._successes[cause.key]

    def _parse(self, notice: StoredNotice) -> Cause | None:
        fields, at = document(notice.payload), moment_of(notice.created_at)
        if not isinstance(fields, dict) or at is None:
            return None
        match notice.type:
            case "job.dead" | "job.failed":
                return self._parse_job(notice, fields, at)
            case "pipeline.failed":
                return self._parse_run(notice, fields, at)
            case _:
                return parse_breaker(fields, at)

    def _parse_job(
        self, notice: StoredNotice, fields: dict[str, Any], at: datetime
    ) -> Cause | None:
        if is_ended_on_purpose(fields.get("error")) or self._is_alert_job(notice.job_id):
            return None
        subject, command = f"plugin:{fields.get('plugin')}", str(fields.get("command") or "")
        if str(fields.get("plugin")).startswith(CORE_PREFIX) and notice.job_id is not None:
            # A step that waits: the success of another pipeline's would not end this one's.
            run = self._find_run(notice.job_id)
            subject, command = (subject, command) if run is None else (run.subject, "")
        return make_cause(
            Condition.JOB_DEAD,
            subject,
            at,
            error=fields.get("error"),
            command=command,
            job_id=notice.job_id,
        )

    def _find_run(self, job_id: str) -> _RunOfJob | None:
        """The run that cannot succeed without the job; None without one."""
        if job_id not in self._runs:
            row = self._tx.one("run_of_job", id=job_id)
            self._runs[job_id] = None if row is None else _RunOfJob(row[0], row[1] == "failed")
        return self._runs[job_id]

    def _parse_run(
        self, notice: StoredNotice, fields: dict[str, Any], at: datetime
    ) -> Cause | None:
        run_id = notice.job_id
        reason = str(fields.get("reason"))
        if is_ended_on_purpose(reason) or is_ended_on_purpose(read_cause(reason)):
            return None
        if self._tx.one("is_alert_run", id=run_id) is not None:
            return None
        job = self._tx.one("a_job_of_scope", id=run_id)
        if job is not None and self._is_alert_job(job[0]):
            return None
        name = f"pipeline:{fields.get('pipeline')}"
        return make_cause(Condition.RUN_FAILED, name, at, error=fields.get("reason"), job_id=run_id)

    def _is_alert_job(self, job_id: str | None) -> bool:
        return job_id is not None and self._tx.one("is_alert_job", id=job_id) is not None


def parse_breaker(fields: dict[str, Any], at: datetime) -> Cause:
    """The cause for a breaker that is not closed."""
    count = fields.get("failure_count")
    return make_cause(
        Condition.BREAKER_OPEN,
        f"plugin:{fields.get('plugin')}",
        at,
        error=f"command {fields.get('command')}: {describe_count(count)}",
        command=str(fields.get("command") or ""),
    )
