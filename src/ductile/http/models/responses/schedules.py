"""Responses about schedules."""

from __future__ import annotations

from typing import Any

from ductile.http.models.responses.fields import OMITTED, ResponseModel, Timestamp


class ScheduleModel(ResponseModel):
    """A schedule and what it will do."""

    plugin: str
    """`pipeline:NAME` if it starts a pipeline."""
    schedule: str
    command: str
    pipeline: str | None
    """The pipeline that it starts, instead of a command."""
    rule: str
    timezone: str
    next_run: Timestamp | None
    last_fire: Timestamp | None
    last_success: Timestamp | None
    state: str
    reason: str | None
    """Why it does not fire."""
    payload: Any
    """Of its jobs; secrets are `[REDACTED]`."""


class ReminderSummaryModel(ResponseModel):
    """A reminder of an agent without its payload."""

    id: int
    agent_id: str
    schedule: str | None
    next_fire_at: str
    is_one_time: bool
    created_at: str = OMITTED


class SchedulesModel(ResponseModel):
    """Every schedule, and the reminders of agents."""

    schedules: list[ScheduleModel]
    reminders: list[ReminderSummaryModel]


class FireModel(ResponseModel):
    """A coming fire of a schedule."""

    schedule: str
    fires_at: Timestamp
    local: str
    zone: str
    slot: str
    exact: bool
    """Whether the schedule fires at this time if nothing holds it back."""
    depends_on: str | None
    """What can change the time; null if it is exact."""


class FiresModel(ResponseModel):
    """The coming fires."""

    fires: list[FireModel]


class OccurrenceModel(ResponseModel):
    """An occurrence of a schedule."""

    schedule: str
    slot: str
    fired: bool
    job_id: str | None
    status: str | None
    reason: str | None
    why: str | None
    """Why it did not fire."""
    decided_at: Timestamp | None
    local: str


class OccurrencesModel(ResponseModel):
    """The occurrences of the schedules."""

    slots: list[OccurrenceModel]


class SchedulePauseModel(ResponseModel):
    """The schedule is paused or resumed; with `dry_run`, it would be."""

    plugin: str
    schedule: str
    paused: bool
    dry_run: bool = OMITTED
