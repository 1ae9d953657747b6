"""Two gateways: what one relays, the other runs; once, whatever dies in between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ductile.core.delivery import relay as core
from ductile.core.jobs.limits import LONGEST_DEDUPE_KEY
from ductile.engine.outbox.relay import RelayOutbox
from ductile.store.outbox import relays
from tests.http import doors
from tests.http.doors import House
from tests.waiting import until

SECRET = "a-shared-secret-of-two"
LAB = f"""{doors.CONFIG}
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
    base = doors.CONFIG.replace("service: {", "service: {name: home, ")
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


def deliveries(house: House) -> list[dict[str, Any]]:
    return house.gateway.ledger.read(
        lambda tx: tx.dicts("relays", status=None, instance=None, limit=100)
    )


def relayed(lab: House) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lab.ask("GET", "/jobs?submitted_by=relay").json["jobs"]
    return found


def emit(house: House) -> str:
    answer = house.ask("POST", "/plugin/emit/poll", {})
    assert answer.status == 202
    return str(answer.json["job_id"])


def tree(house: House, job_id: str) -> list[dict[str, Any]]:
    jobs: list[dict[str, Any]] = house.ask("GET", f"/job/{job_id}/tree?flat=true").json["jobs"]
    return jobs


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def lab(stack: ExitStack) -> House:
    return stack.enter_context(doors.opened(LAB))


def open_home(stack: ExitStack, config: str) -> House:
    return stack.enter_context(doors.opened(config, plugins={"emit": EMIT, "echo": doors.ECHO}))


def test_what_a_step_relays_runs_at_the_other_gateway(stack: ExitStack, lab: House) -> None:
    house = open_home(stack, home(lab.address("api")[1]))
    emit(house)
    until(lambda: [row["status"] for row in deliveries(house)] == ["delivered"])
    [job] = relayed(lab)
    shown = lab.ask("GET", f"/job/{job['job_id']}").json
    assert shown["payload"]["payload"] == {"n": 7}
    assert shown["payload"]["source"] == "relay:home"
    assert shown["pipeline"] == "offsite"


def test_the_relay_is_a_job_and_the_next_step_follows_it(stack: ExitStack, lab: House) -> None:
    house = open_home(stack, home(lab.address("api")[1]))
    root = emit(house)
    until(lambda: [j["status"] for j in tree(house, root)] == ["succeeded"] * 3)
    _, carry, after = tree(house, root)
    assert (carry["plugin"], carry["step"]) == ("core.relay", "carry")
    assert (after["step"], after["parent_job_id"]) == ("after", carry["job_id"])
    told = house.ask("GET", f"/job/{carry['job_id']}").json["result"]["result"]
    [row] = deliveries(house)
    assert told == {"to": "lab", "event": "backup.ready", "event_id": row["event_id"]}
    assert row["job_id"] == carry["job_id"]


def test_baggage_travels_where_the_receiver_allows_it(stack: ExitStack, lab: House) -> None:
    step = "baggage: {trace: payload.n, other: payload.n}"
    house = open_home(stack, home(lab.address("api")[1], step=step))
    emit(house)
    until(lambda: relayed(lab))
    until(lambda: tree(lab, relayed(lab)[0]["job_id"])[0]["status"] == "succeeded")
    row = lab.gateway.ledger.read(lambda tx: tx.one("context", id=relayed(lab)[0]["job_id"]))
    assert row is not None
    context = json.loads(row[0])
    assert context["trace"] == 7
    assert "other" not in context


def test_a_template_that_fails_fails_the_relays_own_job(stack: ExitStack, lab: House) -> None:
    config = home(lab.address("api")[1]).replace("payload.n}", "payload.missing}")
    house = open_home(stack, config)
    root = emit(house)
    until(lambda: [j["status"] for j in tree(house, root)] == ["succeeded", "failed"])
    assert "relay.with: payload.missing" in tree(house, root)[1]["last_error"]
    assert deliveries(house) == []


def test_an_event_that_no_receiver_would_take_fails_the_relays_own_job(
    stack: ExitStack, lab: House
) -> None:
    house = open_home(stack, home(lab.address("api")[1], step=f"dedupe_key: {'k' * 1025}"))
    root = emit(house)
    until(lambda: [j["status"] for j in tree(house, root)] == ["succeeded", "failed"])
    reason = "relay.dedupe_key must be a text of at most 1024 bytes"
    assert reason in tree(house, root)[1]["last_error"]
    assert deliveries(house) == []


def test_the_longest_dedupe_key_travels(stack: ExitStack, lab: House) -> None:
    key = "k" * LONGEST_DEDUPE_KEY
    house = open_home(stack, home(lab.address("api")[1], step=f"dedupe_key: {key}"))
    emit(house)
    until(lambda: [row["status"] for row in deliveries(house)] == ["delivered"])
    assert [row["dedupe_key"] for row in relayed(lab)] == [key]


def test_a_gateway_that_is_away_gets_it_when_it_is_back(
    stack: ExitStack, lab: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "RETRY_SECONDS", (0.01,) * 1000)
    port = lab.address("api")[1]
    lab.server.stop()
    house = open_home(stack, home(port))
    emit(house)
    until(lambda: [row["status"] for row in deliveries(house)] == ["failed"])
    assert deliveries(house)[0]["error_detail"] == "the connection was refused"
    back = stack.enter_context(doors.opened(LAB.replace(":0", f":{port}")))
    until(lambda: [row["status"] for row in deliveries(house)] == ["delivered"])
    assert len(relayed(back)) == 1


def test_a_peer_that_refuses_for_good_makes_it_dead(
    stack: ExitStack, lab: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "RETRY_SECONDS", (0.0, 0.0))
    house = open_home(stack, home(lab.address("api")[1], path="/ingest/peer/stranger"))
    emit(house)
    until(lambda: [row["status"] for row in deliveries(house)] == ["dead"])
    [row] = deliveries(house)
    assert (row["attempt_count"], row["error_detail"]) == (3, "HTTP 403 Forbidden")
    assert relayed(lab) == []


def test_what_was_dead_is_sent_again_at_once(
    stack: ExitStack, lab: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "RETRY_SECONDS", ())
    port = lab.address("api")[1]
    config = home(port, path="/ingest/peer/stranger")
    house = open_home(stack, config)
    emit(house)
    until(lambda: [row["status"] for row in deliveries(house)] == ["dead"])
    text = house.ask("GET", "/metrics").raw.decode()
    assert 'ductile_relays{instance="lab",status="dead"} 1' in text
    house.write("config.yaml", home(port))
    house.gateway.reload()
    answer = house.ask("POST", "/relays/retry", {})
    assert (answer.status, answer.json["count"], answer.json["more"]) == (202, 1, False)
    until(lambda: [row["status"] for row in deliveries(house)] == ["delivered"])
    assert len(relayed(lab)) == 1


def test_a_replayed_step_sends_a_new_event(stack: ExitStack, lab: House) -> None:
    house = open_home(stack, home(lab.address("api")[1]))
    root = emit(house)
    until(lambda: [j["status"] for j in tree(house, root)] == ["succeeded"] * 3)
    carry = tree(house, root)[1]
    assert house.ask("POST", f"/job/{carry['job_id']}/replay", {}).status == 202
    until(lambda: len(relayed(lab)) == 2)
    ids = {row["event_id"] for row in deliveries(house)}
    assert len(ids) == 2


def test_a_failed_step_is_retried_after_its_cause_is_mended(stack: ExitStack, lab: House) -> None:
    good = home(lab.address("api")[1])
    house = open_home(stack, good.replace("payload.n}", "payload.missing}"))
    root = emit(house)
    until(lambda: [j["status"] for j in tree(house, root)] == ["succeeded", "failed"])
    house.write("config.yaml", good)
    house.gateway.reload()
    assert house.ask("POST", f"/job/{tree(house, root)[1]['job_id']}/retry", {}).status == 202
    until(lambda: len(relayed(lab)) == 1)
    until(lambda: [j["status"] for j in tree(house, root)] == ["succeeded"] * 3)


def test_a_hanging_peer_does_not_hold_up_another(stack: ExitStack, lab: House) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        more = f"""  - name: silent
    base_url: http://127.0.0.1:{silent.getsockname()[1]}
    ingress_path: /x
    secret: {SECRET}
    timeout: 30s
"""
        config = home(lab.address("api")[1], more=more)
        config += "      - {id: lost, relay: {to: silent, event: backup.ready}}\n"
        house = open_home(stack, config)
        for _ in range(relays.IN_FLIGHT + 2):
            emit(house)
        until(lambda: len(relayed(lab)) == relays.IN_FLIGHT + 2)


def test_a_disabled_instances_events_wait_until_a_reload_enables_it(
    stack: ExitStack, lab: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RelayOutbox, "poll", 3600.0)
    config = home(lab.address("api")[1], more="    enabled: false")
    house = open_home(stack, config)
    emit(house)
    until(lambda: deliveries(house))
    assert deliveries(house)[0]["status"] == "pending"
    assert any("is disabled" in str(warning) for warning in house.gateway.compiled.warnings)
    house.write("config.yaml", config.replace("enabled: false", "enabled: true"))
    house.gateway.reload()
    until(lambda: [row["status"] for row in deliveries(house)] == ["delivered"])
