"""Relays: events for other gateways, and receipts of the events that they have sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.core.delivery import retry_policy
from ductile.core.delivery.retry_policy import DeliveryStatus, DeliveryUpdate
from ductile.core.jobs.trace import TraceContext
from ductile.core.pipelines.intents import SendRelay
from ductile.errors import NotFound, Refused
from ductile.model import Notice
from ductile.store import notices
from ductile.store.engines.api import Row, Tx
from ductile.store.outbox import due_times

TOPIC = "relay"
RETRIABLE = retry_policy.RETRIABLE - {DeliveryStatus.PENDING}
"""By an operator: a pending relay is due already, and only waits for its turn."""
MAX_IN_FLIGHT = 4
"""Maximum number of concurrent sends per instance, so that a slow one does not delay others."""


@dataclass(frozen=True, slots=True)
class ClaimedRelay:
    """A row of `relay_deliveries`, as it was claimed."""

    id: str
    instance: str
    job_id: str | None
    event_id: str
    event_type: str
    body: str
    attempts: int
    """Number of failed sends."""
    tried_at: str | None
    """When it was last sent before this claim."""
    claimed_at: str
    """Distinguishes this claim from an earlier one of the same boot."""
    trace: TraceContext | None = None
    """None if tracing is off."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """The answer to an event that a peer has sent."""

    receiver_event_id: str
    job_id: str | None
    duplicate: bool = False
    """Whether the event was received before."""
    deduplicated: bool = False
    """Whether `job_id` is an existing job that replaces the event's by its dedupe key."""


def enqueue_relay(tx: Tx, sent: SendRelay, *, id: str, now: datetime) -> None:
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
    fields = _relay_fields(id, sent.instance, sent.event_type, sent.event_id)
    _post_status(tx, DeliveryStatus.PENDING, fields, sent.job_id, now)


def claim(tx: Tx, instances: Sequence[str], owner: str, now: datetime) -> list[ClaimedRelay]:
    """Claim the due relays of these instances, as many as may be sent at a time."""
    at = to_text(now)
    return [row for name in sorted(instances) for row in _claim_instance(tx, name, owner, at)]


def _claim_instance(tx: Tx, instance: str, owner: str, at: str) -> list[ClaimedRelay]:
    # Nodes count the sends in flight one after the other, or together they would exceed the limit.
    tx.hold("relay", instance, wait=True)
    room = MAX_IN_FLIGHT - sum(row[2] == instance for row in tx.all("claimed_relays"))
    if room <= 0:
        return []
    rows = tx.all("due_relays", instance=instance, now=at, limit=room)
    return [
        ClaimedRelay(id, instance, job_id, event_id, event_type, body, attempts, tried_at, at)
        for id, job_id, event_id, event_type, body, attempts, tried_at in rows
        if tx.run("claim_relay", id=id, owner=owner, now=at)
    ]


def next_due_by_instance(tx: Tx, instances: Sequence[str]) -> dict[str, datetime]:
    """When the next relay of each instance is due; instances without one are left out."""
    rows = ((name, tx.one("next_relay", instance=name)) for name in instances)
    return {name: due_times.parse_due_time(row[1]) for name, row in rows if row is not None}


def list_foreign_times(tx: Tx, instances: Sequence[str]) -> list[str]:
    """Ids of outstanding relays whose due time has to be normalized first (a batch)."""
    return [row[0] for name in instances for row in _foreign_times_of(tx, name)]


def _foreign_times_of(tx: Tx, instance: str) -> list[Row]:
    rows = tx.all("foreign_relays", instance=instance, limit=due_times.BATCH)
    return [*rows, *due_times.unreadable_first(tx.one("next_relay", instance=instance))]


def normalize_due_times(tx: Tx, ids: Sequence[str], now: datetime) -> dict[str, datetime | None]:
    """Rewrite the due times of these relays, as `due_times.normalize_due_times` does."""
    return due_times.normalize_due_times(tx, ids, now, read="relay_due", write="set_relay_due")


def settle(
    tx: Tx, claimed: ClaimedRelay, owner: str, update: DeliveryUpdate, now: datetime
) -> bool:
    """Record the result of a send; False if the claim is not valid any more."""
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
    # The worker looks again: this relay may be due sooner than the others, or another fits now.
    tx.effects.relays += 1
    fields = _relay_fields(claimed.id, claimed.instance, claimed.event_type, claimed.event_id)
    _post_status(tx, update.status, {**fields, "error": update.error}, claimed.job_id, now)
    return True


def undo_claim(tx: Tx, claimed: ClaimedRelay, owner: str) -> None:
    """Restore a row that was claimed and not sent."""
    tx.run(
        "undo_relay_claim",
        id=claimed.id,
        owner=owner,
        claimed_at=claimed.claimed_at,
        tried_at=claimed.tried_at,
    )


def list_claimed(tx: Tx) -> dict[str, list[str]]:
    """The ids of the claimed relays, by the boot that owns them."""
    found: dict[str, list[str]] = {}
    for owner, id, _ in tx.all("claimed_relays"):
        found.setdefault(owner, []).append(id)
    return found


def release(tx: Tx, owner: str, id: str | None = None) -> int:
    """Make the rows that this boot has claimed, or one of them, due again; returns how many."""
    return tx.run("release_relays", owner=owner, id=id)


def retry_relay(tx: Tx, id: str, now: datetime, *, dry: bool = False) -> str:
    """Make a relay due now with all its attempts; returns the status that it had.

    `Refused` for a relay that is delivered, pending or being sent.
    """
    rows = tx.dicts("relay", id=id)
    if not rows:
        raise NotFound(f"there is no relay {id}")
    row = rows[0]
    was: str = row["status"]
    if was not in RETRIABLE:
        raise Refused(f"relay {id} is {was}; only failed and dead ones can be retried")
    is_free = row["owner"] is None and (dry or tx.run("retry_relay", id=id, now=to_text(now)) == 1)
    if not is_free:
        raise Refused(f"relay {id} is being sent now")
    if not dry:
        _post_retry(tx, row, now)
    return was


def retry_dead(tx: Tx, limit: int, now: datetime, *, dry: bool = False) -> list[str]:
    """Retry dead relays, oldest first; returns their ids."""
    rows = tx.dicts("dead_relays", limit=limit)
    if not dry:
        rows = [row for row in rows if tx.run("retry_relay", id=row["id"], now=to_text(now))]
        for row in rows:
            _post_retry(tx, row, now)
    return [row["id"] for row in rows]


def discard_dead(tx: Tx, until: str | None, limit: int, *, dry: bool = False) -> list[str]:
    """Delete dead relays that were last tried before `until`; returns their ids."""
    ids: list[str] = [row[0] for row in tx.all("dead_relay_ids", until=until, limit=limit)]
    return ids if dry else [id for id in ids if tx.run("delete_dead_relay", id=id)]


def discard_relay(tx: Tx, id: str, *, dry: bool = False) -> None:
    """Delete a dead relay; `Refused` if it is not dead."""
    rows = tx.dicts("relay", id=id)
    if not rows:
        raise NotFound(f"there is no relay {id}")
    if rows[0]["status"] != DeliveryStatus.DEAD or rows[0]["owner"] is not None:
        raise Refused(f"relay {id} is {rows[0]['status']}; only dead ones can be discarded")
    if not dry:
        tx.run("delete_dead_relay", id=id)


def _post_retry(tx: Tx, row: dict[str, Any], now: datetime) -> None:
    tx.effects.relays += 1
    fields = _relay_fields(row["id"], row["instance"], row["event_type"], row["event_id"])
    _post_status(tx, DeliveryStatus.PENDING, fields, row["job_id"], now)


def record_receipt(
    tx: Tx, *, peer: str, event_id: str | None, receiver_event_id: str, now: datetime
) -> Receipt | None:
    """Record that an event was received; returns the earlier receipt if it is a duplicate."""
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


def _relay_fields(id: str, instance: str, event_type: str, event_id: str) -> dict[str, Any]:
    return {"id": id, "instance": instance, "event_type": event_type, "event_id": event_id}


def _post_status(
    tx: Tx, status: DeliveryStatus, fields: dict[str, Any], job_id: str | None, now: datetime
) -> None:
    notice = Notice(TOPIC, f"relay.{status}", {**fields, "status": status.value})
    notices.post(tx, notice, now, job_id=job_id)
