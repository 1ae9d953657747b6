"""`plugins`: how each plugin is configured, scheduled, retried and bounded."""

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from ductile.config.models import units
from ductile.config.models.fields import (
    Flag,
    Found,
    InDuration,
    Name,
    OpaqueTable,
    Seconds,
    Section,
    Span,
    Whole,
    Word,
    refuse,
    refuse_as,
    span,
    text_of,
)
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
_EARLIEST, _LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
"""Between them a moment can be moved by windows, jitter and zones, and is still a date."""


def _every(value: Any) -> Any:
    text = text_of(value, "an interval")
    if not isinstance(text, str) or text == "monthly":
        return text
    if text in _WORDS:
        return _WORDS[text]
    allowed = f"{units.DURATION}, hourly, daily, weekly, monthly"
    try:
        seconds = units.duration(text)
    except ValueError:
        refuse("must be an interval", allowed=allowed)
    if seconds <= 0:
        refuse("must be longer than nothing", allowed=allowed)
    return seconds


def _cron(value: Any) -> Any:
    text = text_of(value, "a cron expression")
    if not isinstance(text, str):
        return text
    from ductile.core.schedules import cron

    try:
        return cron.parse(text)
    except ValueError as error:
        refuse_as(error)


def _moment(value: Any) -> Any:
    text = text_of(value, "a moment")
    if not isinstance(text, str):
        return text
    try:
        if not _RFC3339.match(text):
            raise ValueError
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        refuse("must be a moment with its offset", allowed="RFC 3339, as in 2026-02-08T10:00:00Z")
    if not _EARLIEST <= moment < _LATEST:
        refuse("is too far from now", allowed="1970-01-01T00:00:00Z to 9998-12-31T23:59:59Z")
    return moment


def _zone(value: Any) -> Any:
    text = text_of(value, "a time zone")
    if isinstance(text, str):
        from zoneinfo import ZoneInfo

        try:
            ZoneInfo(text)
        except (ValueError, OSError, KeyError):
            refuse("is no time zone", allowed="an IANA name, such as Europe/Vienna")
    return text


def _weekday(value: Any) -> Any:
    from ductile.core.schedules import window

    try:
        return window.weekday(text_of(value, "a weekday")) + 1
    except ValueError as error:
        refuse_as(error)


def _window(value: Any) -> Any:
    """`HH:MM-HH:MM`, also from the mapping of start and end."""
    if isinstance(value, dict):
        if set(value) != {"start", "end"} or not all(isinstance(v, Found) for v in value.values()):
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


Weekday = Annotated[int, BeforeValidator(_weekday), WithJsonSchema({"type": ["string", "integer"]})]
Interval = Annotated[
    float | Literal["monthly"],
    BeforeValidator(_every),
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


class ScheduleSettings(Section):
    """When a command of a plugin runs by itself; exactly one of every, cron, at, after."""

    id: Name = Field(default="default", description="The entry's name, unique in its plugin.")
    every: Interval | None = Field(
        default=None,
        description="The interval; `monthly` is a calendar month, the rest is elapsed time.",
        examples=["15m", "daily"],
    )
    cron: Annotated[str, BeforeValidator(_cron)] | None = Field(
        default=None, description="Five fields of cron.", examples=["0 6 * * 1-5"]
    )
    at: Annotated[datetime, BeforeValidator(_moment)] | None = Field(
        default=None, description="Once, at this moment.", examples=["2026-02-08T10:00:00Z"]
    )
    after: Span | None = Field(
        default=None, description="Once a start, after this delay.", examples=["30s"]
    )
    command: Name = Field(default=POLL, description="The command that runs.")
    payload: OpaqueTable = Field(default_factory=dict, description="The payload of its jobs.")
    jitter: Seconds = span("0s", "Spreads runs over this time, half before and half after.")
    window: Annotated[str, BeforeValidator(_window)] | None = Field(
        default=None,
        alias="only_between",
        description="Runs only inside this window of the day, which may pass midnight.",
        examples=["08:00-22:00"],
    )
    timezone: Annotated[str, BeforeValidator(_zone)] | None = Field(
        default=None,
        description="The IANA zone of cron, window and weekdays; unset, the gateway's own.",
        examples=["Europe/Vienna"],
    )
    not_on: tuple[Weekday, ...] = Field(
        default=(),
        description="Weekdays without runs: names, or 0 to 7 where 0 and 7 are Sunday.",
        examples=[["saturday", "sunday"]],
    )
    """As ISO numbers them: Monday is 1, Sunday 7."""
    catch_up: Annotated[Literal["skip", "run_once", "run_all"], Word] = Field(
        default="skip", description="What becomes of runs that a stopped gateway missed."
    )
    if_running: Annotated[Literal["skip", "queue", "cancel"], Word] = Field(
        default="skip", description="What a run does that finds the one before still going."
    )

    @classmethod
    def complaints(cls, data: dict[str, Any]) -> Iterator[str]:
        named = [key for key in ("every", "cron", "at", "after") if key in data]
        if len(named) != 1:
            found = f" ({' and '.join(named)} are set)" if named else ""
            yield f"needs exactly one of every, cron, at, after{found}"

    @model_validator(mode="after")
    def _leaves_a_day(self) -> Self:
        if len(set(self.not_on)) == 7:
            refuse("not_on leaves no day of the week")
        return self


class RetrySettings(Section):
    max_attempts: Annotated[Whole, Field(ge=1)] = Field(
        default=DEFAULT_RETRY.max_attempts, description="Attempts in all, the first one counted."
    )
    backoff_base: Span = span(
        DEFAULT_RETRY.backoff_base, "The first delay; it doubles with each attempt."
    )


class BreakerSettings(Section):
    threshold: Annotated[Whole, Field(ge=1)] = Field(
        default=DEFAULT_BREAKER.threshold,
        description="Failed scheduled jobs in a row that open the breaker.",
    )
    reset_after: Span = span(DEFAULT_BREAKER.reset_after, "How long it stays open before a probe.")


class PluginSettings(Section):
    enabled: Flag = Field(default=True, description="Whether the plugin is used at all.")
    uses: Name | None = Field(
        default=None, description="Makes this entry an alias: a second instance of that plugin."
    )
    config: OpaqueTable = Field(
        default_factory=dict, description="Handed to the plugin with every request.", repr=False
    )
    schedules: tuple[ScheduleSettings, ...] = Field(
        default=(), description="When it runs by itself."
    )
    retry: RetrySettings = Field(
        default_factory=RetrySettings.model_construct, description="What follows a failed attempt."
    )
    timeouts: Mapping[str, Span] = Field(
        default_factory=dict,
        description=f"How long a command may run: by default {_TIMEOUTS}.",
        examples=[{POLL: "5m"}],
    )
    circuit_breaker: BreakerSettings = Field(
        default_factory=BreakerSettings.model_construct,
        description="When the scheduler leaves a failing plugin alone.",
    )
    max_outstanding_polls: Annotated[Whole, Field(ge=1)] = Field(
        default=1, description="Polls that may be queued or running before the scheduler waits."
    )
    parallelism: Annotated[Whole, Field(ge=1)] | None = Field(
        default=None,
        description="Jobs of this plugin at once, over all nodes; unset, as its manifest says.",
    )
    notify_on_complete: Flag = Field(
        default=False, description="Whether the end of its root jobs fires `on-hook` pipelines."
    )
