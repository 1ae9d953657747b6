"""Finding jobs by their id or its prefix; on both engines."""

from __future__ import annotations

import re

import apsw
import pytest

from ductile.store.engines.api import Ledger
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.jobs import attempts, read
from ductile.store.jobs.attempts import AttemptFilter
from tests.store.conftest import execute

WHEN = "2026-02-08T10:00:00.000000Z"
ONE = "01a1e070-fb47-7000-8000-000000000001"
TWO = "01a1e070-fb47-7000-8000-000000000002"
OTHER = "01a1e070-ffff-7000-8000-000000000003"
QUERIES = {"job_attempts": {"id": ONE}, "logs_of_jobs": {"ids": f'["{ONE}"]'}}


def _logged(job_id: str, attempt: int, own: str = "NULL") -> str:
    return (
        "INSERT INTO job_log (id, job_id, plugin, command, status, attempt, submitted_by, "
        f"created_at, completed_at) VALUES ('{job_id}-{attempt}', {own}, 'echo', 'poll', "
        f"'failed', {attempt}, 'cli', '{WHEN}', '{WHEN}');"
    )


def _queued(job_id: str) -> str:
    return (
        "INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at) "
        f"VALUES ('{job_id}', 'echo', 'poll', 'queued', 'cli', '{WHEN}');"
    )


@pytest.fixture
def filled(ledger: Ledger) -> Ledger:
    """Two jobs of the same time, one with two attempts; and one that only the log has."""
    rows = [
        _queued(ONE),
        _queued(TWO),
        _logged(ONE, 1, f"'{ONE}'"),
        _logged(ONE, 2),
        _logged(TWO, 0),
    ]
    execute(ledger, "".join([*rows, *(_logged(OTHER, number) for number in range(1, 4))]))
    return ledger


@pytest.mark.parametrize("query", QUERIES)
def test_attempts_belong_to_their_job(filled: Ledger, query: str) -> None:
    rows = filled.read(lambda tx: tx.dicts(query, **QUERIES[query]))
    assert [row["attempt"] for row in rows] == [1, 2]


def test_partial_id_matches_no_job(filled: Ledger) -> None:
    for cut in ("01a1e070", "01a1e070-fb47", ONE[:-1], f"{ONE}-1", ""):
        assert filled.read(lambda tx, cut=cut: read.describe_job(tx, cut)) is None
        assert filled.read(lambda tx, cut=cut: tx.all("logs_of_jobs", ids=f'["{cut}"]')) == []
        assert _logs(filled, cut) == []


def test_log_filtered_by_job_has_only_its_attempts(filled: Ledger) -> None:
    assert _logs(filled, ONE) == [f"{ONE}-2", f"{ONE}-1"]


def _logs(ledger: Ledger, job_id: str) -> list[str]:
    wanted = AttemptFilter(job_id=job_id)
    page = attempts.list_attempts(
        ledger, wanted, before=None, limit=50, is_out_of_time=lambda: False
    )
    assert page.next_before is None
    return [row["id"] for row in page.rows]


@pytest.mark.parametrize("query", QUERIES)
def test_attempts_of_a_job_are_found_by_the_index(query: str, filled: Ledger) -> None:
    if not isinstance(filled, SqliteLedger):
        pytest.skip("PostgreSQL reads a table this small whole, whatever there is")
    from ductile.store.engines import queries

    connection = apsw.Connection(str(filled.path))
    sql = f"EXPLAIN QUERY PLAN {queries.load_queries('sqlite')[query]}"
    plan = [row[3] for row in connection.execute(sql, QUERIES[query])]
    connection.close()
    assert any(re.match(r"SEARCH (job_log|l) USING INDEX .*id>\? AND id<\?", step) for step in plan)


def test_ids_with_a_prefix_are_found_in_queue_and_log(filled: Ledger) -> None:
    for typed, limit, found in (
        (ONE, 5, [ONE]),
        ("01a1e070", 5, [ONE, TWO, OTHER]),
        ("01a1e070", 2, [ONE, TWO]),
        ("01a1e070-fb47", 5, [ONE, TWO]),
        ("01a1e070-ff", 5, [OTHER]),
        (f"{OTHER}-", 5, []),
        (f"{OTHER}-1", 5, []),
        ("01a1e071", 5, []),
        ("%", 5, []),
    ):
        ids = filled.read(lambda tx, typed=typed, n=limit: read.find_job_ids(tx, typed, n))
        assert ids == found, typed


def test_ids_with_a_suffix_are_found_in_queue_and_log(filled: Ledger) -> None:
    for typed, limit, found in (
        (ONE, 5, [ONE]),
        (TWO[-12:], 5, [TWO]),
        (OTHER[-12:], 5, [OTHER]),
        (OTHER[-12:-1], 5, []),
        (f"{OTHER}-1", 5, []),
        (f"x{ONE}", 5, []),
        ("%", 5, []),
    ):
        ids = filled.read(lambda tx, typed=typed, n=limit: read.find_job_ids_by_end(tx, typed, n))
        assert ids == found, typed
