"""What a claim costs, however many rows wait or have ended.

Four ledgers stand side by side and are asked in turn. Each claim is rolled back, so that
every queue stays as it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import orjson

from bench.findings import Check, Findings, median, percentile, table
from bench.gateway import Place
from bench.programs import PAYLOAD
from ductile.clock import SystemClock, to_text
from ductile.store.engines.api import Ledger, Tx
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.engines.sqlite_connection import connect
from ductile.store.jobs.claim import ClaimPolicy, claim

PLUGINS = 8
ROWS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
INSERT INTO job_queue (id, plugin, command, payload, status, submitted_by, created_at,
                       started_at, completed_at)
SELECT printf('%s-%012x', :prefix, i), printf('plugin-%d', i % :plugins), 'poll', :payload,
       :status, 'api', :now, CASE WHEN :status = 'queued' THEN NULL ELSE :now END,
       CASE WHEN :status = 'queued' THEN NULL ELSE :now END
FROM n
"""


def measure(*, quick: bool) -> Findings:
    million = 100_000 if quick else 1_000_000
    shapes = {
        "1 thousand queued": (1_000, 0),
        f"{million // 10:,} queued": (million // 10, 0),
        f"{million:,} queued": (million, 0),
        f"{million:,} queued, {million:,} ended": (million, million),
    }
    times: dict[str, list[float]] = {name: [] for name in shapes}
    with contents(shapes) as ledgers:
        for _ in range(100 if quick else 1000):
            for name, ledger in ledgers.items():
                times[name].append(time_of_claim(ledger))
    rows = [
        {
            "rows": name,
            "p50 us": median(values) * 1e6,
            "p99 us": percentile(values, 0.99) * 1e6,
        }
        for name, values in times.items()
    ]
    print(table(rows))
    base, *_, large, keyed = [median(values) for values in times.values()]
    found = Findings("claim")
    names = list(shapes)
    found.checks = [
        Check(f"{names[2]}, of 1 thousand", large / base, at_most=1.5),
        Check(f"{names[3]}, of 1 thousand", keyed / base, at_most=1.5),
    ]
    found.details = {"rows": rows, "quick": quick}
    return found


@contextmanager
def contents(shapes: dict[str, tuple[int, int]]) -> Iterator[dict[str, SqliteLedger]]:
    ledgers: dict[str, SqliteLedger] = {}
    try:
        for name, (queued, ended) in shapes.items():
            place = Place()
            place.state_dir.mkdir(mode=0o700)
            ledger = SqliteLedger(place.ledger)
            ledger.start()
            ledgers[name] = ledger
            connection = connect(place.ledger)
            now = SystemClock().now()
            for status, count in (("succeeded", ended), ("queued", queued)):
                if count:
                    connection.execute(ROWS, bindings(status, count, now))
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.close()
        yield ledgers
    finally:
        for ledger in ledgers.values():
            ledger.close()
            # Half a gigabyte each: not kept until the end of the run.
            ledger.path.unlink()


def bindings(status: str, count: int, now: datetime) -> dict[str, str | int]:
    return {
        "status": status,
        "count": count,
        "plugins": PLUGINS,
        # Shaped like the ids of the product, and sorting as they do: in order of insertion.
        "prefix": f"0199{'0' if status == 'succeeded' else '1'}000-0000-7000-8000",
        "payload": orjson.dumps(PAYLOAD).decode(),
        "now": to_text(now),
    }


def time_of_claim(ledger: Ledger) -> float:
    """Seconds inside `claim`, in a transaction that does not commit."""
    policy, now = ClaimPolicy(owner="bench"), SystemClock().now()

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


class _Undone(Exception):
    """Takes a measurement out of a transaction, and the transaction back."""

    def __init__(self, took: float) -> None:
        self.took = took
