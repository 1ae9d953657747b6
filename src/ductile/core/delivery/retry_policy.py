"""Webhook deliveries: their states, their retries, and their signatures."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from ductile.core.delivery.signatures import PLAIN, PROVIDERS, Scheme
from ductile.record import dataclass

RETRY_SCHEDULE_SECONDS = (30, 120, 600, 3600, 21600)
"""Until the next send, by the number of failed ones before the one that failed just now."""
INBOUND_DELAY = timedelta(seconds=RETRY_SCHEDULE_SECONDS[0])
"""From the arrival of a webhook to its first try; what is sent by us is tried at once."""
SIGNATURE_HEADER = "X-Observatory-Signature"
OBSERVATORY = Scheme(SIGNATURE_HEADER.lower(), PLAIN.read)
"""How webhooks for agents are signed: `sha256=` and hex, over the body alone."""
INTERNAL = "internal://session/"
"""The target of a webhook without a URL: a session of this gateway's."""


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
    (_P, _OK): "the receiver took it",
    (_P, _F): "the first send failed",
    (_P, _D): "its webhook was removed",
    (_F, _OK): "the receiver took it",
    (_F, _F): "another send failed",
    (_F, _D): "the last send failed, or its webhook was removed",
    (_P, _P): "an operator does not want to wait",
    (_F, _P): "an operator tries again",
    (_D, _P): "an operator tries again",
}

OUTSTANDING = frozenset({_P, _F})
"""Those that are sent when their time comes; a dead one waits for an operator."""
RETRIABLE = frozenset(before for before, after in EDGES if after is _P)
"""By an operator."""


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


def signature(secret: str, body: bytes) -> str:
    """HMAC-SHA256 of these bytes, in hex; the key is the secret's text as it stands."""
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def signed_headers(secret: str, message_id: str, body: bytes, now: datetime) -> dict[str, str]:
    """004's signature, and those of Standard Webhooks, over exactly these bytes.

    The key of the latter is what the secret decodes to where it is base64, behind `whsec_` or
    bare, else its text.
    """
    standard = PROVIDERS["standard"]
    at = str(int(now.timestamp()))
    signed = hmac.new(
        standard.key(secret), standard.signed(message_id, at, body), hashlib.sha256
    ).digest()
    return {
        SIGNATURE_HEADER: f"sha256={signature(secret, body)}",
        "webhook-id": message_id,
        "webhook-timestamp": at,
        "webhook-signature": f"v1,{base64.b64encode(signed).decode()}",
    }
