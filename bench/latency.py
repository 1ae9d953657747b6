"""From a POST to a running plugin, on a gateway that has nothing else to do."""

from __future__ import annotations

import socket
import time

import orjson

from bench import backlog
from bench.findings import Check, Findings, median, percentile
from bench.gateway import Place, running
from bench.programs import PAYLOAD
from ductile.clock import from_text

PAUSE = 0.02


def measure(*, quick: bool) -> Findings:
    samples = 60 if quick else 500
    place = Place()
    with running(place):
        posted = post(place, samples)
        ledger = backlog.reader(place)
        backlog.until_done(ledger, samples)
        rows = ledger.rows("SELECT id, created_at, started_at FROM job_queue")
        results = dict(ledger.rows("SELECT job_id, result FROM job_log"))
        ledger.close()
    started = [
        (from_text(row[2]) - from_text(row[1])).total_seconds() * 1000
        for row in rows
        if row[0] in posted
    ]
    ran = [
        orjson.loads(results[job_id])["result"] / 1e6 - sent * 1000
        for job_id, (sent, _) in posted.items()
    ]
    answered = [(got - sent) * 1000 for sent, got in posted.values()]
    found = Findings("latency")
    found.checks = [
        Check("enqueue to start, p50", median(started), "ms", at_most=5.0),
        Check("enqueue to start, p99", percentile(started, 0.99), "ms"),
        Check("POST to the plugin's first line, p50", median(ran), "ms"),
        Check("POST to the plugin's first line, p99", percentile(ran, 0.99), "ms"),
        Check("POST to the durable answer, p50", median(answered), "ms"),
        Check("POST to the durable answer, p99", percentile(answered, 0.99), "ms"),
    ]
    found.details = {"samples": samples}
    for check in found.checks:
        print(f"{check.what}: {check.measured:.2f} ms")
    return found


def post(place: Place, samples: int, plugin: str = "clock") -> dict[str, tuple[float, float]]:
    """Job id to the times of day at which it was sent and accepted."""
    body = orjson.dumps({"payload": PAYLOAD})
    head = f"POST /plugin/{plugin}/poll HTTP/1.1\r\nHost: d\r\nContent-Length: {len(body)}\r\n\r\n"
    request = head.encode() + body
    posted = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(str(place.socket))
        for _ in range(samples):
            sent = time.time()
            line.sendall(request)
            answer = line.recv(65536)
            while not answer.endswith(b"}\n"):
                answer += line.recv(65536)
            accepted = time.time()
            posted[orjson.loads(answer.partition(b"\r\n\r\n")[2])["job_id"]] = sent, accepted
            # Long enough for the job to end: each finds the gateway idle.
            time.sleep(PAUSE)
    return posted
