"""When commands and pipelines run: `schedules` of a plugin or of a pipeline."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from ductile.config.models import units
from ductile.config.models.fields import (
    PRIORITY,
    InDuration,
    Name,
    OpaqueTable,
    Priority,
    RawScalar,
    Seconds,
    Section,
    Span,
    Word,
    refuse,
    refuse_as,
    span,
    text_of,
)
from ductile.core.jobs.commands import POLL
from ductile.core.values.suggest import nearest

_WORDS = {"hourly": 3600.0, "daily": 86_400.0, "weekly": 604_800.0}
_RFC3339 = re.compile(
    r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})\Z", re.ASCII
)
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
            from zoneinfo import available_timezones

            refuse(
                "is not a known time zone",
                allowed="an IANA name, such as Europe/Vienna",
                nearest=nearest(text, available_timezones()),
            )
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
    if_running: Annotated[Literal["queue", "skip", "cancel"], Word] = Field(
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
