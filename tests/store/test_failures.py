"""Failed and dead jobs that may need an operator, by command."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from ductile.clock import to_text
from ductile.model import CANCELLED_IN_QUEUE, JobStatus
from ductile.store.engines.api import Ledger
from ductile.store.engines.queries import load_queries
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.failures import MAX_COUNTED, acknowledge_job, list_failing_commands
from ductile.store.flow.run_limits import describe_newer
from ductile.store.jobs.read import JobFilter, list_jobs, load_job
from ductile.store.jobs.requeue import retry_job
from tests.store.conftest import execute

FILTERS = ("plugin", "pipeline", "command", "status", "submitted_by", "acknowledged")
VALUES = {
    **dict.fromkeys(FILTERS),
    "since": "",
    "until": "~",
    "limit": 9,
    "kinds": 9,
    "most": MAX_COUNTED,
}
NOW = datetime(2026, 2, 8, 10, tzinfo=UTC)


@pytest.fixture
def add(ledger: Ledger) -> Any:
    def add_job(
        id: str, plugin: str, status: str = "dead", hours_ago: float = 1, **more: Any
    ) -> str:
        row = {
            "id": id,
            "plugin": plugin,
            "command": "poll",
            "status": status,
            "submitted_by": "api",
            "created_at": to_text(NOW - timedelta(hours=hours_ago)),
            "completed_at": to_text(NOW - timedelta(hours=hours_ago)),
            "last_error": "no luck",
            **more,
        }
        values = ", ".join(f"'{value}'" for value in row.values())
        execute(ledger, f"INSERT INTO job_queue ({', '.join(row)}) VALUES ({values})")
        return id

    return add_job


def failing(ledger: Ledger, limit: int = 50) -> list[tuple[str, str, str, int, str]]:
    rows = ledger.read(lambda tx: list_failing_commands(tx, NOW, limit))
    names = ("status", "plugin", "command", "jobs", "job_id")
    return [tuple(row[name] for name in names) for row in rows]


def acknowledge(ledger: Ledger, job_id: str) -> bool:
    job = ledger.read(lambda tx: load_job(tx, job_id))
    assert job is not None
    return ledger.write(lambda tx: acknowledge_job(tx, job, "user:ada", NOW))


def test_command_that_fails_often_hides_no_other_one(ledger: Ledger, add: Any) -> None:
    for number in range(120):
        add(f"often-{number:03}", "often", hours_ago=1 + number / 60)
    add("other", "often", hours_ago=200, command="handle")
    add("failed", "often", "failed", hours_ago=3)
    add("rare", "rare", hours_ago=2)
    add("fine", "rare", "succeeded")
    assert failing(ledger) == [
        ("dead", "often", "poll", 120, "often-000"),
        ("dead", "rare", "poll", 1, "rare"),
        ("failed", "often", "poll", 1, "failed"),
        ("dead", "often", "handle", 1, "other"),
    ]
    assert failing(ledger, limit=2) == failing(ledger)[:2]


def test_failure_without_a_retry_is_news_for_a_day(ledger: Ledger, add: Any) -> None:
    add("old", "quiet", "failed", hours_ago=25)
    add("older", "loud", "failed", hours_ago=30)
    add("new", "loud", "failed", hours_ago=23)
    assert failing(ledger) == [("failed", "loud", "poll", 1, "new")]


def test_jobs_that_were_ended_on_purpose_need_nobody(ledger: Ledger, add: Any) -> None:
    for number, error in enumerate((CANCELLED_IN_QUEUE, "cancelled", describe_newer("r7"))):
        add(f"ended-{number}", "echo", last_error=error)
    assert failing(ledger) == []
    # A failed job with such a text was not cancelled.
    add("failed", "echo", "failed", last_error="cancelled")
    assert failing(ledger) == [("failed", "echo", "poll", 1, "failed")]


def test_acknowledged_job_needs_nobody_until_it_is_retried(ledger: Ledger, add: Any) -> None:
    add("first", "echo", hours_ago=2)
    add("second", "echo")
    assert acknowledge(ledger, "second")
    assert not acknowledge(ledger, "second"), "a second time changes nothing"
    assert failing(ledger) == [("dead", "echo", "poll", 1, "first")]
    [row] = ledger.read(lambda tx: list_jobs(tx, JobFilter(acknowledged=True), limit=9))
    assert (row["id"], row["acknowledged_at"]) == ("second", to_text(NOW))
    assert row["acknowledged_by"] == "user:ada"
    job = ledger.read(lambda tx: load_job(tx, "second"))
    assert job is not None
    assert ledger.write(lambda tx: retry_job(tx, job, 1, NOW))
    execute(ledger, "UPDATE job_queue SET status = 'dead', completed_at = created_at")
    assert failing(ledger) == [("dead", "echo", "poll", 2, "second")]


def test_only_a_failure_is_acknowledged(ledger: Ledger, add: Any) -> None:
    for status in JobStatus:
        add(status.value, "echo", status.value)
    assert [id for id in JobStatus if acknowledge(ledger, id.value)] == ["failed", "dead"]


def test_each_step_that_waited_in_vain_has_a_row(ledger: Ledger, add: Any) -> None:
    wait = {"plugin": "core.wait", "status": "failed", "command": "handle"}
    for number, step in enumerate(("gate", "gate", "sign")):
        add(f"wait-{number}", **wait, hours_ago=1 + number, pipeline="deploy", step_path=step)
    rows = ledger.read(lambda tx: list_failing_commands(tx, NOW, 9))
    assert [(row["step_path"], row["jobs"], row["job_id"]) for row in rows] == [
        ("gate", 2, "wait-0"),
        ("sign", 1, "wait-2"),
    ]


def test_sqlite_counts_by_the_index_of_unresolved_jobs(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    ledger.close()

    def explain(query: str) -> list[str]:
        sql = f"EXPLAIN QUERY PLAN {load_queries('sqlite')[query]}"
        return [row[3] for row in connection.execute(sql, VALUES)]

    connection = apsw.Connection(str(tmp_path / "state.db"))
    for query in ("failing_commands", "jobs_to_acknowledge"):
        plan = explain(query)
        read = [line for line in plan if "job_queue" in line or line.startswith("SCAN j")]
        assert read, plan
        assert all("INDEX job_queue_unresolved" in line for line in read), plan
    # The next command is one probe, not a walk over the jobs of the last one.
    assert any("plugin=? AND command>?" in line for line in explain("failing_commands"))
    connection.close()
