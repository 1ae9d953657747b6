"""Whether the ledger stays flat: sixty days of jobs on a virtual clock, five of them kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.findings import Check, Findings, percentile, table
from ductile.clock import SystemEntropy
from ductile.core.jobs.judge import Rules, judge
from ductile.core.jobs.retry import RetryPolicy
from ductile.core.values.redact import Redactor
from ductile.model import Ending, NewJob, Outcome, SubmittedBy
from ductile.store import retention
from ductile.store.engines.api import Tx
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.jobs import enqueue
from ductile.store.jobs.claim import ClaimPolicy, claim
from ductile.store.jobs.settle import settle
from ductile.store.tx_config import TxConfig

DAYS, KEPT = 60, 5
DAY = 86_400.0
IN_ONE = 100
OUTCOME = Outcome(Ending.EXITED, exit_code=0, stdout=b'{"status": "ok", "result": "done"}')
RULES = Rules(RetryPolicy(), Redactor())
CHART = TxConfig(dedupe_ttl=DAY)
RETENTION = retention.Retention(
    jobs=KEPT * DAY,
    logs=KEPT * DAY,
    transitions=KEPT * DAY,
    breaker_transitions=KEPT * DAY,
    facts=None,
    dedupe_ttl=DAY,
)


def measure(*, quick: bool) -> Findings:
    a_day = 500 if quick else 20_000
    sizes: list[float] = []
    held: list[float] = []
    with TemporaryDirectory(prefix="ductile-bench-") as directory:
        ledger = SqliteLedger(Path(directory) / "state.db")
        ledger.start()
        start = datetime(2026, 1, 1, tzinfo=UTC)
        for day in range(DAYS):
            now = start + timedelta(days=day)
            for _ in range(a_day // IN_ONE):
                ledger.write(_work(now))
            _prune(ledger, now, held)
            sizes.append(ledger.path.stat().st_size / 1e6)
        wal = ledger.path.with_name("state.db-wal").stat().st_size / 1e6
        ledger.close()
    full, last = max(sizes[KEPT : KEPT + 5]), sizes[-1]
    rows = [{"day": day + 1, "MB": sizes[day]} for day in (0, 4, 9, 19, 39, 59)]
    print(table(rows))
    found = Findings("retention")
    found.checks = [
        Check("size on day 60, of that once retention is reached", last / full, at_most=1.1),
        Check("a batch holds the writer, p99", percentile(held, 0.99) * 1000, "ms", at_most=10.0),
        Check("the WAL at the end", wal, "MB", at_most=32.0),
    ]
    found.details = {"rows": rows, "jobs_a_day": a_day}
    return found


def _work(now: datetime) -> Callable[[Tx], None]:
    entropy = SystemEntropy()
    ids = [(entropy.uuid(), entropy.uuid()) for _ in range(IN_ONE)]

    def work(tx: Tx) -> None:
        for id, base_id in ids:
            new = NewJob("echo", "poll", SubmittedBy.API)
            enqueue.enqueue_job(tx, new, CHART, id=id, now=now)
            (claimed,) = claim(tx, ClaimPolicy(owner="bench"), now)
            settle(tx, judge(claimed.job, OUTCOME, RULES, now, 0.5), CHART, base_id)

    return work


def _prune(ledger: SqliteLedger, now: datetime, held: list[float]) -> None:
    """As the gateway does, batch by batch, timing how long each has the writer."""
    while True:
        fullest = 0
        for batch in retention.prune_batches(RETENTION, now):
            fullest = max(fullest, ledger.write(_timed(batch, held)))
        freed = ledger.vacuum()
        if fullest < retention.BATCH and not freed:
            return


def _timed(batch: Callable[[Tx], int], held: list[float]) -> Callable[[Tx], int]:
    def work(tx: Tx) -> int:
        began = time.perf_counter()
        count = batch(tx)
        held.append(time.perf_counter() - began)
        return count

    return work
