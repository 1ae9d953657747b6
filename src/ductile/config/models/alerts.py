"""`alerts` and `dead_man`: what the gateway reports by itself, and to whom."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from ductile.config.models import units
from ductile.config.models.fields import (
    Name,
    RawScalar,
    Seconds,
    Section,
    Span,
    Url,
    Whole,
    Word,
    refuse,
    span,
    text_of,
)
from ductile.core.alerts.conditions import Condition
from ductile.core.alerts.disk_limit import DiskLimit


def _disk_limit(value: Any) -> DiskLimit:
    text = str(text_of(value, "a share or a size")).strip()
    limit = _parse_disk_limit(text)
    if limit is None:
        refuse("must be a share of the disk or a size", allowed="a share such as 5%, or 10GB")
    return limit


def _parse_disk_limit(text: str) -> DiskLimit | None:
    try:
        if not text.endswith("%"):
            return DiskLimit(size=units.parse_size(text))
        share = float(text[:-1]) / 100
    except ValueError:
        return None
    return DiskLimit(share=share) if 0 < share < 1 else None


def describe_disk_limit(limit: DiskLimit) -> str:
    """In the notation of the files."""
    return f"{limit.share * 100:g}%" if limit.share else units.format_size(limit.size)


class ThresholdSettings(Section):
    """The thresholds of `queue.age` and `disk.free`."""

    queue_age: Span = Field(
        default=600.0,
        alias="queue.age",
        description="Age of the oldest ready job of a plugin.",
        json_schema_extra={"default": "10m"},
    )
    disk_free: Annotated[
        str,
        BeforeValidator(lambda value: describe_disk_limit(_disk_limit(value))),
        WithJsonSchema({"type": "string"}),
    ] = Field(
        default="5%",
        alias="disk.free",
        description="Free space of the state directory's disk, as a share or a size.",
    )

    @property
    def disk_limit(self) -> DiskLimit:
        return _disk_limit(self.disk_free)


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str | RawScalar) else value


class AlertSettings(Section):
    """A rule: what it watches, and the plugin or pipeline that gets its messages."""

    name: Name = Field(description="Name of the rule.", examples=["broken"])
    on: Annotated[
        tuple[Annotated[Literal[tuple(one.value for one in Condition)], Word], ...],  # type: ignore[valid-type]
        BeforeValidator(_as_list),
        Field(min_length=1),
    ] = Field(
        description="Conditions that the rule watches.", examples=[["job.dead", "breaker.open"]]
    )
    to: Name = Field(
        description="Plugin (its `handle` command) or pipeline that gets the messages.",
        examples=["notify"],
    )
    only: Annotated[tuple[Name, ...], BeforeValidator(_as_list)] = Field(
        default=(),
        description="Names or patterns of the plugins, schedules (`plugin/id`), pipelines, agents "
        "or webhooks that the rule watches; default: all.",
        examples=[["backup", "sync-*"]],
    )
    after: Annotated[Whole, Field(ge=1)] = Field(
        default=1, description="Number of failures in a row before the rule fires."
    )
    for_: Seconds = Field(
        default=0.0,
        ge=0,
        alias="for",
        description="Time that the problem must last; for `*.silent` the time without a sign of "
        "life, which is required.",
        json_schema_extra={"default": "0s"},
        examples=["2h"],
    )
    group: Annotated[Literal["subject", "plugin", "none"], Word] = Field(
        default="subject",
        description="What shares one message: each `subject` (plugin, schedule, pipeline, ...), "
        "all schedules of a `plugin`, or with `none` everything.",
    )
    wait: Seconds = span("30s", "Time in which further failures are collected into one message.")
    repeat: Seconds = span("24h", "Time between reminders while it fires; 0s for none.")
    over: ThresholdSettings = Field(
        default_factory=ThresholdSettings.model_construct,
        description="Thresholds of `queue.age` and `disk.free`.",
    )

    @classmethod
    def find_conflicts(cls, data: dict[str, Any]) -> Iterator[str]:
        names = {_text(one) for one in _listed(data.get("on"))}
        silent = sorted(one.value for one in Condition if one.is_silence and one.value in names)
        if silent and _text(data.get("for", "0s")) in ("0", "0s"):
            yield f"{silent[0]} needs `for`: the time without a success or sign of life"


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _text(value: Any) -> str:
    return value.text if isinstance(value, RawScalar) else str(value)


class DeadManSettings(Section):
    """Requests to an outside monitor, which reports when they stop."""

    url: Url = Field(
        description="URL that gets a POST while the gateway is healthy.",
        examples=["https://hc-ping.example/${DEAD_MAN_ID}"],
        repr=False,
    )
    every: Annotated[Span, Field(ge=1)] = span("5m", "Time between two requests.")
