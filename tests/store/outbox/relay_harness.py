"""Relays, for tests of the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from ductile.core.delivery.relay import RETRY_SECONDS, judge_send
from ductile.core.pipelines.intents import SendRelay
from ductile.store.engines.api import Ledger
from ductile.store.outbox import relays
from ductile.store.outbox.relays import ClaimedRelay

NOW = datetime(2026, 2, 8, 10, 0, tzinfo=UTC)
BOOT = "boot-1"


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def enqueue(ledger: Ledger, id: str = "r-1", *, instance: str = "lab", now: datetime = NOW) -> str:
    sent = SendRelay("j-1", instance, f"e-{id}", "made", f'{{"id":"{id}"}}')
    ledger.write(lambda tx: relays.enqueue_relay(tx, sent, id=id, now=now))
    return id


def claim(
    ledger: Ledger, *instances: str, now: datetime = NOW, owner: str = BOOT
) -> list[ClaimedRelay]:
    return ledger.write(lambda tx: relays.claim(tx, instances or ("lab",), owner, now))


def settle(
    ledger: Ledger,
    claimed: ClaimedRelay,
    error: str | None = None,
    *,
    now: datetime = NOW,
    owner: str = BOOT,
) -> str | None:
    """Settle a claim and return the new status; None if the claim is not valid any more."""
    update = judge_send(claimed.attempts, error, final=False, now=now)
    done = ledger.write(lambda tx: relays.settle(tx, claimed, owner, update, now))
    return update.status.value if done else None


def retry(ledger: Ledger, id: str, now: datetime = NOW, *, dry: bool = False) -> str:
    return ledger.write(lambda tx: relays.retry_relay(tx, id, now, dry=dry))


def row(ledger: Ledger, id: str) -> dict[str, Any]:
    rows = ledger.read(lambda tx: tx.dicts("relays", status=None, instance=None, limit=1000))
    return next(row for row in rows if row["id"] == id)


def kill(ledger: Ledger, id: str, *, now: datetime = NOW) -> None:
    """Let every send fail until the relay is dead."""
    for _ in range(len(RETRY_SECONDS) + 1):
        (claimed,) = claim(ledger, now=now)
        settle(ledger, claimed, "no luck", now=now)
        now = later(sum(RETRY_SECONDS) + (now - NOW).total_seconds())
    assert row(ledger, id)["status"] == "dead"


def claimed_by_boot(ledger: Ledger) -> dict[str, list[str]]:
    return ledger.read(relays.list_claimed)
