"""The metrics of `/metrics`; every label has a bounded number of values."""

from __future__ import annotations

import os
import resource
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import ductile
from ductile.clock import from_text
from ductile.engine.observability.counters import (
    RESPONSE_SECONDS,
    Histogram,
    choose_plugin_label,
)
from ductile.engine.observability.parts import PARTS
from ductile.engine.observability.prometheus import (
    format_histogram,
    format_metric,
    format_value,
)
from ductile.engine.services import Services
from ductile.errors import LedgerError
from ductile.store import notices
from ductile.store.engines.api import StoredNotice, Tx

MAX_ROWS = 1000
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Metrics:
    """Counts requests and notices; the other values are read by `render`. Thread-safe."""

    def __init__(self, gateway: Services) -> None:
        self._gateway = gateway
        self._lock = threading.Lock()
        self._notices: Counter[str] = Counter()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: dict[tuple[str, str], Histogram] = {}
        self._webhooks: Counter[tuple[str, str]] = Counter()
        gateway.notice_bus.watch(self._count_notices)

    def _count_notices(self, notices: list[StoredNotice]) -> None:
        with self._lock:
            for notice in notices:
                self._notices[notice.type] += 1

    def count_request(self, method: str, route: str, status: int, seconds: float) -> None:
        """`route` is the path of the route table, not the caller's."""
        with self._lock:
            self._requests[method, route, status] += 1
            found = self._seconds.get((method, route))
            if found is None:
                found = self._seconds[method, route] = Histogram(RESPONSE_SECONDS)
            found.add(seconds)

    def count_webhook(self, endpoint: str, outcome: str) -> None:
        with self._lock:
            self._webhooks[endpoint, outcome] += 1

    def render(self, followers: int) -> str:
        """All metrics as text; without those that a ledger that cannot be read would supply."""
        parts = (
            *self._format_health(),
            *self._format_gateway(),
            *self._read_ledger(lambda: self._gateway.ledger.read(self._format_queue)),
            *self._format_jobs(),
            *self._format_http(followers),
            *self._read_ledger(self._format_outboxes),
            *self._read_ledger(self._format_alerts),
            *self._format_tracing(),
            *self._read_ledger(lambda: self._gateway.ledger.read(_format_stream)),
            *self._format_store(),
            *_format_process(),
        )
        return "".join(parts)

    def _read_ledger(self, read: Callable[[], Iterable[str]]) -> tuple[str, ...]:
        """What `read` returns; nothing if the ledger fails, which `ductile_healthy` shows."""
        try:
            return tuple(read())
        except LedgerError:
            return ()

    def _format_health(self) -> Iterator[str]:
        health = self._gateway.health
        failing = () if health is None else health.check()
        healthy = not any(part.critical for part in failing)
        help = "Whether a job can be accepted and settled."
        yield format_value("ductile_healthy", "gauge", help, healthy)
        found = {part.part for part in failing}
        yield format_metric(
            "ductile_part_failing",
            "gauge",
            "Whether a part of the gateway fails.",
            [((("part", name),), name in found) for name in (*PARTS, *tuple(self._gateway.loops))],
        )

    def _format_gateway(self) -> Iterator[str]:
        gateway = self._gateway
        version = (("version", ductile.__version__),)
        yield format_metric("ductile_build_info", "gauge", "The running version.", [(version, 1)])
        node = (("node", gateway.node),)
        yield format_metric("ductile_node_info", "gauge", "The name of this node.", [(node, 1)])
        help = "Whether an operator has drained this node."
        yield format_value("ductile_node_drained", "gauge", help, gateway.is_drained)
        help = "Seconds since the start."
        yield format_value("ductile_uptime_seconds", "gauge", help, gateway.uptime)
        loaded = len(gateway.compiled.plans)
        yield format_value("ductile_plugins_loaded", "gauge", "Loaded plugins.", loaded)
        refused = len(gateway.compiled.registry.refused)
        yield format_value("ductile_plugins_refused", "gauge", "Refused plugins.", refused)
        unready = len(gateway.unready)
        yield format_value(
            "ductile_plugins_unready", "gauge", "Plugins that wait for their init.", unready
        )

    def _format_queue(self, tx: Tx) -> tuple[str, ...]:
        now, compiled = self._gateway.clock.now(), self._gateway.compiled
        counts: Counter[tuple[str, str]] = Counter()
        oldest_ages: dict[str, float] = {}
        for plugin, status, jobs, oldest in tx.all("queue_by_plugin"):
            name = choose_plugin_label(compiled, plugin)
            counts[name, status] += jobs
            if status == "queued":
                age = max((now - from_text(oldest)).total_seconds(), 0.0)
                oldest_ages[name] = max(oldest_ages.get(name, 0.0), age)
        breakers: Counter[tuple[str, str]] = Counter()
        for plugin, _, state in tx.all("all_breakers", limit=MAX_ROWS):
            if compiled.expects(plugin):
                breakers[choose_plugin_label(compiled, plugin), state] += 1
        return (
            format_metric(
                "ductile_queue_jobs",
                "gauge",
                "Queued and running jobs.",
                [((("plugin", p), ("status", s)), n) for (p, s), n in sorted(counts.items())],
            ),
            format_metric(
                "ductile_queue_oldest_seconds",
                "gauge",
                "Age of the oldest queued job of a plugin.",
                [((("plugin", p),), s) for p, s in sorted(oldest_ages.items())],
            ),
            format_metric(
                "ductile_breakers",
                "gauge",
                "Circuit breakers by state.",
                [((("plugin", p), ("state", s)), n) for (p, s), n in sorted(breakers.items())],
            ),
        )

    def _format_jobs(self) -> Iterator[str]:
        gateway, counters = self._gateway, self._gateway.counters
        yield format_metric(
            "ductile_attempts_total",
            "counter",
            "Finished attempts by outcome.",
            [
                ((("plugin", p), ("command", c), ("outcome", o)), count)
                for (p, c, o), count in sorted(counters.read_attempts().items())
            ],
        )
        yield format_histogram(
            "ductile_attempt_duration_seconds",
            "Duration of attempts.",
            [
                ((("plugin", p), ("command", c)), found)
                for (p, c), found in sorted(counters.read_durations().items())
            ],
        )
        yield format_histogram(
            "ductile_job_wait_seconds",
            "Time from enqueue to the start of the first attempt, recorded when that ends.",
            [((("plugin", p),), found) for p, found in sorted(counters.read_waits().items())],
        )
        slots = {"busy": gateway.busy, "free": max(0, gateway.workers - gateway.busy)}
        yield format_metric(
            "ductile_runner_slots",
            "gauge",
            "Runner slots by state.",
            [((("state", state),), count) for state, count in slots.items()],
        )
        yield format_metric(
            "ductile_runner_events_total",
            "counter",
            "Starts and losses of the runner and its slots.",
            [((("event", name),), n) for name, n in sorted(counters.read_runner_events().items())],
        )
        with self._lock:
            notices = sorted(self._notices.items())
        yield format_metric(
            "ductile_notices_total",
            "counter",
            "Notices of this node by type.",
            [((("type", name),), count) for name, count in notices],
        )

    def _format_http(self, followers: int) -> Iterator[str]:
        with self._lock:
            requests, webhooks = sorted(self._requests.items()), sorted(self._webhooks.items())
            seconds = [(key, found.copy()) for key, found in sorted(self._seconds.items())]
        yield format_metric(
            "ductile_http_requests_total",
            "counter",
            "HTTP responses of the API.",
            [
                ((("method", m), ("route", r), ("status", str(s))), count)
                for (m, r, s), count in requests
            ],
        )
        yield format_histogram(
            "ductile_http_request_duration_seconds",
            "Duration of HTTP requests.",
            [((("method", m), ("route", r)), found) for (m, r), found in seconds],
        )
        yield format_metric(
            "ductile_webhook_requests_total",
            "counter",
            "Requests to webhook endpoints by outcome.",
            [
                ((("endpoint", name), ("outcome", outcome)), count)
                for (name, outcome), count in webhooks
            ],
        )
        yield format_value("ductile_event_followers", "gauge", "Open event streams.", followers)

    def _format_outboxes(self) -> Iterator[str]:
        rows = self._gateway.ledger.read(lambda tx: tx.all("count_deliveries"))
        yield format_metric(
            "ductile_deliveries",
            "gauge",
            "Webhook deliveries by status.",
            [((("status", status),), count) for status, count in rows],
        )
        waiting = self._gateway.ledger.read(lambda tx: tx.all("count_relays"))
        yield format_metric(
            "ductile_relays",
            "gauge",
            "Outstanding and dead relays by instance.",
            [
                ((("instance", instance), ("status", status)), count)
                for instance, status, count, _ in waiting
            ],
        )
        yield format_metric(
            "ductile_sends_total",
            "counter",
            "Sends of the outboxes by outcome.",
            [
                ((("lane", name), ("outcome", outcome)), count)
                for name, worker in sorted(self._gateway.outbox_workers.items())
                for outcome, count in sorted(worker.count_outcomes().items())
            ],
        )

    def _format_alerts(self) -> Iterator[str]:
        rows = self._gateway.ledger.read(lambda tx: tx.all("count_alerts"))
        yield format_metric(
            "ductile_alerts",
            "gauge",
            "Alerts that are not ok, by rule and state.",
            [((("rule", rule), ("state", state)), count) for rule, state, count in rows],
        )
        yield format_metric(
            "ductile_dead_man_requests_total",
            "counter",
            "Requests to the outside monitor by outcome.",
            [
                ((("outcome", outcome),), count)
                for outcome, count in sorted(self._gateway.counters.read_dead_man().items())
            ],
        )

    def _format_tracing(self) -> Iterator[str]:
        tracer = self._gateway.tracer
        if tracer is None:
            return
        yield format_value(
            "ductile_spans_exported_total",
            "counter",
            "Spans that the collector has taken.",
            tracer.exported,
        )
        yield format_value(
            "ductile_spans_dropped_total",
            "counter",
            "Spans that were dropped: the queue was full, or the collector did not take them.",
            tracer.dropped,
        )

    def _format_store(self) -> Iterator[str]:
        facts = self._gateway.ledger.health()
        for name, help in (
            ("commits", "Durable commits."),
            ("transactions", "Transactions in these commits."),
        ):
            value = facts.get(name)
            if isinstance(value, int):
                yield format_value(f"ductile_store_{name}_total", "counter", help, value)
        largest = facts.get("largest_batch")
        if isinstance(largest, int):
            help = "Largest number of transactions in one commit."
            yield format_value("ductile_store_largest_batch", "gauge", help, largest)


def _format_stream(tx: Tx) -> list[str]:
    held = notices.list_holders(tx)
    help = "Age of the oldest open transaction, which events of later ones wait for."
    oldest = max((row["seconds"] for row in held), default=0.0)
    parts = [format_value("ductile_stream_held_seconds", "gauge", help, oldest)]
    help = "Age of each transaction of more than ten seconds that events wait for, by its session."
    named = [
        (
            (("session", str(row["pid"])), ("application", row["who"]), ("database", row["place"])),
            row["seconds"],
        )
        for row in held
        if row["seconds"] > notices.LONGEST_TRANSACTION
    ]
    return [*parts, format_metric("ductile_stream_holder_seconds", "gauge", help, named)]


def _format_process() -> Iterator[str]:
    """The standard process metrics of Prometheus clients."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu, resident = used.ru_utime + used.ru_stime, Path("/proc/self/statm")
    yield format_value("process_cpu_seconds_total", "counter", "User and system time.", cpu)
    if resident.exists():
        pages = int(resident.read_text().split()[1])
        yield format_value(
            "process_resident_memory_bytes", "gauge", "Resident memory.", pages * _PAGE
        )
        count = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only the number is needed
        yield format_value("process_open_fds", "gauge", "Open descriptors.", count)
