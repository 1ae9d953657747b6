"""The nouns of the domain: frozen values shared by all layers. No I/O, no clock, no policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any

from ductile._fast_dataclass import dataclass

Json = Any
"""A value that came from or goes to JSON: None, bool, int, float, str, list, dict."""

MIB = 1024 * 1024
STDOUT_CAP = 10 * MIB
STDERR_CAP = 64 * 1024
CORE_PREFIX = "core."
"""Prefix of the names of the gateway's own plugins."""


class JobStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    DEAD = "dead"
    SKIPPED = "skipped"


class RunStatus(StrEnum):
    """The state of a pipeline run."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    SKIPPED = "skipped"


class SubmittedBy(StrEnum):
    SCHEDULER = "scheduler"
    WEBHOOK = "webhook"
    ROUTE = "route"
    CLI = "cli"
    API = "api"
    HOOK = "hook"
    RELAY = "relay"
    AGENT = "agent"
    ALERT = "alert"


@dataclass(frozen=True, slots=True)
class WarmStart:
    """What a zygote needs to start a Python plugin warm."""

    plugin: str
    key: str
    """Equal for launches that can share a zygote."""
    command: tuple[str, ...]
    """The interpreter and its options."""
    entrypoint: str
    first_line: str
    """How the entrypoint begins: it names the interpreter."""
    preload: tuple[str, ...]
    """The modules to import."""
    env: Mapping[str, str]
    is_confined: bool = False
    """Whether its jobs are sandboxed: then nothing of the plugin is loaded before they are."""


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything a slot needs to run one plugin process."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    request: bytes
    timeout: float
    grace: float = 5.0
    stdout_cap: int = STDOUT_CAP
    stderr_cap: int = STDERR_CAP
    stat: bytes = b""
    """If it is set, the stat that the program must have, as the runner encodes it."""
    warm: WarmStart | None = None
    """If it is set, the program may be started from a zygote."""
    sandbox: bytes = b""
    """If it is set, what the program may touch, as the runner encodes it."""
    traceparent: bytes = b""
    """If it is set, the value of `TRACEPARENT` in its environment."""


class Ending(StrEnum):
    """How a plugin process ended, as observed by the slot."""

    EXITED = "exited"
    """On its own, or by a signal that the slot did not send: `exit_code` is its own."""
    LINGERED = "lingered"
    """It closed stdout and kept running past the grace; the slot killed it. Its output counts."""
    TIMED_OUT = "timed_out"
    """Its deadline passed before its output was complete."""
    CANCELLED = "cancelled"
    """It was cancelled: by an operator, a newer occurrence of its schedule, or a stop."""
    NOT_SPAWNED = "not_spawned"
    """It never started; `errno` says why."""
    LOST = "lost"
    """Slot, runner or gateway died while it ran: its end is unknown."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a slot observed of one process. A fact, not a judgement."""

    ending: Ending
    exit_code: int | None = None
    """As `subprocess` gives it: negative for a signal. None if there is none."""
    stdout: bytes = b""
    """At most the cap; only a prefix of `STDERR_CAP` bytes if it overflowed."""
    stdout_overflowed: bool = False
    stderr: bytes = b""
    stderr_truncated: bool = False
    errno: int | None = None
    reason: str | None = None
    """Text for operators: the missing interpreter, the lost process."""
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a plugin or webhook, with the fields that the core adds."""

    type: str
    payload: Json
    dedupe_key: str | None
    source: str
    timestamp: datetime
    event_id: str


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job to enqueue. The ledger may return an existing one instead (dedupe)."""

    plugin: str
    command: str
    submitted_by: SubmittedBy
    payload: Json = field(default_factory=dict)
    dedupe_key: str | None = None
    dedupe_ttl: float | None = None
    """Seconds; if set, queued and running duplicates are dropped too."""
    submitter: str | None = None
    """The token or local user whose request creates it."""
    priority: float = 0.0
    """Seconds: it starts as if it had been enqueued this much earlier."""
    trace: str | None = None
    """The trace of the request, as its column stores it."""


@dataclass(frozen=True, slots=True)
class Job:
    """A row of `job_queue` as the core reads it."""

    id: str
    plugin: str
    command: str
    payload: Json
    status: JobStatus
    attempt: int
    max_attempts: int
    submitted_by: str
    dedupe_key: str | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    next_retry_at: datetime | None
    last_error: str | None
    parent_job_id: str | None
    source_event_id: str | None
    owner: str | None
    hops: int = 0
    pipeline: str = ""
    step_path: str = ""
    branch: str = ""
    scope_id: str | None = None
    entered_context_id: str | None = None
    """The context that it entered with; its own row, if any, has the job's id."""
    join_of: str | None = None
    schedule_id: str | None = None
    flaw: str | None = None
    """Why the row cannot be run: a script wrote it, with invalid values."""


def make_unstored_job(
    id: str,
    plugin: str,
    command: str,
    payload: Json,
    now: datetime,
    *,
    attempt: int = 1,
    max_attempts: int = 1,
) -> Job:
    """A running job that is in no ledger: a health check, a test, the repetition of another job."""
    return Job(
        id=id,
        plugin=plugin,
        command=command,
        payload=payload,
        status=JobStatus.RUNNING,
        attempt=attempt,
        max_attempts=max_attempts,
        submitted_by=SubmittedBy.CLI.value,
        dedupe_key=None,
        created_at=now,
        started_at=now,
        completed_at=None,
        next_retry_at=None,
        last_error=None,
        parent_job_id=None,
        source_event_id=None,
        owner=None,
    )


@dataclass(frozen=True, slots=True)
class Notice:
    """A line of the operator's stream."""

    topic: str
    type: str
    payload: Json


class Cancellation(StrEnum):
    """Why a running process was ended, which decides what happens to its job."""

    OPERATOR = "cancelled"
    SUPERSEDED = "superseded by a newer schedule slot"
    DISPLACED = "superseded by a newer job with the same key"
    RUN_DISPLACED = "superseded by a newer run with the same key"
    STOP = "the gateway stopped"
    NO_WORKER = "no worker became free for it"


CANCELLED_IN_QUEUE = "cancelled by an operator"
"""The error of a job that an operator has cancelled before it ran."""
ENDED_ON_PURPOSE = frozenset(
    {
        CANCELLED_IN_QUEUE,
        Cancellation.OPERATOR.value,
        Cancellation.SUPERSEDED.value,
        Cancellation.DISPLACED.value,
        Cancellation.RUN_DISPLACED.value,
    }
)
"""Errors of jobs that an operator has ended, or a newer job or run; also texts that begin with
`RUN_SUPERSEDED`. No plugin reports one."""
RUN_SUPERSEDED = "superseded by run"
"""How the reason of a run begins that was ended for a newer one, and the error of its jobs."""


def is_ended_on_purpose(error: str | None) -> bool:
    """Return whether the error is that of a job, or the reason of a run, that was ended so."""
    return error in ENDED_ON_PURPOSE or (error or "").startswith(RUN_SUPERSEDED)


@dataclass(frozen=True, slots=True)
class Settlement:
    """What `judge` decided about one attempt; `settle` commits all of it or nothing.

    The guard is the job's id, attempt and owner: a settlement that finds the running row
    changed is dropped, because another process has ended the attempt.
    """

    job: Job
    """As it was claimed."""
    path: tuple[JobStatus, ...]
    """The states passed through; the last one is the new state."""
    at: datetime
    error: str | None = None
    retry_at: datetime | None = None
    """When a job that returns to the queue is due; None means at once."""
    counted: bool = True
    """False if the attempt does not count, because the plugin did not cause its end."""
    result: str | None = None
    """The response, as JSON text, redacted."""
    stdout: str | None = None
    """The content of stdout if it was not a valid response."""
    stderr: str | None = None
    logs: str | None = None
    duration: float = 0.0
    state_updates: Mapping[str, Json] | None = None
    fact_type: str | None = None
    """If set, the updates are recorded as a fact of this type."""
    mirror_fact: bool = False
    """Whether that fact becomes the plugin's state."""
    init_key: str | None = None
    """Set on an `init` job: the (version, config) pair that it was run for."""
    context: str | None = None
    """`accumulated_json` of the step's own context, as JSON text."""
    intents: tuple[Any, ...] = ()
    """The routed events (`core.pipelines.intents`)."""
    unrouted: tuple[Any, ...] = ()
    untaken: tuple[str, ...] = ()
    """The types of its events that no route or pipeline matches."""
    cancelled: bool = False
    """It was cancelled: its end does not count as a failure of the plugin."""
    closed_until: datetime | None = None
    """No job with the same keys of its plugin's limits starts before this time."""
    remark: str | None = None
    """Hints for the plugin's author; logged, without effect."""
    wait: Any = None
    """Set if the job waits from now on (`core.waits.begin.NewWait`)."""
    otherwise: Settlement | None = None
    """The settlement to use if the ledger refuses the state update."""

    @property
    def status(self) -> JobStatus:
        return self.path[-1]

    @property
    def job_id(self) -> str:
        return self.job.id

    @property
    def plugin(self) -> str:
        return self.job.plugin

    @property
    def command(self) -> str:
        return self.job.command

    @property
    def attempt(self) -> int:
        return self.job.attempt
