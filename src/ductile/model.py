"""The nouns: frozen values that travel through the rooms. No I/O, no clock, no policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from typing import Any

from ductile.record import dataclass

Json = Any
"""A value that came from or goes to JSON: None, bool, int, float, str, list, dict."""

MIB = 1024 * 1024
STDOUT_CAP = 10 * MIB
STDERR_CAP = 64 * 1024
CORE_PREFIX = "core."
"""What the names of the gateway's own plugins begin with."""


class JobStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    DEAD = "dead"
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


@dataclass(frozen=True, slots=True)
class Launch:
    """All that a slot needs to run one plugin process."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    request: bytes
    timeout: float
    grace: float = 5.0
    stdout_cap: int = STDOUT_CAP
    stderr_cap: int = STDERR_CAP


class Ending(StrEnum):
    """How a plugin process came to its end, as the slot saw it."""

    EXITED = "exited"
    """By itself, or by a signal that was not ours: `exit_code` is its own."""
    LINGERED = "lingered"
    """It closed stdout and lived on past the grace; we killed it. What it wrote counts."""
    TIMED_OUT = "timed_out"
    """Its deadline passed before its output was complete."""
    CANCELLED = "cancelled"
    """We were asked to end it: an operator's cancel, a newer schedule slot, a stop."""
    NOT_SPAWNED = "not_spawned"
    """It never started; `errno` says why."""
    LOST = "lost"
    """Slot, runner or gateway died under it: nothing is known of its end."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a slot observed of one process. A fact, not a judgement."""

    ending: Ending
    exit_code: int | None = None
    """As `subprocess` gives it: negative for a signal. None where it says nothing."""
    stdout: bytes = b""
    """At most the cap; only a prefix of `STDERR_CAP` bytes where it overflowed."""
    stdout_overflowed: bool = False
    stderr: bytes = b""
    stderr_truncated: bool = False
    errno: int | None = None
    reason: str | None = None
    """For people: the interpreter that is missing, who was lost."""
    duration: float = 0.0


@dataclass(frozen=True, slots=True)
class Event:
    """What a plugin or a webhook emits, with what the core adds."""

    type: str
    payload: Json
    dedupe_key: str | None
    source: str
    timestamp: datetime
    event_id: str


@dataclass(frozen=True, slots=True)
class NewJob:
    """A job that a producer wants. The ledger may answer with an existing one (dedupe)."""

    plugin: str
    command: str
    submitted_by: SubmittedBy
    payload: Json = field(default_factory=dict)
    dedupe_key: str | None = None
    dedupe_ttl: float | None = None
    """Seconds; set, it also guards against a queued or running duplicate (002 §3.6)."""


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
    """The context that it came with; its own row, once it has one, bears its own id."""
    join_of: str | None = None
    schedule_id: str | None = None
    flaw: str | None = None
    """Why the row cannot be run as it stands: somebody else wrote it."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A line of the operator's stream."""

    topic: str
    type: str
    payload: Json


class Cancellation(StrEnum):
    """Who ended a running process, and so what becomes of its job."""

    OPERATOR = "cancelled"
    SUPERSEDED = "superseded by a newer schedule slot"
    STOP = "the gateway stopped"
    NO_SEAT = "no worker became free for it"


@dataclass(frozen=True, slots=True)
class Settlement:
    """What `judge` decided about one attempt; `settle` commits all of it or nothing.

    The guard is the job's id, attempt and owner: a settlement that finds the running row
    changed is dropped, because somebody else has ended the attempt.
    """

    job: Job
    """As it was claimed."""
    path: tuple[JobStatus, ...]
    """The states gone through; the job stays in the last."""
    at: datetime
    error: str | None = None
    retry_at: datetime | None = None
    """When a job that goes back to the queue is due; None is at once."""
    counted: bool = True
    """False where the attempt was none of the plugin's: it may have another."""
    result: str | None = None
    """The response, as JSON text, redacted."""
    stdout: str | None = None
    """What stood on stdout where that was no response."""
    stderr: str | None = None
    logs: str | None = None
    duration: float = 0.0
    state_updates: Mapping[str, Json] | None = None
    fact_type: str | None = None
    """Set, the updates are recorded as a fact of this type."""
    mirror_fact: bool = False
    """Whether that fact becomes the plugin's state."""
    init_key: str | None = None
    """Set on an `init` job: the (version, config) pair that it was run for."""
    context: str | None = None
    """`accumulated_json` of the step's own context, as JSON text."""
    intents: tuple[Any, ...] = ()
    """What the attempt's events set going (`core.pipelines.intents`)."""
    unrouted: tuple[Any, ...] = ()
    untaken: tuple[str, ...] = ()
    """The types of its events that nothing takes."""
    cancelled: bool = False
    """Somebody ended it: it says nothing of the plugin's health."""
    remark: str | None = None
    """What the plugin's author should know; logged, and of no effect."""
    otherwise: Settlement | None = None
    """What to settle instead where the ledger must refuse the state update."""

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
