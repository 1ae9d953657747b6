"""Webhook deliveries: their states, their retries, and their signatures."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from ductile._fast_dataclass import dataclass
from ductile.core.delivery.signatures import PLAIN, PROVIDERS, Scheme

RETRY_SCHEDULE_SECONDS = (30, 120, 600, 3600, 21600)
"""Delay before the next send, by the number of failed sends before the last one."""
INBOUND_DELAY = timedelta(seconds=RETRY_SCHEDULE_SECONDS[0])
"""Delay before the first send of an inbound webhook; an outbound one is sent at once."""
SIGNATURE_HEADER = "X-Observatory-Signature"
OBSERVATORY = Scheme(SIGNATURE_HEADER.lower(), PLAIN.read)
"""How webhooks for agents are signed: `sha256=` and hex, over the body."""
INTERNAL = "internal://session/"
"""The target of a webhook without a URL: a session of this gateway."""


class DeliveryStatus(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    DEAD = "dead"


_P, _OK, _F, _D = (
    DeliveryStatus.PENDING,
    DeliveryStatus.DELIVERED,
    DeliveryStatus.FAILED,
    DeliveryStatus.DEAD,
)

EDGES: Mapping[tuple[DeliveryStatus, DeliveryStatus], str] = {
    (_P, _OK): "the receiver accepted it",
    (_P, _F): "the first send failed",
    (_P, _D): "its webhook was removed",
    (_F, _OK): "the receiver accepted it",
    (_F, _F): "another send failed",
    (_F, _D): "the last send failed, or its webhook was removed",
    (_P, _P): "an operator retries it now",
    (_F, _P): "an operator retries it",
    (_D, _P): "an operator retries it",
}

OUTSTANDING = frozenset({_P, _F})
"""Sent when they are due; a dead delivery waits for an operator."""
RETRIABLE = frozenset(before for before, after in EDGES if after is _P)
"""Statuses from which an operator can retry."""


@dataclass(frozen=True, slots=True)
class DeliveryUpdate:
    """What a send changes in its row."""

    status: DeliveryStatus
    attempt_count: int
    """Number of failed sends."""
    next_retry_at: datetime | None = None
    error: str | None = None


def mark_delivered(attempt_count: int) -> DeliveryUpdate:
    return DeliveryUpdate(_OK, attempt_count)


def mark_failed(
    attempt_count: int,
    error: str,
    now: datetime,
    schedule: Sequence[float] = RETRY_SCHEDULE_SECONDS,
) -> DeliveryUpdate:
    """Retry as `schedule` says; dead once it is exhausted.

    `attempt_count` is the number of failed sends before this one.
    """
    failed_before = max(attempt_count, 0)
    if failed_before >= len(schedule):
        return mark_rejected(failed_before, error)
    delay = timedelta(seconds=schedule[failed_before])
    return DeliveryUpdate(_F, failed_before + 1, now + delay, error)


def mark_rejected(attempt_count: int, error: str) -> DeliveryUpdate:
    """Dead: the send failed, and a retry cannot succeed."""
    return DeliveryUpdate(_D, attempt_count + 1, error=error)


def mark_unsendable(attempt_count: int, error: str) -> DeliveryUpdate:
    """Dead: it was not sent, and a retry cannot succeed."""
    return DeliveryUpdate(_D, attempt_count, error=error)


def compute_signature(secret: str, body: bytes) -> str:
    """HMAC-SHA256 of these bytes in hex; the key is the text of the secret."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def sign_headers(secret: str, message_id: str, body: bytes, now: datetime) -> dict[str, str]:
    """The gateway's own signature and the one of Standard Webhooks, over exactly these bytes.

    The key of the latter is the decoded secret if that is base64, with or without `whsec_`, else
    its text.
    """
    standard = PROVIDERS["standard"]
    at = str(int(now.timestamp()))
    signed = hmac.new(
        standard.key(secret), standard.signed(message_id, at, body), hashlib.sha256
    ).digest()
    return {
        SIGNATURE_HEADER: f"sha256={compute_signature(secret, body)}",
        "webhook-id": message_id,
        "webhook-timestamp": at,
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }
