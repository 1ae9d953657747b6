"""WebhookOutbox that are durably in, a second, against the same server keeping nothing.

Two servers of the same code stand side by side and are posted to in turn: a ratio of
neighbours is worth more than a figure of a noisy machine. Nobody runs the jobs meanwhile.
"""

from __future__ import annotations

import hashlib
import hmac
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from bench.findings import Check, Findings, median, table
from bench.gateway import Place, environment
from bench.processes import cpu
from bench.programs import PAYLOAD, programs

CONNECTIONS = (1, 16, 64)
MOST = max(CONNECTIONS)
SECRET = "a-webhook-secret-0123456789"
MORE = f"""\
webhooks:
  listen: 127.0.0.1:0
  endpoints: [{{path: /hook/bench, plugin: compiled, secret: {SECRET}}}]
"""
BODY = orjson.dumps(PAYLOAD)
HEADER = (
    f"X-Hub-Signature-256: sha256={hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()}"
)
STORED, UNSTORED = "stored", "unstored"


@dataclass(frozen=True)
class Run:
    rate: float
    p50_us: float
    p99_us: float
    cpu_us: float
    """Of the server, a post: the figure that a busy machine changes least."""


@dataclass(frozen=True)
class Server:
    port: int
    pid: int


def measure(*, quick: bool) -> Findings:
    rounds, posts = (2, 1500) if quick else (7, 6000)
    runs: dict[tuple[str, int], list[Run]] = defaultdict(list)
    with serving() as stored, serving(UNSTORED) as unstored:
        servers = {STORED: stored, UNSTORED: unstored}
        for server in servers.values():
            deliver(server, 500, 16)
        for _ in range(rounds):
            for connections in CONNECTIONS:
                count = posts if connections > 1 else posts // 4
                for how, server in servers.items():
                    runs[how, connections].append(deliver(server, count, connections))
    rows = [row(connections, runs) for connections in CONNECTIONS]
    print(table(rows))
    found = Findings("webhooks")
    found.checks = [
        Check(f"{MOST} connections, of the same unstored", rows[-1]["of it"], at_least=0.5),
        *(Check(f"{r['connections']} connections", r["stored/s"], "/s") for r in rows),
        Check(f"{MOST} connections, p99", rows[-1]["p99 ms"], "ms"),
    ]
    found.details = {"rows": rows, "quick": quick}
    return found


@contextmanager
def serving(*how: str) -> Iterator[Server]:
    """A server that runs until the block ends."""
    place = Place(more=MORE)
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.hooks", str(place.directory), *how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        yield Server(int(process.stdout.readline()), process.pid)
    finally:
        process.stdin.close()
        process.wait(30)
        process.stdout.close()


def deliver(server: Server, posts: int, connections: int) -> Run:
    before = cpu(server.pid)
    figures = programs().deliver(server.port, "/hook/bench", BODY, HEADER, posts, connections)
    done, seconds, _, p50, p99 = figures
    return Run(done / seconds, p50, p99, (cpu(server.pid) - before) / done * 1e6)


def row(connections: int, runs: dict[tuple[str, int], list[Run]]) -> dict[str, Any]:
    stored, unstored = runs[STORED, connections], runs[UNSTORED, connections]
    ratios = [a.rate / b.rate for a, b in zip(stored, unstored, strict=True)]
    return {
        "connections": connections,
        "stored/s": median([run.rate for run in stored]),
        "unstored/s": median([run.rate for run in unstored]),
        "of it": median(ratios),
        "p50 ms": median([run.p50_us for run in stored]) / 1000,
        "p99 ms": median([run.p99_us for run in stored]) / 1000,
        "stored us": median([run.cpu_us for run in stored]),
        "unstored us": median([run.cpu_us for run in unstored]),
    }
