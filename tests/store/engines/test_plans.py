"""Query plans: reused on SQLite, and without table scans for a job on PostgreSQL."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from ductile.core.jobs.judge import judge
from ductile.model import NewJob, SubmittedBy
from ductile.store import notices
from ductile.store.engines import queries
from ductile.store.engines.api import BEGINNING, Row, Tx
from ductile.store.engines.postgres import PostgresLedger, PostgresTx
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.engines.sqlite_connection import connect
from ductile.store.flow import set_aside
from ductile.store.jobs import enqueue
from ductile.store.jobs.claim import ClaimPolicy, claim
from ductile.store.jobs.settle import settle
from ductile.store.tx_config import TxConfig
from tests.conftest import CountingEntropy, FakeClock
from tests.postgres import Server
from tests.store.conftest import execute
from tests.store.flow.harness import PLUGIN, limited
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


def _explain(connection: apsw.Connection, name: str) -> list[str]:
    sql = queries.load_queries("sqlite")[name]
    parameters = dict.fromkeys(re.findall(r"(?<!:):([a-z_]+)", sql), "1")
    rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()
    return [row[3] for row in rows]


OF_THE_QUEUE = (
    "orphans",
    "queued_plugins",
    "queued_groups",
    "snapshots_of_queued",
    "queued_of_plugin",
    "queue_by_plugin",
)


BY_LIMIT_KEY = ("later_closed_keys", "move_closed_key", "later_rates", "move_rate")


@pytest.mark.parametrize("name", BY_LIMIT_KEY)
def test_sqlite_finds_rows_of_limit_keys_by_their_index(tmp_path: Path, name: str) -> None:
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    ledger.close()
    connection = connect(tmp_path / "state.db")
    steps = _explain(connection, name)
    connection.close()
    assert [step.split()[0] for step in steps] == ["SEARCH"]


@pytest.mark.parametrize("name", OF_THE_QUEUE)
def test_sqlite_reads_no_ended_job_to_list_the_queue(tmp_path: Path, name: str) -> None:
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    ledger.close()
    connection = connect(tmp_path / "state.db")
    used = [step for step in _explain(connection, name) if "job_queue" in step]
    connection.close()
    assert used
    assert all("job_queue_pending" in step or "job_queue_running" in step for step in used)


@pytest.mark.parametrize("name", ["last_accepted", "prune_receipts", "prune_webhook_signatures"])
def test_sqlite_finds_the_newest_request_of_an_endpoint_by_its_index(
    tmp_path: Path, name: str
) -> None:
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    ledger.close()
    connection = connect(tmp_path / "state.db")
    used = [step for step in _explain(connection, name) if "webhook_" in step]
    connection.close()
    assert used
    assert all(step.startswith("SEARCH") for step in used)
    assert any("_newest" in step for step in used)


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


READ_JOBS = """
SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables
WHERE relname = 'job_queue'
"""


def test_postgres_sets_jobs_of_one_rate_aside_without_reading_all_of_them(
    on_postgres: PostgresLedger,
) -> None:
    given = 100
    execute(
        on_postgres,
        f"""
        INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at, limit_key,
                               set_aside)
          SELECT 'j' || n, '{PLUGIN}', 'poll', 'queued', 'api', '2026-02-08T10:00:00.000000Z',
                 'k' || chr(31) || 'rate', CASE WHEN n > {given} THEN 1 ELSE 0 END
          FROM generate_series(1, {MANY}) n;
        """,
    )

    def work(tx: PostgresTx) -> tuple[int]:
        set_aside.set_jobs_aside(tx, [f"j{n}" for n in range(1, given + 1)])
        row = tx._connection.execute(READ_JOBS).fetchone()
        assert row is not None
        return row

    [read] = on_postgres.write(work)  # type: ignore[arg-type]
    assert given <= read <= 10 * given
    assert on_postgres.read(set_aside.has_lost) is False


def test_dead_tuples_are_read_once_per_claim_until_a_vacuum(
    on_postgres: PostgresLedger, clock: FakeClock
) -> None:
    execute(
        on_postgres,
        f"""
        ALTER TABLE job_queue SET (autovacuum_enabled = false);
        INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at)
          SELECT 'j' || n, '{PLUGIN}', 'poll', 'queued', 'api', '2026-02-08T10:00:00.000000Z'
          FROM generate_series(1, {2 * MANY}) n;
        UPDATE job_queue SET set_aside = 1 WHERE id <> 'j{2 * MANY}';
        """,
    )
    policy = ClaimPolicy(owner="b", tx_config=TxConfig(60.0, limits={PLUGIN: limited()}))
    connection = on_postgres._pool.getconn()
    pages: dict[str, int] = {}

    class CountingTx(PostgresTx):
        def all(self, query: str, /, **values: Any) -> list[Row]:
            sql = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {self._sql(query)}"
            row = connection.execute(sql, values).fetchone()  # type: ignore[arg-type]
            assert row is not None
            plan = row[0][0]["Plan"]
            pages[query] = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            return super().all(query, **values)

    # The first claim marks the entries as dead.
    for _ in range(2):
        assert [one.job.id for one in claim(CountingTx(connection), policy, clock.now())] == [
            f"j{2 * MANY}"
        ]
        connection.rollback()
    size = connection.execute("SELECT pg_relation_size('job_queue_ready') / 8192").fetchone()
    on_postgres._pool.putconn(connection)
    assert size is not None
    assert size[0] > 25
    assert size[0] < pages.pop("ready_heads") < 2 * size[0]
    assert max(pages.values()) < size[0]


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


def test_postgres_plans_the_first_query_of_a_claim_once_per_connection(
    on_postgres: PostgresLedger,
) -> None:
    for _ in range(4):
        on_postgres.write(lambda tx: tx.all("ready_heads"))
        # Neither of them makes the driver forget what is prepared, and both use that connection.
        on_postgres.read(lambda tx: tx.one("has_ready"))
        on_postgres.boot_is_dead("unknown")
    with on_postgres._pool.connection() as connection:
        (plans,) = connection.execute(
            "SELECT custom_plans, generic_plans FROM pg_prepared_statements "
            "WHERE statement LIKE '%ready.seq%'"
        ).fetchall()
    assert plans == (0, 3)


def test_column_that_a_newer_node_adds_breaks_no_prepared_statement(
    on_postgres: PostgresLedger,
) -> None:
    def read(tx: Tx) -> list[dict[str, object]]:
        return [*tx.dicts("scope", id="s"), *tx.dicts("entries")]

    for _ in range(3):
        assert on_postgres.read(read) == []
    for table in ("scopes", "schedule_entries"):
        execute(on_postgres, f"ALTER TABLE {table} ADD COLUMN added TEXT")
    assert on_postgres.read(read) == []


def test_postgres_does_not_prepare_a_list_whose_filters_are_optional(
    on_postgres: PostgresLedger,
) -> None:
    for _ in range(8):
        on_postgres.read(lambda tx: tx.all("breakers", plugin=None))
    with on_postgres._pool.connection() as connection:
        prepared = connection.execute("SELECT statement FROM pg_prepared_statements").fetchall()
    assert not any("circuit_breakers" in statement for (statement,) in prepared)
