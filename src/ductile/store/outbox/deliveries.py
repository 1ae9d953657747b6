"""Webhook deliveries: enqueued, claimed, settled, and retried by an operator.

A claim takes one of the rows of `delivery_slots`, which limit how many sends start per cycle over
all nodes. Every change of status is posted as a notice in the same transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.clock import from_text, to_text
from ductile.core.delivery.retry_policy import (
    EDGES,
    RETRIABLE,
    DeliveryStatus,
    DeliveryUpdate,
)
from ductile.core.delivery.signatures import compute_signature
from ductile.core.jobs.trace import TraceContext
from ductile.errors import NotFound, Refused
from ductile.model import Notice
from ductile.store import notices
from ductile.store.engines.api import Tx
from ductile.store.outbox import due_times
from ductile.store.outbox.webhooks import Webhook, load_webhook

TOPIC = "gateway:webhooks"
CYCLE = timedelta(seconds=5)
SENDS_PER_CYCLE = 5
"""The number of rows of `delivery_slots`."""
CLOCK_SKEW = timedelta(minutes=1)
"""A slot that was taken further ahead than this is free: the clock has been set back."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """A row of `webhook_deliveries`, as it was claimed."""

    id: int
    webhook_id: int
    session_id: str
    target_url: str
    status: DeliveryStatus
    attempt_count: int
    last_attempted_at: str | None
    message_id: str
    """The id for the receiver, which stays the same when it is sent again."""


@dataclass(frozen=True, slots=True)
class ClaimedDelivery:
    """A delivery and what is needed to send it."""

    delivery: Delivery
    webhook: Webhook | None
    payload: str | None
    """None if it cannot be read, because a script has written the row."""
    trace: TraceContext | None = None
    """None if tracing is off, or if the request that created it belonged to no trace."""

    @property
    def id(self) -> int:
        return self.delivery.id

    @property
    def attempts(self) -> int:
        return self.delivery.attempt_count


@dataclass(frozen=True, slots=True)
class DeliveryChange:
    """The fields of a notice about a delivery's change of status."""

    delivery_id: int
    webhook_id: int
    session_id: str
    message_id: str
    next_retry_at: str | None
    status: DeliveryStatus = DeliveryStatus.PENDING
    was: DeliveryStatus | None = None
    """None for a new delivery."""
    attempt_count: int = 0
    error_detail: str | None = None


def enqueue_delivery(
    tx: Tx, webhook: Webhook, payload: str, *, message_id: str, due: datetime, now: datetime
) -> int:
    """Insert a delivery of this JSON text, due at `due`; returns its id."""
    row = tx.one(
        "insert_delivery",
        webhook_id=webhook.id,
        session_id=webhook.target_session,
        payload=payload,
        target_url=webhook.target,
        signature=compute_signature(webhook.secret, payload.encode()),
        next_retry_at=to_text(due),
        now=to_text(now),
        message_id=message_id,
    )
    assert row is not None
    id: int = row[0]
    tx.effects.deliveries += 1
    change = DeliveryChange(id, webhook.id, webhook.target_session, message_id, to_text(due))
    _post_change(tx, change, now)
    return id


def next_due_at(tx: Tx, now: datetime) -> datetime | None:
    """When a delivery is due and a slot is free; None if none is outstanding.

    Deliveries of `list_foreign_times` are not considered.
    """
    first = tx.one("next_delivery")
    slot = tx.one("first_slot", beyond=to_text(now + CLOCK_SKEW))
    if first is None or slot is None or slot[0] is None:
        return None
    moment = due_times.parse_due_time(first[1])
    return max(moment, from_text(slot[0]) + CYCLE) if slot[0] else moment


def list_foreign_times(tx: Tx) -> list[int]:
    """Ids of outstanding deliveries whose due time has to be normalized first (a batch)."""
    rows = tx.all("foreign_deliveries", limit=due_times.BATCH)
    return [row[0] for row in (*rows, *due_times.unreadable_first(tx.one("next_delivery")))]


def normalize_due_times(tx: Tx, ids: Sequence[int], now: datetime) -> dict[int, datetime | None]:
    """Rewrite the due times of these deliveries, as `due_times.normalize_due_times` does."""
    return due_times.normalize_due_times(
        tx, ids, now, read="delivery_due", write="set_delivery_due"
    )


def claim(tx: Tx, owner: str, now: datetime) -> list[ClaimedDelivery]:
    """Claim due deliveries for this boot, oldest first, at most one per free slot."""
    at = to_text(now)
    rows = tx.all("due_deliveries", now=at, limit=SENDS_PER_CYCLE)
    if not rows:
        return []
    slots = tx.all(
        "take_slots",
        now=at,
        before=to_text(now - CYCLE),
        beyond=to_text(now + CLOCK_SKEW),
        limit=len(rows),
    )
    found = map(_parse_delivery, rows[: len(slots)])
    return [
        ClaimedDelivery(row, load_webhook(tx, row.webhook_id), _load_payload(tx, row.id))
        for row in found
        if _set_owner(tx, row, owner, at)
    ]


def _parse_delivery(row: tuple[Any, ...]) -> Delivery:
    id, webhook_id, session_id, target_url, status, attempts, tried_at, message_id = row
    return Delivery(
        id,
        webhook_id,
        str(session_id),
        str(target_url),
        DeliveryStatus(status),
        attempts,
        tried_at,
        _default_message_id(id, message_id),
    )


def _load_payload(tx: Tx, id: int) -> str | None:
    try:
        row = tx.one("delivery_payload", id=id)
    except UnicodeDecodeError:
        return None
    return row[0] if row is not None and isinstance(row[0], str) else None


def _set_owner(tx: Tx, row: Delivery, owner: str, at: str) -> bool:
    changed = tx.run(
        "claim_delivery",
        id=row.id,
        owner=owner,
        now=at,
        status=row.status.value,
        attempt_count=row.attempt_count,
    )
    return changed == 1


def settle(
    tx: Tx, claimed: ClaimedDelivery, owner: str, update: DeliveryUpdate, now: datetime
) -> bool:
    """Record the result of a send; False if this boot no longer owns the row."""
    row = claimed.delivery
    if (row.status, update.status) not in EDGES:
        raise ValueError(f"a delivery cannot go from {row.status} to {update.status}")
    retry_at = None if update.next_retry_at is None else to_text(update.next_retry_at)
    changed = tx.run(
        "settle_delivery",
        id=row.id,
        owner=owner,
        was=row.status.value,
        attempts_before=row.attempt_count,
        status=update.status.value,
        attempt_count=update.attempt_count,
        next_retry_at=retry_at,
        error_detail=update.error,
    )
    if changed != 1:
        return False
    change = DeliveryChange(
        row.id,
        row.webhook_id,
        row.session_id,
        row.message_id,
        retry_at,
        status=update.status,
        was=row.status,
        attempt_count=update.attempt_count,
        error_detail=update.error,
    )
    _post_change(tx, change, now)
    if update.status is DeliveryStatus.DEAD:
        _post_change(tx, change, now, "WebhookDLQEvent")
    return True


def undo_claim(tx: Tx, claimed: ClaimedDelivery, owner: str) -> None:
    """Restore a row that was claimed and not sent."""
    tried_at = claimed.delivery.last_attempted_at
    tx.run("undo_delivery_claim", id=claimed.id, owner=owner, last_attempted_at=tried_at)


def list_claimed(tx: Tx) -> dict[str, list[int]]:
    """The ids of the claimed deliveries, by the boot that owns them."""
    found: dict[str, list[int]] = {}
    for owner, id in tx.all("claimed_deliveries"):
        found.setdefault(owner, []).append(id)
    return found


def release(tx: Tx, owner: str, id: int | None = None) -> int:
    """Make the rows that this boot has claimed, or one of them, due again; returns how many."""
    return tx.run("release_deliveries", owner=owner, id=id)


def find_delivery(tx: Tx, id: int) -> dict[str, Any]:
    """The delivery with this id, or `NotFound`."""
    rows = tx.dicts("delivery", id=id)
    if not rows:
        raise NotFound(f"there is no delivery {id}")
    return rows[0]


def retry_delivery(tx: Tx, id: int, now: datetime, *, dry: bool = False) -> dict[str, Any]:
    """Make a delivery due now with all its attempts; returns the row as it was.

    `Refused` for a delivery that is delivered or is being sent, or whose webhook was removed.
    """
    row = find_delivery(tx, id)
    was = DeliveryStatus(row["status"])
    if was not in RETRIABLE:
        raise Refused(f"delivery {id} is {was}; only undelivered ones can be retried")
    webhook = load_webhook(tx, row["webhook_id"])
    if webhook is None or webhook.removed:
        raise Refused(
            f"delivery {id} cannot be retried: its webhook {row['webhook_id']} was removed; "
            "add the webhook again and send the payload by it"
        )
    is_free = row["owner"] is None and (
        dry or tx.run("retry_delivery", id=id, was=was.value, now=to_text(now)) == 1
    )
    if not is_free:
        raise Refused(f"delivery {id} is being sent now")
    if not dry:
        tx.effects.deliveries += 1
        message_id = _default_message_id(row["id"], row["message_id"])
        ids = (row["id"], row["webhook_id"], row["session_id"], message_id)
        _post_change(tx, DeliveryChange(*ids, to_text(now), was=was), now)
    return row


def discard_dead(tx: Tx, until: str | None, limit: int, *, dry: bool = False) -> list[int]:
    """Delete dead deliveries that were last tried before `until`; returns their ids."""
    ids: list[int] = [row[0] for row in tx.all("dead_delivery_ids", until=until, limit=limit)]
    return ids if dry else [id for id in ids if tx.run("delete_dead_delivery", id=id)]


def discard_delivery(tx: Tx, id: int, *, dry: bool = False) -> dict[str, Any]:
    """Delete a dead delivery; returns the row. `Refused` if it is not dead."""
    row = find_delivery(tx, id)
    if row["status"] != DeliveryStatus.DEAD or row["owner"] is not None:
        raise Refused(f"delivery {id} is {row['status']}; only dead ones can be discarded")
    if not dry:
        tx.run("delete_dead_delivery", id=id)
    return row


def list_ids(
    tx: Tx, status: DeliveryStatus, since: str | None, limit: int, webhook: int | None = None
) -> list[int]:
    """Ids of the deliveries with this status that can be retried, tried or created since then.

    Oldest first, of one webhook if given; those of removed webhooks are left out.
    """
    chosen = {"status": status.value, "since": since, "webhook": webhook}
    rows = tx.all("delivery_ids", limit=limit, **chosen)
    return [row[0] for row in rows]


def _default_message_id(id: int, message_id: str | None) -> str:
    """Scripts write rows too, and may leave out the message id."""
    return str(message_id or f"delivery-{id}")


def _post_change(
    tx: Tx, change: DeliveryChange, now: datetime, type: str = "WebhookDeliveryEvent"
) -> None:
    notices.post(tx, Notice(TOPIC, type, asdict(change)), now)
