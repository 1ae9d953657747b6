"""Spans of jobs and runs at a real collector."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ductile.core.jobs.trace import TraceContext, span_of_attempt, span_of_job
from ductile.engine.observability import tracing
from ductile.engine.observability.trace_settings import find_flaw, read_tracing
from ductile.engine.observability.tracing import SpanExporter
from ductile.engine.outbox.http_client import MAX_BODY
from ductile.engine.outbox.policy import SendResult
from ductile.errors import LedgerError
from ductile.store.engines.api import StoredNotice
from tests.collector import Collector, running_collector
from tests.engine.site import PYTHON, Site
from tests.waiting import until

CANARY = "canary-9f3b77d1c0e24a5b"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def collector() -> Iterator[Collector]:
    with running_collector() as collector:
        yield collector


def answer(result: str, events: str = "[]") -> str:
    return (
        PYTHON + "json.load(sys.stdin)\n"
        f"print(json.dumps({{'status': 'ok', 'result': {result}, 'events': {events}}}))\n"
    )


def attributes(span: dict[str, Any]) -> dict[str, str]:
    return {item["key"]: next(iter(item["value"].values())) for item in span["attributes"]}


def test_pipeline_with_split_join_and_retry_is_one_connected_trace(
    site: Site, collector: Collector
) -> None:
    site.environ |= collector.environ
    site.plugin("source", answer("os.environ['TRACEPARENT']", "[{'type': 'made', 'payload': {}}]"))
    site.plugin("left", answer("1"))
    flaky = site.folder / "tried"
    site.plugin(
        "right",
        PYTHON
        + f"p = {str(flaky)!r}\n"
        + "if not os.path.exists(p):\n    open(p, 'w').close()\n    sys.exit(75)\n"
        + "print(json.dumps({'status': 'ok', 'result': 2}))\n",
        retry={"max_attempts": 3, "backoff_base": "1ms"},
    )
    site.plugin("after", answer("3"))
    site.settings["pipelines"] = [
        {
            "name": "fork",
            "on": "made",
            "steps": [
                {"id": "both", "split": [{"uses": "left"}, {"uses": "right"}]},
                {"uses": "after"},
            ],
        }
    ]
    with site.running() as running:
        root = running.run("source")
        running.notice("pipeline.ended")
        until(lambda: len(collector.named("pipeline fork")) == 1)
        until(lambda: len(collector.named("job after handle")) == 1)
    spans = {span["spanId"]: span for span in collector.spans}
    assert len({span["traceId"] for span in spans.values()}) == 1
    roots = [span for span in spans.values() if "parentSpanId" not in span]
    assert [span["name"] for span in roots] == ["job source poll"]
    assert all(s["parentSpanId"] in spans for s in spans.values() if "parentSpanId" in s)
    assert [attributes(s)["ductile.status"] for s in collector.named("right handle")] == [
        "failed",
        "succeeded",
    ]
    [join] = collector.named("job after handle")
    assert {link["spanId"] for link in join["links"]} == {
        span["spanId"]
        for name in ("job left handle", "job right handle")
        for span in collector.named(name)
    }
    [run] = collector.named("pipeline fork")
    assert run["parentSpanId"] == span_of_job(root["id"])
    trace, span = root["result"]["result"].split("-")[1:3]
    assert (trace, span) == (run["traceId"], span_of_attempt(root["id"], 1))


def test_request_with_a_traceparent_continues_its_trace(site: Site, collector: Collector) -> None:
    site.environ |= collector.environ
    site.plugin("echo", answer("1"))
    with site.running() as running:
        context = TraceContext(TRACE, SPAN, True)
        running.ended(running.put("echo", trace=context.to_column()))
        running.ended(running.put("echo", trace=TraceContext(TRACE, SPAN, False).to_column()))
        until(lambda: len(collector.named("job echo poll")) == 1)
    [span] = collector.named("job echo poll")
    assert (span["traceId"], span["parentSpanId"]) == (TRACE, SPAN)


def test_spans_contain_no_payload_result_error_or_secret(site: Site, collector: Collector) -> None:
    site.environ |= collector.environ | {
        "OTEL_EXPORTER_OTLP_HEADERS": f"x-key={CANARY}",
        "OTEL_SERVICE_NAME": "lab",
    }
    script = PYTHON + f"print('{CANARY}', file=sys.stderr)\nprint('{CANARY}')\nsys.exit(3)\n"
    site.plugin("bad", script, retry={"max_attempts": 1}, config={"token": CANARY})
    with site.running() as running:
        running.run("bad", payload={"a": CANARY})
        until(lambda: len(collector.named("job bad poll")) == 1)
    assert CANARY not in str(collector.documents)
    [span] = collector.named("job bad poll")
    assert span["status"] == {"code": 2}
    assert collector.headers[0]["x-key"] == CANARY
    resource = collector.documents[0]["resourceSpans"][0]["resource"]
    assert attributes(resource)["service.name"] == "lab"


def test_jobs_run_while_the_collector_refuses_and_spans_are_counted(
    site: Site, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "RETRY_SECONDS", 0.01)
    site.environ |= collector.environ
    collector.status = 503
    site.plugin("echo", answer("1"))
    with site.running() as running:
        assert running.run("echo")["status"] == "succeeded"
        tracer = running.gateway.tracer
        assert tracer is not None
        until(lambda: tracer.dropped == 3)
        collector.status = 200
        running.run("echo")
        until(lambda: tracer.exported == 3)
    assert len(collector.spans) == 3


def test_spans_that_the_collector_rejects_are_counted_as_dropped(
    site: Site, collector: Collector
) -> None:
    site.environ |= collector.environ
    site.plugin("echo", answer("1"))
    with site.running() as running:
        collector.body = b'{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "too old"}}'
        running.run("echo")
        tracer = running.gateway.tracer
        assert tracer is not None
        until(lambda: tracer.dropped == 2)
        assert tracer.exported == 1


@pytest.mark.parametrize(
    ("body", "rejected"),
    [
        (b'{"partialSuccess": {"rejectedSpans": 4}}', 4),
        (b'{"partialSuccess": {"rejectedSpans": "99"}}', 9),
        (b'{"partialSuccess": {"rejectedSpans": -1}}', 0),
        (b'{"partialSuccess": {"rejectedSpans": 1e999}}', 0),
        (b'{"partialSuccess": {"rejectedSpans": "' + b"9" * 5000 + b'"}}', 0),
        (b'{"partialSuccess": {"rejectedSpans": null}}', 0),
        (b'{"partialSuccess": []}', 0),
        (b"[]", 0),
        (b"OK", 0),
        (b"", 0),
    ],
)
def test_answers_of_collectors_that_are_not_as_they_should_be(body: bytes, rejected: int) -> None:
    assert tracing._count_rejected(SendResult(200, body=body), 9) == rejected


def test_failure_keeps_its_own_reason_if_a_proxy_answers_with_a_page() -> None:
    failed = SendResult(503, "HTTP 503", b"<html>")
    assert tracing._check_response(failed) is failed


def test_collector_that_is_down_is_tried_with_one_job_at_a_time(
    site: Site, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "RETRY_SECONDS", 3600.0)
    site.environ |= collector.environ
    collector.status = 503
    site.plugin("echo", answer("1"))
    with site.running() as running:
        tracer = running.gateway.tracer
        assert tracer is not None
        running.run("echo")
        until(lambda: tracer.dropped == 3)
        for _ in range(3):
            running.run("echo")
        until(lambda: len(tracer._queue) == 3)
        assert (tracer.tick(datetime.now(UTC)), tracer.dropped) == (3600.0, 6)
        collector.status = 200
        tracer.tick(datetime.now(UTC))
        assert (tracer.exported, tracer.dropped) == (6, 6)


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-08T10:00:00.123456Z",
        "2026-02-08T10:00:00Z",
        "2026-02-08T10:00:00.5+01:00",
        "1969-12-31T23:59:59.750000Z",
    ],
)
def test_times_are_nanoseconds_since_1970(text: str) -> None:
    moment = datetime.fromisoformat(text)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    assert tracing._nanoseconds(text) == since // timedelta(microseconds=1) * 1000


@pytest.mark.parametrize("text", [None, "yesterday", "2026-02-30T10:00:00.000000Z"])
def test_times_that_cannot_be_read_have_no_span(text: str | None) -> None:
    assert tracing._nanoseconds(text) is None


def test_spans_that_cannot_be_read_are_counted() -> None:
    settings = read_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
    assert settings is not None

    class Broken:
        def read(self, _: object) -> None:
            raise LedgerError("the ledger cannot be read")

    exporter = SpanExporter(settings, "node", Broken(), send=None)  # type: ignore[arg-type]
    exporter.observe([StoredNotice(1, "jobs", "job.succeeded", "{}", "2026-02-08T10:00:00Z", "j")])
    with pytest.raises(LedgerError):
        exporter.tick(datetime.now(UTC))
    assert exporter.dropped == 1


def test_stop_sends_what_is_queued(site: Site, collector: Collector) -> None:
    site.environ |= collector.environ
    site.plugin("echo", answer("1"))
    with site.running() as running:
        running.run("echo")
    assert len(collector.spans) == 3


def test_full_queue_drops_and_counts() -> None:
    settings = read_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
    assert settings is not None
    exporter = SpanExporter(settings, "node", ledger=None, send=None)  # type: ignore[arg-type]
    notice = StoredNotice(1, "jobs", "job.succeeded", "{}", "2026-02-08T10:00:00Z", "j")
    exporter.observe([notice] * (tracing.MOST_QUEUED + 5))
    assert exporter.dropped == 5


@pytest.mark.parametrize(
    ("answer", "sizes"),
    [
        (SendResult(200, body=b'{"partialSuccess": {"rejectedSpans": 1}}'), [tracing.BATCH] * 2),
        (SendResult(503), [tracing.BATCH, 1]),
        (SendResult(200, body=b" <!doctype html>"), [tracing.BATCH, 1]),
        (SendResult(200, body=b"\0" * MAX_BODY), [tracing.BATCH, 1]),
    ],
    ids=["rejects some", "refuses", "is a web page", "never ends"],
)
def test_only_a_collector_that_is_down_is_tried_with_single_jobs(
    answer: SendResult, sizes: list[int]
) -> None:
    settings = read_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
    assert settings is not None
    found: list[int] = []

    class OneSpanPerJob:
        def read(self, build: Any) -> list[str]:
            found[-1] += len(build.keywords["batch"])
            return ["{}"] * len(build.keywords["batch"])

    exporter = SpanExporter(settings, "node", OneSpanPerJob(), send=lambda _: answer)  # type: ignore[arg-type]
    notice = StoredNotice(1, "jobs", "job.succeeded", "{}", "2026-02-08T10:00:00Z", "j")
    exporter.observe([notice] * (tracing.BATCH * 2))
    for _ in sizes:
        found.append(0)
        exporter._send_batch(1.0)
    assert found == sizes
    assert exporter.dropped == (sum(sizes) if sizes[-1] == 1 else len(sizes))


def test_without_an_endpoint_nothing_is_traced(site: Site) -> None:
    site.plugin("echo", answer("os.environ.get('TRACEPARENT')"))
    with site.running() as running:
        assert running.gateway.tracer is None
        assert running.run("echo")["result"]["result"] is None


class TestVariables:
    BASE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}

    def test_endpoint_of_traces_is_used_as_it_is(self) -> None:
        found = read_tracing({**self.BASE, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t/x"})
        assert found is not None
        assert found.url == "http://t/x"

    def test_common_endpoint_gets_the_path_of_traces(self) -> None:
        found = read_tracing(self.BASE)
        assert found is not None
        assert (found.url, found.service) == ("http://c:4318/v1/traces", "ductile")

    @pytest.mark.parametrize(
        "more",
        [
            {"OTEL_SDK_DISABLED": "true"},
            {"OTEL_TRACES_EXPORTER": "none"},
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
        ],
    )
    def test_tracing_is_off(self, more: dict[str, str]) -> None:
        assert read_tracing({**self.BASE, **more}) is None

    @pytest.mark.parametrize("timeout", ["nan", "inf", "-1", "1e9", "soon", ""])
    def test_timeout_is_a_number_of_seconds_within_limits(self, timeout: str) -> None:
        found = read_tracing({**self.BASE, "OTEL_EXPORTER_OTLP_TIMEOUT": timeout})
        assert found is not None
        assert 0.1 <= found.timeout <= 60

    def test_unsupported_protocol_is_reported(self) -> None:
        flaw = find_flaw({**self.BASE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
        assert flaw is not None
        assert "use http/json" in flaw

    @pytest.mark.parametrize(
        ("name", "argument", "ratio", "follows"),
        [
            ("always_on", "", 1.0, False),
            ("always_off", "", 0.0, False),
            ("traceidratio", "0.25", 0.25, False),
            ("parentbased_traceidratio", "0.25", 0.25, True),
            ("parentbased_traceidratio", "many", 1.0, True),
            ("", "", 1.0, True),
        ],
    )
    def test_samplers(self, name: str, argument: str, ratio: float, follows: bool) -> None:
        variables = {"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": argument}
        found = read_tracing({**self.BASE, **variables})
        assert found is not None
        assert (found.sampler.ratio, found.sampler.follows_parent) == (ratio, follows)
