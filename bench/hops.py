"""What a pipeline adds to each of its steps, over running the same scripts bare."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import time

from bench.findings import Check, Findings, median, percentile, table
from bench.gateway import Place, running
from bench.programs import programs

STEPS = 10
PIPELINE = (
    """
pipelines:
  - name: chain
    on: go
    execution_mode: synchronous
    timeout: 60s
    steps:
"""
    + "      - uses: shell.poll\n" * STEPS
)


def measure(*, quick: bool) -> Findings:
    rounds = 10 if quick else 40
    script = programs().plugin_root / "shell" / "run"
    bare: list[float] = []
    piped: list[float] = []
    with running(Place(workers=2, more=PIPELINE)) as gateway:
        for _ in range(rounds):
            bare.append(_bare(str(script)))
            piped.append(_piped(str(gateway.place.socket)))
    a_hop = [(with_it - without) / STEPS for with_it, without in zip(piped, bare, strict=True)]
    rows = [
        {"what": f"{STEPS} scripts bare", "p50 ms": median(bare)},
        {"what": f"a pipeline of {STEPS} steps", "p50 ms": median(piped)},
    ]
    print(table(rows))
    found = Findings("hops")
    found.checks = [
        Check("added by a hop, p50", median(a_hop), "ms", at_most=10.0),
        Check("added by a hop, p99", percentile(a_hop, 0.99), "ms"),
    ]
    found.details = {"rows": rows}
    return found


def _bare(script: str) -> float:
    began = time.perf_counter()
    for _ in range(STEPS):
        subprocess.run([script], input=b"{}\n", stdout=subprocess.PIPE, check=True)
    return (time.perf_counter() - began) * 1000


def _piped(path: str) -> float:
    began = time.perf_counter()
    connection = http.client.HTTPConnection("local", timeout=60)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
    connection.request("POST", "/pipeline/chain", b"{}")
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    if answer.status != 200 or body["status"] != "succeeded":
        raise RuntimeError(f"the pipeline did not succeed: {body}")
    return (time.perf_counter() - began) * 1000
