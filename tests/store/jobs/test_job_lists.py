"""Lists of jobs: filters, order and pages, by indexes that have the order of the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import apsw
import pytest

from ductile.clock import to_text
from ductile.model import CANCELLED_IN_QUEUE, JobStatus, SubmittedBy
from ductile.store.engines.api import Ledger
from ductile.store.engines.queries import load_queries
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.flow.run_limits import describe_newer
from ductile.store.jobs.read import JobFilter, find_bulk_ids, list_jobs
from tests.store.conftest import execute

START = datetime(2026, 2, 8, 10, tzinfo=UTC)
COUNT = 84
STATES = list(JobStatus)
ERRORS = ("the disk is full", CANCELLED_IN_QUEUE, describe_newer("r7"))
"""The last two are those of jobs that were ended on purpose."""


def made_at(number: int) -> datetime:
    # Some are older than their number: imported jobs, or a clock that was set back.
    return START + timedelta(minutes=number - 30 * (number % 11 == 0))


def rows() -> Iterator[dict[str, Any]]:
    for number in range(COUNT):
        yield {
            "id": f"job-{number:03}",
            "plugin": ("echo", "mark", "sink")[number % 3],
            "command": ("poll", "handle")[number % 2],
            "status": STATES[number % len(STATES)].value,
            "pipeline": ("", "deploy", "report", "")[number % 4],
            "submitted_by": ("api", "route")[number % 5 == 0],
            "created_at": to_text(made_at(number)),
            "last_error": ERRORS[number % 3],
            "acknowledged_at": to_text(START) if number % 4 == 1 else None,
        }


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    for row in rows():
        given = {name: value for name, value in row.items() if value is not None}
        names, values = ", ".join(given), ", ".join(f"'{value}'" for value in given.values())
        execute(ledger, f"INSERT INTO job_queue ({names}) VALUES ({values})")
    return ledger


def find(ledger: Ledger, wanted: JobFilter, **page: Any) -> list[dict[str, Any]]:
    return ledger.read(lambda tx: list_jobs(tx, wanted, **{"limit": COUNT, **page}))


def is_acknowledged(row: dict[str, Any]) -> bool:
    was_ended = row["status"] == "dead" and row["last_error"] in ERRORS[1:]
    return was_ended or row["acknowledged_at"] is not None


def expected(wanted: JobFilter) -> list[str]:
    """As a plain search would find them."""
    found = []
    for number, row in enumerate(rows()):
        same = ("status", "plugin", "pipeline", "command", "submitted_by")
        made = made_at(number)
        if (
            all(getattr(wanted, name) in (None, row[name]) for name in same)
            and wanted.acknowledged in (None, is_acknowledged(row))
            and (wanted.since is None or made >= wanted.since)
            and (wanted.until is None or made < wanted.until)
        ):
            by_number = wanted.status is JobStatus.QUEUED
            found.append(((number if by_number else (made, number)), row["id"]))
    return [id for _, id in sorted(found, reverse=True)]


FILTERS = (
    [
        JobFilter(status=status, plugin=plugin, pipeline=pipeline, since=since, until=until)
        for status, plugin, pipeline, since, until in product(
            (None, *STATES),
            (None, "echo"),
            (None, "deploy"),
            (None, START + timedelta(minutes=20)),
            (None, START + timedelta(minutes=60)),
        )
    ]
    + [
        JobFilter(status=status, plugin=plugin, pipeline=pipeline, command=command, submitted_by=by)
        for status, plugin, pipeline, command, by in product(
            (None, JobStatus.SUCCEEDED, JobStatus.DEAD),
            (None, "mark"),
            (None, "deploy", "gone"),
            (None, "poll"),
            (None, SubmittedBy.ROUTE),
        )
    ]
    + [
        JobFilter(
            status=status,
            plugin=plugin,
            pipeline=pipeline,
            command=command,
            acknowledged=acknowledged,
        )
        for status, plugin, pipeline, command, acknowledged in product(
            (None, *STATES), (None, "echo"), (None, "deploy"), (None, "poll"), (True, False)
        )
    ]
)


def test_every_combination_of_filters_finds_its_jobs_in_pages(filled: Ledger) -> None:
    for wanted in FILTERS:
        found: list[str] = []
        before = None
        while page := find(filled, wanted, before=before, limit=7):
            found += [row["id"] for row in page]
            before = page[-1]["seq"]
        assert found == expected(wanted), wanted


@pytest.mark.parametrize("action", ["retry", "cancel", "acknowledge"])
def test_bulk_action_finds_the_jobs_of_a_list_that_it_applies_to(
    filled: Ledger, action: str
) -> None:
    states = {"cancel": ("queued", "running")}.get(action, ("failed", "dead"))
    by_id = {row["id"]: row["status"] for row in rows()}
    for wanted in FILTERS:
        if action == "acknowledge":
            wanted = replace(wanted, acknowledged=False)
        ids = filled.read(lambda tx, wanted=wanted: find_bulk_ids(tx, action, wanted, COUNT))
        assert ids == sorted(id for id in expected(wanted) if by_id[id] in states), wanted


def test_cursor_whose_job_was_pruned_continues_with_the_jobs_before_it(filled: Ledger) -> None:
    everything = find(filled, JobFilter(plugin="echo"))
    last = everything[4]
    execute(filled, f"DELETE FROM job_queue WHERE seq = {last['seq']}")
    page = find(filled, JobFilter(plugin="echo"), before=last["seq"])
    assert [row["id"] for row in page] == [row["id"] for row in everything[5:]]
    assert find(filled, JobFilter(), before=1) == []


INDEXES = {
    "jobs": "created",
    "jobs_without_success": "status",
    "jobs_of_plugin_without_success": "plugin_status",
    "jobs_of_pipeline_without_success": "pipeline_status",
    "jobs_unresolved": "unresolved",
    "jobs_running": "running",
    "jobs_queued": "pending",
    "pending_jobs": "pending",
}
VALUES = {
    **dict.fromkeys(("plugin", "pipeline", "status"), "x1"),
    **dict.fromkeys(("command", "submitted_by", "acknowledged")),
    "since": "",
    "tail": "ab",
    "suffix": "cab",
    "at": "~",
    "ids": '["deploy"]',
    "before": 10**6,
    "limit": 50,
}


def explain(directory: Path, query: str) -> str:
    """SQLite's plan. On PostgreSQL it depends on the statistics of real rows: see the benchmark."""
    ledger = SqliteLedger(directory / "state.db")
    ledger.start()
    ledger.close()
    connection = apsw.Connection(str(directory / "state.db"))
    sql = f"EXPLAIN QUERY PLAN {load_queries('sqlite')[query]}"
    plan = "\n".join(row[3] for row in connection.execute(sql, VALUES))
    connection.close()
    return plan


def test_the_queue_is_counted_by_indexes(tmp_path: Path) -> None:
    plan = explain(tmp_path, "queue_depth")
    assert "INDEX job_queue_ready" in plan
    assert "job_queue_waiting" in plan


@pytest.mark.parametrize(
    ("query", "index"), [("jobs_of_kinds", "kind"), ("jobs_of_pipeline", "pipeline_kind")]
)
def test_sqlite_reads_the_newest_jobs_of_each_kind(tmp_path: Path, query: str, index: str) -> None:
    plan = explain(tmp_path, query)
    assert "SCAN job_queue" not in plan
    # For the first kind, the next one by each of three columns, and the jobs of each.
    assert plan.count(f"INDEX job_queue_{index} ") == 5, plan
    # A probe by fewer columns reads every job of a plugin to find its next command.
    assert "plugin=? AND command=? AND submitted_by>?" in plan
    assert "plugin=? AND command>?" in plan


def test_sqlite_finds_the_last_run_of_each_pipeline_by_an_index(tmp_path: Path) -> None:
    plan = explain(tmp_path, "last_runs_of_pipelines")
    assert "INDEX scopes_runs_pipeline (pipeline=?)" in plan
    assert "SCAN" not in plan.replace("SCAN given", "").replace("SCAN json_each", "")
    assert "TEMP B-TREE" not in plan


def test_sqlite_finds_the_end_of_an_id_by_an_index(tmp_path: Path) -> None:
    assert "job_queue_id_end (<expr>=?)" in explain(tmp_path, "job_ids_with_suffix")


@pytest.mark.parametrize("query", INDEXES)
def test_sqlite_reads_one_index_in_the_order_of_the_page(tmp_path: Path, query: str) -> None:
    plan = explain(tmp_path, query)
    assert f"INDEX job_queue_{INDEXES[query]} " in plan.replace("\n", " ") + " "
    # The running jobs are at most as many as there are workers.
    assert query == "jobs_running" or "TEMP B-TREE" not in plan
