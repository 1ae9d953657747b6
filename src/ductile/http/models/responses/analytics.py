"""Responses with numbers about attempts and queues."""

from __future__ import annotations

from typing import Literal

from ductile.http.models.responses.fields import JobState, ResponseModel, Timestamp


class AttemptCountModel(ResponseModel):
    """Finished attempts of a plugin."""

    plugin: str
    status: JobState
    attempts: int
    mean_ms: float | None
    max_ms: float | None


class AnalyticsSummaryModel(ResponseModel):
    """Finished attempts by plugin and status."""

    since: Timestamp
    window: str
    total: dict[str, int]
    """Attempts by status, over all plugins."""
    plugins: list[AttemptCountModel]


class HourModel(ResponseModel):
    """The attempts that ended within an hour."""

    start: Timestamp
    plugins: dict[str, dict[str, int]]
    """Attempts by plugin and status."""


class AnalyticsHoursModel(ResponseModel):
    """Finished attempts of the last 24 hours."""

    since: Timestamp
    hours: list[HourModel]
    """The oldest first; the last one is not over yet."""


class QueueCountModel(ResponseModel):
    """Queued or running jobs of a plugin."""

    plugin: str
    status: Literal["queued", "running"]
    jobs: int
    oldest: Timestamp
    """When the first of them was created."""
    oldest_seconds: float


class AnalyticsQueueModel(ResponseModel):
    """Queued and running jobs by plugin."""

    queued: int
    running: int
    plugins: list[QueueCountModel]
