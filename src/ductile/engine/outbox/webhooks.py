"""Webhook deliveries: the policy of their outbox, and the transaction that enqueues one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from ductile._fast_dataclass import dataclass
from ductile.clock import Entropy, to_text
from ductile.core.delivery import retry_policy
from ductile.core.delivery.retry_policy import INTERNAL, DeliveryUpdate
from ductile.core.delivery.signatures import sign_headers
from ductile.core.jobs.trace import TraceContext
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.outbox.internal_delivery import InternalDelivery
from ductile.engine.outbox.policy import (
    UNREADABLE,
    OutboundRequest,
    OutboxPolicy,
    SendResult,
    trace_header,
)
from ductile.errors import Refused
from ductile.store.engines.api import Tx
from ductile.store.jobs import traces
from ductile.store.outbox import deliveries, webhooks
from ductile.store.outbox.deliveries import ClaimedDelivery
from ductile.store.outbox.webhooks import Webhook

POLL_INTERVAL_MS = 5_000
SEND_TIMEOUT = 15.0
REMOVED = "its webhook was removed"


class WebhookPolicy(OutboxPolicy[ClaimedDelivery]):
    """Rows of `webhook_deliveries`. The store limits how many are claimed per cycle."""

    name, noun = "deliveries", "delivery"
    retry_seconds = retry_policy.RETRY_SCHEDULE_SECONDS
    poll_seconds, full_seconds = POLL_INTERVAL_MS / 1000, 0.25
    store = deliveries

    def __init__(self, entropy: Entropy) -> None:
        self._entropy = entropy

    def next_due(self, tx: Tx, _config: CompiledConfig, now: datetime) -> datetime | None:
        return deliveries.next_due_at(tx, now)

    def find_odd_times(self, tx: Tx, _config: CompiledConfig) -> list[int]:
        return deliveries.list_foreign_times(tx)

    def claim(
        self, tx: Tx, config: CompiledConfig, owner: str, now: datetime
    ) -> list[ClaimedDelivery]:
        claimed = deliveries.claim(tx, owner, now)
        if not claimed or config.tracing is None:
            return claimed
        found = traces.load_delivery_contexts(tx, [row.id for row in claimed])
        return [replace(row, trace=found.get(row.id)) for row in claimed]

    def build_request(
        self, row: ClaimedDelivery, config: CompiledConfig, now: datetime
    ) -> OutboundRequest | SendResult:
        delivery, webhook = row.delivery, row.webhook
        if webhook is None or webhook.removed:
            return SendResult(None, REMOVED)
        if row.payload is None:
            return SendResult(None, UNREADABLE)
        if delivery.target_url.startswith(INTERNAL):
            return self._deliver_here(row, webhook, row.payload, config, now)
        body = row.payload.encode()
        signed = sign_headers(webhook.secret, delivery.message_id, body, now)
        return OutboundRequest(
            delivery.target_url,
            body,
            {"Content-Type": "application/json", **signed, **trace_header(row.trace, config)},
            SEND_TIMEOUT,
            networks=config.settings.gateway.allowed_networks,
        )

    def _deliver_here(
        self,
        row: ClaimedDelivery,
        webhook: Webhook,
        payload: str,
        config: CompiledConfig,
        now: datetime,
    ) -> SendResult:
        base_id = self._entropy.uuid()
        try:
            delivery = InternalDelivery(
                config, webhook, row.delivery, payload, base_id, now, row.trace
            )
        except Refused as refusal:
            return SendResult(None, refusal.message)
        return SendResult(None, local_write=delivery)

    def judge(self, row: ClaimedDelivery, result: SendResult, now: datetime) -> DeliveryUpdate:
        if row.webhook is None or row.webhook.removed:
            return retry_policy.mark_unsendable(row.attempts, REMOVED)
        if result.is_success:
            return retry_policy.mark_delivered(row.attempts)
        error = result.error or f"HTTP {result.status}"
        return retry_policy.mark_failed(row.attempts, error, now, self.retry_seconds)


@dataclass(frozen=True, slots=True)
class EnqueuedDelivery:
    """A delivery that is durably queued."""

    delivery_id: int
    webhook_id: int
    message_id: str
    target_url: str
    next_retry_at: str


@dataclass(frozen=True, slots=True)
class EnqueueDelivery:
    """The transaction that enqueues a delivery of one webhook."""

    webhook: int | tuple[str, str]
    """Its id, or its source and event type."""
    payload: str
    """JSON text: these are the bytes that are signed and sent."""
    message_id: str
    now: datetime
    delay: timedelta = timedelta(0)
    trace: TraceContext | None = None
    """The trace of the request."""

    def find(self, tx: Tx) -> Webhook:
        if isinstance(self.webhook, int):
            return webhooks.find_webhook(tx, self.webhook)
        return webhooks.find_webhook_of_event(tx, *self.webhook)

    def __call__(self, tx: Tx) -> EnqueuedDelivery:
        webhook, due = self.find(tx), self.now + self.delay
        id = deliveries.enqueue_delivery(
            tx, webhook, self.payload, message_id=self.message_id, due=due, now=self.now
        )
        if self.trace is not None:
            traces.set_delivery_trace(tx, id, self.trace)
        return EnqueuedDelivery(id, webhook.id, self.message_id, webhook.target, to_text(due))
