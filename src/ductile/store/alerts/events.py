"""The notices that alert rules watch, and the successes that end what they report."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.clock import moment_of
from ductile.core.alerts.causes import Cause, make_cause
from ductile.core.alerts.conditions import Condition
from ductile.core.jobs.limits import document
from ductile.model import Cancellation
from ductile.store.engines.api import Position, StoredNotice, Tx

TYPES = frozenset({"job.dead", "job.failed", "pipeline.failed", "breaker.open"})
"""As in the queries and in the index of the table."""
BATCH = 1000
WINDOW = 200
"""Number of newest attempts or runs that are searched for a success."""
UNWANTED = frozenset({Cancellation.OPERATOR.value, Cancellation.SUPERSEDED.value})
"""Errors of jobs that an operator or a newer occurrence has ended on purpose."""


@dataclass(frozen=True, slots=True)
class EventPage:
    causes: tuple[Cause, ...]
    """In the order of the notices."""
    position: Position
    has_more: bool


class Events:
    """Reads events and successes in one transaction, each only once."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._pages: dict[Position, EventPage] = {}
        self._successes: dict[tuple[str, str, str], tuple[datetime, ...]] = {}

    def read_after(self, position: Position) -> EventPage:
        """The failures after `position`, without those of alert jobs."""
        if position not in self._pages:
            rows = self._tx.all("alert_events", xact=position.xact, after=position.id, limit=BATCH)
            notices = [StoredNotice(*row) for row in rows]
            causes = tuple(filter(None, map(self._parse, notices)))
            end = notices[-1].position if notices else position
            self._pages[position] = EventPage(causes, end, len(rows) == BATCH)
        return self._pages[position]

    def has_success(self, cause: Cause, after: datetime, until: datetime | None = None) -> bool:
        """Whether the subject has had a success after this time, and before `until`."""
        found = self._list_successes(cause)
        return any(after < at and (until is None or at < until) for at in found)

    def _list_successes(self, cause: Cause) -> tuple[datetime, ...]:
        if cause.key not in self._successes:
            name = cause.subject.partition(":")[2]
            if cause.condition is Condition.JOB_DEAD:
                values: dict[str, Any] = {"plugin": name, "command": cause.command}
                rows = self._tx.all("job_successes", window=WINDOW, **values)
            elif cause.condition is Condition.RUN_FAILED:
                rows = self._tx.all("run_successes", pipeline=name, window=WINDOW)
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
        if fields.get("error") in UNWANTED or self._is_alert_job(notice.job_id):
            return None
        return make_cause(
            Condition.JOB_DEAD,
            f"plugin:{fields.get('plugin')}",
            at,
            error=fields.get("error"),
            command=str(fields.get("command") or ""),
            job_id=notice.job_id,
        )

    def _parse_run(
        self, notice: StoredNotice, fields: dict[str, Any], at: datetime
    ) -> Cause | None:
        run_id = notice.job_id
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
        error=f"command {fields.get('command')}: {count} failures in a row",
        command=str(fields.get("command") or ""),
    )
