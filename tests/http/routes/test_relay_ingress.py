"""Relay ingress: `POST {listen_path}/{peer}` on the API listener."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from ductile.core.delivery.relay import Peer, is_permanent_rejection, sign_request
from ductile.core.jobs.limits import DEEPEST
from ductile.core.values.redact import Redactor
from ductile.engine.ingress.rejection_limiter import MAX_PER_MINUTE
from ductile.errors import LedgerBusy
from ductile.http.routes.relay_ingress import ROUTE
from ductile.log import configure
from ductile.store.jobs import read
from tests.http import harness
from tests.http.harness import Answer, ApiHarness
from tests.waiting import WAIT_LIMIT, until

SECRET = "a-shared-secret-of-two"
CONFIG = f"""{harness.CONFIG}
remote_ingress:
  max_body_size: 2KB
  require_key_id: true
  peers:
    - name: home
      secret: {SECRET}
      key_id: v1
      accept: [backup.ready]
      baggage: {{allow: [trace]}}
    - {{name: asleep, secret: {SECRET}, key_id: v1, enabled: false}}
routes:
  - {{from: "relay:home", event_type: backup.ready, to: echo}}
pipelines:
  - name: offsite
    on: backup.ready
    steps:
      - {{id: verify, uses: echo, baggage: {{seen: context.trace}}}}
"""
PATH = "/ingest/peer/home"


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    with harness.running_api(CONFIG) as api:
        yield api


def envelope(event_id: str | None = "e-1", **event: Any) -> dict[str, Any]:
    origin = {"instance": "home"} | ({"event_id": event_id} if event_id else {})
    return {
        "event": {"type": "backup.ready", "payload": {"n": 1}, **event},
        "origin": origin,
        "baggage": {"trace": "t-1", "other": "no"},
    }


def signed(
    api: ApiHarness, body: bytes, *, path: str = PATH, peer: str = "home", late: float = 0.0
) -> dict[str, str]:
    at = api.gateway.clock.now() - timedelta(seconds=late)
    return sign_request(peer, Peer(peer, SECRET, "v1"), path, body, at)


def send(api: ApiHarness, body: Any, **more: Any) -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    path = more.get("path", PATH)
    return api.ask("POST", path, raw, token=None, headers=signed(api, raw, **more))


def jobs_of(api: ApiHarness, body: dict[str, Any]) -> list[dict[str, Any]]:
    """The jobs that an accepted event has created."""
    listing = api.ask("GET", "/jobs?submitted_by=relay&limit=100").json["jobs"]
    return [api.ask("GET", f"/job/{job['job_id']}").json for job in listing if job_of(job, body)]


def job_of(job: dict[str, Any], body: dict[str, Any]) -> bool:
    return bool(job["source_event_id"] == body["receiver_event_id"])


def test_relayed_event_is_accepted_and_routed_as_a_root_event(api: ApiHarness) -> None:
    answer = send(api, envelope("e-root"))
    assert answer.status == 202
    body = answer.json
    assert body.keys() == {"status", "peer", "event_type", "receiver_event_id", "job_id"}
    assert (body["status"], body["peer"]) == ("accepted", "home")
    assert body["event_type"] == "backup.ready"
    job = api.ask("GET", f"/job/{body['job_id']}").json
    assert job["submitted_by"] == "relay"
    assert job["parent_job_id"] is None
    assert job["source_event_id"] == body["receiver_event_id"]


def test_relayed_event_starts_routes_and_pipelines(api: ApiHarness) -> None:
    body = send(api, envelope("e-both")).json
    assert sorted(job["pipeline"] or "" for job in jobs_of(api, body)) == ["", "offsite"]


def test_allowed_baggage_is_in_the_context(api: ApiHarness) -> None:
    body = send(api, envelope("e-baggage")).json
    [job] = [job for job in jobs_of(api, body) if job["pipeline"]]

    def tree() -> str:
        return json.dumps(api.ask("GET", f"/job/{job['job_id']}/tree").json)

    until(lambda: '"seen": "t-1"' in tree())
    assert '"other"' not in tree()


def test_repeated_event_returns_the_same_job(api: ApiHarness) -> None:
    first, again = send(api, envelope("e-twice")), send(api, envelope("e-twice"))
    assert (first.status, again.status) == (202, 202)
    assert again.json["duplicate"] is True
    assert again.json["job_id"] == first.json["job_id"]
    assert again.json["receiver_event_id"] == first.json["receiver_event_id"]


def test_event_sent_twice_concurrently_is_one_job(api: ApiHarness) -> None:
    answers: list[Answer] = []
    threads = [
        threading.Thread(target=lambda: answers.append(send(api, envelope("e-at-once"))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_LIMIT)
    assert [answer.status for answer in answers] == [202] * 4
    assert len({answer.json["job_id"] for answer in answers}) == 1
    assert sum("duplicate" not in answer.json for answer in answers) == 1
    assert len(jobs_of(api, answers[0].json)) == 2


def test_duplicate_event_returns_the_existing_job(
    api: ApiHarness,
) -> None:
    first = send(api, envelope("e-first", dedupe_key="the same")).json

    def done() -> bool:
        return all(job["status"] == "succeeded" for job in jobs_of(api, first))

    until(done)
    other = send(api, envelope("e-other", dedupe_key="the same")).json
    assert other["deduplicated"] is True
    assert other["job_id"] in {job["job_id"] for job in jobs_of(api, first)}
    again = send(api, envelope("e-other", dedupe_key="the same")).json
    assert again["duplicate"] is True
    assert again["job_id"] == other["job_id"]
    assert jobs_of(api, other) == []


def test_routed_job_has_the_baggage(api: ApiHarness) -> None:
    body = send(api, envelope("e-routed")).json
    [job] = [job for job in jobs_of(api, body) if not job["pipeline"]]
    ledger = api.gateway.ledger
    row = ledger.read(lambda tx: read.load_job(tx, job["job_id"]))
    assert row is not None
    context = ledger.read(lambda tx: tx.one("context", id=row.entered_context_id))
    assert context is not None
    assert json.loads(context[0]) == {"trace": "t-1"}


def test_payload_at_the_nesting_limit_is_relayed() -> None:
    config = CONFIG.replace("max_body_size: 2KB", "max_body_size: 64KB")
    with harness.running_api(config) as api:
        payload: Any = {}
        for _ in range(DEEPEST - 1):
            payload = {"a": payload}
        body = envelope("e-deep", payload=payload)
        body["baggage"] = {"trace": payload["a"]}
        answer = send(api, body)
        assert answer.status == 202

        def states() -> list[str]:
            return [job["status"] for job in jobs_of(api, answer.json)]

        until(lambda: states() == ["succeeded"] * 2)
        for job in jobs_of(api, answer.json):
            assert api.ask("GET", f"/job/{job['job_id']}/tree").status == 200
        body["event"]["payload"] = {"a": payload}
        assert send(api, body).status == 400


def test_replayed_request_is_refused(api: ApiHarness) -> None:
    body = json.dumps(envelope("e-replay")).encode()
    headers = signed(api, body)
    first = api.ask("POST", PATH, body, token=None, headers=headers)
    replayed = api.ask("POST", PATH, body, token=None, headers=headers)
    assert (first.status, replayed.status) == (202, 403)
    assert replayed.json == {"error": "forbidden", "code": "forbidden"}


@pytest.mark.parametrize(
    ("path", "peer", "late"),
    [
        pytest.param("/ingest/peer/nobody", "nobody", 0.0, id="unlisted"),
        pytest.param("/ingest/peer/asleep", "asleep", 0.0, id="disabled"),
        pytest.param("/ingest/peer/", "home", 0.0, id="path without a peer"),
        pytest.param(PATH, "home", 301.0, id="too late"),
        pytest.param(PATH, "home", -301.0, id="too early"),
    ],
)
def test_every_failed_authentication_gets_the_same_response(
    api: ApiHarness, path: str, peer: str, late: float
) -> None:
    answer = send(api, envelope("e-no"), path=path, peer=peer, late=late)
    assert (answer.status, answer.json) == (403, {"error": "forbidden", "code": "forbidden"})


def test_refused_requests_are_reported_per_peer(api: ApiHarness) -> None:
    send(api, envelope("e-late"), late=301.0)
    send(api, envelope("e-who"), path="/ingest/peer/nobody", peer="nobody")
    rows = api.ask("GET", "/system/status").json["refused_webhooks"]
    found = {(row["endpoint"], row["reason"]) for row in rows}
    assert (PATH, "the timestamp is too far from this gateway's clock") in found
    assert ("/ingest/peer/", "unknown peer") in found


def test_changed_body_is_refused(api: ApiHarness) -> None:
    body = json.dumps(envelope("e-changed")).encode()
    headers = signed(api, body)
    answer = api.ask("POST", PATH, body.replace(b"1", b"2"), token=None, headers=headers)
    assert answer.status == 403


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param("/ingest/peer/h%6Fme", 202, id="encoded"),
        pytest.param("/ingest/peer/home?x=1", 202, id="with a query"),
        pytest.param("/ingest/peer/home/", 403, id="trailing slash"),
        pytest.param("/ingest/peer//home", 403, id="double slash"),
        pytest.param("/ingest/peer/%2Fhome", 403, id="encoded slash"),
        pytest.param("/ingest/peer/./home", 403, id="dot"),
        pytest.param("/ingest/peer/x/../home", 403, id="dots"),
        pytest.param("/ingest/peer/HOME", 403, id="another case"),
        pytest.param("/ingest/peer/home%00", 403, id="U+0000"),
        pytest.param("/ingest//peer/home", 401, id="another path of the API"),
        pytest.param("/INGEST/peer/home", 401, id="another case of the path"),
        pytest.param("/ingest/peer", 401, id="no peer at all"),
    ],
)
def test_only_the_exact_path_is_accepted(api: ApiHarness, sent: str, status: int) -> None:
    body = json.dumps(envelope(f"e-{sent}")).encode()
    headers = signed(api, body)
    assert api.ask("POST", sent, body, token=None, headers=headers).status == status


def test_repeated_header_is_refused(api: ApiHarness) -> None:
    body = json.dumps(envelope("e-header")).encode()
    head = [f"POST {PATH} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in signed(api, body).items()]
    head += ["X-Ductile-Peer: home", "Connection: close", "", ""]
    with api.connect() as connection:
        connection.sendall("\r\n".join(head).encode() + body)
        assert harness.read_all(connection).startswith(b"HTTP/1.1 403 ")


def test_refusals_are_logged_at_a_limited_rate(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    with harness.running_api(CONFIG, working=False) as api:
        for _ in range(3 * MAX_PER_MINUTE):
            assert send(api, b"{}", path="/ingest/peer/nobody", peer="nobody").status == 403
        said = capsysbinary.readouterr().out.count(b"unknown peer")
    assert said == MAX_PER_MINUTE


def test_metrics_do_not_contain_the_path(api: ApiHarness) -> None:
    send(api, b"{}", path="/ingest/peer/nobody", peer="nobody")
    text = api.ask("GET", "/metrics").raw.decode()
    assert f'route="{ROUTE}",status="403"' in text
    assert "nobody" not in text


@pytest.mark.parametrize("committed", [True, False])
def test_event_with_an_unknown_commit_is_not_accepted_and_can_be_repeated(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    ledger = api.gateway.ledger
    submit = ledger.submit

    def lost(work: Any, done: Any) -> None:
        error = LedgerBusy("the connection was lost")
        if committed:
            submit(work, lambda _result, _error: done(None, error))
        else:
            done(None, error)

    event = envelope(f"e-unknown-{committed}")
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "submit", lost)
        assert send(api, event).status == 503
    body = send(api, event).json
    assert body.get("duplicate", False) is committed
    assert len(jobs_of(api, body)) == 2


def test_token_does_not_replace_the_signature(api: ApiHarness) -> None:
    assert api.ask("POST", PATH, envelope()).status == 403


def test_too_large_body_is_refused_before_verification(api: ApiHarness) -> None:
    assert send(api, b"x" * 2049).status == 413


def test_refusal_names_the_event_type(api: ApiHarness) -> None:
    answer = send(api, envelope("e-type", type="report.made"))
    assert answer.status == 422
    assert answer.json["code"] == "event_not_accepted"


def test_signed_body_without_envelope_returns_400(api: ApiHarness) -> None:
    answer = send(api, b"[1]")
    assert answer.status == 400
    assert is_permanent_rejection(answer.status, answer.raw)


def test_other_method_returns_405(api: ApiHarness) -> None:
    answer = api.ask("GET", PATH)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


def test_wrong_host_is_refused(api: ApiHarness) -> None:
    body = json.dumps(envelope("e-host")).encode()
    headers = {**signed(api, body), "Host": "evil.example"}
    assert api.ask("POST", PATH, body, token=None, headers=headers).status == 421


def test_event_without_route_is_accepted_and_logged_at_debug(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    config = CONFIG.replace("accept: [backup.ready]", "accept: []")
    with harness.running_api(config, working=False) as api:
        configure("debug", "json", Redactor())
        try:
            answer = send(api, envelope("e-unwanted", type="nobody.cares"))
            again = send(api, envelope("e-unwanted", type="nobody.cares", payload={}))
            assert send(api, envelope("e-wanted")).json["job_id"]
        finally:
            configure("info", "json", Redactor())
    assert (answer.status, answer.json["job_id"]) == (202, None)
    assert again.json["duplicate"]
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    [line] = [line for line in lines if line["message"] == "event has no consumer"]
    assert (line["level"], line["peer"], line["event_type"]) == ("debug", "home", "nobody.cares")


def test_path_without_peers_returns_404() -> None:
    with harness.running_api(working=False) as api:
        assert send(api, envelope()).status == 401


def test_peer_removed_by_a_reload_is_refused() -> None:
    with harness.running_api(CONFIG) as api:
        assert send(api, envelope("e-before")).status == 202
        gone = CONFIG.replace("name: home", "name: elsewhere")
        api.write("config.yaml", gone.replace("relay:home", "relay:elsewhere"))
        api.gateway.reload()
        assert send(api, envelope("e-after")).status == 403


def test_api_route_takes_precedence() -> None:
    config = CONFIG.replace("max_body_size: 2KB", "max_body_size: 2KB\n  listen_path: /")
    with harness.running_api(config) as api:
        assert api.ask("GET", "/jobs").status == 200
        assert api.ask("POST", "/plugin/echo/poll", {}).status == 202
        assert send(api, envelope("e-root-path"), path="/home").status == 202
        assert send(api, envelope("e-root-path"), path="/elsewhere").status == 403


def test_peer_cannot_send_to_the_path_of_another_peer() -> None:
    config = CONFIG.replace("name: asleep", "name: other").replace(", enabled: false", "")
    with harness.running_api(config, working=False) as api:
        body = json.dumps(envelope("e-shared")).encode()
        headers = signed(api, body, path="/ingest/peer/other", peer="other")
        for name in ("other", "home"):
            renamed = {**headers, "X-Ductile-Peer": name}
            assert api.ask("POST", PATH, body, token=None, headers=renamed).status == 403
        warnings = [str(warning) for warning in api.gateway.compiled.warnings]
        assert any("peer home has the same secret" in warning for warning in warnings)
