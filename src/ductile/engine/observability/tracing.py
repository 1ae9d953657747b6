"""Sends spans of ended jobs and pipeline runs to a collector, as OTLP over HTTP with JSON.

A commit only adds the ids of what has ended to a bounded queue. A loop reads those rows, builds the
spans and sends them. Spans that the queue has no room for, or that the collector does not take, are
dropped and counted: tracing never delays a job. Spans contain no payload, no error and no output.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import orjson

import ductile
from ductile.clock import moment_of
from ductile.core.delivery.relay import ANYWHERE
from ductile.core.jobs.state_machine import ENDED
from ductile.core.jobs.trace import (
    TraceContext,
    context_of,
    parse_column,
    span_of_attempt,
    span_of_job,
    span_of_run,
    span_of_wait,
)
from ductile.engine.observability.trace_settings import TracingSettings
from ductile.engine.outbox.policy import OutboundRequest, SendResult
from ductile.log import logger
from ductile.model import JobStatus
from ductile.store.engines.api import Ledger, Row, StoredNotice, Tx
from ductile.store.jobs import traces

LOOP = "tracing"
MOST_QUEUED = 8192
BATCH = 256
INTERVAL = 1.0
RETRY_SECONDS = 5.0
"""After a send that failed."""
FLUSH_TIMEOUT = 2.0
"""Seconds for the last send of a gateway that stops."""
_INTERNAL, _CONSUMER = 1, 5
_ERROR = 2
_FAILED = frozenset({JobStatus.FAILED.value, JobStatus.DEAD.value, "failed", "timed_out", "lost"})
_ENDED_JOB = frozenset(f"job.{status.value}" for status in ENDED)
_ENDED_RUN = frozenset({"pipeline.ended", "pipeline.failed", "pipeline.skipped"})

Span = dict[str, Any]


class SpanExporter:
    """`observe` is called after each commit; a loop calls `tick`."""

    def __init__(
        self,
        settings: TracingSettings,
        node: str,
        ledger: Ledger,
        send: Callable[[OutboundRequest], SendResult],
    ) -> None:
        self._settings, self._ledger, self._send = settings, ledger, send
        self._queue: deque[tuple[bool, str]] = deque()
        """Whether it is a run, and its id."""
        self._sending = threading.Lock()
        self._is_down = False
        self._log = logger(LOOP)
        self.exported = 0
        self.dropped = 0
        attributes = {"service.name": settings.service, "service.instance.id": node}
        self._resource = {"attributes": _attributes({**settings.attributes, **attributes})}

    def observe(self, notices: Iterable[StoredNotice]) -> None:
        """Queue the jobs and runs that these notices report as ended."""
        for notice in notices:
            is_run = notice.type in _ENDED_RUN
            if (is_run or notice.type in _ENDED_JOB) and notice.job_id is not None:
                if len(self._queue) >= MOST_QUEUED:
                    self.dropped += 1
                else:
                    self._queue.append((is_run, notice.job_id))

    def tick(self, _now: datetime) -> float:
        """Send what is queued; returns the seconds until the next call."""
        while self._queue:
            if not self._send_batch(self._settings.timeout):
                return RETRY_SECONDS
        return INTERVAL

    def flush(self) -> None:
        """Send what is queued, once, before the gateway ends."""
        if self._queue and not self._is_down:
            self._send_batch(FLUSH_TIMEOUT)

    def _send_batch(self, timeout: float) -> bool:
        with self._sending:
            batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            try:
                spans = self._ledger.read(lambda tx: self._build(tx, batch))
            except Exception:
                self.dropped += len(batch)
                raise
            if not spans:
                return True
            scope = {"name": "ductile", "version": ductile.__version__}
            scoped = [{"scope": scope, "spans": spans}]
            document = {"resourceSpans": [{"resource": self._resource, "scopeSpans": scoped}]}
            headers = {"Content-Type": "application/json", **self._settings.headers}
            url, body = self._settings.url, orjson.dumps(document)
            is_plain = url.startswith("http://")
            request = OutboundRequest(
                url, body, headers, timeout, networks=ANYWHERE, plain_http=is_plain
            )
            result = self._send(request)
        self._record(result, len(spans))
        return result.is_success

    def _record(self, result: SendResult, spans: int) -> None:
        rejected = _count_rejected(result, spans)
        self.exported += spans - rejected
        self.dropped += rejected
        if self._is_down == bool(rejected):
            return
        self._is_down = bool(rejected)
        if self._is_down:
            error = result.error or f"HTTP {result.status}, {rejected} of {spans} spans rejected"
            self._log.warning("the collector does not accept spans; dropping them", error=error)
        else:
            self._log.info("the collector accepts spans again", dropped=self.dropped)

    def _build(self, tx: Tx, batch: Sequence[tuple[bool, str]]) -> list[Span]:
        jobs = [id for is_run, id in batch if not is_run]
        runs = [id for is_run, id in batch if is_run]
        found: list[Span] = []
        for row in traces.load_ended_jobs(tx, jobs) if jobs else ():
            context = context_of(row[11], row[0], row[12])
            if self._settings.sampler.records(context):
                found += _job_spans(tx, row, context)
        for row in traces.load_ended_runs(tx, runs) if runs else ():
            run = parse_column(row[5])
            if run is not None and self._settings.sampler.records(run):
                found += _run_span(row, run)
        return found


def _count_rejected(result: SendResult, spans: int) -> int:
    """How many of these spans the collector has not taken: also one that accepts the request can
    report that."""
    if not result.is_success:
        return spans
    try:
        rejected = orjson.loads(result.body)["partialSuccess"]["rejectedSpans"]
        # A 64-bit number, which is a text in this form of JSON.
        count = int(rejected) if isinstance(rejected, str) else rejected
    except (ValueError, TypeError, LookupError):
        return 0
    return min(max(count, 0), spans) if type(count) is int else 0


def _job_spans(tx: Tx, row: Row, context: TraceContext) -> Iterator[Span]:
    """The job, its wait in the queue, and its attempts."""
    id, plugin, command, status, created, _, completed, _, pipeline, step, join_of, *_ = row
    what = {"ductile.plugin": plugin, "ductile.command": command, "ductile.job_id": id}
    if pipeline:
        what |= {"ductile.pipeline": pipeline, "ductile.step": step}
    name, own = f"{plugin} {command}", context.below(span_of_job(id))
    links = [
        {"traceId": context.trace_id, "spanId": span_of_job(joined)}
        for joined in (traces.list_joined_jobs(tx, join_of) if join_of else ())
    ]
    shown = {**what, "ductile.status": status}
    yield from _span(
        context, span_of_job(id), f"job {name}", (created, completed), shown, status, links=links
    )
    attempts = traces.load_attempts(tx, id)
    for number, result, began, ended, boot in reversed(attempts):
        if number == 1:
            yield from _span(own, span_of_wait(id), "queue wait", (created, began), what)
        shown = {**what, "ductile.attempt": number, "ductile.status": result}
        shown |= {"ductile.boot": boot} if boot else {}
        span, period = span_of_attempt(id, number), (began, ended)
        yield from _span(own, span, name, period, shown, result, kind=_CONSUMER)


def _run_span(row: Row, context: TraceContext) -> Iterator[Span]:
    id, pipeline, status, created, ended, _ = row
    shown = {"ductile.pipeline": pipeline, "ductile.run_id": id, "ductile.status": status}
    period = (created, ended)
    yield from _span(context, span_of_run(id), f"pipeline {pipeline}", period, shown, status)


def _span(
    context: TraceContext,
    span: str,
    name: str,
    period: tuple[str | None, str | None],
    attributes: dict[str, str | int],
    status: str = "",
    *,
    kind: int = _INTERNAL,
    links: Sequence[Span] = (),
) -> Iterator[Span]:
    """One span; none if its times are not known."""
    start, end = (moment_of(text) if text else None for text in period)
    if start is None or end is None:
        return
    found: Span = {
        "traceId": context.trace_id,
        "spanId": span,
        "name": name,
        "kind": kind,
        "startTimeUnixNano": _nanoseconds(start),
        "endTimeUnixNano": _nanoseconds(max(start, end)),
        "attributes": _attributes(attributes),
    }
    if context.parent_span is not None:
        found["parentSpanId"] = context.parent_span
    if links:
        found["links"] = list(islice(links, 32))
    if status in _FAILED:
        found["status"] = {"code": _ERROR}
    yield found


def _nanoseconds(moment: datetime) -> str:
    return str(int(moment.timestamp()) * 1_000_000_000 + moment.microsecond * 1000)


def _attributes(values: dict[str, str | int]) -> list[dict[str, Any]]:
    return [
        {
            "key": key,
            "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value},
        }
        for key, value in values.items()
    ]
