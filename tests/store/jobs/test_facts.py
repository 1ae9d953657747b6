"""Facts of plugins, page by page; on both engines."""

from __future__ import annotations

from typing import Any

import apsw
import psycopg
import pytest

from ductile.core.jobs.limits import PAGE_BYTES
from ductile.store.engines.api import Ledger
from ductile.store.jobs import plugin_state
from tests.store.conftest import execute

AT = "2026-02-08T10:00:00.000000Z"


def observed(ledger: Ledger, *sizes: int, fact_type: str = "weight") -> None:
    """Insert facts of about these sizes."""
    known = len(page(ledger)[0])
    for seq, size in enumerate(sizes, known + 1):
        execute(
            ledger,
            "INSERT INTO plugin_facts (seq, plugin_name, fact_type, fact_json, created_at) VALUES"
            f" ({seq}, 'scale', '{fact_type}', '{{\"x\":\"{'y' * size}\"}}', '{AT}')",
        )


def page(ledger: Ledger, **more: Any) -> tuple[list[int], int | None]:
    asked = {"fact_type": None, "before": None, "limit": 50, "max_bytes": PAGE_BYTES, **more}
    rows, cursor = ledger.read(lambda tx: plugin_state.list_facts(tx, "scale", **asked))
    return [row["seq"] for row in rows], cursor


def test_facts_are_listed_newest_first_by_cursor(ledger: Ledger) -> None:
    observed(ledger, 1, 1, 1)
    assert page(ledger) == ([3, 2, 1], None)
    assert page(ledger, limit=2) == ([3, 2], 2)
    assert page(ledger, limit=3) == ([3, 2, 1], None)
    assert page(ledger, limit=2, before=2) == ([1], None)
    assert page(ledger, before=1) == ([], None)


def test_facts_are_filtered_by_type(ledger: Ledger) -> None:
    observed(ledger, 1, 1)
    observed(ledger, 1, fact_type="height")
    assert page(ledger, fact_type="weight") == ([2, 1], None)
    assert page(ledger, fact_type="weight", limit=1) == ([2], 2)
    assert page(ledger, fact_type="none") == ([], None)


@pytest.mark.parametrize("fact_type", [None, "weight"])
def test_page_of_large_facts_is_limited_in_bytes(ledger: Ledger, fact_type: str | None) -> None:
    observed(ledger, 100, 200, 900, 100)
    asked = {"fact_type": fact_type, "max_bytes": 500}
    assert page(ledger, **asked) == ([4], 4)
    assert page(ledger, **asked, before=4) == ([3], 3)
    assert page(ledger, **asked, before=3) == ([2, 1], None)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE plugin_facts SET fact_json = '{}'",
        "DELETE FROM plugin_facts",
        "DELETE FROM plugin_facts WHERE seq = 1",
    ],
)
def test_facts_cannot_be_changed_or_deleted(ledger: Ledger, change: str) -> None:
    observed(ledger, 1, 1)
    with pytest.raises((apsw.ConstraintError, psycopg.errors.RaiseException)) as refused:
        execute(ledger, change)
    assert "plugin_facts rows" in str(refused.value)
    assert page(ledger) == ([2, 1], None)


def test_facts_cannot_be_replaced(ledger: Ledger) -> None:
    if ledger.engine != "sqlite":
        pytest.skip("PostgreSQL has no REPLACE")
    observed(ledger, 1)
    for columns, values in (("id, seq", "1, 9"), ("seq", "1")):
        with pytest.raises(apsw.ConstraintError, match="cannot be replaced"):
            execute(
                ledger,
                f"REPLACE INTO plugin_facts ({columns}, plugin_name, fact_type, fact_json,"
                f" created_at) VALUES ({values}, 'scale', 'weight', '{{}}', '{AT}')",
            )
    assert page(ledger) == ([1], None)


def test_id_of_a_pruned_fact_is_not_given_again(ledger: Ledger) -> None:
    observed(ledger, 1, 1)
    prune = "INSERT INTO fact_pruning VALUES ('9'); DELETE FROM plugin_facts WHERE seq = 2;"
    execute(ledger, f"{prune} DELETE FROM fact_pruning")
    observed(ledger, 1)
    rows, _ = ledger.read(
        lambda tx: plugin_state.list_facts(
            tx, "scale", fact_type=None, before=None, limit=50, max_bytes=PAGE_BYTES
        )
    )
    assert [row["id"] for row in rows] == [3, 1]
