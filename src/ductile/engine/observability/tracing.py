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
from functools import lru_cache, partial

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
from ductile.engine.outbox.http_client import MAX_BODY
from ductile.engine.outbox.policy import OutboundRequest, SendResult
from ductile.log import logger
from ductile.model import JobStatus
from ductile.store.engines.api import Ledger, Row, StoredNotice, Tx
from ductile.store.jobs import traces

LOOP = "tracing"
MOST_QUEUED = 8192
BATCH = 256
CHUNK = 32
"""Jobs and runs that are read and encoded at once: the dispatcher waits meanwhile."""
MOST_LINKS = 32
INTERVAL = 1.0
RETRY_SECONDS = 5.0
"""After a send that failed."""
FLUSH_TIMEOUT = 2.0
"""Seconds for the last send of a gateway that stops."""
_INTERNAL, _CONSUMER = 1, 5
_ERROR = 2
_FAILED = frozenset({JobStatus.FAILED.value, JobStatus.DEAD.value, "failed", "timed_out", "lost"})
_IS_RUN = {
    **{f"job.{status.value}": False for status in ENDED},
    **dict.fromkeys(("pipeline.ended", "pipeline.failed", "pipeline.skipped"), True),
}
"""The notices of an end: whether it is that of a run."""
_CLOSING = "]}]}]}"
_LENGTH = 27
"""Of a time in the ledger's own format."""


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
        self._accepts_all = self._is_reachable = True
        self._log = logger(LOOP)
        self.exported = 0
        self.dropped = 0
        attributes = {"service.name": settings.service, "service.instance.id": node}
        shown = {**settings.attributes, **attributes}.items()
        resource = "".join(_attribute(key, value) for key, value in shown)[:-1]
        scope = orjson.dumps({"name": "ductile", "version": ductile.__version__}).decode()
        self._opening = (
            f'{{"resourceSpans":[{{"resource":{{"attributes":[{resource}]}},'
            f'"scopeSpans":[{{"scope":{scope},"spans":['
        )

    def observe(self, notices: Iterable[StoredNotice]) -> None:
        """Queue the jobs and runs that these notices report as ended."""
        for notice in notices:
            is_run = _IS_RUN.get(notice.type)
            if is_run is not None and notice.job_id is not None:
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
        if self._queue and self._is_reachable:
            self._send_batch(FLUSH_TIMEOUT)

    def _send_batch(self, timeout: float) -> bool:
        with self._sending:
            # A collector that is down costs the encoding of one job per attempt to reach it.
            size = min(BATCH, len(self._queue)) if self._is_reachable else 1
            batch = [self._queue.popleft() for _ in range(size)]
            spans: list[str] = []
            for start in range(0, size, CHUNK):
                some = batch[start : start + CHUNK]
                try:
                    spans += self._ledger.read(partial(self._build, batch=some))
                except Exception:
                    self.dropped += size
                    raise
            if not spans:
                return True
            body = f"{self._opening}{','.join(spans)}{_CLOSING}".encode()
            headers = {"Content-Type": "application/json", **self._settings.headers}
            url = self._settings.url
            is_plain = url.startswith("http://")
            request = OutboundRequest(
                url, body, headers, timeout, networks=ANYWHERE, plain_http=is_plain
            )
            result = _check_response(self._send(request))
        self._record(result, len(spans))
        return result.is_success

    def _record(self, result: SendResult, spans: int) -> None:
        rejected = _count_rejected(result, spans)
        self.exported += spans - rejected
        self.dropped += rejected
        self._is_reachable = result.is_success
        if self._accepts_all == (not rejected):
            return
        self._accepts_all = not rejected
        if rejected:
            error = result.error or f"HTTP {result.status}, {rejected} of {spans} spans rejected"
            self._log.warning("the collector does not accept all spans", error=error)
        else:
            self._log.info("the collector accepts spans again", dropped=self.dropped)

    def _build(self, tx: Tx, batch: Sequence[tuple[bool, str]]) -> list[str]:
        """The spans of what a batch names, as JSON."""
        jobs = [id for is_run, id in batch if not is_run]
        runs = [id for is_run, id in batch if is_run]
        found: list[str] = []
        recorded = [
            (row, context)
            for row in (traces.load_ended_jobs(tx, jobs) if jobs else ())
            if self._settings.sampler.records(context := context_of(row[11], row[0], row[12]))
        ]
        attempts = traces.load_attempts(tx, [(row[0], row[7]) for row, _ in recorded])
        for row, context in recorded:
            joined = traces.list_joined_jobs(tx, row[10]) if row[10] else ()
            found += _job_spans(row, context, attempts[row[0]], joined)
        for row in traces.load_ended_runs(tx, runs) if runs else ():
            run = parse_column(row[5])
            if run is not None and self._settings.sampler.records(run):
                found += _run_span(row, run)
        return found


def _check_response(result: SendResult) -> SendResult:
    """A failure if what accepts the request is no collector: it sends a web page, such as that of a
    login, or more than a report of rejected spans can be."""
    is_other = len(result.body) >= MAX_BODY or result.body.lstrip().startswith(b"<")
    if result.is_success and is_other:
        return SendResult(None, "the response is not one of a collector")
    return result


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


def _job_spans(
    row: Row, context: TraceContext, attempts: Sequence[Row], joined: Sequence[str]
) -> Iterator[str]:
    """The job, its wait in the queue, and its attempts."""
    id, plugin, command, status, created, _, completed, _, pipeline, step, *_ = row
    shown = _describe(plugin, command, pipeline, step) + _attribute("ductile.job_id", id)
    name, span_of_this = f"{plugin} {command}", span_of_job(id)
    own = context.below(span_of_this)
    queued = _nanoseconds(created)
    links = [
        f'{{"traceId":"{context.trace_id}","spanId":"{span_of_job(one)}"}}'
        for one in joined[:MOST_LINKS]
    ]
    yield from _span(
        context,
        span_of_this,
        _quote(f"job {name}"),
        (queued, _nanoseconds(completed)),
        shown + _cached_attribute("ductile.status", status),
        status,
        links=",".join(links),
    )
    for number, result, started, ended, boot in attempts:
        began = _nanoseconds(started)
        if number == 1:
            yield from _span(own, span_of_wait(id), '"queue wait"', (queued, began), shown)
        of_attempt = shown + _describe_attempt(number, result, boot)
        span, period = span_of_attempt(id, number), (began, _nanoseconds(ended))
        yield from _span(own, span, _quote(name), period, of_attempt, result, kind=_CONSUMER)


def _run_span(row: Row, context: TraceContext) -> Iterator[str]:
    id, pipeline, status, created, ended, _ = row
    shown = _cached_attribute("ductile.pipeline", pipeline) + _attribute("ductile.run_id", id)
    shown += _cached_attribute("ductile.status", status)
    name, period = _quote(f"pipeline {pipeline}"), (_nanoseconds(created), _nanoseconds(ended))
    yield from _span(context, span_of_run(id), name, period, shown, status)


def _span(
    context: TraceContext,
    span: str,
    name: str,
    period: tuple[int | None, int | None],
    attributes: str,
    status: str = "",
    *,
    kind: int = _INTERNAL,
    links: str = "",
) -> Iterator[str]:
    """One span as JSON, from JSON; none if its times are not known.

    A template takes a quarter of the time of an object and its encoding.
    """
    start, end = period
    if start is None or end is None:
        return
    parent = f'"parentSpanId":"{context.parent_span}",' if context.parent_span else ""
    links = f'"links":[{links}],' if links else ""
    failed = f'"status":{{"code":{_ERROR}}},' if status in _FAILED else ""
    yield (
        f'{{"traceId":"{context.trace_id}","spanId":"{span}",{parent}"name":{name},"kind":{kind},'
        f'"startTimeUnixNano":"{start}","endTimeUnixNano":"{max(start, end)}",{links}{failed}'
        f'"attributes":[{attributes[:-1]}]}}'
    )


def _nanoseconds(text: str | None) -> int | None:
    if text is None:
        return None
    if len(text) == _LENGTH and text[19] == "." and text[20:26].isdecimal():
        # The second is that of many spans.
        second = _second(text[:19])
        return None if second is None else second + int(text[20:26]) * 1000
    moment = moment_of(text)
    return None if moment is None else _second_of(moment) + moment.microsecond * 1000


@lru_cache(maxsize=1024)
def _second(text: str) -> int | None:
    moment = moment_of(f"{text}.000000Z")
    return None if moment is None else _second_of(moment)


def _second_of(moment: datetime) -> int:
    return int(moment.replace(microsecond=0).timestamp()) * 1_000_000_000


@lru_cache(maxsize=1024)
def _quote(text: str) -> str:
    return orjson.dumps(text).decode()


@lru_cache(maxsize=1024)
def _describe(plugin: str, command: str, pipeline: str, step: str) -> str:
    """The attributes that jobs of one kind share."""
    shown = _attribute("ductile.plugin", plugin) + _attribute("ductile.command", command)
    if pipeline:
        shown += _attribute("ductile.pipeline", pipeline) + _attribute("ductile.step", step)
    return shown


@lru_cache(maxsize=1024)
def _describe_attempt(number: int, result: str, boot: str | None) -> str:
    shown = _attribute("ductile.attempt", number) + _attribute("ductile.status", result)
    return shown + _attribute("ductile.boot", boot) if boot else shown


def _attribute(key: str, value: str | int) -> str:
    """An attribute as JSON, and a comma."""
    typed = f'"intValue":"{value}"' if isinstance(value, int) else f'"stringValue":{_json(value)}'
    return f'{{"key":{_quote(key)},"value":{{{typed}}}}},'


_cached_attribute = lru_cache(maxsize=1024)(_attribute)


def _json(text: str) -> str:
    return orjson.dumps(text).decode()
