"""Responses under /gateway/: agents, reminders, webhooks and their deliveries."""

from __future__ import annotations

from typing import Any, Literal

from ductile.core.delivery.retry_policy import DeliveryStatus
from ductile.http.models.responses.fields import OMITTED, ResponseModel, Timestamp


class HeartbeatAcceptedModel(ResponseModel):
    """The heartbeat is recorded."""

    status: Literal["ok"]


class MessageAcceptedModel(ResponseModel):
    """The decision log is published."""

    status: Literal["accepted"]
    trace_id: str


class AgentModel(ResponseModel):
    """An agent."""

    agent_id: str
    cluster_id: str
    last_seen_at: str
    """By the agent's clock."""
    received_at: Timestamp | None
    """By the gateway's clock."""
    capabilities: dict[str, Any] | None
    state: Literal["live", "gone"]


class AgentsModel(ResponseModel):
    """Agents by id."""

    agents: list[AgentModel]
    cursor: str | None
    """For the next page; null on the last one."""


class CapabilityModel(ResponseModel):
    """What an agent can do."""

    agent_id: str
    cluster_id: str
    capabilities: dict[str, Any] | None


class CapabilitiesModel(ResponseModel):
    """The capabilities of agents."""

    agents: list[CapabilityModel]
    cursor: str | None
    """For the next page; null on the last one."""


class ReminderModel(ResponseModel):
    """A reminder of an agent."""

    id: int = OMITTED
    agent_id: str
    schedule: str | None
    next_fire_at: str
    is_one_time: bool
    payload: Any
    created_at: str = OMITTED
    dry_run: bool = OMITTED


class RemindersModel(ResponseModel):
    """Reminders by id."""

    reminders: list[ReminderModel]
    cursor: int | None
    """For the next page; null on the last one."""


class DeliveryModel(ResponseModel):
    """A delivery of a webhook, without its signature."""

    delivery_id: int
    webhook_id: int
    session_id: str
    target_url: str
    status: DeliveryStatus
    attempt_count: int
    """The number of failed attempts."""
    last_attempted_at: str | None
    next_retry_at: str | None
    created_at: str
    error_detail: str | None
    message_id: str | None


class DeliveryDetailModel(DeliveryModel):
    """A delivery with its payload."""

    payload: Any
    sending: bool


class DeliveriesModel(ResponseModel):
    """Deliveries, newest first."""

    deliveries: list[DeliveryModel]
    cursor: int | None
    """For the next page; null on the last one."""


class DeliverySentModel(ResponseModel):
    """The delivery is durably queued."""

    status: DeliveryStatus
    delivery_id: int
    webhook_id: int
    message_id: str
    target_url: str
    next_retry_at: str


class DeliveryPlanModel(ResponseModel):
    """With `dry_run`: what would be sent."""

    webhook_id: int
    target_url: str
    bytes: int
    dry_run: bool


class DeliveryRetryModel(ResponseModel):
    """The delivery is attempted again; with `dry_run`, it would be."""

    delivery_id: int
    was: str
    status: DeliveryStatus = OMITTED
    dry_run: bool = OMITTED


class DeliveriesRetryModel(ResponseModel):
    """The deliveries are attempted again; with `dry_run`, they would be."""

    deliveries: list[int]
    count: int
    more: bool
    """Whether there are more of them."""
    dry_run: bool = OMITTED


class DeliveryDiscardModel(ResponseModel):
    """The dead delivery is deleted; with `dry_run`, it would be."""

    delivery_id: int
    dry_run: bool = OMITTED


class DeliveriesDiscardModel(ResponseModel):
    """The dead deliveries are deleted; with `dry_run`, they would be."""

    deliveries: list[int]
    count: int
    more: bool
    """Whether there may be more of them."""
    dry_run: bool = OMITTED


class WebhookFields(ResponseModel):
    """What a webhook for agents is created with, without its secret."""

    source_identifier: str
    event_type: str
    agent_intent: str
    target_session: str
    target_url: str | None
    plugin: str | None
    pipeline: str | None


class WebhookModel(WebhookFields):
    """A webhook for agents, without its secret."""

    id: int
    created_at: Timestamp


class WebhooksModel(ResponseModel):
    """Every webhook for agents."""

    webhooks: list[WebhookModel]


class WebhookCreatedModel(WebhookModel):
    """The webhook is created; a generated secret is shown this once."""

    secret: str = OMITTED


class WebhookPlanModel(WebhookFields):
    """With `dry_run`: the webhook that would be created."""

    dry_run: bool


class WebhookRemovedModel(ResponseModel):
    """The webhook is removed; with `dry_run`, it would be."""

    id: int
    source_identifier: str
    event_type: str
    removed: bool = OMITTED
    dry_run: bool = OMITTED


class EventAcceptedModel(ResponseModel):
    """The event is durably stored."""

    status: Literal["accepted"]
    delivery_id: int
    duplicate: bool = OMITTED
    """Set if the same signed request was accepted before; nothing was stored again."""


class HeartbeatModel(ResponseModel):
    """A heartbeat of an agent."""

    type: Literal["heartbeat"]
    agent_id: str
    cluster_id: str
    timestamp: str = OMITTED
    """An ISO 8601 time; the gateway's time replaces one that cannot be read."""
