"""Two running gateways: what a pipeline step of one relays becomes a job of the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ductile.core.delivery import relay as core
from ductile.engine.outbox.relay import RelayPolicy
from tests.collector import running_collector
from tests.http import harness
from tests.http.harness import ApiHarness
from tests.waiting import until

SECRET = "a-shared-secret-of-two"
LAB = f"""{harness.CONFIG}
remote_ingress:
  peers: [{{name: home, secret: {SECRET}, key_id: v1, baggage: {{allow: [trace]}}}}]
pipelines:
  - name: offsite
    on: backup.ready
    steps: [{{id: verify, uses: echo}}]
"""
EMIT = """\
#!/bin/sh
cat > /dev/null
echo '{"status":"ok","result":"made","events":[{"type":"backup.made","payload":{"n":7}}]}'
"""


def home(port: int, *, path: str = "/ingest/peer/home", step: str = "", more: str = "") -> str:
    """The config of the gateway that relays to `port`."""
    base = harness.CONFIG.replace("service: {", "service: {name: home, ")
    return f"""{base}
instances:
  - name: lab
    base_url: http://127.0.0.1:{port}
    ingress_path: {path}
    secret: {SECRET}
    key_id: v1
    timeout: 5s
{more}
pipelines:
  - name: offsite
    on: backup.made
    steps:
      - id: carry
        relay: {{to: lab, event: backup.ready, with: {{n: "{{payload.n}}"}}, {step}}}
      - {{id: after, uses: echo}}
"""


def deliveries(sender: ApiHarness) -> list[dict[str, Any]]:
    return sender.gateway.ledger.read(
        lambda tx: tx.dicts("relays", status=None, instance=None, limit=100)
    )


def relayed(lab: ApiHarness) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lab.ask("GET", "/jobs?submitted_by=relay").json["jobs"]
    return found


def emit(sender: ApiHarness) -> str:
    answer = sender.ask("POST", "/plugin/emit/poll", {})
    assert answer.status == 202
    return str(answer.json["job_id"])


def tree(sender: ApiHarness, job_id: str) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = sender.ask("GET", f"/job/{job_id}/tree?flat=true").json["jobs"]
    return jobs


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def lab(stack: ExitStack) -> ApiHarness:
    return stack.enter_context(harness.running_api(LAB))


def open_home(stack: ExitStack, config: str) -> ApiHarness:
    return stack.enter_context(
        harness.running_api(config, plugins={"emit": EMIT, "echo": harness.ECHO})
    )


def test_trace_continues_at_the_other_gateway(stack: ExitStack) -> None:
    collector = stack.enter_context(running_collector())
    lab = stack.enter_context(harness.running_api(LAB, environ=collector.environ))
    sender = stack.enter_context(
        harness.running_api(
            home(lab.address("api")[1]),
            plugins={"emit": EMIT, "echo": harness.ECHO},
            environ=collector.environ,
        )
    )
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    header = {"traceparent": f"00-{trace}-00f067aa0ba902b7-01"}
    assert sender.ask("POST", "/plugin/emit/poll", {}, headers=header).status == 202
    until(lambda: [row["status"] for row in deliveries(sender)] == ["delivered"])
    [job] = relayed(lab)
    assert lab.ask("GET", f"/job/{job['job_id']}").json["trace_id"] == trace
    until(lambda: any(span["name"] == "job echo handle" for span in collector.spans))
    until(lambda: len(collector.named("job core.relay handle")) == 1)
    [carried] = collector.named("job core.relay handle")
    until(lambda: len(collector.named("pipeline offsite")) == 2)
    runs = collector.named("pipeline offsite")
    assert {span["traceId"] for span in collector.spans} == {trace}
    assert carried["spanId"] in {run["parentSpanId"] for run in runs}


def test_relayed_event_runs_at_the_other_gateway(stack: ExitStack, lab: ApiHarness) -> None:
    step = "baggage: {trace: payload.n, other: payload.n}"
    sender = open_home(stack, home(lab.address("api")[1], step=step))
    root = emit(sender)
    until(lambda: [row["status"] for row in deliveries(sender)] == ["delivered"])
    [job] = relayed(lab)
    shown = lab.ask("GET", f"/job/{job['job_id']}").json
    assert shown["payload"]["payload"] == {"n": 7}
    assert shown["payload"]["source"] == "relay:home"
    assert shown["pipeline"] == "offsite"
    until(lambda: tree(lab, job["job_id"])[0]["status"] == "succeeded")
    row = lab.gateway.ledger.read(lambda tx: tx.one("context", id=job["job_id"]))
    assert row is not None
    context = json.loads(row[0])
    assert (context["trace"], "other" in context) == (7, False)

    until(lambda: [j["status"] for j in tree(sender, root)] == ["succeeded"] * 3)
    _, relay, following = tree(sender, root)
    assert (relay["plugin"], relay["step"]) == ("core.relay", "carry")
    assert (following["step"], following["parent_job_id"]) == ("after", relay["job_id"])
    result = sender.ask("GET", f"/job/{relay['job_id']}").json["result"]["result"]
    [sent] = deliveries(sender)
    assert result == {"to": "lab", "event": "backup.ready", "event_id": sent["event_id"]}
    assert sent["job_id"] == relay["job_id"]

    assert sender.ask("POST", f"/job/{relay['job_id']}/replay", {}).status == 202
    until(lambda: len(relayed(lab)) == 2)
    assert len({row["event_id"] for row in deliveries(sender)}) == 2


def test_event_that_an_operator_sends_runs_at_the_other_gateway(
    stack: ExitStack, lab: ApiHarness
) -> None:
    sender = open_home(stack, home(lab.address("api")[1]))
    body = {"to": "lab", "event": "backup.ready", "payload": {"n": 1}, "baggage": {"trace": 7}}
    answers = [
        sender.ask("POST", "/relays", body, headers={"Idempotency-Key": "one"}) for _ in range(2)
    ]
    assert [(answer.status, answer.json["status"]) for answer in answers] == [(202, "pending")] * 2
    assert answers[0].json == answers[1].json
    until(lambda: [row["status"] for row in deliveries(sender)] == ["delivered"])
    [job] = relayed(lab)
    assert lab.ask("GET", f"/job/{job['job_id']}").json["payload"]["payload"] == {"n": 1}
    until(lambda: tree(lab, job["job_id"])[0]["status"] == "succeeded")
    context = lab.gateway.ledger.read(lambda tx: tx.one("context", id=job["job_id"]))
    assert context is not None
    assert json.loads(context[0])["trace"] == 7
    entry, _ = sender.ask("GET", "/audit?action=relay.send").json["entries"]
    assert entry["actor"] == "token:admin"
    assert entry["details"] == {"to": "lab", "event": "backup.ready"}


def test_event_that_no_receiver_accepts_fails_the_relay_job(stack: ExitStack) -> None:
    sender = open_home(stack, home(1, step=f"dedupe_key: {'k' * 1025}"))
    root = emit(sender)
    until(lambda: [j["status"] for j in tree(sender, root)] == ["succeeded", "failed"])
    reason = "relay.dedupe_key must be a string of at most 1024 bytes"
    assert reason in tree(sender, root)[1]["last_error"]
    assert deliveries(sender) == []


def test_failed_relay_job_is_retried_after_its_template_is_fixed(
    stack: ExitStack, lab: ApiHarness
) -> None:
    good = home(lab.address("api")[1])
    sender = open_home(stack, good.replace("payload.n}", "payload.missing}"))
    root = emit(sender)
    until(lambda: [j["status"] for j in tree(sender, root)] == ["succeeded", "failed"])
    failed = tree(sender, root)[1]
    assert "relay.with: payload.missing" in failed["last_error"]
    assert deliveries(sender) == []
    sender.write("config.yaml", good)
    sender.gateway.reload()
    assert sender.ask("POST", f"/job/{failed['job_id']}/retry", {}).status == 202
    until(lambda: len(relayed(lab)) == 1)
    until(lambda: [j["status"] for j in tree(sender, root)] == ["succeeded"] * 3)


def test_event_is_sent_when_the_other_gateway_is_back(
    stack: ExitStack, lab: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "RETRY_SECONDS", (0.01,) * 1000)
    port = lab.address("api")[1]
    lab.server.stop()
    sender = open_home(stack, home(port))
    emit(sender)
    until(lambda: [row["status"] for row in deliveries(sender)] == ["failed"])
    assert deliveries(sender)[0]["error_detail"] == "the connection was refused"
    back = stack.enter_context(harness.running_api(LAB.replace(":0", f":{port}")))
    until(lambda: [row["status"] for row in deliveries(sender)] == ["delivered"])
    assert len(relayed(back)) == 1


def test_refused_event_is_dead_until_an_operator_retries_it(
    stack: ExitStack, lab: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "RETRY_SECONDS", (0.0, 0.0))
    port = lab.address("api")[1]
    sender = open_home(stack, home(port, path="/ingest/peer/stranger"))
    emit(sender)
    until(lambda: [row["status"] for row in deliveries(sender)] == ["dead"])
    [row] = deliveries(sender)
    assert (row["attempt_count"], row["error_detail"]) == (3, "HTTP 403 Forbidden")
    assert relayed(lab) == []
    text = sender.ask("GET", "/metrics").raw.decode()
    assert 'ductile_relays{instance="lab",status="dead"} 1' in text

    sender.write("config.yaml", home(port))
    sender.gateway.reload()
    answer = sender.ask("POST", "/relays/retry", {})
    assert (answer.status, answer.json["count"], answer.json["more"]) == (202, 1, False)
    until(lambda: [row["status"] for row in deliveries(sender)] == ["delivered"])
    assert len(relayed(lab)) == 1


def test_events_of_a_disabled_instance_wait_until_a_reload_enables_it(
    stack: ExitStack, lab: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RelayPolicy, "poll_seconds", 3600.0)
    config = home(lab.address("api")[1], more="    enabled: false")
    sender = open_home(stack, config)
    emit(sender)
    until(lambda: deliveries(sender))
    assert deliveries(sender)[0]["status"] == "pending"
    assert any("is disabled" in str(warning) for warning in sender.gateway.compiled.warnings)
    sender.write("config.yaml", config.replace("enabled: false", "enabled: true"))
    sender.gateway.reload()
    until(lambda: [row["status"] for row in deliveries(sender)] == ["delivered"])
