"""Events for other gateways, and those that other gateways have sent us."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from ductile.clock import from_text, to_text
from ductile.core.intent import SendRelay
from ductile.model import Notice
from ductile.store import notices
from ductile.store.ledger import Tx

TOPIC = "relay"
RETRY_SECONDS = (1, 5, 30, 120, 600, 3600, 21600, 43200)
"""After the first failed send, the second, and so on; then it is dead."""
IN_FLIGHT = 4
"""Sends to one instance at a time, so that one that hangs holds up nobody else."""


@dataclass(frozen=True, slots=True)
class Due:
    id: str
    body: str


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of an event that a peer has sent."""

    receiver_event_id: str
    job_id: str | None
    duplicate: bool = False


def enqueue(tx: Tx, sent: SendRelay, *, id: str, now: datetime) -> None:
    tx.run(
        "insert_relay",
        id=id,
        instance=sent.instance,
        job_id=sent.job_id,
        event_id=sent.event_id,
        event_type=sent.event_type,
        body=sent.body,
        now=to_text(now),
    )
    tx.effects.relays += 1
    _tell(tx, "queued", id, sent.instance, sent.event_type, sent.event_id, sent.job_id, now)


def claim(tx: Tx, instance: str, owner: str, now: datetime) -> list[Due]:
    """Take what may be sent to this instance now."""
    tx.hold("relay", instance, wait=True)
    busy = tx.one("relays_in_flight", instance=instance)
    room = IN_FLIGHT - (busy[0] if busy else 0)
    if room <= 0:
        return []
    rows = tx.all("due_relays", instance=instance, now=to_text(now), limit=room)
    return [
        Due(id, body)
        for id, _, body, _ in rows
        if tx.run("take_relay", id=id, owner=owner, now=to_text(now))
    ]


def next_due(tx: Tx, instances: Sequence[str]) -> datetime | None:
    """When the next of these has something to send."""
    moments = [
        row[0] for name in instances if (row := tx.one("next_relay", instance=name)) and row[0]
    ]
    return from_text(min(moments)) if moments else None


def settle(tx: Tx, id: str, owner: str, error: str | None, now: datetime) -> str | None:
    """Record the end of a send; its status, or None where this boot no longer owns it."""
    row = tx.one("relay_attempts", id=id, owner=owner)
    if row is None:
        return None
    attempts, instance, event_type, event_id, job_id = row
    status, retry_at = "delivered", None
    if error is not None:
        spent = attempts >= len(RETRY_SECONDS)
        status = "dead" if spent else "failed"
        retry_at = None if spent else to_text(now + timedelta(seconds=RETRY_SECONDS[attempts]))
        attempts += 1
    tx.run(
        "settle_relay",
        id=id,
        owner=owner,
        status=status,
        attempt_count=attempts,
        next_retry_at=retry_at,
        error=error,
    )
    _tell(tx, status, id, instance, event_type, event_id, job_id, now, error)
    return status


def retry(tx: Tx, id: str, now: datetime) -> bool:
    """Send it again, now, with all its attempts; False where there is nothing to retry."""
    changed = tx.run("retry_relay", id=id, now=to_text(now)) == 1
    tx.effects.relays += changed
    return changed


def receive(
    tx: Tx, *, peer: str, event_id: str | None, receiver_event_id: str, now: datetime
) -> Receipt | None:
    """The receipt of an event that was taken in before; None notes down a new one."""
    if event_id is None:
        return None
    own = {"peer": peer, "event_id": event_id}
    added = tx.run(
        "insert_relay_receipt", receiver_event_id=receiver_event_id, now=to_text(now), **own
    )
    if added:
        return None
    row = tx.one("relay_receipt", **own)
    assert row is not None
    return Receipt(row[0], row[1], duplicate=True)


def _tell(
    tx: Tx,
    status: str,
    id: str,
    instance: str,
    event_type: str,
    event_id: str,
    job_id: str | None,
    now: datetime,
    error: str | None = None,
) -> None:
    told = {
        "id": id,
        "instance": instance,
        "event_type": event_type,
        "event_id": event_id,
        "status": status,
        "error": error,
    }
    notices.post(tx, Notice(TOPIC, f"relay.{status}", told), now, job_id=job_id)
