"""Jobs a second, end to end and from a full queue, against a C loop that only spawns.

Every figure of the gateway is measured between two of the C loop and compared with their mean:
machines are noisy, and a ratio of neighbours is not. Medians are over the rounds.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from bench import backlog
from bench.findings import Check, Findings, median, table
from bench.gateway import Place, running
from bench.processes import Usage, usage
from bench.programs import programs
from ductile.clock import from_text

CONNECTIONS = 16
WORKERS = (1, 2, 8)
MOST = max(WORKERS)
END_TO_END, DRAIN = "end to end", "drain"
TARGETS = {
    ("compiled", END_TO_END): 0.58,
    ("compiled", DRAIN): 0.7,
    ("shell", END_TO_END): 0.5,
    ("shell", DRAIN): 0.6,
}


@dataclass(frozen=True)
class Cell:
    plugin: str
    mode: str
    workers: int


@dataclass(frozen=True)
class Run:
    """One run of one cell."""

    rate: float
    used: Usage
    """CPU seconds a job, taken from what it ran while it was looked at."""
    load: float = 0.0
    """CPU seconds a job that the load generator took for itself."""
    post_p50_us: float = 0.0
    post_p99_us: float = 0.0


def measure(*, quick: bool) -> Findings:
    rounds, seconds, loop_seconds = (1, 1.0, 0.5) if quick else (5, 3.0, 1.0)
    found = Findings("throughput")
    loops: dict[str, list[float]] = defaultdict(list)
    runs: dict[Cell, list[Run]] = defaultdict(list)
    ratios: dict[Cell, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for plugin in ("compiled", "shell"):
            before = programs().spawn_rate(plugin, loop_seconds)
            loops[plugin].append(before)
            for cell in cells(plugin):
                run = run_cell(cell, jobs=max(100, int(before * seconds / 2)))
                after = programs().spawn_rate(plugin, loop_seconds)
                loops[plugin].append(after)
                runs[cell].append(run)
                ratios[cell].append(run.rate / ((before + after) / 2))
                before = after
    rows = [row(cell, runs[cell], ratios[cell]) for cell in runs]
    for plugin, rates in loops.items():
        print(f"C loop, two parents, {plugin}: {median(rates):,.0f} runs/s")
    print(table(rows))
    for cell, values in ratios.items():
        if cell.workers == MOST:
            wanted = TARGETS[cell.plugin, cell.mode]
            what = f"{cell.plugin}, {cell.mode}, {cell.workers} workers, of the C loop"
            found.checks.append(Check(what, median(values), at_least=wanted))
    found.details = {
        "c_loop_per_s": {plugin: median(rates) for plugin, rates in loops.items()},
        "c_loop_runs": dict(loops),
        "rows": rows,
        "ratios": {f"{c.plugin}/{c.mode}/{c.workers}": values for c, values in ratios.items()},
    }
    return found


def cells(plugin: str) -> list[Cell]:
    return [Cell(plugin, END_TO_END, n) for n in WORKERS] + [Cell(plugin, DRAIN, MOST)]


def run_cell(cell: Cell, jobs: int, url: str | None = None) -> Run:
    place = Place(workers=cell.workers, url=url)
    run = end_to_end if cell.mode == END_TO_END else drain
    return run(place, cell.plugin, jobs)


def end_to_end(place: Place, plugin: str, jobs: int) -> Run:
    """From the first POST until the last job has ended."""
    with running(place) as gateway:
        family = gateway.family()
        ledger = backlog.reader(place)
        before, began = usage(family), time.time()
        load = programs().load(place.socket, plugin, jobs, CONNECTIONS)
        output, _ = load.communicate()
        if load.returncode:
            raise RuntimeError("the load generator failed")
        ended = backlog.until_done(ledger, jobs)
        used = (usage(family) - before) / jobs
        ledger.close()
    _, _, cpu, p50, p99 = map(float, output.split())
    return Run(jobs / (ended - began), used, cpu / jobs, p50, p99)


def drain(place: Place, plugin: str, jobs: int) -> Run:
    """From the first start of a job until the last has ended; the queue was full before."""
    backlog.fill(place, plugin, jobs)
    with running(place) as gateway:
        ledger = backlog.reader(place)
        family = gateway.family()
        before, done = usage(family), backlog.succeeded(ledger)
        ended = backlog.until_done(ledger, jobs)
        used = (usage(family) - before) / max(1, jobs - done)
        began = from_text(ledger.rows("SELECT min(started_at) FROM job_queue")[0][0]).timestamp()
        ledger.close()
    return Run(jobs / (ended - began), used)


def row(cell: Cell, runs: list[Run], ratios: list[float]) -> dict[str, Any]:
    """Medians; CPU in microseconds a job, by who used it."""

    def us(values: list[float]) -> float:
        return median(values) * 1e6

    return {
        "plugin": cell.plugin,
        "mode": cell.mode,
        "workers": cell.workers,
        "jobs/s": median([run.rate for run in runs]),
        "of the C loop": median(ratios),
        "gateway us": us([run.used.gateway for run in runs]),
        "runner us": us([run.used.runner for run in runs]),
        "plugin us": us([run.used.plugins for run in runs]),
        "load us": us([run.load for run in runs]),
    }
