"""Webhooks for agents and their deliveries."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import orjson
import pytest
from standardwebhooks.webhooks import Webhook as Published

from ductile.clock import from_text
from ductile.engine.ingress.rejection_limiter import MAX_PER_MINUTE
from ductile.engine.outbox.webhooks import EnqueueDelivery
from ductile.http.routes.agents import webhooks
from ductile.store.engines.api import StoredNotice
from ductile.store.outbox import deliveries
from tests.engine.receiver import receiving
from tests.http.harness import ADMIN, CONFIG, Answer, ApiHarness, running_api
from tests.waiting import WAIT_LIMIT, until

AGENTS, LOOKER, RUNNER = (
    "agents-token-0123456789",
    "looker-token-0123456789",
    "runner-token-0123456",
)
MORE = f"""\
      - {{token: {AGENTS}, scopes: ["agents:rw"], name: agents}}
      - {{token: {LOOKER}, scopes: ["agents:ro"], name: looker}}
      - {{token: {RUNNER}, scopes: ["agents:rw", "echo:rw"], name: runner}}
gateway: {{allowed_networks: [127.0.0.0/8]}}
pipelines:
  - {{name: flow, on: never, steps: [{{uses: echo}}]}}
"""
SHOWN_TARGET = "https://example.com/[REDACTED]"
SECRET = "a secret of github's"


@pytest.fixture(scope="module")
def api() -> Iterator[ApiHarness]:
    """A gateway that sends nothing."""
    with running_api(CONFIG + MORE, working=False) as api:
        yield api


_events = iter(range(10**6))


def add(api: ApiHarness, token: str = ADMIN, **more: Any) -> Answer:
    event = {"source_identifier": "github", "event_type": f"e{next(_events)}"}
    body = {**event, "target_session": "s-1", "secret": SECRET, **more}
    return api.ask("POST", "/gateway/webhook-configs", body, token=token)


def webhook(api: ApiHarness, **more: Any) -> int:
    answer = add(api, **more)
    assert answer.status == 201, answer.raw
    return int(answer.json["id"])


def sign(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def deliver(api: ApiHarness, id: object, body: bytes, **headers: str) -> Answer:
    """Post an event, signed unless the headers say otherwise."""
    sent = {"X-Observatory-Signature": sign(body), **headers}
    kept = {name: value for name, value in sent.items() if value}
    return api.ask("POST", f"/gateway/webhooks/{id}", body, token=None, headers=kept)


def row(api: ApiHarness, id: int) -> dict[str, Any]:
    return api.gateway.ledger.read(lambda tx: deliveries.find_delivery(tx, id))


class NoticeRecorder:
    def __init__(self, api: ApiHarness) -> None:
        self.recorded: list[StoredNotice] = []
        api.gateway.ledger.listen(lambda effects: self.recorded.extend(effects.notices))

    def of_type(self, type: str) -> list[dict[str, Any]]:
        return [orjson.loads(notice.payload) for notice in self.recorded if notice.type == type]

    def signature_failures(self, webhook_id: int) -> list[dict[str, Any]]:
        failures = self.of_type("WebhookSignatureFailureEvent")
        return [failure for failure in failures if failure["webhook_id"] == webhook_id]


@pytest.fixture
def notices(api: ApiHarness) -> NoticeRecorder:
    return NoticeRecorder(api)


# Inbound events


def test_signed_event_becomes_a_pending_delivery(api: ApiHarness, notices: NoticeRecorder) -> None:
    id, body = webhook(api), b'{ "action": "running_api" }\n'
    answer = deliver(api, id, body)
    assert answer.status == 202
    assert answer.json == {"status": "accepted", "delivery_id": answer.json["delivery_id"]}
    found = row(api, answer.json["delivery_id"])
    assert (found["status"], found["attempt_count"], found["webhook_id"]) == ("pending", 0, id)
    assert found["payload"].encode() == body
    assert found["signature"] == sign(body).removeprefix("sha256=")
    assert (found["session_id"], found["target_url"]) == ("s-1", "internal://session/s-1")
    waits = from_text(found["next_retry_at"]) - from_text(found["created_at"])
    assert waits == timedelta(seconds=30)
    (event,) = notices.of_type("WebhookDeliveryEvent")
    assert (event["webhook_id"], event["status"]) == (id, "pending")


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Observatory-Signature": sign(b'{"a": 2}')},
        {"X-Observatory-Signature": sign(b'{"a": 1}', "another secret")},
        {"X-Observatory-Signature": ""},
        {"X-Observatory-Signature": "sha256="},
        {"X-Observatory-Signature": "sha256=zz"},
        {"X-Observatory-Signature": "sha1=" + "0" * 40},
        {"X-Observatory-Signature": "sha256=" + "0" * 64},
        {"X-Observatory-Signature": sign(b'{"a": 1}')[:-2]},
        {"X-Observatory-Signature": "", "X-Hub-Signature-256": sign(b'{"a": 1}')},
    ],
)
def test_invalid_signature_returns_401_and_is_announced(
    api: ApiHarness, notices: NoticeRecorder, headers: dict[str, str]
) -> None:
    id = webhook(api)
    answer = deliver(api, id, b'{"a": 1}', **headers)
    assert answer.status == 401
    assert answer.json == {"status": "error", "reason": "signature_mismatch"}
    until(lambda: notices.signature_failures(id))
    assert notices.of_type("WebhookDeliveryEvent") == []
    topics = {n.topic for n in notices.recorded if n.type == "WebhookSignatureFailureEvent"}
    assert topics == {"gateway:webhooks"}


def test_signature_may_have_no_prefix(api: ApiHarness) -> None:
    body = b"{}"
    bare = {"X-Observatory-Signature": sign(body).removeprefix("sha256=")}
    assert deliver(api, webhook(api), body, **bare).status == 202


def test_repeated_signature_header_returns_401(api: ApiHarness) -> None:
    id, body = webhook(api), b"{}"
    line = f"X-Observatory-Signature: {sign(body)}\r\n"
    head = f"POST /gateway/webhooks/{id} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
    with api.connect() as raw:
        raw.sendall(f"{head}{line}{line}\r\n".encode() + body)
        assert raw.recv(100).startswith(b"HTTP/1.1 401")


def test_invalid_signatures_are_announced_at_a_limited_rate(
    api: ApiHarness, notices: NoticeRecorder
) -> None:
    id = webhook(api)
    wrong = {"X-Observatory-Signature": "sha256=" + "0" * 64}
    for _ in range(MAX_PER_MINUTE + 15):
        assert deliver(api, id, b"{}", **wrong).status == 401
    until(lambda: len(notices.signature_failures(id)) >= MAX_PER_MINUTE)
    assert len(notices.signature_failures(id)) == MAX_PER_MINUTE


@pytest.mark.parametrize("id", ["999999", "0", "x", "-1", "1.5", "9" * 30, "%00", "1%20"])
def test_unknown_webhook_returns_404(api: ApiHarness, id: str) -> None:
    answer = deliver(api, id, b"{}")
    assert answer.status == 404
    assert answer.json == {"status": "error", "reason": "webhook_not_found"}


def test_removed_webhook_returns_404(api: ApiHarness) -> None:
    id = webhook(api)
    assert api.ask("DELETE", f"/gateway/webhook-configs/{id}").status == 200
    assert deliver(api, id, b"{}").status == 404
    assert deliver(api, id, b"{}", **{"X-Observatory-Signature": sign(b"{}", "")}).status == 404


def test_too_large_body_returns_413(api: ApiHarness) -> None:
    id = webhook(api)
    most = b'"' + b"x" * (1024 * 1024 - 2) + b'"'
    assert deliver(api, id, most).status == 202
    answer = deliver(api, id, most + b" ")
    assert (answer.status, answer.json["reason"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("body", "kind", "payload"),
    [
        (b"plain text", "text/plain", {"body": "plain text"}),
        (b"", "", {"body": ""}),
        (b"a=1&b=2&b=3", "application/x-www-form-urlencoded", {"a": "1", "b": ["2", "3"]}),
        (
            b"\xff\xfe",
            "application/octet-stream",
            {"body": "\ufffd\ufffd", "body_base64": "//4="},
        ),
        (b"{broken", "application/json", {"body": "{broken"}),
        (b"[" * 110 + b"]" * 110, "application/json", {"body": "[" * 110 + "]" * 110}),
        (b'"\\u0000"', "application/json", "\0"),
    ],
)
def test_every_body_is_stored_as_json(
    api: ApiHarness, body: bytes, kind: str, payload: Any
) -> None:
    answer = deliver(api, webhook(api), body, **{"Content-Type": kind})
    assert answer.status == 202
    found = row(api, answer.json["delivery_id"])
    assert json.loads(found["payload"]) == payload
    signed = hmac.new(SECRET.encode(), found["payload"].encode(), hashlib.sha256).hexdigest()
    assert found["signature"] == signed


def test_integer_beyond_64_bits_is_stored_unchanged(api: ApiHarness) -> None:
    body = b'{"id": 18446744073709551616}'
    id = deliver(api, webhook(api), body).json["delivery_id"]
    assert row(api, id)["payload"].encode() == body
    shown = api.ask("GET", f"/gateway/deliveries/{id}").json
    assert shown["payload"] == body.decode()


def test_body_is_not_parsed_before_it_is_verified(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parses(*_: object) -> str:
        raise AssertionError("it parses")

    monkeypatch.setattr(webhooks, "to_json_text", parses)
    answer = deliver(api, webhook(api), b"{}", **{"X-Observatory-Signature": "sha256=00"})
    assert answer.status == 401


def test_token_does_not_replace_the_signature(api: ApiHarness) -> None:
    id = webhook(api)
    assert api.ask("POST", f"/gateway/webhooks/{id}", b"{}", token=ADMIN).status == 401


# Webhooks


def test_webhook_is_listed_without_its_secret(api: ApiHarness) -> None:
    id = webhook(api, agent_intent="review", target_url="https://example.com/hook")
    page = api.ask("GET", "/gateway/webhook-configs", token=LOOKER)
    found = next(one for one in page.json["webhooks"] if one["id"] == id)
    assert (found["agent_intent"], found["target_url"]) == ("review", SHOWN_TARGET)
    assert "secret" not in found
    assert SECRET.encode() not in page.raw


def test_only_a_generated_secret_is_returned_and_only_once(api: ApiHarness) -> None:
    given = add(api)
    assert SECRET.encode() not in given.raw
    made = add(api, secret=None)
    secret = made.json["secret"]
    assert secret.startswith("whsec_")
    page = api.ask("GET", "/gateway/webhook-configs")
    assert secret.encode() not in page.raw
    body = b"{}"
    signed = {"X-Observatory-Signature": sign(body, secret)}
    assert deliver(api, made.json["id"], body, **signed).status == 202


def test_source_and_event_type_are_unique(api: ApiHarness) -> None:
    event = {"event_type": "the only one"}
    assert add(api, **event).status == 201
    again = add(api, **event)
    assert (again.status, again.json["reason"]) == (409, "refused")


@pytest.mark.parametrize(
    "wrong",
    [
        {"source_identifier": None},
        {"source_identifier": ""},
        {"source_identifier": "a\nb"},
        {"source_identifier": "x" * 201},
        {"source_identifier": 7},
        {"event_type": None},
        {"target_session": None},
        {"secret": "short"},
        {"secret": "x" * 513},
        {"secret": 12345678},
        {"target_url": "ftp://example.com/"},
        {"target_url": "https://user:password@example.com/"},
        {"target_url": "https://10.0.0.1/"},
        {"target_url": "https://2130706433/"},
        {"target_url": "not a url"},
        {"target_url": "https://example.com/", "plugin": "echo"},
        {"plugin": "echo", "pipeline": "flow"},
        {"plugin": "nobody"},
    ],
)
def test_invalid_webhook_is_refused(api: ApiHarness, wrong: dict[str, Any]) -> None:
    answer = add(api, **wrong)
    assert (answer.status, answer.json["status"], answer.json["reason"]) == (400, "error", "usage")


def test_plain_http_requires_an_allowed_network(api: ApiHarness) -> None:
    assert add(api, target_url="http://127.0.0.1:9/").status == 201
    assert add(api, target_url="http://93.184.215.14/").status == 400
    with running_api(working=False) as bare:
        assert add(bare, target_url="http://example.com/").status == 400
        assert add(bare, target_url="https://example.com/").status == 201


def test_unknown_pipeline_returns_404(api: ApiHarness) -> None:
    assert add(api, pipeline="nothing").status == 404


def test_webhook_requires_the_scope_to_run_its_target(api: ApiHarness) -> None:
    assert add(api, AGENTS).status == 201
    assert add(api, AGENTS, plugin="echo").status == 403
    assert add(api, AGENTS, pipeline="flow").status == 403
    assert add(api, RUNNER, plugin="echo").status == 201
    assert add(api, RUNNER, pipeline="flow").status == 403
    assert add(api, LOOKER).status == 403


def test_dry_run_creates_and_removes_nothing(api: ApiHarness) -> None:
    before = api.ask("GET", "/gateway/webhook-configs").json
    assert add(api, dry_run=True).json["dry_run"] is True
    assert api.ask("GET", "/gateway/webhook-configs").json == before
    id = webhook(api)
    path = f"/gateway/webhook-configs/{id}"
    assert api.ask("DELETE", f"{path}?dry_run=true").json["dry_run"] is True
    assert api.ask("DELETE", path).json["removed"] is True
    again = api.ask("DELETE", path)
    assert (again.status, again.json["reason"]) == (404, "webhook_not_found")


def test_removal_with_a_malformed_or_unknown_parameter_is_refused(api: ApiHarness) -> None:
    path = f"/gateway/webhook-configs/{webhook(api)}"
    assert api.ask("DELETE", f"{path}?dry_run=1").status == 400
    assert api.ask("DELETE", f"{path}?dryrun=true").status == 400
    assert api.ask("DELETE", f"{path}?dry_run=false").json["removed"] is True


@pytest.mark.parametrize("levels", [253, 254, 1000])
def test_too_deep_payload_in_the_ledger_is_shown_as_text(api: ApiHarness, levels: int) -> None:
    text, now = "[" * levels + "]" * levels, api.gateway.clock.now()
    sending = EnqueueDelivery(webhook(api), text, api.gateway.entropy.uuid(), now)
    id = api.gateway.ledger.write(sending).delivery_id
    answer = api.ask("GET", f"/gateway/deliveries/{id}")
    assert (answer.status, answer.json["payload"]) == (200, text)


# Outbound deliveries


def send(api: ApiHarness, body: dict[str, Any], **more: Any) -> Answer:
    return api.ask("POST", "/gateway/deliveries", body, **more)


def test_webhook_is_given_by_id_or_by_source_and_event_type(api: ApiHarness) -> None:
    id = webhook(api, event_type="by name", target_url="https://example.com/hook")
    answer = send(api, {"webhook_id": id, "payload": {"a": 1}}, token=AGENTS)
    assert answer.status == 202
    assert (answer.json["status"], answer.json["webhook_id"]) == ("pending", id)
    assert answer.json["target_url"] == SHOWN_TARGET
    for path in (f"/gateway/deliveries/{answer.json['delivery_id']}", "/gateway/deliveries"):
        page = api.ask("GET", path, token=LOOKER)
        assert SHOWN_TARGET.encode() in page.raw
        assert b"example.com/hook" not in page.raw
    planned = send(api, {"webhook_id": id, "dry_run": True}).json
    assert planned["target_url"] == SHOWN_TARGET
    found = row(api, answer.json["delivery_id"])
    assert found["payload"] == '{"a":1}'
    assert found["next_retry_at"] == found["created_at"]
    named = {"source_identifier": "github", "event_type": "by name"}
    assert send(api, named).json["webhook_id"] == id


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ({"webhook_id": "1"}, 400),
        ({"webhook_id": True}, 400),
        ({"webhook_id": -1}, 400),
        ({"webhook_id": 10**25}, 400),
        ({"webhook_id": 1, "event_type": "x"}, 400),
        ({"source_identifier": "github"}, 400),
        ({"source_identifier": "a\0", "event_type": "b"}, 400),
        ({"webhook_id": 999999}, 404),
        ({"source_identifier": "nobody", "event_type": "x"}, 404),
    ],
)
def test_delivery_without_a_webhook_is_refused(
    api: ApiHarness, body: dict[str, Any], status: int
) -> None:
    answer = send(api, body)
    assert answer.status == status
    assert answer.json["status"] == "error"


def test_idempotency_key_creates_one_delivery(api: ApiHarness) -> None:
    id = webhook(api)
    key = {"Idempotency-Key": "once"}
    first = send(api, {"webhook_id": id, "payload": 1}, headers=key)
    again = send(api, {"webhook_id": id, "payload": 1}, headers=key)
    assert first.json == again.json
    assert send(api, {"webhook_id": id, "payload": 2}, headers=key).status == 422
    page = api.ask("GET", f"/gateway/deliveries?webhook_id={id}").json["deliveries"]
    assert len(page) == 1


def test_dry_run_sends_nothing(api: ApiHarness) -> None:
    id = webhook(api)
    response = send(api, {"webhook_id": id, "payload": {"a": 1}, "dry_run": True})
    assert response.json == {
        "webhook_id": id,
        "target_url": "internal://session/s-1",
        "bytes": 7,
        "dry_run": True,
    }
    assert api.ask("GET", f"/gateway/deliveries?webhook_id={id}").json["deliveries"] == []


# Listing and retrying


def spoil(api: ApiHarness, sql: str) -> None:
    import apsw

    connection = apsw.Connection(str(api.gateway.state_dir / "state.db"))
    connection.set_busy_timeout(5000)
    connection.execute(sql)
    connection.close()


def several(api: ApiHarness, count: int, status: str = "dead") -> tuple[int, list[int]]:
    id = webhook(api)
    made = [send(api, {"webhook_id": id}).json["delivery_id"] for _ in range(count)]
    spoil(
        api,
        f"UPDATE webhook_deliveries SET status = '{status}', attempt_count = 6,"
        f" error_detail = 'HTTP 500' WHERE webhook_id = {id}",
    )
    return id, made


def test_deliveries_are_listed_by_pages_and_filters(api: ApiHarness) -> None:
    id, made = several(api, 5)
    spoil(api, f"UPDATE webhook_deliveries SET status = 'failed' WHERE id = {made[1]}")
    base = f"/gateway/deliveries?webhook_id={id}"

    def listed(more: str = "") -> tuple[list[int], int | None]:
        page = api.ask("GET", base + more, token=LOOKER)
        assert page.status == 200, page.raw
        return [one["delivery_id"] for one in page.json["deliveries"]], page.json["cursor"]

    assert listed() == (made[::-1], None)
    assert listed("&limit=2") == (made[:2:-1], made[3])
    assert listed(f"&limit=2&before={made[3]}") == (made[2:0:-1], made[1])
    assert listed("&status=failed") == ([made[1]], None)
    assert listed("&since=2000-01-01T00:00:00Z") == (made[::-1], None)
    assert listed("&since=2100-01-01") == ([], None)


@pytest.mark.parametrize(
    "query", ["status=lost", "webhook_id=x", "before=-1", "since=soon", "limit=0", "limit=1001"]
)
def test_invalid_filter_is_refused(api: ApiHarness, query: str) -> None:
    assert api.ask("GET", f"/gateway/deliveries?{query}").status == 400


def test_delivery_is_shown_with_its_payload_and_without_its_signature(api: ApiHarness) -> None:
    id = webhook(api)
    made = send(api, {"webhook_id": id, "payload": {"hidden": ADMIN}}).json["delivery_id"]
    shown = api.ask("GET", f"/gateway/deliveries/{made}", token=LOOKER)
    assert shown.json["payload"] == {"hidden": "[REDACTED]"}
    assert (shown.json["sending"], shown.json["status"]) == (False, "pending")
    assert "signature" not in shown.json
    assert "signature" not in api.ask("GET", "/gateway/deliveries").json["deliveries"][0]
    for missing in ("999999", "x", "9" * 30):
        assert api.ask("GET", f"/gateway/deliveries/{missing}").status == 404


@pytest.mark.parametrize("status", ["dead", "failed", "pending"])
def test_retry_makes_a_delivery_pending_again(
    api: ApiHarness, notices: NoticeRecorder, status: str
) -> None:
    _, (id,) = several(api, 1, status)
    path = f"/gateway/deliveries/{id}/retry"
    assert api.ask("POST", path, {"dry_run": True}).json["dry_run"] is True
    assert row(api, id)["attempt_count"] == 6
    answer = api.ask("POST", path, token=AGENTS)
    assert answer.status == 202
    assert answer.json == {"delivery_id": id, "was": status, "status": "pending"}
    found = row(api, id)
    assert (found["status"], found["attempt_count"]) == ("pending", 0)
    assert notices.of_type("WebhookDeliveryEvent")[-1]["was"] == status


def test_delivered_delivery_cannot_be_retried(api: ApiHarness) -> None:
    _, (id,) = several(api, 1, "delivered")
    answer = api.ask("POST", f"/gateway/deliveries/{id}/retry")
    assert (answer.status, answer.json["reason"]) == (409, "refused")
    assert api.ask("POST", "/gateway/deliveries/999999/retry").status == 404
    assert api.ask("POST", f"/gateway/deliveries/{id}/retry", token=LOOKER).status == 403


def test_dead_deliveries_are_retried_in_bulk(api: ApiHarness) -> None:
    with running_api(CONFIG + MORE, working=False) as own:
        _, made = several(own, 5)
        old = "2000-01-01T00:00:00.000000Z"
        spoil(own, f"UPDATE webhook_deliveries SET created_at = '{old}' WHERE id = {made[0]}")
        path, since = "/gateway/deliveries/retry", {"status": "dead", "since": "2001-01-01"}
        planned = own.ask("POST", path, {**since, "dry_run": True})
        assert (planned.status, planned.json["deliveries"]) == (200, made[1:])
        some = own.ask("POST", path, {**since, "limit": 2})
        assert some.json == {"deliveries": made[1:3], "count": 2, "more": True}
        rest = own.ask("POST", path, since)
        assert (rest.status, rest.json["deliveries"]) == (202, made[3:])
        assert row(own, made[0])["status"] == "dead"
        assert own.ask("POST", path, {"status": "dead"}).json["deliveries"] == [made[0]]
        assert {row(own, id)["status"] for id in made} == {"pending"}


def test_dead_deliveries_are_discarded(api: ApiHarness) -> None:
    with running_api(CONFIG + MORE, working=False) as own:
        _, made = several(own, 4)
        path = "/gateway/deliveries/discard"
        planned = own.ask("POST", path, {"dry_run": True})
        assert (planned.status, planned.json["deliveries"]) == (200, made)
        one = own.ask("POST", f"/gateway/deliveries/{made[0]}/discard", token=AGENTS)
        assert (one.status, one.json) == (202, {"delivery_id": made[0]})
        assert own.ask("GET", f"/gateway/deliveries/{made[0]}").status == 404
        assert own.ask("POST", path, {}, token=LOOKER).status == 403
        some = own.ask("POST", path, {"limit": 2})
        assert some.json == {"deliveries": made[1:3], "count": 2, "more": True}
        assert own.ask("POST", path, {"until": "2001-01-01"}).json["count"] == 0
        assert own.ask("POST", path, {}).json["deliveries"] == made[3:]


@pytest.mark.parametrize(
    "body",
    [{}, {"status": "delivered"}, {"status": "pending"}, {"status": "dead", "limit": 0}],
)
def test_malformed_bulk_retry_is_refused(api: ApiHarness, body: dict[str, Any]) -> None:
    assert api.ask("POST", "/gateway/deliveries/retry", body).status == 400


# End to end


def test_delivery_arrives_signed_and_is_streamed() -> None:
    with receiving(500, 200) as receiver, running_api(CONFIG + MORE) as own:
        stream = http.client.HTTPConnection(*own.address("api"), timeout=WAIT_LIMIT)
        stream.request(
            "GET",
            "/events?topic=gateway:webhooks",
            headers={"Authorization": f"Bearer {ADMIN}"},
        )
        events = stream.getresponse()
        made = add(own, secret=None, target_url=receiver.url).json
        id = send(own, {"webhook_id": made["id"], "payload": {"hello": "world"}}).json[
            "delivery_id"
        ]
        until(lambda: row(own, id)["status"] == "failed")
        assert row(own, id)["error_detail"] == "HTTP 500 Internal Server Error"
        assert own.ask("POST", f"/gateway/deliveries/{id}/retry").status == 202
        said = b""
        while b'"delivered"' not in said:
            said += events.readline()
        events.close()
        stream.close()
    first, second = receiver.received
    for request in (first, second):
        assert Published(made["secret"]).verify(request.body, request.headers) == {"hello": "world"}
        assert request.headers["X-Observatory-Signature"] == sign(request.body, made["secret"])
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert said.count(b"event: WebhookDeliveryEvent") == 4
    assert made["secret"].encode() not in said


def test_metrics_count_deliveries() -> None:
    with receiving() as receiver, running_api(CONFIG + MORE) as own:
        id = webhook(own, target_url=receiver.url)
        made = send(own, {"webhook_id": id}).json["delivery_id"]
        until(lambda: row(own, made)["status"] == "delivered")
        deliver(own, id, b"{}")
        deliver(own, id, b"{}", **{"X-Observatory-Signature": "no"})
        text = own.ask("GET", "/metrics").raw.decode()
    assert 'ductile_deliveries{status="delivered"} 1' in text
    assert 'ductile_deliveries{status="pending"} 1' in text
    assert 'ductile_sends_total{lane="deliveries",outcome="2xx"} 1' in text
    assert 'endpoint="/gateway/webhooks",outcome="accepted"} 1' in text
    assert 'endpoint="/gateway/webhooks",outcome="signature_mismatch"} 1' in text
