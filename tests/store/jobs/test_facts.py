"""Facts of plugins, page by page; on both engines."""

from __future__ import annotations

from typing import Any

import pytest

from ductile.core.jobs.limits import PAGE_BYTES
from ductile.store.engines.api import Ledger
from ductile.store.jobs import facts
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
    rows, cursor = ledger.read(lambda tx: facts.list_facts(tx, "scale", **asked))
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
