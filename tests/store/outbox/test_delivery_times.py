"""Due times of deliveries that a script has written, on both engines."""

from __future__ import annotations

from datetime import datetime

import pytest

from ductile.store.engines.api import Ledger
from ductile.store.outbox import deliveries
from ductile.store.outbox.deliveries import SENDS_PER_CYCLE
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

OTHER_FORMATS = [
    "2026-02-08 10:00:30",
    "2026-02-08T10:00:30Z",
    "2026-02-08T10:00:30.000Z",
    "2026-02-08T02:00:30-08:00",
    "2026-02-08T18:00:30.000000+08:00",
    "20260208T100030Z",
    " 2026-02-08T10:00:30.000000Z",
]
NO_TIMES = [
    "1700000000",
    "0garbage",
    "",
    "soon",
    "0001-01-01T00:00:00+08:00",
    "2026-02-30T10:00:00.000000Z",
    "9999-99-99T99:99:99.999999Z",
]


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


def enqueue_with_times(ledger: Ledger, times: list[str], status: str = "pending") -> list[int]:
    """One delivery per time, as a script has written it."""
    ids = [enqueue(ledger) for _ in times]
    for id, written in zip(ids, times, strict=True):
        script_sets(ledger, id, written, status)
    return ids


@pytest.mark.parametrize("status", ["pending", "failed"])
def test_time_in_another_format_is_normalized(ledger: Ledger, status: str) -> None:
    ids = enqueue_with_times(ledger, OTHER_FORMATS, status)
    assert normalize(ledger) == dict.fromkeys(ids, later(30))
    assert next_at(ledger) == later(30)
    assert claim(ledger, later(29)) == []
    assert [found.id for found in claim(ledger, later(30))] == ids[:SENDS_PER_CYCLE]


def test_time_in_another_format_is_not_due_before_it_is_normalized(ledger: Ledger) -> None:
    enqueue_with_times(ledger, OTHER_FORMATS)
    ours = enqueue(ledger, due=later(3))
    assert next_at(ledger) == later(3)
    assert [found.id for found in claim(ledger, later(29))] == [ours]


@pytest.mark.parametrize("status", ["pending", "failed"])
def test_delivery_without_a_time_is_due_now(ledger: Ledger, status: str) -> None:
    id = enqueue(ledger, due=later(900))
    script_sets(ledger, id, None, status)
    assert normalize(ledger) == {id: NOW}
    assert next_at(ledger) == NOW
    assert [found.id for found in claim(ledger)] == [id]


def test_unreadable_time_is_due_now(ledger: Ledger) -> None:
    for cycle, written in enumerate(NO_TIMES):
        ids = enqueue_with_times(ledger, [written])
        assert normalize(ledger) == dict.fromkeys(ids, None), written
        assert [found.id for found in claim(ledger, later(5 * cycle))] == ids, written


def test_unreadable_time_does_not_block_others(ledger: Ledger) -> None:
    for cycle, written in enumerate(NO_TIMES):
        now = later(5 * cycle)
        enqueue_with_times(ledger, [written])
        ours = enqueue(ledger, due=now)
        found = next_at(ledger, now)
        assert found is not None, written
        assert found <= now, written
        assert ours in [found.id for found in claim(ledger, now)], written


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
