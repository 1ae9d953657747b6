"""Query plans: reused on SQLite, and without table scans for a job on PostgreSQL."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from ductile.core.jobs.judge import judge
from ductile.model import NewJob, SubmittedBy
from ductile.store import notices
from ductile.store.engines import queries
from ductile.store.engines.api import BEGINNING
from ductile.store.engines.postgres import PostgresLedger, PostgresTx
from ductile.store.engines.sqlite import SqliteLedger, connect
from ductile.store.jobs import enqueue
from ductile.store.jobs.claim import claim
from ductile.store.jobs.settle import settle
from tests.conftest import CountingEntropy, FakeClock
from tests.postgres import Server
from tests.store.conftest import execute
from tests.store.jobs.harness import BASE, OK, POLICY, RULES, TX_CONFIG

MANY = 5000


def test_sqlite_reuses_query_plans(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    ledger.close()
    connection = connect(tmp_path / "state.db")
    planned: list[object] = []
    connection.authorizer = lambda *about: planned.append(about) or apsw.SQLITE_OK
    again = []
    for name, sql in queries.load_queries("sqlite").items():
        parameters = re.findall(r"(?<!:):([a-z_]+)", sql)
        for value in ("1", "2", "3"):
            connection.execute("BEGIN")
            planned.clear()
            with contextlib.suppress(apsw.ConstraintError):
                connection.execute(sql, dict.fromkeys(parameters, value)).fetchall()
            seen = list(planned)
            connection.execute("ROLLBACK")
        if seen and parameters:
            again.append(name)
    connection.close()
    assert again == []


@pytest.fixture
def on_postgres(postgres: Server) -> Iterator[PostgresLedger]:
    ledger = PostgresLedger(postgres.database())
    ledger.start()
    yield ledger
    ledger.close()


def test_postgres_scans_no_table_for_a_job_without_statistics(
    on_postgres: PostgresLedger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    execute(
        on_postgres,
        f"""
        INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at)
          SELECT 'j' || n, 'echo', 'poll', CASE n % 2 WHEN 0 THEN 'queued' ELSE 'succeeded' END,
                 'api', '2026-02-08T10:00:00.000000Z' FROM generate_series(1, {MANY}) n;
        INSERT INTO job_log (id, job_id, plugin, command, status, attempt, submitted_by,
                             created_at, completed_at)
          SELECT id || '-x', id, plugin, command, 'succeeded', 1, 'api', created_at, created_at
          FROM job_queue;
        INSERT INTO job_transitions (job_id, from_status, to_status, attempt, created_at)
          SELECT id, 'queued', 'running', 1, created_at FROM job_queue;
        INSERT INTO notices (topic, type, job_id, payload, created_at)
          SELECT 'jobs', 'job.started', id, '{{}}', created_at FROM job_queue;
        """,
    )
    new, id, now = NewJob("echo", "poll", SubmittedBy.CLI), entropy.uuid(), clock.now()

    def work(tx: PostgresTx) -> dict[str, int]:
        enqueue.enqueue_job(tx, new, TX_CONFIG, id=id, now=now)
        (claimed,) = claim(tx, POLICY, now)
        assert settle(tx, judge(claimed.job, OK, RULES, now, 0.5), TX_CONFIG, BASE) is not None
        assert len(notices.list_after(tx, BEGINNING, 10)) == 10
        notices.last_position(tx)
        notices.has_held_back(tx)
        rows = tx._connection.execute(
            "SELECT relname, seq_tup_read FROM pg_stat_xact_user_tables WHERE seq_tup_read >= %s",
            (MANY,),
        )
        return dict(rows.fetchall())

    assert on_postgres.write(work) == {}  # type: ignore[arg-type]


def test_claim_continues_with_the_next_plugin_if_another_node_was_first(
    on_postgres: PostgresLedger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    now = clock.now()
    for plugin in ("first", "second"):
        new, id = NewJob(plugin, "poll", SubmittedBy.CLI), entropy.uuid()
        on_postgres.write(
            lambda tx, new=new, id=id: enqueue.enqueue_job(  # type: ignore[misc]
                tx, new, TX_CONFIG, id=id, now=now
            )
        )

    def both(tx: PostgresTx) -> list[str]:
        (ours,) = claim(tx, POLICY, now)
        (theirs,) = on_postgres.write(lambda other: claim(other, POLICY, now))
        return [ours.job.plugin, theirs.job.plugin]

    assert on_postgres.write(both) == ["first", "second"]  # type: ignore[arg-type]
