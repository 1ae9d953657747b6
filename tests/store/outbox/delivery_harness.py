"""Webhooks and their deliveries, for tests of the store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import apsw
import psycopg

from ductile.core.delivery import retry_policy as rules
from ductile.store.engines import queries
from ductile.store.engines.api import Ledger
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.outbox import deliveries, webhooks
from ductile.store.outbox.deliveries import ClaimedDelivery
from ductile.store.outbox.webhooks import NewWebhook
from tests.store.conftest import execute

NOW = datetime(2026, 2, 8, 10, 0, tzinfo=UTC)
SECRET = "a secret of webhooks"

MANY = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
INSERT INTO webhook_deliveries (webhook_id, session_id, payload, target_url, signature, status,
                                attempt_count, next_retry_at, created_at)
SELECT 1, 's', '{}', 'https://example.com/', '',
       CASE i % 4 WHEN 0 THEN 'pending' WHEN 1 THEN 'failed' WHEN 2 THEN 'dead'
                  ELSE 'delivered' END,
       0, CASE WHEN i % 4 < 2 THEN '2026-02-08T09:00:' || CAST(10 + i % 50 AS TEXT)
               || '.000000Z' END, '2026-02-08T09:00:00.000000Z' FROM n
"""


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def add(ledger: Ledger, event: str = "push", **more: Any) -> int:
    new = NewWebhook("github", event, "review", "s-1", **more)
    return ledger.write(lambda tx: webhooks.add_webhook(tx, new, SECRET, NOW))


def enqueue(ledger: Ledger, due: datetime = NOW, webhook_id: int | None = None) -> int:
    """Enqueue a delivery of the test's only webhook, which is added first if needed."""

    def work(tx: Any) -> int:
        if webhook_id is not None:
            webhook = webhooks.find_webhook(tx, webhook_id)
        else:
            webhook = webhooks.find_webhook_of_event(tx, "github", "push")
        return deliveries.enqueue_delivery(
            tx, webhook, '{"a":1}', message_id="m-1", due=due, now=NOW
        )

    if not ledger.read(lambda tx: tx.dicts("webhook_configs")):
        add(ledger, target_url="https://example.com/hook")
    return ledger.write(work)


def claim(ledger: Ledger, now: datetime = NOW, owner: str = "boot-1") -> list[ClaimedDelivery]:
    return ledger.write(lambda tx: deliveries.claim(tx, owner, now))


def fail(ledger: Ledger, claimed: ClaimedDelivery, now: datetime, owner: str = "boot-1") -> bool:
    update = rules.mark_failed(claimed.delivery.attempt_count, "no luck", now)
    return ledger.write(lambda tx: deliveries.settle(tx, claimed, owner, update, now))


def succeed(ledger: Ledger, claimed: ClaimedDelivery, now: datetime, owner: str = "boot-1") -> bool:
    update = rules.mark_delivered(claimed.delivery.attempt_count)
    return ledger.write(lambda tx: deliveries.settle(tx, claimed, owner, update, now))


def row(ledger: Ledger, id: int) -> dict[str, Any]:
    return ledger.read(lambda tx: deliveries.find_delivery(tx, id))


def free_slots(ledger: Ledger) -> None:
    execute(ledger, "UPDATE delivery_slots SET taken_at = '0001-01-01T00:00:00.000000Z'")


def plan(ledger: Ledger, query: str, **values: object) -> str:
    sql = queries.load_queries(ledger.engine)[query]
    if isinstance(ledger, SqliteLedger):
        connection = apsw.Connection(str(ledger.path), flags=apsw.SQLITE_OPEN_READONLY)
        rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
        connection.close()
        return "\n".join(str(row[3]) for row in rows)
    assert isinstance(ledger, PostgresLedger)
    with psycopg.connect(ledger.url) as server:
        return "\n".join(row[0] for row in server.execute(f"EXPLAIN {sql}", values))  # type: ignore[arg-type]


def next_at(ledger: Ledger, now: datetime = NOW) -> datetime | None:
    return ledger.read(lambda tx: deliveries.next_due_at(tx, now))
