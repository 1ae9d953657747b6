"""Numbers for Prometheus, in its text format; every label has few values."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping

from ductile.clock import from_text
from ductile.runtime.gateway import Gateway
from ductile.store.ledger import StoredNotice, Tx

TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_ROWS = 1000
Labels = tuple[tuple[str, str], ...]
Sample = tuple[Labels, float]


class Metrics:
    """Counts what passes by; the rest is read when it is asked for. Thread-safe."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._lock = threading.Lock()
        self._notices: Counter[str] = Counter()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[tuple[str, str], float] = {}
        self._deliveries: Counter[tuple[str, str]] = Counter()
        gateway.bridge.watch(self._committed)

    def _committed(self, notices: list[StoredNotice]) -> None:
        with self._lock:
            self._notices.update(notice.type for notice in notices)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route` is the table's path, never the caller's."""
        with self._lock:
            self._requests[method, route, status] += 1
            self._seconds[method, route] = self._seconds.get((method, route), 0.0) + seconds

    def delivered(self, endpoint: str, outcome: str) -> None:
        with self._lock:
            self._deliveries[endpoint, outcome] += 1

    def text(self, followers: int) -> str:
        """Everything, as of now; reads the ledger."""
        gateway = self._gateway
        with self._lock:
            notices, requests = self._notices.copy(), self._requests.copy()
            seconds, deliveries = self._seconds.copy(), self._deliveries.copy()
        store = gateway.ledger.health()
        uptime = (gateway.clock.now() - gateway.started_at).total_seconds()
        return "".join(
            (
                _metric("uptime_seconds", "gauge", "Since the start.", [((), uptime)]),
                _metric("plugins_loaded", "gauge", "", [((), len(gateway.blueprint.plans))]),
                *gateway.ledger.read(self._from_ledger),
                _metric(
                    "notices_total",
                    "counter",
                    "What happened, by type: job.started is a run, job.succeeded an outcome.",
                    [((("type", name),), count) for name, count in sorted(notices.items())],
                ),
                _metric(
                    "http_requests_total",
                    "counter",
                    "Answers of the API.",
                    [
                        ((("method", m), ("route", r), ("status", str(s))), count)
                        for (m, r, s), count in sorted(requests.items())
                    ],
                ),
                _metric(
                    "http_seconds_total",
                    "counter",
                    "Time spent on them.",
                    [((("method", m), ("route", r)), s) for (m, r), s in sorted(seconds.items())],
                ),
                _metric(
                    "webhook_deliveries_total",
                    "counter",
                    "Deliveries to the webhook endpoints.",
                    [
                        ((("endpoint", name), ("outcome", outcome)), count)
                        for (name, outcome), count in sorted(deliveries.items())
                    ],
                ),
                _metric("event_followers", "gauge", "Open event streams.", [((), followers)]),
                _metric(
                    "store_commits_total", "counter", "Durable commits.", _one(store, "commits")
                ),
                _metric(
                    "store_transactions_total",
                    "counter",
                    "Transactions in them; by commits it is the mean batch.",
                    _one(store, "transactions"),
                ),
            )
        )

    def _from_ledger(self, tx: Tx) -> tuple[str, str, str]:
        now = self._gateway.clock.now()
        counts: Counter[tuple[str, str]] = Counter()
        waits: dict[str, float] = {}
        for plugin, status, jobs, oldest in tx.all("queue_by_plugin"):
            name = self._known(plugin)
            counts[name, status] += jobs
            if status == "queued":
                waited = max((now - from_text(oldest)).total_seconds(), 0.0)
                waits[name] = max(waits.get(name, 0.0), waited)
        breakers: Counter[tuple[str, str]] = Counter()
        for plugin, _, state in tx.all("all_breakers", limit=MOST_ROWS):
            breakers[self._known(plugin), state] += 1
        return (
            _metric(
                "queue_jobs",
                "gauge",
                "Jobs that wait or run.",
                [((("plugin", p), ("status", s)), n) for (p, s), n in sorted(counts.items())],
            ),
            _metric(
                "queue_oldest_seconds",
                "gauge",
                "How long the first of a plugin's queued jobs waits.",
                [((("plugin", p),), s) for p, s in sorted(waits.items())],
            ),
            _metric(
                "breakers",
                "gauge",
                "Circuit breakers by state.",
                [((("plugin", p), ("state", s)), n) for (p, s), n in sorted(breakers.items())],
            ),
        )

    def _known(self, plugin: str) -> str:
        """The plugins that are loaded are few; rows may name any number of others."""
        return plugin if plugin in self._gateway.blueprint.plans else "other"


def _one(facts: Mapping[str, object], name: str) -> list[Sample]:
    value = facts.get(name)
    return [((), float(value))] if isinstance(value, int | float) else []


def _metric(name: str, kind: str, help: str, samples: Iterable[Sample]) -> str:
    lines = [f"# HELP ductile_{name} {help}\n"] if help else []
    lines.append(f"# TYPE ductile_{name} {kind}\n")
    for labels, value in samples:
        shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
        lines.append(f"ductile_{name}{f'{{{shown}}}' if shown else ''} {value:.10g}\n")
    return "".join(lines)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
