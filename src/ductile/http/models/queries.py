"""Query parameters of each route."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from ductile.core.delivery.retry_policy import DeliveryStatus
from ductile.core.jobs.state_machine import status_named
from ductile.core.waits.decision import WaitStatus
from ductile.http.models.fields import (
    AnyText,
    OneOf,
    QueryFlag,
    QueryInteger,
    QuerySeconds,
    RequestModel,
    SomeOf,
    TextList,
    Timestamp,
)
from ductile.model import JobStatus, RunStatus, SubmittedBy

MAX_PAGE = 1000
DEFAULT_PAGE = 50
MAX_WAIT = 60.0
MAX_BACKUP_WAIT = 20.0
MAX_FIRES, DEFAULT_FIRES = 1000, 20

Text = Annotated[str | None, AnyText()]
Flag = Annotated[bool, QueryFlag()]
Count = Annotated[int | None, QueryInteger()]
PageLimit = Annotated[int, QueryInteger(1, MAX_PAGE)]
Time = Annotated[datetime | None, Timestamp()]
Word = Annotated[str, AnyText()]
Status = Annotated[JobStatus | None, OneOf(JobStatus, status_named)]
Producer = Annotated[SubmittedBy | None, OneOf(SubmittedBy)]
Wait = Annotated[float, QuerySeconds(MAX_WAIT)]
_LIMIT = "Maximum number of rows."
_STATUS = "Jobs in this state; `pending`, `ok` and `error` are accepted too."


class PageQuery(RequestModel):
    limit: PageLimit = Field(DEFAULT_PAGE, description=_LIMIT)
    before: Count = Field(None, description="The `cursor` of the previous page.")


class AuditQuery(PageQuery):
    actor: Text = Field(None, description="Actions of `token:NAME` or `user:NAME`.")
    action: Text = Field(None, description="This action, or all of its noun: `token`.")
    since: Time = Field(None, description="Entries of this time or later.")


class QueueQuery(RequestModel):
    limit: PageLimit = Field(DEFAULT_PAGE, description=_LIMIT)


class JobWaitQuery(RequestModel):
    wait: Wait = Field(0.0, description="Seconds to wait for the end of the job, at most 60.")


class RunWaitQuery(RequestModel):
    wait: Wait = Field(
        0.0, description="Seconds to wait for the end of all descending jobs, at most 60."
    )
    seen: Count = Field(
        None, description="With `wait`: also answer if the number of finished jobs differs."
    )


class RunDetailQuery(RequestModel):
    wait: Wait = Field(
        0.0, description="Seconds to wait for the end of all descending jobs, at most 60."
    )


class RunFilterQuery(RequestModel):
    pipeline: Text = Field(None, description="Runs of this pipeline.")
    status: Annotated[RunStatus | None, OneOf(RunStatus)] = Field(
        None, description="Runs in this state."
    )
    since: Time = Field(None, description="Runs that started at this time or later.")
    until: Time = Field(None, description="Runs that started before this time.")
    limit: PageLimit = Field(DEFAULT_PAGE, description=_LIMIT)
    before: Text = Field(None, description="The `cursor` of the previous page.")


class ApprovalQuery(RequestModel):
    status: Annotated[WaitStatus | None, OneOf(WaitStatus)] = Field(
        None, description="Approvals in this state."
    )
    pipeline: Text = Field(None, description="Approvals of this pipeline.")
    limit: PageLimit = Field(DEFAULT_PAGE, description=_LIMIT)
    before: Text = Field(None, description="The `cursor` of the previous page.")


class JobTreeQuery(RequestModel):
    flat: Flag = Field(False, description="Return a list instead of a tree.")


class JobFilterQuery(PageQuery):
    status: Status = Field(None, description=_STATUS)
    plugin: Text = Field(None, description="Jobs of this plugin.")
    command: Text = Field(None, description="Jobs of this command.")
    submitted_by: Producer = Field(None, description="Jobs of this producer.")


class JobListQuery(JobFilterQuery):
    pipeline: Text = Field(None, description="Jobs that are steps of this pipeline.")
    since: Time = Field(None, description="Jobs that were created at this time or later.")
    until: Time = Field(None, description="Jobs that were created before this time.")
    acknowledged: Annotated[bool | None, QueryFlag()] = Field(
        None,
        description="Jobs that an operator has acknowledged or ended, or a newer job or run has"
        " ended; `false`: all others.",
    )


class JobLogQuery(JobFilterQuery):
    job_id: Text = Field(None, description="Attempts of this job.")
    since: Time = Field(None, description="Attempts that ended at this time or later.")
    from_: Time = Field(None, alias="from", description="The same as `since`.")
    to: Time = Field(None, description="Attempts that ended at this time or before.")
    query: Text = Field(None, description="A text in the error, in stderr or in the response.")
    include_result: Flag = Field(False, description="Include the responses.")


class JobIdQuery(RequestModel):
    begins: Word = Field("", description="The prefix of a job id.")
    ends: Word = Field("", description="The suffix of a job id, instead of `begins`.")
    limit: PageLimit = Field(DEFAULT_PAGE, description=_LIMIT)


class HealthSource(StrEnum):
    RUN = "run"
    LAST = "last"


class StatusQuery(RequestModel):
    health: Annotated[HealthSource | None, OneOf(HealthSource)] = Field(
        None,
        description="`run` (default) runs the health commands, `last` shows their newest results.",
    )


class HistoryQuery(RequestModel):
    limit: PageLimit = Field(DEFAULT_PAGE, description=_LIMIT)


class DiffQuery(RequestModel):
    from_: Text = Field(
        None, alias="from", description="The snapshot to compare with; default: the one before."
    )
    to: Text = Field(None, description="The snapshot to compare; default: the newest.")


class PlanQuery(RequestModel):
    directory: Text = Field(
        None, description="Another directory with a configuration; on the local socket only."
    )


class WatchQuery(RequestModel):
    plan: Word = Field(description="The plan that was applied last.")
    window: Word = Field("10m", description="The time to compare, after and before: at most `24h`.")


class RunComparisonQuery(RequestModel):
    directory: Text = Field(
        None, description="Another directory with a configuration; on the local socket only."
    )
    run: Text = Field(None, description="Only this run.")
    since: Time = Field(None, description="Runs that started at this time or later.")
    limit: PageLimit = Field(DEFAULT_PAGE, description=_LIMIT)
    before: Text = Field(None, description="The `cursor` of the previous page.")


class SummaryQuery(RequestModel):
    window: Word = Field("24h", description="How far to look back: `30m`, `24h`, `7d`.")


class PipelineStartQuery(RequestModel):
    async_: Flag = Field(
        False, alias="async", description="Answer at once, even for a synchronous pipeline."
    )


class NoticeQuery(RequestModel):
    after: Text = Field(None, description="The `cursor` of the previous page, or an event id.")
    last: Count = Field(None, description="The number of newest notices, at most 1,000.")


class EventFormat(StrEnum):
    GO = "go"


class ChangeKind(StrEnum):
    """What the event stream can report as changed without saying how."""

    AGENTS = "agents"
    NODES = "nodes"
    HEALTH = "health"


class EventQuery(RequestModel):
    topic: Annotated[list[str], TextList()] = Field(
        [], description="Only these topics; several are separated by commas or repeated."
    )
    after: Text = Field(None, description="Resume after this event id, as `Last-Event-ID` does.")
    last: Count = Field(
        None, description="Start with this many past events, at most 1,000, unless resuming."
    )
    format: Annotated[EventFormat | None, OneOf(EventFormat)] = Field(
        None, description="`go`: names and data of the Go program, and its backlog of 100 events."
    )
    progress: Flag = Field(
        False,
        description="Also send `job.progress` without an id: what running jobs of this node report."
        " Takes `jobs:ro` as well.",
    )
    changes: Annotated[list[ChangeKind], SomeOf(ChangeKind)] = Field(
        [],
        description="Also send `agents.changed`, `nodes.changed` or `health.changed` without an id,"
        " at most once per second each. Takes `agents:ro` for `agents`, else `system:ro`.",
    )


class NextFireQuery(RequestModel):
    name: Word = Field("", description="A plugin, or `plugin/id` for one of its schedules.")
    count: Annotated[int, QueryInteger(1, MAX_FIRES)] = Field(
        DEFAULT_FIRES, description="Maximum number of fires."
    )


class ScheduleHistoryQuery(RequestModel):
    name: Word = Field("", description="A plugin, or `plugin/id` for one of its schedules.")
    since: Time = Field(None, description="Occurrences since this time; by default of one day.")


class FactQuery(PageQuery):
    fact_type: Text = Field(None, description="Facts of this type.")


class RelayQuery(RequestModel):
    status: Annotated[DeliveryStatus | None, OneOf(DeliveryStatus)] = Field(
        None, description="Relays in this state."
    )
    instance: Text = Field(None, description="Relays to this gateway, by its name in `instances`.")
    limit: PageLimit = Field(DEFAULT_PAGE, description=_LIMIT)


class AgentQuery(RequestModel):
    live: Flag = Field(False, description="Only agents whose heartbeats arrive.")
    agent_id: Text = Field(None, description="Only this agent.")
    after: Word = Field("", description="The `cursor` of the previous page.")
    limit: PageLimit = Field(MAX_PAGE, description=_LIMIT)


class CapabilityQuery(RequestModel):
    after: Word = Field("", description="The `cursor` of the previous page.")
    limit: PageLimit = Field(MAX_PAGE, description=_LIMIT)


class ReminderQuery(RequestModel):
    agent_id: Text = Field(None, description="Reminders of this agent.")
    after: Count = Field(None, description="The `cursor` of the previous page.")
    limit: PageLimit = Field(MAX_PAGE, description=_LIMIT)


class DeliveryQuery(PageQuery):
    status: Annotated[DeliveryStatus | None, OneOf(DeliveryStatus)] = Field(
        None, description="Deliveries in this state."
    )
    webhook_id: Count = Field(None, description="Deliveries of this webhook.")
    since: Time = Field(None, description="Deliveries attempted, or else created, since this time.")


class WebhookRemovalQuery(RequestModel):
    dry_run: Flag = Field(False, description="Return what would be done; change nothing.")


class BackupQuery(RequestModel):
    wait: Annotated[float, QuerySeconds(MAX_BACKUP_WAIT)] = Field(
        0.0, description="Seconds to wait for the end of the backup, at most 20."
    )
