"""The states of a webhook delivery, and when a failed one is sent again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from ductile._fast_dataclass import dataclass

RETRY_SCHEDULE_SECONDS = (30, 120, 600, 3600, 21600)
"""Delay before the next send, by the number of failed sends before the last one."""
INBOUND_DELAY = timedelta(seconds=RETRY_SCHEDULE_SECONDS[0])
"""Delay before the first send of an inbound webhook; an outbound one is sent at once."""
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
