"""The table of deliveries: its columns, constraints and indexes, on both engines."""

from __future__ import annotations

from typing import Any

import apsw
import psycopg
import pytest

from ductile.clock import to_text
from ductile.core.delivery import retry_policy as rules
from ductile.core.delivery.signatures import compute_signature
from ductile.store.engines.api import Ledger
from ductile.store.outbox import deliveries, webhooks
from tests.store.conftest import execute
from tests.store.outbox.delivery_harness import (
    MANY,
    NOW,
    SECRET,
    add,
    claim,
    enqueue,
    later,
    plan,
    row,
)

COLUMNS = {
    "id",
    "webhook_id",
    "session_id",
    "payload",
    "target_url",
    "signature",
    "status",
    "attempt_count",
    "last_attempted_at",
    "next_retry_at",
    "created_at",
    "error_detail",
}


def test_delivery_table_has_the_documented_columns(ledger: Ledger) -> None:
    assert row(ledger, enqueue(ledger)).keys() >= COLUMNS


def test_new_inbound_delivery_is_pending_and_due_in_30_seconds(
    ledger: Ledger,
) -> None:
    id = enqueue(ledger, due=NOW + rules.INBOUND_DELAY)
    found = row(ledger, id)
    assert (found["status"], found["attempt_count"]) == ("pending", 0)
    assert found["created_at"] == to_text(NOW)
    assert found["next_retry_at"] == to_text(later(30))
    assert found["signature"] == compute_signature(SECRET, b'{"a":1}')
    assert claim(ledger, later(29.9)) == []
    assert [claimed.delivery.id for claimed in claim(ledger, later(30))] == [id]


def test_unknown_delivery_status_is_refused(ledger: Ledger) -> None:
    id = enqueue(ledger)
    with pytest.raises((apsw.ConstraintError, psycopg.errors.CheckViolation)):
        execute(ledger, f"UPDATE webhook_deliveries SET status = 'lost' WHERE id = {id}")


def test_delivery_of_an_unknown_webhook_is_refused(ledger: Ledger) -> None:
    def work(tx: Any) -> Any:
        nobody = webhooks.Webhook(99, "a", "b", "c", "d", "secret", None, None, None)
        return deliveries.enqueue_delivery(tx, nobody, "{}", message_id="m", due=NOW, now=NOW)

    with pytest.raises((apsw.ConstraintError, psycopg.errors.ForeignKeyViolation)):
        ledger.write(work)


def test_poll_uses_the_compound_index(ledger: Ledger) -> None:
    """The index is used for the first few rows of each status, and for nothing else."""
    add(ledger)
    execute(ledger, MANY)
    # SQLite also without statistics; a PostgreSQL server collects them by itself.
    if ledger.engine == "sqlite":
        check_poll_plans(ledger)
    execute(ledger, "ANALYZE")
    check_poll_plans(ledger)


def check_poll_plans(ledger: Ledger) -> None:
    due = plan(ledger, "due_deliveries", now=to_text(NOW), limit=5)
    for shown in (due, plan(ledger, "next_delivery")):
        assert shown.count("webhook_deliveries_due") == 2, shown
        assert "SCAN webhook_deliveries" not in shown
        assert "Seq Scan on webhook_deliveries" not in shown
