"""Numbers for Prometheus, in its text format; every label has few values."""

from __future__ import annotations

import os
import resource
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import ductile
from ductile.clock import from_text
from ductile.engine.observability.counters import ANSWERS, Histogram, plugin_label
from ductile.engine.observability.prometheus import TYPE as TYPE
from ductile.engine.observability.prometheus import histogram, metric, one
from ductile.engine.services import Services
from ductile.store.engines.api import StoredNotice, Tx

MOST_ROWS = 1000
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Metrics:
    """Counts what passes by; the rest is read when it is asked for. Thread-safe."""

    def __init__(self, gateway: Services) -> None:
        self._gateway = gateway
        self._lock = threading.Lock()
        self._notices: Counter[str] = Counter()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[tuple[str, str], Histogram] = {}
        self._webhooks: Counter[tuple[str, str]] = Counter()
        gateway.notice_bus.watch(self._committed)

    def _committed(self, notices: list[StoredNotice]) -> None:
        with self._lock:
            for notice in notices:
                self._notices[notice.type] += 1

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route` is the table's path, never the caller's."""
        with self._lock:
            self._requests[method, route, status] += 1
            found = self._seconds.get((method, route))
            if found is None:
                found = self._seconds[method, route] = Histogram(ANSWERS)
            found.add(seconds)

    def delivered(self, endpoint: str, outcome: str) -> None:
        with self._lock:
            self._webhooks[endpoint, outcome] += 1

    def text(self, followers: int) -> str:
        """Everything, as of now; reads the ledger."""
        parts = (
            *self._gateway_itself(),
            *self._gateway.ledger.read(self._queue),
            *self._jobs(),
            *self._doors(followers),
            *self._outbox_workers(),
            *self._store(),
            *_process(),
        )
        return "".join(parts)

    def _gateway_itself(self) -> Iterator[str]:
        gateway = self._gateway
        version = (("version", ductile.__version__),)
        yield metric("ductile_build_info", "gauge", "The version that runs.", [(version, 1)])
        uptime = (gateway.clock.now() - gateway.started_at).total_seconds()
        yield one("ductile_uptime_seconds", "gauge", "Since the start.", uptime)
        loaded = len(gateway.compiled.plans)
        yield one("ductile_plugins_loaded", "gauge", "Plugins that can run.", loaded)
        refused = len(gateway.compiled.registry.refused)
        yield one("ductile_plugins_refused", "gauge", "Plugins that were refused.", refused)
        unready = len(gateway.unready)
        yield one("ductile_plugins_unready", "gauge", "Plugins that wait for their init.", unready)

    def _queue(self, tx: Tx) -> tuple[str, ...]:
        now, compiled = self._gateway.clock.now(), self._gateway.compiled
        counts: Counter[tuple[str, str]] = Counter()
        oldest_waits: dict[str, float] = {}
        for plugin, status, jobs, oldest in tx.all("queue_by_plugin"):
            name = plugin_label(compiled, plugin)
            counts[name, status] += jobs
            if status == "queued":
                waited = max((now - from_text(oldest)).total_seconds(), 0.0)
                oldest_waits[name] = max(oldest_waits.get(name, 0.0), waited)
        breakers: Counter[tuple[str, str]] = Counter()
        for plugin, _, state in tx.all("all_breakers", limit=MOST_ROWS):
            if compiled.gone(plugin) is None:
                breakers[plugin_label(compiled, plugin), state] += 1
        return (
            metric(
                "ductile_queue_jobs",
                "gauge",
                "Jobs that wait or run.",
                [((("plugin", p), ("status", s)), n) for (p, s), n in sorted(counts.items())],
            ),
            metric(
                "ductile_queue_oldest_seconds",
                "gauge",
                "How long the first of a plugin's queued jobs waits.",
                [((("plugin", p),), s) for p, s in sorted(oldest_waits.items())],
            ),
            metric(
                "ductile_breakers",
                "gauge",
                "Circuit breakers by state.",
                [((("plugin", p), ("state", s)), n) for (p, s), n in sorted(breakers.items())],
            ),
        )

    def _jobs(self) -> Iterator[str]:
        gateway, counters = self._gateway, self._gateway.counters
        yield metric(
            "ductile_attempts_total",
            "counter",
            "Attempts of jobs that have ended, by how.",
            [
                ((("plugin", p), ("command", c), ("outcome", o)), count)
                for (p, c, o), count in sorted(counters.attempts().items())
            ],
        )
        yield histogram(
            "ductile_attempt_duration_seconds",
            "How long attempts ran.",
            [
                ((("plugin", p), ("command", c)), found)
                for (p, c), found in sorted(counters.durations().items())
            ],
        )
        yield histogram(
            "ductile_job_wait_seconds",
            "From enqueue to the start of the first attempt, counted when that has ended.",
            [((("plugin", p),), found) for p, found in sorted(counters.waits().items())],
        )
        slots = {"busy": gateway.busy, "free": gateway.workers - gateway.busy}
        yield metric(
            "ductile_runner_slots",
            "gauge",
            "Slots that run a job, and that do not.",
            [((("state", state),), count) for state, count in slots.items()],
        )
        yield metric(
            "ductile_runner_events_total",
            "counter",
            "Starts and losses of the runner and its slots.",
            [((("event", name),), n) for name, n in sorted(counters.runner_events().items())],
        )
        with self._lock:
            notices = sorted(self._notices.items())
        yield metric(
            "ductile_notices_total",
            "counter",
            "What this node has announced, by type.",
            [((("type", name),), count) for name, count in notices],
        )

    def _doors(self, followers: int) -> Iterator[str]:
        with self._lock:
            requests, webhooks = sorted(self._requests.items()), sorted(self._webhooks.items())
            seconds = [(key, found.copy()) for key, found in sorted(self._seconds.items())]
        yield metric(
            "ductile_http_requests_total",
            "counter",
            "Answers of the API.",
            [
                ((("method", m), ("route", r), ("status", str(s))), count)
                for (m, r, s), count in requests
            ],
        )
        yield histogram(
            "ductile_http_request_duration_seconds",
            "How long they took.",
            [((("method", m), ("route", r)), found) for (m, r), found in seconds],
        )
        yield metric(
            "ductile_webhook_requests_total",
            "counter",
            "WebhookOutbox to the webhook endpoints.",
            [
                ((("endpoint", name), ("outcome", outcome)), count)
                for (name, outcome), count in webhooks
            ],
        )
        yield one("ductile_event_followers", "gauge", "Open event streams.", followers)

    def _outbox_workers(self) -> Iterator[str]:
        rows = self._gateway.ledger.read(lambda tx: tx.all("count_deliveries"))
        yield metric(
            "ductile_deliveries",
            "gauge",
            "WebhookOutbox of webhooks for agents, by status.",
            [((("status", status),), count) for status, count in rows],
        )
        waiting = self._gateway.ledger.read(lambda tx: tx.all("count_relays"))
        yield metric(
            "ductile_relays",
            "gauge",
            "Events for other gateways that wait or were given up.",
            [
                ((("instance", instance), ("status", status)), count)
                for instance, status, count, _ in waiting
            ],
        )
        yield metric(
            "ductile_sends_total",
            "counter",
            "What the courier carried, by lane and by how it ended.",
            [
                ((("lane", name), ("outcome", outcome)), count)
                for name, worker in sorted(self._gateway.outbox_workers.items())
                for outcome, count in sorted(worker.count_outcomes().items())
            ],
        )

    def _store(self) -> Iterator[str]:
        facts = self._gateway.ledger.health()
        for name, help in (
            ("commits", "Durable commits."),
            ("transactions", "Transactions in them; by commits it is the mean batch."),
        ):
            value = facts.get(name)
            if isinstance(value, int):
                yield one(f"ductile_store_{name}_total", "counter", help, value)
        largest = facts.get("largest_batch")
        if isinstance(largest, int):
            help = "Most transactions that one commit has held."
            yield one("ductile_store_largest_batch", "gauge", help, largest)


def _process() -> Iterator[str]:
    """What Prometheus' own clients tell of every process, by the same names."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu, resident = used.ru_utime + used.ru_stime, Path("/proc/self/statm")
    yield one("process_cpu_seconds_total", "counter", "User and system time.", cpu)
    if resident.exists():
        pages = int(resident.read_text().split()[1])
        yield one("process_resident_memory_bytes", "gauge", "Resident memory.", pages * _PAGE)
        count = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a path apiece would be waste
        yield one("process_open_fds", "gauge", "Open descriptors.", count)
