"""Webhooks for agents, and what is delivered by them.

A delivery is claimed with a slot, of which there are as many as sends may start in one cycle,
across all nodes. Whatever changes its status tells the operator's stream in the same
transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from ductile.clock import from_text, to_text
from ductile.core.delivery.retry_policy import (
    EDGES,
    INTERNAL,
    RETRIABLE,
    DeliveryStatus,
    DeliveryUpdate,
    compute_signature,
)
from ductile.errors import NotFound, Refused
from ductile.model import Notice
from ductile.record import dataclass
from ductile.store import notices
from ductile.store.engines.api import Tx
from ductile.store.outbox import due_times

TOPIC = "gateway:webhooks"
CYCLE = timedelta(seconds=5)
SENDS_A_CYCLE = 5
"""The rows of `delivery_slots`."""
CLOCK_AHEAD = timedelta(minutes=1)
"""Further ahead of us than this no clock of another node is: ours has been set back."""


class WebhookNotFound(NotFound):
    code = "webhook_not_found"


@dataclass(frozen=True, slots=True)
class Webhook:
    """A row of `webhook_configs`."""

    id: int
    source_identifier: str
    event_type: str
    agent_intent: str
    target_session: str
    secret: str
    target_url: str | None
    plugin: str | None
    pipeline: str | None
    removed: bool = False

    @property
    def target(self) -> str:
        """Where its deliveries go."""
        return self.target_url or INTERNAL + self.target_session

    def __repr__(self) -> str:
        return f"Webhook({self.id}, {self.source_identifier!r}, {self.event_type!r})"


@dataclass(frozen=True, slots=True)
class NewWebhook:
    source_identifier: str
    event_type: str
    agent_intent: str
    target_session: str
    target_url: str | None = None
    plugin: str | None = None
    pipeline: str | None = None


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
    """What the receiver knows it by, however often it is sent."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A delivery, and all that it takes to send it."""

    delivery: Delivery
    webhook: Webhook | None
    payload: str | None
    """None where it cannot be read: somebody else wrote the row."""

    @property
    def id(self) -> int:
        return self.delivery.id

    @property
    def attempts(self) -> int:
        return self.delivery.attempt_count


@dataclass(frozen=True, slots=True)
class Change:
    """What the stream is told of a delivery's change of status."""

    delivery_id: int
    webhook_id: int
    session_id: str
    message_id: str
    next_retry_at: str | None
    status: DeliveryStatus = DeliveryStatus.PENDING
    was: DeliveryStatus | None = None
    """None where it is new."""
    attempt_count: int = 0
    error_detail: str | None = None


def add_webhook(tx: Tx, new: NewWebhook, secret: str, now: datetime) -> int:
    """Its id; `Refused` where this source and event have one already."""
    row = tx.one(
        "insert_webhook_config",
        source_identifier=new.source_identifier,
        event_type=new.event_type,
        agent_intent=new.agent_intent,
        target_session=new.target_session,
        secret=secret,
        target_url=new.target_url,
        plugin=new.plugin,
        pipeline=new.pipeline,
        now=to_text(now),
    )
    if row is None:
        raise Refused(f"{new.source_identifier}/{new.event_type} has a webhook already")
    id: int = row[0]
    return id


def webhook(tx: Tx, webhook_id: int) -> Webhook | None:
    """Also one that is removed, and says so."""
    row = tx.one("webhook_config", id=webhook_id)
    if row is None:
        return None
    id, source, event, intent, session, secret, url, plugin, pipeline, removed = row
    return Webhook(id, source, event, intent, session, secret, url, plugin, pipeline, bool(removed))


def find_webhook(tx: Tx, id: int) -> Webhook:
    found = webhook(tx, id)
    if found is None or found.removed:
        raise WebhookNotFound(f"there is no webhook {id}")
    return found


def webhook_of(tx: Tx, source_identifier: str, event_type: str) -> Webhook:
    row = tx.one("webhook_config_of", source_identifier=source_identifier, event_type=event_type)
    if row is None:
        raise WebhookNotFound(f"there is no webhook for {source_identifier}/{event_type}")
    return find_webhook(tx, row[0])


def remove_webhook(tx: Tx, id: int, now: datetime) -> Webhook:
    """Nothing more comes in or goes out by it; what is outstanding is dead when it is due."""
    found = find_webhook(tx, id)
    tx.run("remove_webhook_config", id=id, now=to_text(now))
    return found


def enqueue(
    tx: Tx, webhook: Webhook, payload: str, *, message_id: str, due: datetime, now: datetime
) -> int:
    """A delivery of this JSON text, to be tried at `due`; its id."""
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
    _tell(tx, Change(id, webhook.id, webhook.target_session, message_id, to_text(due)), now)
    return id


def next_at(tx: Tx, now: datetime) -> datetime | None:
    """When one is due and a slot is free; None where none is outstanding, but `foreign` ones."""
    first, slot = tx.one("next_delivery"), tx.one("first_slot", beyond=to_text(now + CLOCK_AHEAD))
    if first is None or slot is None or slot[0] is None:
        return None
    moment = due_times.moment(first[1])
    return max(moment, from_text(slot[0]) + CYCLE) if slot[0] else moment


def foreign(tx: Tx) -> list[int]:
    """Ids of some that are outstanding, and of which nobody knows when they are due before they
    are mended: a script wrote the time, or left it out."""
    rows = tx.all("foreign_deliveries", limit=due_times.AT_ONCE)
    return [row[0] for row in (*rows, *due_times.unread(tx.one("next_delivery")))]


def mend(tx: Tx, ids: Sequence[int], now: datetime) -> dict[int, datetime | None]:
    """Write their times in our form, as `due.mend` does; when each is due."""
    return due_times.mend(tx, ids, now, read="delivery_due", write="set_delivery_due")


def claim(tx: Tx, owner: str, now: datetime) -> list[Claimed]:
    """Those that this boot sends now: no more than slots are free, the oldest due first."""
    at = to_text(now)
    rows = tx.all("due_deliveries", now=at, limit=SENDS_A_CYCLE)
    if not rows:
        return []
    slots = tx.all(
        "take_slots",
        now=at,
        before=to_text(now - CYCLE),
        beyond=to_text(now + CLOCK_AHEAD),
        limit=len(rows),
    )
    own = [row for row in map(_delivery, rows[: len(slots)]) if _own(tx, row, owner, at)]
    return [Claimed(row, webhook(tx, row.webhook_id), _payload(tx, row.id)) for row in own]


def _delivery(row: tuple[Any, ...]) -> Delivery:
    id, webhook_id, session_id, target_url, status, attempts, tried_at, message_id = row
    return Delivery(
        id,
        webhook_id,
        str(session_id),
        str(target_url),
        DeliveryStatus(status),
        attempts,
        tried_at,
        _name(id, message_id),
    )


def _payload(tx: Tx, id: int) -> str | None:
    try:
        row = tx.one("delivery_payload", id=id)
    except UnicodeDecodeError:
        return None
    return row[0] if row is not None and isinstance(row[0], str) else None


def _own(tx: Tx, row: Delivery, owner: str, at: str) -> bool:
    changed = tx.run(
        "own_delivery",
        id=row.id,
        owner=owner,
        now=at,
        status=row.status.value,
        attempt_count=row.attempt_count,
    )
    return changed == 1


def settle(tx: Tx, claimed: Claimed, owner: str, update: DeliveryUpdate, now: datetime) -> bool:
    """Record what became of a send; False where this boot no longer owns it."""
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
    change = Change(
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
    _tell(tx, change, now)
    if update.status is DeliveryStatus.DEAD:
        _tell(tx, change, now, "WebhookDLQEvent")
    return True


def give_back(tx: Tx, claimed: Claimed, owner: str) -> None:
    """It was not sent: it is as it was before it was claimed."""
    tried_at = claimed.delivery.last_attempted_at
    tx.run("give_delivery_back", id=claimed.id, owner=owner, last_attempted_at=tried_at)


def under_way(tx: Tx) -> dict[str, list[int]]:
    """The boots that send something now, and what."""
    found: dict[str, list[int]] = {}
    for owner, id in tx.all("deliveries_under_way"):
        found.setdefault(owner, []).append(id)
    return found


def release(tx: Tx, owner: str, id: int | None = None) -> int:
    """What this boot has claimed, or one of it, is due again; how many that is."""
    return tx.run("release_deliveries", owner=owner, id=id)


def get(tx: Tx, id: int) -> dict[str, Any]:
    rows = tx.dicts("delivery", id=id)
    if not rows:
        raise NotFound(f"there is no delivery {id}")
    return rows[0]


def retry(tx: Tx, id: int, now: datetime, *, dry: bool = False) -> dict[str, Any]:
    """Send it now, with all its sends again; the row as it was.

    `Refused` for one that is delivered, or that is being sent at this moment.
    """
    row = get(tx, id)
    was = DeliveryStatus(row["status"])
    if was not in RETRIABLE:
        raise Refused(f"delivery {id} is {was}; only what is not delivered can be retried")
    done = row["owner"] is None and (
        dry or tx.run("retry_delivery", id=id, was=was.value, now=to_text(now)) == 1
    )
    if not done:
        raise Refused(f"delivery {id} is being sent now")
    if not dry:
        tx.effects.deliveries += 1
        own = (row["id"], row["webhook_id"], row["session_id"], _name(row["id"], row["message_id"]))
        _tell(tx, Change(*own, to_text(now), was=was), now)
    return row


def _name(id: int, message_id: str | None) -> str:
    """Scripts write rows too, and may leave the name to us."""
    return str(message_id or f"delivery-{id}")


def _tell(tx: Tx, change: Change, now: datetime, type: str = "WebhookDeliveryEvent") -> None:
    notices.post(tx, Notice(TOPIC, type, asdict(change)), now)


def to_retry(tx: Tx, status: DeliveryStatus, since: str | None, limit: int) -> list[int]:
    """Ids that a retry of many is meant for, the oldest first."""
    rows = tx.all("deliveries_to_retry", status=status.value, since=since, limit=limit)
    return [row[0] for row in rows]
