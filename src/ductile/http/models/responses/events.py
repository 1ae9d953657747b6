"""Responses about events: notices, streams and events relayed to other gateways."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import RootModel

from ductile.core.delivery.retry_policy import DeliveryStatus
from ductile.http.models.responses.fields import OMITTED, ResponseModel, Timestamp


class NoticeModel(ResponseModel):
    """An event of the event stream."""

    id: int
    topic: str
    type: str
    job_id: str | None
    created_at: Timestamp
    payload: Any


class NoticesModel(ResponseModel):
    """Notices, oldest first."""

    notices: list[NoticeModel]
    cursor: str
    """The `after` of the next page."""


class EventStreamModel(RootModel[str]):
    """Server-sent events; the connection stays open."""

    media_type: ClassVar[str] = "text/event-stream"


class JobLogStreamModel(RootModel[str]):
    """Server-sent events: `log` (text of stderr), `progress`, `attempt` (its end) and `end`."""

    media_type: ClassVar[str] = "text/event-stream"


class RelayModel(ResponseModel):
    """An event on its way to another gateway."""

    id: str
    instance: str
    job_id: str | None
    event_id: str | None
    event_type: str
    status: DeliveryStatus
    attempt_count: int
    last_attempted_at: Timestamp | None
    next_retry_at: Timestamp | None
    created_at: Timestamp
    error_detail: str | None


class RelaysModel(ResponseModel):
    """Relayed events, newest first."""

    relays: list[RelayModel]


class RelaySentModel(ResponseModel):
    """The event is durably queued and will be sent; with `dry_run`, it would be."""

    to: str
    event: str
    id: str = OMITTED
    event_id: str = OMITTED
    """The same for every send; the receiver accepts it once."""
    status: DeliveryStatus = OMITTED
    dry_run: bool = OMITTED


class RelayRetryModel(ResponseModel):
    """The event is sent again; with `dry_run`, it would be."""

    id: str
    was: str
    status: DeliveryStatus = OMITTED
    dry_run: bool = OMITTED


class RelaysRetryModel(ResponseModel):
    """The dead events are sent again; with `dry_run`, they would be."""

    relays: list[str]
    count: int
    more: bool
    """Whether there are more of them."""
    dry_run: bool = OMITTED


class RelayDiscardModel(ResponseModel):
    """The dead event is deleted; with `dry_run`, it would be."""

    id: str
    dry_run: bool = OMITTED


class RelaysDiscardModel(ResponseModel):
    """The dead events are deleted; with `dry_run`, they would be."""

    relays: list[str]
    count: int
    more: bool
    """Whether there may be more of them."""
    dry_run: bool = OMITTED
