"""What a claim costs while 100,000 jobs wait for one rate key: as one limit key, and as 13,000.

As in `blocked_keys`, ledgers with the same jobs of other keys are asked in turn: one without a
backlog, the others with one in front of these jobs. A claim is measured while the rate holds the
backlog, and at the moment in which it allows the next start. Each claim is rolled back.
"""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from bench.blocked_keys import OTHER_KEYS, PLUGIN, execute, on_postgres, on_sqlite, vacuum_queue
from bench.claim import _Undone
from bench.findings import Check, Findings, median, percentile, table
from ductile.clock import SystemClock, to_text
from ductile.core.flow.keys import SEPARATOR, FlowKey, compile_key
from ductile.core.flow.limits import Concurrency, PluginLimits
from ductile.core.flow.rates import Rate
from ductile.store.engines.api import Ledger, Tx
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.jobs.claim import ClaimPolicy, claim
from ductile.store.tx_config import TxConfig

ROWS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
INSERT INTO job_queue (id, plugin, command, payload, status, submitted_by, created_at, limit_key)
SELECT '{prefix}-' || i, 'sync', 'poll', '{{}}', 'queued', 'api', '{now}', {key} FROM n
"""
DAY = timedelta(days=1)
"""The rate allows one start per day."""
HELD, OPEN = "held", "opening"


def measure(*, quick: bool) -> Findings:
    jobs, keys = (10_000, 1_300) if quick else (100_000, 13_000)
    shapes = {
        "no backlog": (0, 1),
        f"{jobs:,} jobs of one key": (jobs, 1),
        f"{jobs:,} jobs of {keys:,} keys": (jobs, keys),
    }
    found, rows = Findings("rate_keys"), []
    for engine, opened in (("SQLite", on_sqlite), ("PostgreSQL", on_postgres)):
        now = SystemClock().now()
        moments = {HELD: now, OPEN: now + DAY + timedelta(minutes=1)}
        times: dict[tuple[str, str], list[float]] = {
            (name, when): [] for name in shapes for when in moments
        }
        with opened(len(shapes)) as ledgers:
            queues = dict(zip(shapes, ledgers, strict=True))
            firsts = {name: _prepare(ledger, *shapes[name], now) for name, ledger in queues.items()}
            for _ in range(100 if quick else 500):
                for name, ledger in queues.items():
                    for when, moment in moments.items():
                        times[name, when].append(_time_of_claim(ledger, moment))
        for (name, when), taken in times.items():
            p50, p99 = median(taken) * 1e6, percentile(taken, 0.99) * 1e6
            row = {"engine": engine, "queue": name, "rate": when, "p50 us": p50, "p99 us": p99}
            rows.append({**row, "first s": firsts[name]})
        plain, *others = shapes
        for name in others:
            for when in moments:
                ratio = median(times[name, when]) / median(times[plain, HELD])
                most = 1.5 if when == HELD else None
                what = f"{engine}: claim with {name}, {when}, of one with {plain}"
                found.checks.append(Check(what, ratio, at_most=most))
    print(table(rows))
    found.details = {"rows": rows, "quick": quick}
    return found


def _prepare(ledger: Ledger, jobs: int, keys: int, now: datetime) -> float:
    """Fill the queue, and claim until a job is found; returns the seconds of these claims."""
    at = to_text(now)
    if jobs:
        key = f"'key' || (i % {keys}) || '{SEPARATOR}shared'"
        execute(ledger, ROWS.format(count=jobs, prefix="rated", now=at, key=key))
    own = f"'k' || (i % {OTHER_KEYS}) || '{SEPARATOR}own' || (i % {OTHER_KEYS})"
    execute(ledger, ROWS.format(count=10 * OTHER_KEYS, prefix="own", now=at, key=own))
    execute(ledger, f"INSERT INTO rates VALUES ('{PLUGIN}', 'shared', '{to_text(now + DAY)}')")
    if isinstance(ledger, PostgresLedger):
        execute(ledger, "ALTER TABLE job_queue SET (autovacuum_enabled = false)")
    policy, began = _policy(), time.perf_counter()
    while not ledger.write(lambda tx: claim(tx, policy, now)):
        pass
    seconds = time.perf_counter() - began
    execute(ledger, "UPDATE job_queue SET status = 'queued', owner = NULL WHERE status = 'running'")
    execute(ledger, "DELETE FROM rates WHERE rate_key <> 'shared'")
    if isinstance(ledger, PostgresLedger):
        vacuum_queue(ledger.url)
    return seconds


def _policy() -> ClaimPolicy:
    concurrency, rate = compile_key("{payload.account}"), compile_key("{payload.host}")
    assert isinstance(concurrency, FlowKey)
    assert isinstance(rate, FlowKey)
    limits = PluginLimits(Concurrency(1, concurrency), Rate(1, DAY.total_seconds(), key=rate))
    tx_config = TxConfig(dedupe_ttl=60.0, limits={PLUGIN: limits})
    return ClaimPolicy(owner="bench", tx_config=tx_config)


def _time_of_claim(ledger: Ledger, now: datetime) -> float:
    """Seconds inside `claim`, in a transaction that does not commit."""
    policy = _policy()

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
