"""Several nodes on one PostgreSQL server: starts on another node, and the use of a cap.

A drained node accepts jobs that another node starts. Jobs of a plugin with a cap run on four nodes;
the time in which their processes ran is compared with that of `CAP` processes without a pause,
while jobs are queued.
"""

from __future__ import annotations

import http.client
import socket
import time
from pathlib import Path

from bench import backlog
from bench.engines import Server, started
from bench.findings import Check, Findings, median, percentile
from bench.gateway import Place
from bench.latency import post
from bench.programs import scratch
from ductile.clock import from_text

CAP, NODES = 4, 4
SECONDS = 0.2
"""How long a job of the plugin with a cap sleeps."""
MANIFEST = """
manifest_spec: ductile.plugin
manifest_version: 1
name: sleeper
version: 1.0.0
protocol: 2
entrypoint: run.sh
commands: {poll: {type: read}}
"""
SCRIPT = f"""#!/bin/sh
cat > /dev/null
sleep {SECONDS}
echo '{{"status": "ok", "result": "done"}}'
"""


def measure(*, quick: bool) -> Findings:
    samples, jobs = (60, 60) if quick else (300, 240)
    found = Findings("nodes")
    server = Server()
    try:
        waited = measure_starts(server.database(), samples)
        used = measure_cap(server.database(), jobs)
    finally:
        server.stop()
    found.checks = [
        Check("enqueue to start on another node, p50", median(waited), "ms", at_most=15.0),
        Check("enqueue to start on another node, p99", percentile(waited, 0.99), "ms"),
        Check(f"use of a cap of {CAP} on {NODES} nodes, of ideal", used, at_least=0.95),
    ]
    for check in found.checks:
        print(f"{check.what}: {check.measured:.2f}")
    return found


def measure_starts(url: str, samples: int) -> list[float]:
    """Milliseconds from the enqueue on a drained node until another node has started the job."""
    places = [Place(workers=8, url=url, more=name_node(name)) for name in "ab"]
    with started(places):
        ask(places[0].socket, "/node/a/drain")
        posted = post(places[0], samples)
        ledger = backlog.reader(places[0])
        backlog.until_done(ledger, samples)
        rows = ledger.rows("SELECT id, created_at, started_at FROM job_queue")
        ledger.close()
    return [
        (from_text(begun) - from_text(created)).total_seconds() * 1000
        for id, created, begun in rows
        if id in posted
    ]


def measure_cap(url: str, jobs: int) -> float:
    """The share of the time of `CAP` processes in which one ran."""
    root = write_sleeper()
    more = f"  - {root}\nplugins:\n  sleeper: {{parallelism: {CAP}}}\n"
    places = [Place(url=url, more=more) for _ in range(NODES)]
    with started(places):
        backlog.fill(places[0], "sleeper", jobs)
        ledger = backlog.reader(places[0])
        backlog.until_done(ledger, jobs)
        rows = ledger.rows("SELECT completed_at, duration_ms FROM job_log")
        ledger.close()
    return use_of_cap([(from_text(at).timestamp(), ms / 1000) for at, ms in rows])


def use_of_cap(ran: list[tuple[float, float]]) -> float:
    """The share of the time of `CAP` processes in which one ran, while jobs were queued.

    `ran` has the end of each process and its duration. The jobs are written by another program,
    which wakes no node: the time begins when all places are taken. It ends at the last start.
    """
    starts = sorted(end - seconds for end, seconds in ran)
    first, last = starts[CAP - 1], starts[-1]
    inside = (min(end, last) - max(end - seconds, first) for end, seconds in ran)
    return sum(max(0.0, seconds) for seconds in inside) / (CAP * (last - first))


def name_node(name: str) -> str:
    """The end of a configuration whose last section is `service`."""
    return f"  node: {name}\n"


def write_sleeper() -> Path:
    root = scratch() / "capped"
    folder = root / "sleeper"
    folder.mkdir(mode=0o755, parents=True)
    (folder / "manifest.yaml").write_text(MANIFEST)
    (folder / "run.sh").write_text(SCRIPT)
    (folder / "run.sh").chmod(0o755)
    return root


class _Line(http.client.HTTPConnection):
    """HTTP on the local socket of a gateway."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.connect(str(self._path))


def ask(path: Path, target: str) -> None:
    line = _Line(path)
    line.request("POST", target, "{}", {"Content-Type": "application/json"})
    answer = line.getresponse()
    if answer.status >= 400:
        raise RuntimeError(answer.read().decode())
    line.close()
    time.sleep(2.5)  # The other nodes have renewed their rows.
