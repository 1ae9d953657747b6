"""Events for other gateways, and those that other gateways have sent us."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ductile.clock import to_text
from ductile.core.delivery import retry_policy
from ductile.core.delivery.retry_policy import DeliveryStatus, DeliveryUpdate
from ductile.core.pipelines.intents import SendRelay
from ductile.errors import NotFound, Refused
from ductile.model import Notice
from ductile.record import dataclass
from ductile.store import notices
from ductile.store.engines.api import Row, Tx
from ductile.store.outbox import due_times

TOPIC = "relay"
RETRIABLE = retry_policy.RETRIABLE - {DeliveryStatus.PENDING}
"""By an operator: one that is pending is due, and waits for room alone."""
IN_FLIGHT = 4
"""Sends to one instance at a time, so that one that hangs holds up nobody else."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """A row of `relay_deliveries`, as it was claimed."""

    id: str
    instance: str
    job_id: str | None
    event_id: str
    event_type: str
    body: str
    attempts: int
    """Sends that have failed."""
    tried_at: str | None
    """When it was sent before this."""
    claimed_at: str
    """Tells this claim from an earlier one of the same boot."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of an event that a peer has sent."""

    receiver_event_id: str
    job_id: str | None
    duplicate: bool = False
    """Whether the event had come before."""
    deduplicated: bool = False
    """Whether its dedupe key made a job needless: `job_id` is the one that did."""


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
    told = _told(id, sent.instance, sent.event_type, sent.event_id)
    _tell(tx, DeliveryStatus.PENDING, told, sent.job_id, now)


def claim(tx: Tx, instances: Sequence[str], owner: str, now: datetime) -> list[Claimed]:
    """Take what may be sent to these instances now."""
    at = to_text(now)
    return [row for instance in sorted(instances) for row in _claim(tx, instance, owner, at)]


def _claim(tx: Tx, instance: str, owner: str, at: str) -> list[Claimed]:
    # Nodes count what is in flight one after the other, or they would exceed it together.
    tx.hold("relay", instance, wait=True)
    room = IN_FLIGHT - sum(row[2] == instance for row in tx.all("relays_under_way"))
    if room <= 0:
        return []
    rows = tx.all("due_relays", instance=instance, now=at, limit=room)
    return [
        Claimed(id, instance, job_id, event_id, event_type, body, attempts, tried_at, at)
        for id, job_id, event_id, event_type, body, attempts, tried_at in rows
        if tx.run("take_relay", id=id, owner=owner, now=at)
    ]


def next_due(tx: Tx, instances: Sequence[str]) -> dict[str, datetime]:
    """Which of these have something to send, and when the first of it is due."""
    rows = ((name, tx.one("next_relay", instance=name)) for name in instances)
    return {name: due_times.moment(row[1]) for name, row in rows if row is not None}


def foreign(tx: Tx, instances: Sequence[str]) -> list[str]:
    """Ids of some that are outstanding, and of which nobody knows when they are due before they
    are mended: a script wrote the time, or left it out."""
    return [row[0] for name in instances for row in _foreign(tx, name)]


def _foreign(tx: Tx, instance: str) -> list[Row]:
    rows = tx.all("foreign_relays", instance=instance, limit=due_times.AT_ONCE)
    return [*rows, *due_times.unread(tx.one("next_relay", instance=instance))]


def mend(tx: Tx, ids: Sequence[str], now: datetime) -> dict[str, datetime | None]:
    """Write their times in our form, as `due.mend` does; when each is due."""
    return due_times.mend(tx, ids, now, read="relay_due", write="set_relay_due")


def settle(tx: Tx, claimed: Claimed, owner: str, update: DeliveryUpdate, now: datetime) -> bool:
    """Record what became of a send; False where the claim had ended already."""
    retry_at = update.next_retry_at
    changed = tx.run(
        "settle_relay",
        id=claimed.id,
        owner=owner,
        claimed_at=claimed.claimed_at,
        status=update.status.value,
        attempt_count=update.attempt_count,
        next_retry_at=None if retry_at is None else to_text(retry_at),
        error=update.error,
    )
    if changed != 1:
        return False
    # Whoever waits for the next one must look again: this one may be due sooner, or there is
    # room for another.
    tx.effects.relays += 1
    told = _told(claimed.id, claimed.instance, claimed.event_type, claimed.event_id)
    _tell(tx, update.status, {**told, "error": update.error}, claimed.job_id, now)
    return True


def give_back(tx: Tx, claimed: Claimed, owner: str) -> None:
    """It was not sent: it is as it was before it was claimed."""
    tx.run(
        "return_relay",
        id=claimed.id,
        owner=owner,
        claimed_at=claimed.claimed_at,
        tried_at=claimed.tried_at,
    )


def under_way(tx: Tx) -> dict[str, list[str]]:
    """The boots that send something now, and what."""
    found: dict[str, list[str]] = {}
    for owner, id, _ in tx.all("relays_under_way"):
        found.setdefault(owner, []).append(id)
    return found


def release(tx: Tx, owner: str, id: str | None = None) -> int:
    """What this boot has claimed, or one of it, is due again; how many that is."""
    return tx.run("release_relays", owner=owner, id=id)


def retry(tx: Tx, id: str, now: datetime, *, dry: bool = False) -> str:
    """Send it again, now, with all its attempts; the status that it had.

    `Refused` for one that is delivered or waits anyway, or that is being sent at this moment.
    """
    rows = tx.dicts("relay", id=id)
    if not rows:
        raise NotFound(f"there is no relay {id}")
    row = rows[0]
    was: str = row["status"]
    if was not in RETRIABLE:
        raise Refused(f"relay {id} is {was}; only failed and dead ones can be sent again")
    free = row["owner"] is None and (dry or tx.run("retry_relay", id=id, now=to_text(now)) == 1)
    if not free:
        raise Refused(f"relay {id} is being sent now")
    if not dry:
        _retried(tx, row, now)
    return was


def retry_dead(tx: Tx, limit: int, now: datetime, *, dry: bool = False) -> list[str]:
    """`retry` for those that were given up, the oldest first; their ids."""
    rows = tx.dicts("dead_relays", limit=limit)
    if not dry:
        rows = [row for row in rows if tx.run("retry_relay", id=row["id"], now=to_text(now))]
        for row in rows:
            _retried(tx, row, now)
    return [row["id"] for row in rows]


def _retried(tx: Tx, row: dict[str, Any], now: datetime) -> None:
    tx.effects.relays += 1
    told = _told(row["id"], row["instance"], row["event_type"], row["event_id"])
    _tell(tx, DeliveryStatus.PENDING, told, row["job_id"], now)


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


def _told(id: str, instance: str, event_type: str, event_id: str) -> dict[str, Any]:
    return {"id": id, "instance": instance, "event_type": event_type, "event_id": event_id}


def _tell(
    tx: Tx, status: DeliveryStatus, told: dict[str, Any], job_id: str | None, now: datetime
) -> None:
    notice = Notice(TOPIC, f"relay.{status}", {**told, "status": status.value})
    notices.post(tx, notice, now, job_id=job_id)
