"""`GET /metrics`, as Prometheus' own parser reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from ductile.engine.observability import counters
from tests.http.doors import CONFIG, ECHO, House, opened
from tests.http.following import following
from tests.http.routes.test_webhooks import sign

SECRET = "a-hook-secret-0123456789"
MORE = f"""\
plugins: {{bad: {{retry: {{max_attempts: 1}}}}}}
webhooks:
  listen: 127.0.0.1:0
  endpoints: [{{path: /hook/a, plugin: echo, secret: {SECRET}}}]
"""
BAD = "#!/bin/sh\nexit 1\n"


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    with opened(CONFIG + MORE, plugins={"echo": ECHO, "bad": BAD}) as house:
        yield house


def metrics(house: House) -> Mapping[str, Metric]:
    answer = house.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = list(text_string_to_metric_families(answer.raw.decode()))
    assert len({metric.name for metric in found}) == len(found)
    return {metric.name: metric for metric in found}


def value(house: House, sample_name: str, **labels: str) -> float:
    """The one sample of this name and these labels (and maybe others); 0 where there is none."""
    found = [
        sample.value
        for metric in metrics(house).values()
        for sample in metric.samples
        if sample.name == sample_name and labels.items() <= sample.labels.items()
    ]
    assert len(found) <= 1, found
    return found[0] if found else 0.0


def run(house: House, plugin: str = "echo", command: str = "poll") -> str:
    job_id: str = house.ask("POST", f"/plugin/{plugin}/{command}", "{}").json["job_id"]
    assert house.ask("GET", f"/job/{job_id}?wait=20").json["status"] in ("succeeded", "dead")
    return job_id


def until_counted(house: House, before: float, name: str, **labels: str) -> None:
    """An attempt's end is counted just after it is durable."""
    for _ in range(1000):
        if value(house, name, **labels) > before:
            return
    pytest.fail(f"{name} {labels} stays {before}")


@pytest.mark.parametrize(
    ("plugin", "command", "outcome"),
    [("echo", "poll", "succeeded"), ("echo", "peek", "succeeded"), ("bad", "poll", "failed")],
)
def test_attempts_are_counted_by_outcome(
    house: House, plugin: str, command: str, outcome: str
) -> None:
    labels = {"plugin": plugin, "command": command, "outcome": outcome}
    before = value(house, "ductile_attempts_total", **labels)
    run(house, plugin, command)
    until_counted(house, before, "ductile_attempts_total", **labels)


def test_durations_and_waits_are_histograms(house: House) -> None:
    run(house)
    until_counted(house, 0, "ductile_attempt_duration_seconds_count", plugin="echo", command="poll")
    families = metrics(house)
    for name in ("ductile_attempt_duration_seconds", "ductile_job_wait_seconds"):
        assert families[name].type == "histogram"
        samples = [s for s in families[name].samples if s.labels["plugin"] == "echo"]
        samples = [s for s in samples if s.labels.get("command", "poll") == "poll"]
        buckets = [s.value for s in samples if s.name.endswith("_bucket")]
        (count,) = (s.value for s in samples if s.name.endswith("_count"))
        assert buckets == sorted(buckets)
        assert buckets[-1] == count > 0
        assert next(s.value for s in samples if s.name.endswith("_sum")) >= 0


def test_every_metric_says_what_it_is(house: House) -> None:
    run(house)
    for metric in metrics(house).values():
        assert metric.documentation, metric.name
        assert metric.type in ("counter", "gauge", "histogram"), metric.name


def test_answers_are_counted_by_route_and_status(house: House) -> None:
    labels = {"method": "GET", "route": "/job/{job_id}", "status": "404"}
    before = value(house, "ductile_http_requests_total", **labels)
    for number in range(5):
        house.ask("GET", f"/job/{number}")
    assert value(house, "ductile_http_requests_total", **labels) == before + 5
    del labels["status"]
    assert value(house, "ductile_http_request_duration_seconds_count", **labels) >= 5


def test_deliveries_of_webhooks_are_counted(house: House) -> None:
    body = b"{}"
    for signature in (sign(body, SECRET), "0" * 64):
        headers = {"X-Hub-Signature-256": signature}
        house.ask("POST", "/hook/a", body, token=None, headers=headers, door="webhooks")
    for outcome in ("accepted", "forbidden"):
        found = value(house, "ductile_webhook_requests_total", endpoint="a", outcome=outcome)
        assert found == 1


def test_followers_are_counted(house: House) -> None:
    assert value(house, "ductile_event_followers") == 0
    with following(house):
        assert value(house, "ductile_event_followers") == 1


def test_the_queue_the_slots_and_the_store_are_told(house: House) -> None:
    run(house)
    assert value(house, "ductile_runner_slots", state="free") == 2
    assert value(house, "ductile_runner_slots", state="busy") == 0
    assert value(house, "ductile_runner_events_total", event="runner.started") == 1
    commits = value(house, "ductile_store_commits_total")
    assert value(house, "ductile_store_transactions_total") >= commits > 0
    assert value(house, "ductile_store_largest_batch") >= 1
    assert value(house, "ductile_notices_total", type="job.succeeded") >= 1
    assert value(house, "process_resident_memory_bytes") > 1e6
    assert value(house, "ductile_plugins_loaded") == 2


def test_jobs_that_wait_are_told_by_plugin() -> None:
    with opened(CONFIG, working=False) as own:
        for _ in range(3):
            own.ask("POST", "/plugin/echo/poll", "{}")
        assert value(own, "ductile_queue_jobs", plugin="echo", status="queued") == 3
        assert value(own, "ductile_queue_oldest_seconds", plugin="echo") >= 0


def put_breaker(house: House, plugin: str) -> None:
    absent = ("opened_at", "last_failure_at", "last_job_id", "probe_job_id")
    row = {"plugin": plugin, "command": "poll", "state": "open", "failure_count": 3}
    row |= {"now": "2026-02-08T10:00:00.000000Z", **dict.fromkeys(absent)}
    house.gateway.ledger.write(lambda tx: tx.run("store_breaker", **row))


def test_breakers_are_told_by_state(house: House) -> None:
    put_breaker(house, "bad")
    assert value(house, "ductile_breakers", plugin="bad", state="open") == 1


def test_names_that_are_no_plugins_or_routes_add_no_labels(house: House) -> None:
    for number in range(5):
        put_breaker(house, f"nobody-{number}")
        house.ask("POST", f"/plugin/nobody-{number}/poll", "{}")
        house.ask("GET", f"/nowhere/{number}")
    text = house.ask("GET", "/metrics").raw
    assert b"nobody" not in text
    assert b"nowhere" not in text


def test_breakers_of_plugins_that_are_gone_are_not_told(house: House) -> None:
    put_breaker(house, "bad")
    put_breaker(house, "nobody")
    text = house.ask("GET", "/metrics").raw.decode()
    found = [line for line in text.splitlines() if line.startswith("ductile_breakers{")]
    assert found == ['ductile_breakers{plugin="bad",state="open"} 1']


def test_series_of_plugins_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counters, "MAX_SERIES", 1)
    with opened() as own:
        run(own)
        until_counted(own, 0, "ductile_attempts_total", plugin="echo", command="poll")
        run(own, command="handle")
        until_counted(own, 0, "ductile_attempts_total", plugin="other", command="other")


def test_they_are_open_where_the_config_says_so(house: House) -> None:
    assert house.ask("GET", "/metrics", token=None).status == 401
    with opened(CONFIG + "  metrics: public\n", working=False) as own:
        assert own.ask("GET", "/metrics", token=None).status == 200
        assert own.ask("GET", "/jobs", token=None).status == 401
