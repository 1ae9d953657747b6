"""Several nodes and a PostgreSQL server with fixed shares of the CPU, as if each had its machine.

A control group limits each node, with its slots and plugins, to `NODE` cores, and the server to
`SERVER`. The program that fills the queue is in no group. Caches are shared by all of them, which
real machines do not do. Needs the right to create control groups (version 1 or 2).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench import backlog, processes
from bench.engines import Server, started
from bench.findings import Check, Findings, median, table
from bench.gateway import Place
from ductile.clock import from_text

NODE, SERVER = 0.2, 0.6
"""Cores. Together they must leave some of the machine for the rest."""
NODES = (1, 2, 4)
WORKERS = 4
PERIOD_US = 20_000
"""The share is granted anew this often."""
UNIFIED, BY_CPU = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/cpu")


def measure(*, quick: bool) -> Findings:
    rounds, jobs = (1, 150) if quick else (3, 300)
    found = Findings("shares")
    if not can_limit():
        print("not measured: control groups for the CPU cannot be created here")
        return found
    server = Server()
    rates: dict[int, list[float]] = {nodes: [] for nodes in NODES}
    try:
        with limited("server", SERVER, server.pids()):
            for _ in range(rounds):
                for nodes, results in rates.items():
                    results.append(run(server, nodes, jobs * nodes))
    finally:
        server.stop()
    medians = {nodes: median(results) for nodes, results in rates.items()}
    rows: list[dict[str, Any]] = [
        {"nodes": nodes, "jobs/s": rate, "of one node": rate / medians[1]}
        for nodes, rate in medians.items()
    ]
    print(table(rows))
    found.details = {"rows": rows, "rates": rates, "cores": {"node": NODE, "server": SERVER}}
    found.checks = [
        Check(f"rate of {nodes} nodes, of one", medians[nodes] / medians[1], at_least=0.75 * nodes)
        for nodes in NODES[1:]
    ]
    return found


def run(server: Server, nodes: int, jobs: int) -> float:
    """Jobs per second, from the first start to the last end."""
    url = server.database()
    places = [Place(workers=WORKERS, url=url) for _ in range(nodes)]
    with started(places) as gateways, ExitStack() as stack:
        for number, gateway in enumerate(gateways):
            pids = [gateway.pid, *processes.descendants(gateway.pid)]
            stack.enter_context(limited(f"node-{number}", NODE, pids))
        backlog.fill(places[0], "compiled", jobs)
        ledger = backlog.reader(places[0])
        backlog.until_done(ledger, jobs)
        [(first, last)] = ledger.rows("SELECT min(started_at), max(completed_at) FROM job_queue")
        ledger.close()
    return float(jobs / (from_text(last) - from_text(first)).total_seconds())


def can_limit() -> bool:
    try:
        with limited("trial", NODE, []):
            return True
    except OSError:
        return False


@contextmanager
def limited(name: str, cores: float, pids: Sequence[int]) -> Iterator[None]:
    """Keep these processes, and their later children, within this share while the block runs."""
    is_by_cpu = (BY_CPU / "cgroup.procs").exists()
    root = BY_CPU if is_by_cpu else UNIFIED
    group, quota = root / f"ductile-bench-{name}", round(cores * PERIOD_US)
    group.mkdir(exist_ok=True)
    try:
        if is_by_cpu:
            # Other programs must not take what belongs to a node.
            (group / "cpu.shares").write_text("262144")
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (group / "cpu.weight").write_text("10000")
            (group / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        move(pids, group)
        yield
    finally:
        move([int(pid) for pid in (group / "cgroup.procs").read_text().split()], root)
        group.rmdir()


def move(pids: Sequence[int], group: Path) -> None:
    for pid in pids:
        try:
            (group / "cgroup.procs").write_text(str(pid))
        except ProcessLookupError:
            # It has ended meanwhile.
            continue
