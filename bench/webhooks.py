"""Durable webhook posts per second, relative to the same server that stores nothing.

The servers run at the same time and are posted to in turns: a ratio within one run is worth more
than a rate of a noisy machine. No worker runs the jobs meanwhile. With an earlier revision to
compare with, its servers take turns as well.
"""

from __future__ import annotations

import hashlib
import hmac
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import orjson

from bench import revision
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
  endpoints: [{{path: /hook/bench, plugin: compiled, provider: github, secret: {SECRET}}}]
"""
BODY = orjson.dumps(PAYLOAD)
SIGNATURE = (
    f"X-Hub-Signature-256: sha256={hmac.new(SECRET.encode(), BODY, hashlib.sha256).hexdigest()}"
)
STORED, UNSTORED = "stored", "unstored"
EARLIER = "earlier, "
_runs = count(1)


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
    earlier = revision.chosen()
    with ExitStack() as stack:
        servers = {
            STORED: stack.enter_context(serving()),
            UNSTORED: stack.enter_context(serving(UNSTORED)),
        }
        if earlier is not None:
            tree = revision.tree(earlier)
            servers[EARLIER + STORED] = stack.enter_context(serving(tree=tree))
            servers[EARLIER + UNSTORED] = stack.enter_context(serving(UNSTORED, tree=tree))
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
        Check(f"{MOST} connections, of the same unstored", rows[-1]["of it"], at_least=0.8),
        *(Check(f"{r['connections']} connections", r["stored/s"], "/s") for r in rows),
        Check(f"{MOST} connections, p99", rows[-1]["p99 ms"], "ms", at_most=20.0),
    ]
    if earlier is not None:
        found.checks += compare(earlier, runs)
    found.details = {"rows": rows, "quick": quick, "against": earlier}
    return found


def compare(earlier: str, runs: dict[tuple[str, int], list[Run]]) -> list[Check]:
    """The earlier revision in the same run: rates, and CPU time, which varies less."""
    stored, before = runs[STORED, MOST], runs[EARLIER + STORED, MOST]
    unstored = runs[EARLIER + UNSTORED, MOST]
    of_it = median([a.rate / b.rate for a, b in zip(stored, before, strict=True)])
    of_unstored = median([a.rate / b.rate for a, b in zip(stored, unstored, strict=True)])
    print(
        f"{earlier}: stored {median([run.rate for run in before]):,.0f}/s,"
        f" {median([run.cpu_us for run in before]):.0f} us;"
        f" unstored {median([run.rate for run in unstored]):,.0f}/s,"
        f" {median([run.cpu_us for run in unstored]):.0f} us"
    )
    cpu_ratio = median([run.cpu_us for run in stored]) / median([run.cpu_us for run in before])
    return [
        Check(f"{MOST} connections, of {earlier}", of_it, at_least=1.4),
        Check(f"{MOST} connections, of {earlier} unstored", of_unstored),
        Check(f"{MOST} connections, CPU time, of {earlier}", cpu_ratio),
    ]


@contextmanager
def serving(*how: str, tree: Path | None = None) -> Iterator[Server]:
    """A server that runs until the block ends; with `tree` that of another revision."""
    place = Place(more=MORE)
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.hooks", str(place.directory), *how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tree,
        env=revision.use(tree, environment()),
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
    # Every post has an id of its own: a repeated one would be answered without a job.
    headers = f"{SIGNATURE}\r\nX-GitHub-Delivery: {next(_runs):04d}-00000000"
    figures = programs().deliver(server.port, "/hook/bench", BODY, headers, posts, connections)
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
