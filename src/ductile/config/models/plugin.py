"""`plugins`: the settings, schedules, retries and limits of each plugin."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from ductile.config.models import units
from ductile.config.models.fields import (
    PRIORITY,
    Flag,
    InDuration,
    Name,
    OpaqueTable,
    Priority,
    RawScalar,
    Seconds,
    Section,
    Span,
    Text,
    Whole,
    Word,
    refuse,
    refuse_as,
    span,
    text_of,
)
from ductile.config.models.sandbox import SandboxSettings
from ductile.core.jobs.commands import DEFAULT_TIMEOUTS, OTHER_TIMEOUT, POLL
from ductile.core.jobs.retry import DEFAULT_RETRY
from ductile.core.schedules.breaker import DEFAULT_BREAKER

_TIMEOUTS = ", ".join(
    f"{command} {seconds:.0f}s"
    for command, seconds in (*DEFAULT_TIMEOUTS.items(), ("any other", OTHER_TIMEOUT))
)
_WORDS = {"hourly": 3600.0, "daily": 86_400.0, "weekly": 604_800.0}
_RFC3339 = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})\Z", re.ASCII
)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
RESERVED_VARIABLES = frozenset({"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"})
"""With these a plugin could report to systemd that the gateway is ready or alive."""
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
"""Within this range, windows, jitter and time zones cannot move a time out of range."""


def _parse_interval(value: Any) -> Any:
    text = text_of(value, "an interval")
    if not isinstance(text, str) or text == "monthly":
        return text
    if text in _WORDS:
        return _WORDS[text]
    allowed = f"{units.DURATION}, hourly, daily, weekly, monthly"
    try:
        seconds = units.parse_duration(text)
    except ValueError:
        refuse("must be an interval", allowed=allowed)
    if seconds <= 0:
        refuse("must be longer than 0", allowed=allowed)
    return seconds


def _parse_cron(value: Any) -> Any:
    text = text_of(value, "a cron expression")
    if not isinstance(text, str):
        return text
    from ductile.core.schedules import cron

    try:
        return cron.parse(text)
    except ValueError as error:
        refuse_as(error)


def _parse_time(value: Any) -> Any:
    text = text_of(value, "a time")
    if not isinstance(text, str):
        return text
    try:
        if not _RFC3339.match(text):
            raise ValueError
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        refuse("must be a time with a UTC offset", allowed="RFC 3339, such as 2026-02-08T10:00:00Z")
    if not _EARLIEST <= moment < _LATEST:
        refuse("is out of range", allowed="1970-01-01T00:00:00Z to 9998-12-31T23:59:59Z")
    return moment


def _check_zone(value: Any) -> Any:
    text = text_of(value, "a time zone")
    if isinstance(text, str):
        from zoneinfo import ZoneInfo

        try:
            ZoneInfo(text)
        except (ValueError, OSError, KeyError):
            refuse("is not a known time zone", allowed="an IANA name, such as Europe/Vienna")
    return text


def _parse_weekday(value: Any) -> Any:
    from ductile.core.schedules import window

    try:
        return window.weekday(text_of(value, "a weekday")) + 1
    except ValueError as error:
        refuse_as(error)


def _check_window(value: Any) -> Any:
    """`HH:MM-HH:MM`, also if given as a mapping of start and end."""
    if isinstance(value, dict):
        if set(value) != {"start", "end"} or not all(
            isinstance(v, RawScalar) for v in value.values()
        ):
            refuse("must have start and end", allowed="{start: HH:MM, end: HH:MM}")
        value = f"{value['start'].text}-{value['end'].text}"
    text = text_of(value, "a window")
    if isinstance(text, str):
        from zoneinfo import ZoneInfo

        from ductile.core.schedules.window import Window

        try:
            Window.parse(text, ZoneInfo("UTC"))
        except ValueError as error:
            refuse_as(error)
    return text


Weekday = Annotated[
    int, BeforeValidator(_parse_weekday), WithJsonSchema({"type": ["string", "integer"]})
]
Interval = Annotated[
    float | Literal["monthly"],
    BeforeValidator(_parse_interval),
    InDuration,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": units.DURATION_PATTERN},
                {"enum": ["hourly", "daily", "weekly", "monthly"]},
            ]
        }
    ),
]


class PipelineScheduleSettings(Section):
    """When a pipeline starts; exactly one of `every`, `cron`, `at` and `after` is required."""

    id: Name = Field(
        default="default", description="Name of the schedule, unique per plugin or pipeline."
    )
    every: Interval | None = Field(
        default=None,
        description="Interval in elapsed time; `monthly` is a calendar month.",
        examples=["15m", "daily"],
    )
    cron: Annotated[str, BeforeValidator(_parse_cron)] | None = Field(
        default=None, description="Cron expression with five fields.", examples=["0 6 * * 1-5"]
    )
    at: Annotated[datetime, BeforeValidator(_parse_time)] | None = Field(
        default=None, description="Run once, at this time.", examples=["2026-02-08T10:00:00Z"]
    )
    after: Span | None = Field(
        default=None,
        description="Run once per start of the gateway, after this delay.",
        examples=["30s"],
    )
    payload: OpaqueTable = Field(default_factory=dict, description="Payload of its jobs.")
    jitter: Seconds = span(
        "0s", "Shift each run randomly within this time, half before and half after."
    )
    window: Annotated[str, BeforeValidator(_check_window)] | None = Field(
        default=None,
        alias="only_between",
        description="Run only in this window of the day, which may cross midnight.",
        examples=["08:00-22:00"],
    )
    timezone: Annotated[str, BeforeValidator(_check_zone)] | None = Field(
        default=None,
        description="IANA time zone of cron, window and weekdays; default: that of the gateway.",
        examples=["Europe/Vienna"],
    )
    not_on: tuple[Weekday, ...] = Field(
        default=(),
        description="Weekdays without runs: names, or numbers from 0 to 7 (0 and 7: Sunday).",
        examples=[["saturday", "sunday"]],
    )
    """ISO numbers: Monday is 1, Sunday is 7."""
    catch_up: Annotated[Literal["skip", "run_once", "run_all"], Word] = Field(
        default="skip", description="What to do about runs missed while the gateway was stopped."
    )
    if_running: Annotated[Literal["skip", "queue", "cancel"], Word] = Field(
        default="skip", description="What to do if the previous run is still active."
    )

    @classmethod
    def find_conflicts(cls, data: dict[str, Any]) -> Iterator[str]:
        named = [key for key in ("every", "cron", "at", "after") if key in data]
        if len(named) != 1:
            found = f"; {' and '.join(named)} are set" if named else "; none is set"
            yield f"needs exactly one of every, cron, at, after{found}"

    @model_validator(mode="after")
    def _check_weekdays(self) -> Self:
        if len(set(self.not_on)) == 7:
            refuse("not_on excludes every day of the week; leave out at least one")
        return self


class ScheduleSettings(PipelineScheduleSettings):
    """When a command runs; exactly one of `every`, `cron`, `at` and `after` is required."""

    command: Name = Field(default=POLL, description="Command to run.")
    priority: Priority = span("0s", PRIORITY)


class RetrySettings(Section):
    max_attempts: Annotated[Whole, Field(ge=1)] = Field(
        default=DEFAULT_RETRY.max_attempts,
        description="Maximum number of attempts, including the first.",
    )
    backoff_base: Span = span(
        DEFAULT_RETRY.backoff_base,
        "Delay before the first retry; it doubles with each attempt. A random part of up to this "
        "time is added to every delay.",
    )


class BreakerSettings(Section):
    threshold: Annotated[Whole, Field(ge=0)] = Field(
        default=DEFAULT_BREAKER.threshold,
        description="Number of consecutive failures of scheduled jobs that opens the breaker; "
        "0, or `circuit_breaker: off`: it never opens.",
    )
    reset_after: Span = span(
        DEFAULT_BREAKER.reset_after, "Time that the breaker stays open before a probe."
    )


def _read_breaker(value: Any) -> Any:
    given = value.value if isinstance(value, RawScalar) else value
    return {"threshold": 0} if given in ("off", False) else value


def _check_key(value: Any) -> Any:
    text = text_of(value, "a key")
    if isinstance(text, str):
        from ductile.core.flow.keys import compile_key
        from ductile.core.values.json_values import Failure

        found = compile_key(text)
        if isinstance(found, Failure):
            refuse(found.reason, allowed="text with references, such as {payload.account}")
    return text


LimitKey = Annotated[str, BeforeValidator(_check_key)]


class ConcurrencySettings(Section):
    """How many jobs with the same key run at once, on all nodes."""

    key: LimitKey | None = Field(
        default=None,
        description="Jobs with the same key count together; default: all jobs of the plugin. "
        "A value that the payload does not have is empty.",
        examples=["{payload.account}"],
    )
    limit: Annotated[Whole, Field(ge=1)] = Field(
        default=1, description="Maximum number of running jobs per key."
    )
    on_full: Annotated[Literal["queue", "skip", "cancel"], Word] = Field(
        default="queue",
        description="What happens to a job whose turn comes while its key is full: it waits; it "
        "is skipped; or it waits and the older jobs with its key are cancelled.",
    )


class RateSettings(Section):
    """How often jobs start, on all nodes."""

    limit: Annotated[Whole, Field(ge=1)] = Field(description="Number of starts per period.")
    per: Span = Field(description="The period.", examples=["1m"])
    burst: Annotated[Whole, Field(ge=1)] = Field(
        default=1,
        description="Number of starts that may follow each other without a delay.",
    )
    key: LimitKey | None = Field(
        default=None,
        description="Each key has its own rate; default: one for the plugin.",
        examples=["{payload.account}"],
    )


def _check_variable(value: Any) -> Any:
    text = text_of(value, "the name of a variable")
    if isinstance(text, str):
        if not _VARIABLE.match(text):
            refuse("is not the name of a variable", allowed="letters, digits and _")
        if text.startswith("DUCTILE_") or text in RESERVED_VARIABLES:
            refuse("is set by the gateway alone; choose another name")
    return text


VariableName = Annotated[str, BeforeValidator(_check_variable)]


class RuntimeSettings(Section):
    """How the processes of a Python plugin are started; overrides its manifest."""

    python: Annotated[Literal["cold", "warm"], Word] | None = Field(
        default=None,
        description="`warm` forks jobs from an interpreter that has imported modules; `cold` "
        "starts an interpreter per job. Default: as its manifest says.",
    )
    preload: tuple[Name, ...] | None = Field(
        default=None,
        description="Modules that a warm start imports. Default: as its manifest says.",
        examples=[["httpx"]],
    )


class PluginSettings(Section):
    enabled: Flag = Field(default=True, description="Load the plugin.")
    uses: Name | None = Field(
        default=None, description="Plugin that this entry is another instance of."
    )
    config: OpaqueTable = Field(
        default_factory=dict,
        description="Settings passed to the plugin with every request.",
        repr=False,
    )
    public_config: tuple[Name, ...] = Field(
        default=(),
        description="Keys of `config` that are not secrets; elsewhere in it, a `${NAME}` is one.",
        examples=[["base_url"]],
    )
    env: Mapping[VariableName, Text] = Field(
        default_factory=dict,
        description="Environment variables of its processes, besides those of every plugin.",
        examples=[{"AWS_PROFILE": "backup"}],
        repr=False,
    )
    secrets: tuple[Name, ...] | None = Field(
        default=None,
        description="References that its `config`, its `env` and the `with` of its steps may "
        "contain, without `${}`; default: all.",
        examples=[["GITHUB_TOKEN", "file:/run/secrets/github"]],
    )
    schedules: tuple[ScheduleSettings, ...] = Field(
        default=(), description="When its commands run."
    )
    retry: RetrySettings = Field(
        default_factory=RetrySettings.model_construct, description="Retries of failed jobs."
    )
    nodes: Mapping[str, Text] = Field(
        default_factory=dict,
        description="Run its jobs only on nodes with these `service.labels`.",
        examples=[{"gpu": "true"}],
    )
    timeouts: Mapping[str, Span] = Field(
        default_factory=dict,
        description=f"Maximum run time per command; default: {_TIMEOUTS}.",
        examples=[{POLL: "5m"}],
    )
    circuit_breaker: Annotated[
        BreakerSettings,
        BeforeValidator(
            _read_breaker, json_schema_input_type=BreakerSettings | Literal["off", False]
        ),
    ] = Field(
        default_factory=BreakerSettings.model_construct,
        description="When the scheduler pauses a failing plugin; `off`: never.",
    )
    max_outstanding_polls: Annotated[Whole, Field(ge=1)] = Field(
        default=1,
        description="Maximum number of its polls that are queued or running when a schedule fires.",
    )
    parallelism: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None,
        description="Maximum number of its jobs that run at once, on all nodes; "
        "default: as its manifest allows.",
    )
    concurrency: ConcurrencySettings | None = Field(
        default=None, description="Maximum number of its jobs that run at once per key."
    )
    rate: RateSettings | None = Field(default=None, description="How often its jobs start.")
    runtime: RuntimeSettings = Field(
        default_factory=RuntimeSettings.model_construct,
        description="How its processes are started, if it is in Python.",
    )
    sandbox: SandboxSettings | None = Field(
        default=None, description="What its processes may touch; default: as its manifest says."
    )
    priority: Priority = span("0s", PRIORITY)
    notify_on_complete: Flag = Field(
        default=False, description="Start `on-hook` pipelines when its root jobs end."
    )
