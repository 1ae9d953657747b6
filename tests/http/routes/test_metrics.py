"""`GET /metrics`, as Prometheus' own parser reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from ductile.engine.observability import counters
from tests.http.harness import CONFIG, ECHO, ApiHarness, running_api
from tests.http.routes.test_webhooks import sign
from tests.http.subscriber import subscribed
from tests.waiting import until

SECRET = "a-hook-secret-0123456789"
MORE = f"""\
plugins: {{bad: {{retry: {{max_attempts: 1}}}}}}
webhooks:
  listen: 127.0.0.1:0
  endpoints: [{{path: /hook/a, plugin: echo, secret: {SECRET}}}]
"""
BAD = "#!/bin/sh\nexit 1\n"


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with running_api(CONFIG + MORE, plugins={"echo": ECHO, "bad": BAD}) as api:
        yield api


def metrics(api: ApiHarness) -> Mapping[str, Metric]:
    answer = api.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = list(text_string_to_metric_families(answer.raw.decode()))
    assert len({metric.name for metric in found}) == len(found)
    return {metric.name: metric for metric in found}


def value(api: ApiHarness, sample_name: str, **labels: str) -> float:
    """The sample with this name and at least these labels; 0 without one."""
    found = [
        sample.value
        for metric in metrics(api).values()
        for sample in metric.samples
        if sample.name == sample_name and labels.items() <= sample.labels.items()
    ]
    assert len(found) <= 1, found
    return found[0] if found else 0.0


def run(api: ApiHarness, plugin: str = "echo", command: str = "poll") -> str:
    job_id: str = api.ask("POST", f"/plugin/{plugin}/{command}", "{}").json["job_id"]
    assert api.ask("GET", f"/job/{job_id}?wait=20").json["status"] in ("succeeded", "dead")
    return job_id


def until_counted(api: ApiHarness, before: float, name: str, **labels: str) -> None:
    """An attempt's end is counted just after it is durable."""
    for _ in range(1000):
        if value(api, name, **labels) > before:
            return
    pytest.fail(f"{name} {labels} stays {before}")


@pytest.mark.parametrize(
    ("plugin", "command", "outcome"),
    [("echo", "poll", "succeeded"), ("echo", "peek", "succeeded"), ("bad", "poll", "failed")],
)
def test_attempts_are_counted_by_outcome(
    api: ApiHarness, plugin: str, command: str, outcome: str
) -> None:
    labels = {"plugin": plugin, "command": command, "outcome": outcome}
    before = value(api, "ductile_attempts_total", **labels)
    run(api, plugin, command)
    until_counted(api, before, "ductile_attempts_total", **labels)


def test_durations_and_waits_are_histograms(api: ApiHarness) -> None:
    run(api)
    until_counted(api, 0, "ductile_attempt_duration_seconds_count", plugin="echo", command="poll")
    families = metrics(api)
    for name in ("ductile_attempt_duration_seconds", "ductile_job_wait_seconds"):
        assert families[name].type == "histogram"
        samples = [s for s in families[name].samples if s.labels["plugin"] == "echo"]
        samples = [s for s in samples if s.labels.get("command", "poll") == "poll"]
        buckets = [s.value for s in samples if s.name.endswith("_bucket")]
        (count,) = (s.value for s in samples if s.name.endswith("_count"))
        assert buckets == sorted(buckets)
        assert buckets[-1] == count > 0
        assert next(s.value for s in samples if s.name.endswith("_sum")) >= 0


def test_every_metric_has_a_type_and_help_text(api: ApiHarness) -> None:
    run(api)
    for metric in metrics(api).values():
        assert metric.documentation, metric.name
        assert metric.type in ("counter", "gauge", "histogram"), metric.name


def test_responses_are_counted_by_route_and_status(api: ApiHarness) -> None:
    labels = {"method": "GET", "route": "/job/{job_id}", "status": "404"}
    before = value(api, "ductile_http_requests_total", **labels)
    for number in range(5):
        api.ask("GET", f"/job/{number}")
    assert value(api, "ductile_http_requests_total", **labels) == before + 5
    del labels["status"]
    assert value(api, "ductile_http_request_duration_seconds_count", **labels) >= 5


def test_webhook_requests_are_counted(api: ApiHarness) -> None:
    body = b"{}"
    for signature in (sign(body, SECRET), "0" * 64):
        headers = {"X-Hub-Signature-256": signature}
        api.ask("POST", "/hook/a", body, token=None, headers=headers, listener="webhooks")
    for outcome in ("accepted", "forbidden"):
        found = value(api, "ductile_webhook_requests_total", endpoint="a", outcome=outcome)
        assert found == 1


def test_subscribers_are_counted(api: ApiHarness) -> None:
    assert value(api, "ductile_event_followers") == 0
    with subscribed(api):
        assert value(api, "ductile_event_followers") == 1


def test_queue_slots_and_ledger_are_measured(api: ApiHarness) -> None:
    run(api)
    # A slot is free a moment after its job has ended.
    until(lambda: value(api, "ductile_runner_slots", state="free") == 2)
    assert value(api, "ductile_runner_slots", state="busy") == 0
    assert value(api, "ductile_runner_events_total", event="runner.started") == 1
    commits = value(api, "ductile_store_commits_total")
    assert value(api, "ductile_store_transactions_total") >= commits > 0
    assert value(api, "ductile_store_largest_batch") >= 1
    assert value(api, "ductile_notices_total", type="job.succeeded") >= 1
    assert value(api, "process_resident_memory_bytes") > 1e6
    assert value(api, "ductile_plugins_loaded") == 2


def test_queued_jobs_are_counted_by_plugin() -> None:
    with running_api(CONFIG, working=False) as own:
        for _ in range(3):
            own.ask("POST", "/plugin/echo/poll", "{}")
        assert value(own, "ductile_queue_jobs", plugin="echo", status="queued") == 3
        assert value(own, "ductile_queue_oldest_seconds", plugin="echo") >= 0


def put_breaker(api: ApiHarness, plugin: str) -> None:
    absent = ("opened_at", "last_failure_at", "last_job_id", "probe_job_id")
    row = {"plugin": plugin, "command": "poll", "state": "open", "failure_count": 3}
    row |= {"now": "2026-02-08T10:00:00.000000Z", **dict.fromkeys(absent)}
    api.gateway.ledger.write(lambda tx: tx.run("store_breaker", **row))


def test_breakers_are_counted_by_state(api: ApiHarness) -> None:
    put_breaker(api, "bad")
    assert value(api, "ductile_breakers", plugin="bad", state="open") == 1


def test_unknown_names_add_no_labels(api: ApiHarness) -> None:
    for number in range(5):
        put_breaker(api, f"nobody-{number}")
        api.ask("POST", f"/plugin/nobody-{number}/poll", "{}")
        api.ask("GET", f"/nowhere/{number}")
    text = api.ask("GET", "/metrics").raw
    assert b"nobody" not in text
    assert b"nowhere" not in text


def test_breakers_of_removed_plugins_are_not_counted(api: ApiHarness) -> None:
    put_breaker(api, "bad")
    put_breaker(api, "nobody")
    text = api.ask("GET", "/metrics").raw.decode()
    found = [line for line in text.splitlines() if line.startswith("ductile_breakers{")]
    assert found == ['ductile_breakers{plugin="bad",state="open"} 1']


def test_number_of_plugin_series_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MAX_SERIES", 1)
    with running_api() as own:
        run(own)
        until_counted(own, 0, "ductile_attempts_total", plugin="echo", command="poll")
        run(own, command="handle")
        until_counted(own, 0, "ductile_attempts_total", plugin="other", command="other")


def test_metrics_are_public_if_configured(api: ApiHarness) -> None:
    assert api.ask("GET", "/metrics", token=None).status == 401
    with running_api(CONFIG + "  metrics: public\n", working=False) as own:
        assert own.ask("GET", "/metrics", token=None).status == 200
        assert own.ask("GET", "/jobs", token=None).status == 401
