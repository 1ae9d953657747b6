"""What a claim costs while 100,000 jobs wait for one key that is full.

Two ledgers with the same jobs of other keys are asked in turn; one of them also has the blocked
backlog in front of these jobs. The backlog is set aside by the first claims, which is measured as
well. After that each claim is rolled back, so that every queue stays as it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.claim import _Undone
from bench.findings import Check, Findings, median, percentile, table
from bench.gateway import Place
from ductile.clock import SystemClock, to_text
from ductile.core.flow.keys import FlowKey, compile_key
from ductile.core.flow.limits import Concurrency, PluginLimits
from ductile.store.engines.api import Ledger, Tx
from ductile.store.engines.sqlite import SqliteLedger, connect
from ductile.store.jobs.claim import ClaimPolicy, claim
from ductile.store.tx_config import TxConfig

PLUGIN = "sync"
OTHER_KEYS = 100
ROWS = """
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :count)
INSERT INTO job_queue (id, plugin, command, payload, status, submitted_by, created_at, limit_key)
SELECT printf('%s-%012x', :prefix, i), 'sync', 'poll', '{}', :status, 'api', :now,
       CASE WHEN :keys = 0 THEN 'blocked' ELSE printf('key-%d', i % :keys) END
FROM n
"""


def measure(*, quick: bool) -> Findings:
    blocked = 10_000 if quick else 100_000
    names = ("no blocked jobs", f"{blocked:,} blocked jobs")
    times: dict[str, list[float]] = {name: [] for name in names}
    first_claims: list[float] = []
    """Of the last ledger, which has the backlog."""
    with _ledgers(dict(zip(names, (0, blocked), strict=True))) as ledgers:
        for ledger in ledgers.values():
            first_claims = _set_backlog_aside(ledger)
        for _ in range(100 if quick else 1000):
            for name, ledger in ledgers.items():
                times[name].append(_time_of_claim(ledger))
    rows = [
        {"queue": name, "p50 us": median(t) * 1e6, "p99 us": percentile(t, 0.99) * 1e6}
        for name, t in times.items()
    ]
    print(table(rows))
    print(f"set {blocked:,} jobs aside in {len(first_claims)} claims, {sum(first_claims):.2f} s")
    found = Findings("blocked_keys")
    ratio = median(times[names[1]]) / median(times[names[0]])
    found.checks = [Check(f"claim with {names[1]}, of one without", ratio, at_most=1.5)]
    found.details = {"rows": rows, "first claims seconds": sum(first_claims), "quick": quick}
    return found


@contextmanager
def _ledgers(blocked: dict[str, int]) -> Iterator[dict[str, SqliteLedger]]:
    ledgers: dict[str, SqliteLedger] = {}
    try:
        for name, count in blocked.items():
            place = Place()
            place.state_dir.mkdir(mode=0o700)
            ledger = SqliteLedger(place.ledger)
            ledger.start()
            ledgers[name] = ledger
            connection = connect(place.ledger)
            now = to_text(SystemClock().now())
            for status, number, keys, group in (
                ("running", 1, 0, 0),
                ("queued", count, 0, 1),
                ("queued", 10 * OTHER_KEYS, OTHER_KEYS, 2),
            ):
                prefix = f"0199{group}000-0000-7000-8000"
                values = {"prefix": prefix, "status": status, "now": now}
                if number:
                    connection.execute(ROWS, {**values, "count": number, "keys": keys})
            connection.close()
        yield ledgers
    finally:
        for ledger in ledgers.values():
            ledger.close()
            ledger.path.unlink()


def _policy() -> ClaimPolicy:
    key = compile_key("{payload.account}")
    assert isinstance(key, FlowKey)
    limits = {PLUGIN: PluginLimits(Concurrency(1, key))}
    return ClaimPolicy(owner="bench", tx_config=TxConfig(dedupe_ttl=60.0, limits=limits))


def _set_backlog_aside(ledger: SqliteLedger) -> list[float]:
    """Claim until a job is found, and put it back; returns the seconds of each claim."""
    seconds, policy = [], _policy()
    found = False
    while not found:
        now, began = SystemClock().now(), time.perf_counter()
        found = bool(ledger.write(lambda tx, now=now: claim(tx, policy, now)))
        seconds.append(time.perf_counter() - began)
    connection = connect(ledger.path)
    connection.execute(
        "UPDATE job_queue SET status = 'queued' WHERE status = 'running' AND limit_key <> 'blocked'"
    )
    connection.close()
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
