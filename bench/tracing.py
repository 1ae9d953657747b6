"""What traces cost per job: off, and with a collector that is up, down, slow or lies, in turns.

Every run with tracing is measured between two without and compared with their mean: machines are
noisy, and a ratio of neighbours is not. Medians are over the rounds.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from bench.findings import Check, Findings, median, table
from bench.gateway import Place
from bench.throughput import Run, end_to_end

VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
WORKERS = 8
OFF, UP, DOWN, SLOW, LYING = CASES = ("off", "up", "down", "slow", "lying")


def measure(*, quick: bool) -> Findings:
    rounds, jobs = (2, 1000) if quick else (8, 4000)
    found = Findings("tracing")
    runs: dict[str, list[Run]] = defaultdict(list)
    rates: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, list[float]] = defaultdict(list)
    _run(OFF, jobs)
    before = _run(OFF, jobs)
    for number in range(rounds):
        # What the machine still writes of one case slows the next.
        for case in CASES[1:] if number % 2 else CASES[:0:-1]:
            run, after = _run(case, jobs), _run(OFF, jobs)
            rates[case].append(2 * run.rate / (before.rate + after.rate))
            cpu[case].append(2 * _cpu(run) / (_cpu(before) + _cpu(after)))
            runs[case].append(run)
            runs[OFF].append(after)
            before = after
    rows = [
        {
            "collector": case,
            "jobs/s": median([run.rate for run in of_case]),
            "CPU us": median([_cpu(run) * 1e6 for run in of_case]),
        }
        for case, of_case in runs.items()
    ]
    print(table(rows))
    for case in CASES[1:]:
        found.checks.append(
            Check(f"{case}: rate, ratio to off", median(rates[case]), at_least=0.98)
        )
        found.checks.append(Check(f"{case}: CPU per job, ratio to off", median(cpu[case])))
    found.details = {"rows": rows, "ratios of rate": rates, "ratios of CPU": cpu}
    return found


def _run(case: str, jobs: int) -> Run:
    os.sync()
    with _collector(case):
        return end_to_end(Place(workers=WORKERS), "compiled", jobs)


def _cpu(run: Run) -> float:
    return run.used.gateway + run.used.runner + run.used.plugins


@contextmanager
def _collector(case: str) -> Iterator[None]:
    """The environment of gateways that send their spans to such a collector."""
    if case == OFF:
        os.environ.pop(VARIABLE, None)
        yield
        return
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            if case == SLOW:
                ended.wait()
            # A body that never ends, of a type that nothing asked for.
            claimed, body = (1 << 40, b"\0" * 65536) if case == LYING else (2, b"{}")
            self.send_response(200)
            self.send_header("Content-Length", str(claimed))
            self.end_headers()
            # The gateway does not read long answers, and does not wait for late ones.
            with suppress(ConnectionError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing is printed between the figures."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    os.environ[VARIABLE] = f"http://127.0.0.1:{server.server_port}"
    if case == DOWN:
        _stop(server, thread)
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        ended.set()
        if case != DOWN:
            _stop(server, thread)


def _stop(server: ThreadingHTTPServer, thread: threading.Thread) -> None:
    server.shutdown()
    thread.join()
    server.server_close()
