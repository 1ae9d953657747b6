"""The lane of webhooks (004): what is claimed for the courier, and how it is settled."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

from ductile.clock import Entropy, to_text
from ductile.core.delivery import retry_policy as rules
from ductile.core.delivery.retry_policy import INTERNAL
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.outbox.internal_delivery import InternalDelivery
from ductile.engine.outbox.queue import (
    UNREADABLE,
    Ending,
    LedgerOutbox,
    OutboundRequest,
    SendResult,
)
from ductile.errors import Refused
from ductile.record import dataclass
from ductile.store.engines.api import Ledger, Tx
from ductile.store.outbox import deliveries
from ductile.store.outbox.deliveries import Claimed, Webhook

POLL_INTERVAL_MS = 5_000
SEND_TIMEOUT = 15.0
REMOVED = "its webhook was removed"
MISMATCHES_A_MINUTE = 10
MINUTE = timedelta(minutes=1)


class WebhookOutbox(LedgerOutbox[Claimed]):
    """`webhook_deliveries` as a lane of the courier."""

    name, noun = "deliveries", "delivery"
    schedule = rules.RETRY_SCHEDULE_SECONDS
    poll, soon = POLL_INTERVAL_MS / 1000, 0.25

    def __init__(
        self,
        ledger: Ledger,
        compiled: Callable[[], CompiledConfig],
        entropy: Entropy,
        owner: str,
    ) -> None:
        super().__init__(deliveries, ledger, compiled, owner)
        self._entropy = entropy

    def _due(self, tx: Tx, _compiled: CompiledConfig, now: datetime) -> datetime | None:
        return deliveries.next_at(tx, now)

    def _foreign(self, tx: Tx, _compiled: CompiledConfig) -> list[int]:
        return deliveries.foreign(tx)

    def _take(self, tx: Tx, _compiled: CompiledConfig, now: datetime) -> list[Claimed]:
        return deliveries.claim(tx, self._owner, now)

    def _parcel(self, claimed: Claimed, compiled: CompiledConfig, now: datetime) -> OutboundRequest:
        row, webhook = claimed.delivery, claimed.webhook
        if claimed.payload is None:
            return OutboundRequest.unsent(str(row.id), UNREADABLE)
        if row.target_url.startswith(INTERNAL) or webhook is None or webhook.removed:
            return OutboundRequest.unsent(str(row.id))
        body = claimed.payload.encode()
        headers = rules.signed_headers(webhook.secret, row.message_id, body, now)
        return OutboundRequest(
            str(row.id),
            row.target_url,
            body,
            {"Content-Type": "application/json", **headers},
            SEND_TIMEOUT,
            networks=compiled.settings.gateway.allowed_networks,
        )

    def _ending(self, claimed: Claimed, answer: SendResult, now: datetime) -> Ending:
        webhook, attempts = claimed.webhook, claimed.attempts
        if webhook is None or webhook.removed:
            return Ending(rules.given_up(attempts), REMOVED)
        handover, error = self._outcome(webhook, claimed, answer, now)
        if error is not None:
            return Ending(rules.after_failure(attempts, now, self.schedule), error)
        return Ending(rules.after_success(attempts), None, handover)

    def _outcome(
        self, webhook: Webhook, claimed: Claimed, answer: SendResult, now: datetime
    ) -> tuple[InternalDelivery | None, str | None]:
        """What is to be handed over, and what went wrong."""
        row = claimed.delivery
        if answer.error is not None or not row.target_url.startswith(INTERNAL):
            return None, None if answer.delivered else answer.error or f"HTTP {answer.status}"
        try:
            base_id, text = self._entropy.uuid(), claimed.payload or ""
            return InternalDelivery(self._compiled(), webhook, row, text, base_id, now), None
        except Refused as refusal:
            return None, refusal.message


@dataclass(frozen=True, slots=True)
class Sent:
    """A delivery that is durably on its way."""

    delivery_id: int
    webhook_id: int
    message_id: str
    target_url: str
    next_retry_at: str


@dataclass(frozen=True, slots=True)
class Sending:
    """The transaction that makes a delivery: of a webhook by its id, or by source and event."""

    webhook: int | tuple[str, str]
    payload: str
    """As JSON text: these are the bytes that are signed and sent."""
    message_id: str
    now: datetime
    delay: timedelta = timedelta(0)

    def find(self, tx: Tx) -> Webhook:
        if isinstance(self.webhook, int):
            return deliveries.find_webhook(tx, self.webhook)
        return deliveries.webhook_of(tx, *self.webhook)

    def __call__(self, tx: Tx) -> Sent:
        webhook, due = self.find(tx), self.now + self.delay
        id = deliveries.enqueue(
            tx, webhook, self.payload, message_id=self.message_id, due=due, now=self.now
        )
        return Sent(id, webhook.id, self.message_id, webhook.target, to_text(due))


class Mismatches:
    """Which wrong signatures are recorded: a stranger must not fill the ledger. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minutes: dict[int | str, tuple[datetime, int]] = {}
        self._untold: Counter[int | str] = Counter()

    def note(self, door: int | str, now: datetime) -> int | None:
        """How many went unrecorded before this one, where this one is recorded; else None."""
        with self._lock:
            since, count = self._minutes.get(door, (now, 0))
            if not timedelta(0) <= now - since < MINUTE:
                since, count = now, 0
            self._minutes[door] = since, count + 1
            if count >= MISMATCHES_A_MINUTE:
                self._untold[door] += 1
                return None
            return self._untold.pop(door, 0)
