"""Responses about alerts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ductile.http.models.responses.fields import OMITTED, ResponseModel, Timestamp

State = Literal["ok", "pending", "firing"]


class AlertCauseModel(ResponseModel):
    """What fails in a group, by one condition."""

    condition: str
    subject: str
    """Kind and name, such as `plugin:backup`."""
    command: str
    since: Timestamp
    last_at: Timestamp
    count: int
    first_error: str
    last_error: str
    job_id: str | None


class AlertGroupModel(ResponseModel):
    """The alert of one group of a rule."""

    group: str
    state: State
    since: Timestamp | None
    """When it began to fail; if it is ok, when it last did."""
    count: int
    first_error: str | None
    last_error: str | None
    notified_at: Timestamp | None
    updated_at: Timestamp | None
    flapping: bool
    causes: list[AlertCauseModel]


class AlertMessageModel(ResponseModel):
    """A message, and the state of the job or run that delivers it."""

    alert_group: str
    number: int
    news: Literal["firing", "reminder", "resolved", "flapping", "test"]
    target: str
    job_id: str | None
    run_id: str | None
    message: str
    created_at: Timestamp
    job_status: str | None
    run_status: str | None


class AlertRuleModel(ResponseModel):
    """An alert rule, with its worst state."""

    rule: str
    on: list[str]
    to: str
    target: Literal["plugin", "pipeline"]
    state: State
    firing: int
    """Number of groups."""
    pending: int
    since: Timestamp | None
    last_error: str | None
    notified_at: Timestamp | None
    silenced_until: Timestamp | None
    silenced_by: str | None


class UndeliveredAlertModel(ResponseModel):
    """A message that did not arrive."""

    rule: str
    group: str
    to: str
    job_id: str | None
    run_id: str | None
    created_at: Timestamp
    error: str | None


class AlertRulesModel(ResponseModel):
    """The alert rules."""

    alerts: list[AlertRuleModel]
    undelivered: list[UndeliveredAlertModel]
    """Messages of the last week that did not arrive, the newest first."""


class AlertRuleDetailModel(AlertRuleModel):
    """An alert rule with its groups and its last messages."""

    after: int
    for_: str = Field(alias="for")
    wait: str
    repeat: str
    group: Literal["subject", "plugin", "none"]
    only: list[str]
    groups: list[AlertGroupModel]
    """Those that fail first."""
    messages: list[AlertMessageModel]
    """The newest first."""


class AlertTestModel(ResponseModel):
    """The test message was enqueued; with `dry_run`, it would be."""

    rule: str
    to: str
    job_id: str | None
    run_id: str | None
    dry_run: bool = OMITTED


class AlertSilenceModel(ResponseModel):
    """The silence of a rule; null if it is not silenced."""

    rule: str
    silenced_until: Timestamp | None
    silenced_by: str | None
    dry_run: bool = OMITTED
