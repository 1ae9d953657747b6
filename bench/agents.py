"""What ten thousand agents cost that send a heartbeat every thirty seconds."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable

import orjson

from bench import backlog, processes
from bench.findings import Check, Findings, median, percentile
from bench.gateway import Place, running
from ductile.clock import SystemClock, to_text
from ductile.core.agents.heartbeat import Heartbeat
from ductile.store import agents
from ductile.store.engines.sqlite import SqliteLedger

AGENTS = 10_000
EVERY = 30.0
RATE = AGENTS / EVERY
CONNECTIONS = 64
"""Enough that no heartbeat waits for the answer to another."""
TOKEN = "bench-token-0123456789"
SETTLE = 2.0


def measure(*, quick: bool) -> Findings:
    seconds = 5.0 if quick else 20.0
    port = _free_port()
    place = Place(more=_config(port))
    _known(place)
    with running(place) as gateway:
        time.sleep(SETTLE)
        idle = _share(gateway.pid, lambda: time.sleep(seconds / 2))
        kept: list[float] = []
        fresh: list[float] = []
        began = time.monotonic()
        share = _share(gateway.pid, lambda: _beat(port, seconds, kept, Keeping))
        sent = len(kept) / (time.monotonic() - began)
        alone = _share(gateway.pid, lambda: _beat(port, seconds / 2, fresh, Fresh))
        ledger = backlog.reader(place)
        (rows,) = ledger.rows("SELECT count(*) FROM gateway_heartbeats")[0]
        ledger.close()
    found = Findings("agents")
    found.checks = [
        Check("10,000 agents every 30 s, connections kept", share, "% of a core", at_most=10.0),
        Check("the same, a new connection for each heartbeat", alone, "% of a core"),
        Check("the same gateway without a heartbeat", idle, "% of a core"),
        Check("heartbeats that were sent in time", sent / RATE, at_least=0.98),
        Check("rows a beating agent", rows / AGENTS, at_most=1.0),
        Check("heartbeat to its durable answer, p50", median(kept), "ms"),
        Check("heartbeat to its durable answer, p99", percentile(kept, 0.99), "ms"),
    ]
    found.details = {"heartbeats": len(kept), "heartbeats_per_s": sent}
    for check in found.checks:
        print(f"{check.what}: {check.measured:.2f} {check.unit}")
    return found


def _share(pid: int, work: Callable[[], None]) -> float:
    """Percent of a core that the gateway used meanwhile, whatever it used it for."""
    before, began = processes.cpu(pid), time.monotonic()
    work()
    return (processes.cpu(pid) - before) / (time.monotonic() - began) * 100


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _config(port: int) -> str:
    return (
        f"api:\n  enabled: true\n  listen: 127.0.0.1:{port}\n"
        f'  auth: {{tokens: [{{token: {TOKEN}, scopes: ["agents:rw"]}}]}}\n'
    )


def _known(place: Place) -> None:
    """Every agent has beaten before: the window sees updates, as any but the first does."""
    ledger, now = SqliteLedger(place.ledger), SystemClock().now()
    ledger.start()
    heartbeats = [Heartbeat(_name(number), "bench", to_text(now)) for number in range(AGENTS)]
    ledger.write(lambda tx: agents.record_heartbeats(tx, heartbeats, now))
    ledger.close()


def _name(number: int) -> str:
    return f"agent-{number:05}"


def _beat(port: int, seconds: float, took: list[float], kind: type[Keeping]) -> None:
    """Send heartbeats at an even pace, whether or not the last were answered."""
    count = int(RATE * seconds)
    order = random.Random(1).sample(range(AGENTS), count)
    began = time.monotonic()

    def work(first: int) -> None:
        with kind(port) as line:
            for turn in range(first, count, CONNECTIONS):
                time.sleep(max(0.0, began + turn / RATE - time.monotonic()))
                sent = time.monotonic()
                line.send(_request(order[turn], close=kind is Fresh))
                took.append((time.monotonic() - sent) * 1000)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _request(number: int, *, close: bool) -> bytes:
    body = orjson.dumps(
        {
            "type": "heartbeat",
            "agent_id": _name(number),
            "cluster_id": "bench",
            "timestamp": to_text(SystemClock().now()),
        }
    )
    head = (
        "POST /gateway/heartbeat HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: bench\r\n"
        f"Accept: */*\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n{'Connection: close' if close else ''}"
    )
    return f"{head.rstrip()}\r\n\r\n".encode() + body


class Keeping:
    """One connection for all heartbeats."""

    def __init__(self, port: int) -> None:
        self._address = ("127.0.0.1", port)
        self._line: socket.socket | None = None

    def __enter__(self) -> Keeping:
        return self

    def __exit__(self, *_: object) -> None:
        self._drop()

    def send(self, request: bytes) -> None:
        if self._line is None:
            self._line = socket.create_connection(self._address, timeout=30)
        self._line.sendall(request)
        answer = self._line.recv(65536)
        while not answer.endswith(b"}\n"):
            answer += self._line.recv(65536)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"a heartbeat was refused: {answer!r}")

    def _drop(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


class Fresh(Keeping):
    """A connection a heartbeat."""

    def send(self, request: bytes) -> None:
        super().send(request)
        self._drop()
