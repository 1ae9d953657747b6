"""Receipts and signatures of relayed events, pruning, and query plans, on both engines."""

from __future__ import annotations

import threading
from datetime import datetime

import apsw
import psycopg

from ductile.clock import to_text
from ductile.store import retention as prune
from ductile.store.engines import queries
from ductile.store.engines.api import Ledger
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.outbox import relays
from ductile.store.outbox.relays import Receipt
from tests.store.conftest import execute
from tests.store.outbox.relay_harness import NOW, claim, enqueue, later, row, settle
from tests.waiting import WAIT_LIMIT


class TestReceipts:
    def receive(
        self, ledger: Ledger, event_id: str | None, *, peer: str = "home"
    ) -> Receipt | None:
        return ledger.write(
            lambda tx: relays.record_receipt(
                tx, peer=peer, event_id=event_id, receiver_event_id="ours", now=NOW
            )
        )

    def test_event_is_new_once(self, ledger: Ledger) -> None:
        assert self.receive(ledger, "e-1") is None
        ledger.write(
            lambda tx: tx.run("fill_relay_receipt", peer="home", event_id="e-1", job_id="j-9")
        )
        assert self.receive(ledger, "e-1") == Receipt("ours", "j-9", duplicate=True)

    def test_event_ids_are_separate_per_peer(self, ledger: Ledger) -> None:
        assert self.receive(ledger, "e-1") is None
        assert self.receive(ledger, "e-1", peer="attic") is None

    def test_event_without_an_id_is_always_new(self, ledger: Ledger) -> None:
        assert self.receive(ledger, None) is None
        assert self.receive(ledger, None) is None

    def test_only_one_of_two_concurrent_events_is_new(self, ledger: Ledger) -> None:
        answers: list[Receipt | None] = []
        threads = [
            threading.Thread(target=lambda: answers.append(self.receive(ledger, "e-1")))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_LIMIT)
        assert sum(answer is None for answer in answers) == 1
        assert len(answers) == 4

    def test_signature_is_accepted_once(self, ledger: Ledger) -> None:
        def fresh(peer: str) -> int:
            given = {"peer": peer, "signature": "s", "now": to_text(NOW)}
            return ledger.write(lambda tx: tx.run("insert_relay_signature", **given))

        assert [fresh("home"), fresh("home"), fresh("attic")] == [1, 0, 1]


class TestPruning:
    def prune(self, ledger: Ledger, now: datetime, *, jobs: float = 30 * prune.DAY) -> None:
        retention = prune.Retention(jobs, jobs, jobs, jobs, None, prune.DAY)
        for batch in prune.prune_batches(retention, now):
            ledger.write(batch)

    def count(self, ledger: Ledger, table: str) -> int:
        if isinstance(ledger, SqliteLedger):
            connection = apsw.Connection(str(ledger.path), flags=apsw.SQLITE_OPEN_READONLY)
            try:
                return int(connection.execute(f"SELECT count(*) FROM {table}").get)
            finally:
                connection.close()
        assert isinstance(ledger, PostgresLedger)
        with psycopg.connect(ledger.url) as server:
            found = server.execute(f"SELECT count(*) FROM {table}").fetchone()
        assert found is not None
        return int(found[0])

    def test_only_old_relays_that_are_delivered_or_dead_are_pruned(self, ledger: Ledger) -> None:
        for status in ("delivered", "pending", "failed", "dead"):
            enqueue(ledger, status)
            execute(
                ledger,
                f"UPDATE relay_deliveries SET status = '{status}',"
                f" last_attempted_at = '{to_text(NOW)}' WHERE id = '{status}'",
            )
        self.prune(ledger, later(30 * prune.DAY))
        assert self.count(ledger, "relay_deliveries") == 4
        self.prune(ledger, later(30 * prune.DAY + 1))
        assert self.count(ledger, "relay_deliveries") == 2
        assert row(ledger, "failed")["status"] == "failed"

    def test_old_relay_delivered_today_is_kept(self, ledger: Ledger) -> None:
        enqueue(ledger)
        today = later(40 * prune.DAY)
        settle(ledger, claim(ledger, now=today)[0], now=today)
        self.prune(ledger, today)
        assert row(ledger, "r-1")["status"] == "delivered"

    def test_receipts_are_kept_for_at_least_a_week(self, ledger: Ledger) -> None:
        TestReceipts().receive(ledger, "e-1")
        self.prune(ledger, later(prune.WEEK), jobs=60)
        assert self.count(ledger, "relay_receipts") == 1
        self.prune(ledger, later(prune.WEEK + 1), jobs=60)
        assert self.count(ledger, "relay_receipts") == 0

    def test_signatures_are_kept_for_the_replay_period(self, ledger: Ledger) -> None:
        given = {"peer": "home", "signature": "s", "now": to_text(NOW)}
        ledger.write(lambda tx: tx.run("insert_relay_signature", **given))
        self.prune(ledger, later(prune.DAY))
        assert self.count(ledger, "relay_signatures") == 1
        self.prune(ledger, later(prune.DAY + 1))
        assert self.count(ledger, "relay_signatures") == 0


MANY = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)
INSERT INTO relay_deliveries (id, instance, event_id, event_type, body, status, next_retry_at,
                              last_attempted_at, created_at)
SELECT 'r' || CAST(i AS TEXT), CASE i % 3 WHEN 0 THEN 'lab' ELSE 'attic' END, 'e', 'made', '{}',
       CASE WHEN i % 100 = 0 THEN 'dead' WHEN i % 8 = 0 THEN 'pending' WHEN i % 8 = 1 THEN 'failed'
            ELSE 'delivered' END,
       CASE WHEN i % 8 < 2 THEN '2026-02-08T09:00:' || CAST(10 + i % 50 AS TEXT) || '.000000Z' END,
       '2026-02-08T09:00:' || CAST(10 + i % 50 AS TEXT) || '.000000Z',
       '2026-02-08T09:00:00.000000Z' FROM n
"""


def plan(ledger: Ledger, query: str, **values: object) -> str:
    sql = queries.load_queries(ledger.engine)[query]
    if isinstance(ledger, SqliteLedger):
        connection = apsw.Connection(str(ledger.path), flags=apsw.SQLITE_OPEN_READONLY)
        rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()
        connection.close()
        return "\n".join(str(row[3]) for row in rows)
    assert isinstance(ledger, PostgresLedger)
    with psycopg.connect(ledger.url) as server:
        return "\n".join(row[0] for row in server.execute(f"EXPLAIN {sql}", values))


POLLING = [
    ("due_relays", {"instance": "lab", "now": to_text(NOW), "limit": 4}, "due"),
    ("next_relay", {"instance": "lab"}, "due"),
    ("foreign_relays", {"instance": "lab", "limit": 500}, "due"),
    ("claimed_relays", {}, "owner"),
    ("dead_relays", {"limit": 4}, "status"),
    ("prune_relays", {"before": "2026-02-08T09:00:11.000000Z", "limit": 4}, "status"),
]


def test_polling_queries_scan_no_table(ledger: Ledger) -> None:
    """SQLite also without statistics; a PostgreSQL server collects them by itself."""
    execute(ledger, MANY)
    for statement in ("ANALYZE",) if ledger.engine == "postgres" else ("SELECT 1", "ANALYZE"):
        execute(ledger, statement)
        for query, values, index in POLLING:
            shown = plan(ledger, query, **values)
            assert f"relay_deliveries_{index}" in shown, shown
            assert "Seq Scan" not in shown, shown
            assert "autoindex" not in shown.partition("LIST SUBQUERY")[2], shown
            assert "SCAN relay_deliveries\n" not in f"{shown}\n", shown
