"""Due times of deliveries that a script has written, on both engines."""

from __future__ import annotations

from datetime import datetime

import pytest

from ductile.store.engines.api import Ledger
from ductile.store.outbox import deliveries
from tests.store.conftest import execute
from tests.store.outbox.delivery_harness import (
    MANY,
    NOW,
    add,
    claim,
    enqueue,
    later,
    next_at,
    plan,
    row,
)


def script_sets(ledger: Ledger, id: int, written: str | None, status: str = "pending") -> None:
    value = "NULL" if written is None else f"'{written}'"
    execute(
        ledger,
        f"UPDATE webhook_deliveries SET status = '{status}', next_retry_at = {value}"
        f" WHERE id = {id}",
    )


def normalize(ledger: Ledger) -> dict[int, datetime | None]:
    """Normalize batches until none is left."""
    changed: dict[int, datetime | None] = {}
    while ids := ledger.read(deliveries.list_foreign_times):
        changed |= ledger.write(lambda tx, ids=ids: deliveries.normalize_due_times(tx, ids, NOW))
    return changed


@pytest.mark.parametrize("status", ["pending", "failed"])
def test_time_in_another_format_is_not_due_before_it_is_normalized(
    ledger: Ledger, status: str
) -> None:
    script_sets(ledger, enqueue(ledger), "2026-02-08 10:00:30", status)
    ours = enqueue(ledger, due=later(3))
    assert next_at(ledger) == later(3)
    assert [found.id for found in claim(ledger, later(29))] == [ours]


@pytest.mark.parametrize("written", ["x'00ff'", "CAST(x'ff' AS TEXT)"])
def test_time_that_is_not_text_is_due_now(ledger: Ledger, written: str) -> None:
    if ledger.engine == "postgres":
        pytest.skip("its text is always text")
    odd, ours = enqueue(ledger), enqueue(ledger)
    execute(ledger, f"UPDATE webhook_deliveries SET next_retry_at = {written} WHERE id = {odd}")
    assert next_at(ledger) == NOW
    assert normalize(ledger) == {odd: None}
    assert [found.id for found in claim(ledger)] == [odd, ours]


def test_normal_times_and_finished_deliveries_are_not_normalized(ledger: Ledger) -> None:
    enqueue(ledger, due=later(5))
    for status in ("delivered", "dead"):
        script_sets(ledger, enqueue(ledger), "soon", status)
        script_sets(ledger, enqueue(ledger), None, status)
    assert ledger.read(deliveries.list_foreign_times) == []


def test_row_that_ended_since_is_not_normalized(ledger: Ledger) -> None:
    id = enqueue(ledger)
    script_sets(ledger, id, None)
    ids = ledger.read(deliveries.list_foreign_times)
    script_sets(ledger, id, None, "delivered")
    assert ledger.write(lambda tx: deliveries.normalize_due_times(tx, ids, NOW)) == {}
    assert row(ledger, id)["next_retry_at"] is None


def test_foreign_times_are_searched_among_outstanding_rows_only(ledger: Ledger) -> None:
    add(ledger)
    execute(ledger, MANY.replace("CASE i % 4", "CASE i % 100"))
    for statement in ("ANALYZE",) if ledger.engine == "postgres" else ("SELECT 1", "ANALYZE"):
        execute(ledger, statement)
        shown = plan(ledger, "foreign_deliveries", limit=500)
        assert "webhook_deliveries_due" in shown, shown
        assert "SCAN webhook_deliveries" not in shown
        assert "Seq Scan" not in shown
