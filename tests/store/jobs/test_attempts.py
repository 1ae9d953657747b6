"""Attempts in the log: filters, pages and limited scans; on both engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from ductile.core.jobs.limits import PAGE_BYTES
from ductile.store.engines.api import Ledger
from ductile.store.jobs import attempts, read
from ductile.store.jobs.attempts import AttemptFilter, AttemptPage
from tests.store.conftest import execute

NOON = "2026-02-08T12:00:00.000000Z"


def at(hour: int) -> datetime:
    return datetime(2026, 2, 8, hour, tzinfo=UTC)


def logged(ledger: Ledger, *rows: dict[str, Any]) -> None:
    """Insert log rows with these columns."""
    plain: dict[str, Any] = {
        "plugin": "echo",
        "command": "poll",
        "status": "succeeded",
        "submitted_by": "cli",
    }
    times = {"created_at": NOON, "completed_at": NOON}
    texts = dict.fromkeys(("result", "stderr", "stdout", "last_error"))
    plain |= {**times, **texts, "id": "", "job_id": None, "attempt": 1}
    plain["started_at"] = None
    values = ", ".join(
        "(" + ", ".join(_literal(value) for value in (plain | row).values()) + ")" for row in rows
    )
    execute(ledger, f"INSERT INTO job_log ({', '.join(plain)}) VALUES {values}")


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"


def page(
    ledger: Ledger,
    wanted: AttemptFilter,
    *,
    before: int | None = None,
    limit: int = 50,
    is_out_of_time: Callable[[], bool] = lambda: False,
) -> AttemptPage:
    return attempts.list_attempts(
        ledger, wanted, before=before, limit=limit, is_out_of_time=is_out_of_time
    )


def ids(ledger: Ledger, wanted: AttemptFilter) -> list[str]:
    found = page(ledger, wanted)
    assert found.next_before is None
    return [row["id"] for row in found.rows]


def test_each_filter_selects_its_rows(ledger: Ledger) -> None:
    odd = {
        "plugin": "other",
        "command": "sync",
        "status": "failed",
        "submitted_by": "api",
        "completed_at": "2026-02-08T13:00:00.000000Z",
        "last_error": "it is broken",
    }
    logged(ledger, {"id": "a"}, {"id": "b", **odd}, {"id": "c"})
    for wanted in (
        AttemptFilter(plugin="other"),
        AttemptFilter(command="sync"),
        AttemptFilter(status="failed"),
        AttemptFilter(submitted_by="api"),
        AttemptFilter(since=at(13)),
        AttemptFilter(text="broken"),
        AttemptFilter(plugin="other", command="sync", status="failed", since=at(13), until=at(13)),
    ):
        assert ids(ledger, wanted) == ["b"], wanted


def test_times_in_any_format_are_compared(ledger: Ledger) -> None:
    formats = ("2026-02-08 11:00:00", "2026-02-08T23:00:00+11:00", "20260208T130000Z")
    rows = zip("abc", formats, strict=True)
    logged(ledger, *({"id": id, "completed_at": written} for id, written in rows))
    for since, until, found in (
        (None, None, ["c", "b", "a"]),
        (at(12), None, ["c", "b"]),
        (None, at(12), ["b", "a"]),
        (at(12), at(12), ["b"]),
        (at(15), None, []),
    ):
        assert ids(ledger, AttemptFilter(since=since, until=until)) == found


def test_text_search_ignores_case(ledger: Ledger) -> None:
    columns = ("last_error", "stderr", "result")
    rows = ({"id": column, column: json.dumps("No Route To HOST")} for column in columns)
    logged(ledger, {"id": "a"}, *rows)
    assert ids(ledger, AttemptFilter(text="no ROUTE to")) == [*reversed(columns)]


def test_text_is_not_a_pattern(ledger: Ledger) -> None:
    logged(ledger, {"id": "a", "stderr": "100 %"}, {"id": "b", "stderr": "100 files"})
    assert ids(ledger, AttemptFilter(text="0 %")) == ["a"]
    assert ids(ledger, AttemptFilter(text="1%s")) == ids(ledger, AttemptFilter(text="1_0")) == []


def test_responses_are_included_on_request(ledger: Ledger) -> None:
    logged(ledger, {"id": "a", "result": '{"status": "ok"}'})
    assert page(ledger, AttemptFilter()).rows[0]["result"] is None
    assert page(ledger, AttemptFilter(results=True)).rows[0]["result"] == {"status": "ok"}


def test_page_is_limited_in_bytes(ledger: Ledger) -> None:
    large = json.dumps("x" * (PAGE_BYTES // 3))
    huge = json.dumps("x" * (PAGE_BYTES * 2))
    sizes = {"a": large, "b": huge, "c": large, "d": large, "e": large}
    logged(ledger, *({"id": id, "result": size} for id, size in sizes.items()))
    pages, cursor = [], None
    for _ in range(10):
        found = page(ledger, AttemptFilter(results=True), before=cursor)
        pages.append("".join(row["id"] for row in found.rows))
        cursor = found.next_before
        if cursor is None:
            break
    assert pages == ["ed", "c", "b", "a"]
    assert ids(ledger, AttemptFilter()) == list("edcba")


def test_scan_is_limited_in_rows(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "SCAN_ROWS", 10)
    rows = [{"id": f"n{n:02}", "stderr": "needle" if n in (3, 33) else None} for n in range(40)]
    logged(ledger, *rows)
    assert ids(ledger, AttemptFilter(text="needle")) == ["n33", "n03"]
    first = page(ledger, AttemptFilter(text="needle"), is_out_of_time=lambda: True)
    assert [row["id"] for row in first.rows] == ["n33"]
    second = page(
        ledger, AttemptFilter(text="needle"), before=first.next_before, is_out_of_time=lambda: True
    )
    assert (second.rows, second.next_before is None) == ([], False)


def test_scan_is_limited_in_bytes(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "SCAN_BYTES", 1000)
    logged(ledger, *({"id": f"n{n}", "result": json.dumps("x" * 600)} for n in range(5)))
    first = page(ledger, AttemptFilter(text="nothing"), is_out_of_time=lambda: True)
    assert (first.rows, first.next_before is None) == ([], False)
    assert ids(ledger, AttemptFilter(text="xxx")) == [f"n{n}" for n in range(5)][::-1]


def test_pages_of_a_plugin_contain_each_attempt_once(ledger: Ledger) -> None:
    rows = [{"id": f"n{n}", "plugin": "other" if n % 3 else "echo"} for n in range(12)]
    logged(ledger, *rows)
    seen: list[str] = []
    cursor = None
    for _ in range(10):
        found = page(
            ledger, AttemptFilter(plugin="other", status="succeeded"), before=cursor, limit=3
        )
        seen += [row["id"] for row in found.rows]
        cursor = found.next_before
        if cursor is None:
            break
    assert seen == [row["id"] for row in rows if row["plugin"] == "other"][::-1]


def attempts_of(ledger: Ledger, id: str) -> list[tuple[int, int]]:
    """The attempts of a job: number, and number of earlier ones."""
    job = ledger.read(lambda tx: read.describe_job(tx, id))
    assert job is not None
    return [(attempt["attempt"], attempt["older"]) for attempt in job["attempts"]]


def test_job_has_its_last_attempts_up_to_a_size(ledger: Ledger) -> None:
    text = json.dumps("x" * (PAGE_BYTES // 4))
    rows = [{"id": f"a-{number}", "attempt": number, "result": text} for number in range(1, 8)]
    logged(ledger, *rows)
    assert attempts_of(ledger, "a") == [(5, 4), (6, 5), (7, 6)]


def test_last_attempt_is_included_whatever_its_size(ledger: Ledger) -> None:
    large = json.dumps("x" * PAGE_BYTES)
    for column in ("result", "stdout", "stderr", "last_error"):
        first = {"id": f"{column}-1", "attempt": 1}
        logged(ledger, first, {"id": f"{column}-2", "attempt": 2, column: large})
        assert attempts_of(ledger, column) == [(2, 1)]


def test_small_attempts_are_all_included(ledger: Ledger) -> None:
    logged(ledger, *({"id": f"a-{number}", "attempt": number} for number in (1, 2, 10)))
    assert attempts_of(ledger, "a") == [(1, 0), (2, 1), (10, 2)]
