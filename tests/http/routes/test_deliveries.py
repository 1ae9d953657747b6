"""Webhooks for agents over HTTP (004): configured, received, sent, listed, retried."""

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
from tests.http.doors import ADMIN, CONFIG, Answer, House, opened
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
SECRET = "a secret of github's"


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    """One that takes in and lists, and sends nothing."""
    with opened(CONFIG + MORE, working=False) as house:
        yield house


_events = iter(range(10**6))


def add(house: House, token: str = ADMIN, **more: Any) -> Answer:
    event = {"source_identifier": "github", "event_type": f"e{next(_events)}"}
    body = {**event, "target_session": "s-1", "secret": SECRET, **more}
    return house.ask("POST", "/gateway/webhook-configs", body, token=token)


def webhook(house: House, **more: Any) -> int:
    answer = add(house, **more)
    assert answer.status == 201, answer.raw
    return int(answer.json["id"])


def sign(body: bytes, secret: str = SECRET) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def deliver(house: House, id: object, body: bytes, **headers: str) -> Answer:
    """What a sender posts, signed unless it says how itself."""
    sent = {"X-Observatory-Signature": sign(body), **headers}
    kept = {name: value for name, value in sent.items() if value}
    return house.ask("POST", f"/gateway/webhooks/{id}", body, token=None, headers=kept)


def row(house: House, id: int) -> dict[str, Any]:
    return house.gateway.ledger.read(lambda tx: deliveries.find_delivery(tx, id))


class Ear:
    def __init__(self, house: House) -> None:
        self.heard: list[StoredNotice] = []
        house.gateway.ledger.listen(lambda effects: self.heard.extend(effects.notices))

    def told(self, type: str) -> list[dict[str, Any]]:
        return [orjson.loads(notice.payload) for notice in self.heard if notice.type == type]


@pytest.fixture
def ear(house: House) -> Ear:
    return Ear(house)


# FR-10.10: what comes in


def test_fr_10_10_a_signed_webhook_becomes_a_pending_delivery(house: House, ear: Ear) -> None:
    id, body = webhook(house), b'{ "action": "opened" }\n'
    answer = deliver(house, id, body)
    assert answer.status == 202
    assert answer.json == {"status": "accepted", "delivery_id": answer.json["delivery_id"]}
    found = row(house, answer.json["delivery_id"])
    assert (found["status"], found["attempt_count"], found["webhook_id"]) == ("pending", 0, id)
    assert found["payload"].encode() == body
    assert found["signature"] == sign(body).removeprefix("sha256=")
    assert (found["session_id"], found["target_url"]) == ("s-1", "internal://session/s-1")
    waits = from_text(found["next_retry_at"]) - from_text(found["created_at"])
    assert waits == timedelta(seconds=30)
    (told,) = ear.told("WebhookDeliveryEvent")
    assert (told["webhook_id"], told["status"]) == (id, "pending")


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
def test_fr_10_10_a_wrong_or_missing_signature_is_401_and_an_event(
    house: House, ear: Ear, headers: dict[str, str]
) -> None:
    id = webhook(house)
    answer = deliver(house, id, b'{"a": 1}', **headers)
    assert answer.status == 401
    assert answer.json == {"status": "error", "reason": "signature_mismatch"}
    (told,) = ear.told("WebhookSignatureFailureEvent")
    assert told["webhook_id"] == id
    assert ear.told("WebhookDeliveryEvent") == []
    topics = {n.topic for n in ear.heard if n.type == "WebhookSignatureFailureEvent"}
    assert topics == {"gateway:webhooks"}


def test_a_signature_may_be_bare_hex(house: House) -> None:
    body = b"{}"
    bare = {"X-Observatory-Signature": sign(body).removeprefix("sha256=")}
    assert deliver(house, webhook(house), body, **bare).status == 202


def test_two_signatures_are_none(house: House) -> None:
    id, body = webhook(house), b"{}"
    line = f"X-Observatory-Signature: {sign(body)}\r\n"
    head = f"POST /gateway/webhooks/{id} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
    with house.connect() as raw:
        raw.sendall(f"{head}{line}{line}\r\n".encode() + body)
        assert raw.recv(100).startswith(b"HTTP/1.1 401")


def test_a_stranger_cannot_fill_the_ledger_with_wrong_signatures(house: House, ear: Ear) -> None:
    id = webhook(house)
    wrong = {"X-Observatory-Signature": "sha256=" + "0" * 64}
    for _ in range(MAX_PER_MINUTE + 15):
        assert deliver(house, id, b"{}", **wrong).status == 401
    assert len(ear.told("WebhookSignatureFailureEvent")) == MAX_PER_MINUTE


@pytest.mark.parametrize("id", ["999999", "0", "x", "-1", "1.5", "9" * 30, "%00", "1%20"])
def test_an_unknown_webhook_is_404(house: House, id: str) -> None:
    answer = deliver(house, id, b"{}")
    assert answer.status == 404
    assert answer.json == {"status": "error", "reason": "webhook_not_found"}


def test_a_removed_webhook_takes_nothing_in(house: House) -> None:
    id = webhook(house)
    assert house.ask("DELETE", f"/gateway/webhook-configs/{id}").status == 200
    assert deliver(house, id, b"{}").status == 404
    assert deliver(house, id, b"{}", **{"X-Observatory-Signature": sign(b"{}", "")}).status == 404


def test_a_body_beyond_a_mebibyte_is_refused(house: House) -> None:
    id = webhook(house)
    most = b'"' + b"x" * (1024 * 1024 - 2) + b'"'
    assert deliver(house, id, most).status == 202
    answer = deliver(house, id, most + b" ")
    assert (answer.status, answer.json["reason"]) == (413, "body_too_large")


@pytest.mark.parametrize(
    ("body", "kind", "payload"),
    [
        (b"plain text", "text/plain", {"body": "plain text"}),
        (b"", "", {"body": ""}),
        (b"a=1&b=2&b=3", "application/x-www-form-urlencoded", {"a": "1", "b": ["2", "3"]}),
        (b"\xff\xfe", "application/octet-stream", {"body": "\ufffd\ufffd"}),
        (b"{broken", "application/json", {"body": "{broken"}),
        (b"[" * 110 + b"]" * 110, "application/json", {"body": "[" * 110 + "]" * 110}),
        (b'"\\u0000"', "application/json", "\0"),
    ],
)
def test_any_body_is_kept_as_json(house: House, body: bytes, kind: str, payload: Any) -> None:
    answer = deliver(house, webhook(house), body, **{"Content-Type": kind})
    assert answer.status == 202
    found = row(house, answer.json["delivery_id"])
    assert json.loads(found["payload"]) == payload
    signed = hmac.new(SECRET.encode(), found["payload"].encode(), hashlib.sha256).hexdigest()
    assert found["signature"] == signed


def test_an_integer_beyond_64_bits_is_kept_and_shown_as_it_came(house: House) -> None:
    body = b'{"id": 18446744073709551616}'
    id = deliver(house, webhook(house), body).json["delivery_id"]
    assert row(house, id)["payload"].encode() == body
    shown = house.ask("GET", f"/gateway/deliveries/{id}").json
    assert shown["payload"] == body.decode()


def test_nothing_is_parsed_before_it_is_verified(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parses(*_: object) -> str:
        raise AssertionError("it parses")

    monkeypatch.setattr(webhooks, "to_json_text", parses)
    answer = deliver(house, webhook(house), b"{}", **{"X-Observatory-Signature": "sha256=00"})
    assert answer.status == 401


def test_a_token_does_not_stand_in_for_a_signature(house: House) -> None:
    id = webhook(house)
    assert house.ask("POST", f"/gateway/webhooks/{id}", b"{}", token=ADMIN).status == 401


# The webhooks themselves


def test_a_webhook_is_listed_without_its_secret(house: House) -> None:
    id = webhook(house, agent_intent="review", target_url="https://example.com/hook")
    page = house.ask("GET", "/gateway/webhook-configs", token=LOOKER)
    found = next(one for one in page.json["webhooks"] if one["id"] == id)
    assert (found["agent_intent"], found["target_url"]) == ("review", "https://example.com/hook")
    assert "secret" not in found
    assert SECRET.encode() not in page.raw


def test_a_given_secret_is_not_told_back_and_a_made_one_is_told_once(house: House) -> None:
    given = add(house)
    assert SECRET.encode() not in given.raw
    made = add(house, secret=None)
    secret = made.json["secret"]
    assert secret.startswith("whsec_")
    page = house.ask("GET", "/gateway/webhook-configs")
    assert secret.encode() not in page.raw
    body = b"{}"
    signed = {"X-Observatory-Signature": sign(body, secret)}
    assert deliver(house, made.json["id"], body, **signed).status == 202


def test_a_source_and_event_have_one_webhook(house: House) -> None:
    event = {"event_type": "the only one"}
    assert add(house, **event).status == 201
    again = add(house, **event)
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
def test_what_is_no_webhook_is_refused(house: House, wrong: dict[str, Any]) -> None:
    answer = add(house, **wrong)
    assert (answer.status, answer.json["status"], answer.json["reason"]) == (400, "error", "usage")


def test_plain_http_needs_a_named_network(house: House) -> None:
    assert add(house, target_url="http://127.0.0.1:9/").status == 201
    assert add(house, target_url="http://93.184.215.14/").status == 400
    with opened(working=False) as bare:
        assert add(bare, target_url="http://example.com/").status == 400
        assert add(bare, target_url="https://example.com/").status == 201


def test_an_unknown_pipeline_is_404(house: House) -> None:
    assert add(house, pipeline="nothing").status == 404


def test_who_may_not_run_a_plugin_may_not_have_a_webhook_run_it(house: House) -> None:
    assert add(house, AGENTS).status == 201
    assert add(house, AGENTS, plugin="echo").status == 403
    assert add(house, AGENTS, pipeline="flow").status == 403
    assert add(house, RUNNER, plugin="echo").status == 201
    assert add(house, RUNNER, pipeline="flow").status == 403
    assert add(house, LOOKER).status == 403


def test_a_dry_run_makes_and_removes_nothing(house: House) -> None:
    before = house.ask("GET", "/gateway/webhook-configs").json
    assert add(house, dry_run=True).json["dry_run"] is True
    assert house.ask("GET", "/gateway/webhook-configs").json == before
    id = webhook(house)
    path = f"/gateway/webhook-configs/{id}"
    assert house.ask("DELETE", f"{path}?dry_run=true").json["dry_run"] is True
    assert house.ask("DELETE", path).json["removed"] is True
    again = house.ask("DELETE", path)
    assert (again.status, again.json["reason"]) == (404, "webhook_not_found")


def test_a_removal_with_a_flag_that_says_neither_removes_nothing(house: House) -> None:
    path = f"/gateway/webhook-configs/{webhook(house)}"
    assert house.ask("DELETE", f"{path}?dry_run=1").status == 400
    assert house.ask("DELETE", f"{path}?dry_run=false").json["removed"] is True


@pytest.mark.parametrize("levels", [253, 254, 1000])
def test_a_deep_payload_that_stands_in_the_ledger_is_shown_as_text(
    house: House, levels: int
) -> None:
    text, now = "[" * levels + "]" * levels, house.gateway.clock.now()
    sending = EnqueueDelivery(webhook(house), text, house.gateway.entropy.uuid(), now)
    id = house.gateway.ledger.write(sending).delivery_id
    answer = house.ask("GET", f"/gateway/deliveries/{id}")
    assert (answer.status, answer.json["payload"]) == (200, text)


# What goes out


def send(house: House, body: dict[str, Any], **more: Any) -> Answer:
    return house.ask("POST", "/gateway/deliveries", body, **more)


def test_a_delivery_is_made_by_id_or_by_source_and_event(house: House) -> None:
    id = webhook(house, event_type="by name", target_url="https://example.com/hook")
    answer = send(house, {"webhook_id": id, "payload": {"a": 1}}, token=AGENTS)
    assert answer.status == 202
    assert (answer.json["status"], answer.json["webhook_id"]) == ("pending", id)
    assert answer.json["target_url"] == "https://example.com/hook"
    found = row(house, answer.json["delivery_id"])
    assert found["payload"] == '{"a":1}'
    assert found["next_retry_at"] == found["created_at"]
    named = {"source_identifier": "github", "event_type": "by name"}
    assert send(house, named).json["webhook_id"] == id


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
def test_what_names_no_webhook_is_refused(house: House, body: dict[str, Any], status: int) -> None:
    answer = send(house, body)
    assert answer.status == status
    assert answer.json["status"] == "error"


def test_the_same_idempotency_key_makes_one_delivery(house: House) -> None:
    id = webhook(house)
    key = {"Idempotency-Key": "once"}
    first = send(house, {"webhook_id": id, "payload": 1}, headers=key)
    again = send(house, {"webhook_id": id, "payload": 1}, headers=key)
    assert first.json == again.json
    assert send(house, {"webhook_id": id, "payload": 2}, headers=key).status == 422
    page = house.ask("GET", f"/gateway/deliveries?webhook_id={id}").json["deliveries"]
    assert len(page) == 1


def test_a_dry_send_makes_nothing(house: House) -> None:
    id = webhook(house)
    told = send(house, {"webhook_id": id, "payload": {"a": 1}, "dry_run": True})
    assert told.json == {
        "webhook_id": id,
        "target_url": "internal://session/s-1",
        "bytes": 7,
        "dry_run": True,
    }
    assert house.ask("GET", f"/gateway/deliveries?webhook_id={id}").json["deliveries"] == []


# Listing and retrying


def spoil(house: House, sql: str) -> None:
    import apsw

    connection = apsw.Connection(str(house.gateway.state_dir / "state.db"))
    connection.set_busy_timeout(5000)
    connection.execute(sql)
    connection.close()


def several(house: House, count: int, status: str = "dead") -> tuple[int, list[int]]:
    id = webhook(house)
    made = [send(house, {"webhook_id": id}).json["delivery_id"] for _ in range(count)]
    spoil(
        house,
        f"UPDATE webhook_deliveries SET status = '{status}', attempt_count = 6,"
        f" error_detail = 'HTTP 500' WHERE webhook_id = {id}",
    )
    return id, made


def test_deliveries_are_listed_by_pages_and_filters(house: House) -> None:
    id, made = several(house, 5)
    spoil(house, f"UPDATE webhook_deliveries SET status = 'failed' WHERE id = {made[1]}")
    base = f"/gateway/deliveries?webhook_id={id}"

    def listed(more: str = "") -> tuple[list[int], int | None]:
        page = house.ask("GET", base + more, token=LOOKER)
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
def test_a_filter_that_means_nothing_is_refused(house: House, query: str) -> None:
    assert house.ask("GET", f"/gateway/deliveries?{query}").status == 400


def test_one_delivery_is_shown_with_its_payload_and_without_its_signature(house: House) -> None:
    id = webhook(house)
    made = send(house, {"webhook_id": id, "payload": {"hidden": ADMIN}}).json["delivery_id"]
    shown = house.ask("GET", f"/gateway/deliveries/{made}", token=LOOKER)
    assert shown.json["payload"] == {"hidden": "[REDACTED]"}
    assert (shown.json["sending"], shown.json["status"]) == (False, "pending")
    assert "signature" not in shown.json
    assert "signature" not in house.ask("GET", "/gateway/deliveries").json["deliveries"][0]
    for missing in ("999999", "x", "9" * 30):
        assert house.ask("GET", f"/gateway/deliveries/{missing}").status == 404


@pytest.mark.parametrize("status", ["dead", "failed", "pending"])
def test_fr_10_12_retry_now(house: House, ear: Ear, status: str) -> None:
    _, (id,) = several(house, 1, status)
    path = f"/gateway/deliveries/{id}/retry"
    assert house.ask("POST", path, {"dry_run": True}).json["dry_run"] is True
    assert row(house, id)["attempt_count"] == 6
    answer = house.ask("POST", path, token=AGENTS)
    assert answer.status == 202
    assert answer.json == {"delivery_id": id, "was": status, "status": "pending"}
    found = row(house, id)
    assert (found["status"], found["attempt_count"]) == ("pending", 0)
    assert ear.told("WebhookDeliveryEvent")[-1]["was"] == status


def test_what_cannot_be_retried(house: House) -> None:
    _, (id,) = several(house, 1, "delivered")
    answer = house.ask("POST", f"/gateway/deliveries/{id}/retry")
    assert (answer.status, answer.json["reason"]) == (409, "refused")
    assert house.ask("POST", "/gateway/deliveries/999999/retry").status == 404
    assert house.ask("POST", f"/gateway/deliveries/{id}/retry", token=LOOKER).status == 403


def test_many_dead_ones_are_retried_at_once(house: House) -> None:
    with opened(CONFIG + MORE, working=False) as own:
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


@pytest.mark.parametrize(
    "body",
    [{}, {"status": "delivered"}, {"status": "pending"}, {"status": "dead", "limit": 0}],
)
def test_a_retry_of_many_says_which(house: House, body: dict[str, Any]) -> None:
    assert house.ask("POST", "/gateway/deliveries/retry", body).status == 400


# From end to end


def test_what_is_sent_arrives_signed_and_is_told_on_the_stream() -> None:
    with receiving(500, 200) as receiver, opened(CONFIG + MORE) as own:
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


def test_metrics_count_deliveries_and_sends() -> None:
    with receiving() as receiver, opened(CONFIG + MORE) as own:
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
