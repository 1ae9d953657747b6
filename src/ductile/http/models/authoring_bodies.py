"""Bodies of requests that change the gateway: its configuration, and new plugins."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from ductile.http.models.bodies import ActionBody, AnyTexts, Text
from ductile.http.models.fields import (
    MAX_INTEGER,
    AnyJson,
    BodyFlag,
    BodyInteger,
    BodyText,
    OneOf,
    Payload,
    RequestModel,
    Timestamp,
)

MAX_PLUGIN_NAME = 100
MAX_COMPARED_JOBS = 1000
MAX_ID = 100

Id = Annotated[str | None, BodyText(most=MAX_ID)]


class SettingBody(ActionBody):
    path: Annotated[str, BodyText(required=True)] = Field(
        description="Such as `plugins.echo.schedules[0].every`."
    )
    value: Annotated[Any, AnyJson({})] = Field(None, description="The new value.")


class ApplyBody(ActionBody):
    plan: Id = Field(None, description="The `id` of the plan; without `dry_run` it is required.")
    directory: Text = Field(
        None, description="Another directory with the files; on the local socket only."
    )
    lock: Annotated[bool, BodyFlag()] = Field(
        False, description="Renew the seal of sealed files; on the local socket only."
    )


class RevertBody(ActionBody):
    snapshot: Id = Field(None, description="The snapshot to return to; default: the one before.")
    plan: Id = Field(
        None, description="The `id` of the plan of a dry run; without `dry_run` it is required."
    )
    lock: Annotated[bool, BodyFlag()] = Field(
        False, description="Renew the seal of sealed files; on the local socket only."
    )


class PluginLanguage(StrEnum):
    PYTHON = "python"
    SH = "sh"
    NODE = "node"


class NewPluginBody(ActionBody):
    name: Annotated[str, BodyText(most=MAX_PLUGIN_NAME, required=True)] = Field(
        description="The name of the new plugin."
    )
    language: Annotated[PluginLanguage | None, OneOf(PluginLanguage)] = Field(
        None, description="The language of its program."
    )


class PluginTestBody(RequestModel):
    payload: Annotated[Any, Payload()] = Field(
        default_factory=dict, description="The payload of the job; for `handle`, of the event."
    )
    webhook: Annotated[Any, AnyJson({"type": "object"})] = Field(
        None,
        description="A webhook request instead: `{name, provider, headers, body}`. Its signature "
        "is not verified; `event` and `delivery_id` replace what headers and body say.",
    )


class PluginComparisonBody(RequestModel):
    directory: Text = Field(
        None,
        description="Of the changed plugin, on the local socket only; by default the plugin roots.",
    )
    limit: Annotated[int, BodyInteger(1, MAX_COMPARED_JOBS)] = Field(
        50, description="Maximum number of jobs; a page may have fewer."
    )
    since: Annotated[datetime | None, Timestamp()] = Field(
        None, description="Jobs created at this time or later."
    )
    before: Annotated[int | None, BodyInteger(1, MAX_INTEGER)] = Field(
        None, description="The `cursor` of the previous page."
    )
    ignore: Annotated[list[str], AnyTexts()] = Field(
        default_factory=list, description="Paths that may differ, such as `result.fetched_at`."
    )
    allow_network: Annotated[bool, BodyFlag()] = Field(
        False, description="Give the plugin the network that it has as a job."
    )
