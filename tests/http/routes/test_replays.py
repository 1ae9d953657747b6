"""A captured webhook request is not accepted again, and distinct delivery ids stay distinct."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from ductile.engine.ingress import webhook
from tests.http.harness import CONFIG, Answer, ApiHarness, running_api

SECRET = "hook-secret-0123456789"
HOOKS = f"""\
webhooks:
  listen: 127.0.0.1:0
  endpoints:
    - {{path: /hook/plain, plugin: echo, secret: {SECRET}}}
    - {{path: /hook/github, plugin: echo, secret: {SECRET}, provider: github}}
    - {{path: /hook/stripe, plugin: echo, secret: {SECRET}, provider: stripe}}
    - {{path: /hook/slack, plugin: echo, secret: {SECRET}, provider: slack}}
"""


@pytest.fixture(scope="module")
def api(webhook_route: str) -> Iterator[ApiHarness]:
    with running_api(CONFIG + HOOKS, working=False) as api:
        yield api


def mac(data: bytes) -> str:
    return hmac.new(SECRET.encode(), data, hashlib.sha256).hexdigest()


def plain(body: bytes) -> dict[str, str]:
    return {"X-Hub-Signature-256": f"sha256={mac(body)}"}


def stripe(body: bytes) -> dict[str, str]:
    at = int(time.time())
    return {"Stripe-Signature": f"t={at},v1={mac(b'%d.%b' % (at, body))}"}


def slack(body: bytes) -> dict[str, str]:
    at = int(time.time())
    signature = mac(b"v0:%d:%b" % (at, body))
    return {"X-Slack-Signature": f"v0={signature}", "X-Slack-Request-Timestamp": str(at)}


def post(api: ApiHarness, path: str, body: bytes, headers: dict[str, str]) -> Answer:
    return api.ask("POST", path, body, token=None, headers=headers, listener="webhooks")


def create_agent_webhook(api: ApiHarness, name: str) -> str:
    new = {"source_identifier": name, "event_type": "e", "target_session": "s", "secret": SECRET}
    return f"/gateway/webhooks/{api.ask('POST', '/gateway/webhook-configs', new).json['id']}"


@pytest.mark.parametrize(
    ("path", "sign"), [("/hook/plain", plain), ("/hook/stripe", stripe), ("/hook/slack", slack)]
)
def test_request_without_a_delivery_id_is_accepted_once(api: ApiHarness, path: str, sign) -> None:
    body = b'{"type": "first"}'
    headers = sign(body)
    first = post(api, path, body, headers)
    assert (first.status, "duplicate" in first.json) == (202, False)
    again = post(api, path, body, headers)
    assert (again.status, again.json) == (202, {**first.json, "duplicate": True})
    other = post(api, path, b'{"type": "second"}', sign(b'{"type": "second"}'))
    assert other.json["job_id"] != first.json["job_id"]


def test_other_spelling_of_a_signature_is_the_same_signature(api: ApiHarness) -> None:
    body = b'{"spelled": "twice"}'
    first = post(api, "/hook/plain", body, {"X-Hub-Signature-256": mac(body)})
    again = post(api, "/hook/plain", body, {"X-Hub-Signature-256": f"sha256={mac(body).upper()}"})
    assert again.json == {**first.json, "duplicate": True}


def test_equal_body_is_accepted_again_after_the_window(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = b'{"temperature": 20}'
    first = post(api, "/hook/plain", body, plain(body))
    monkeypatch.setattr(webhook, "REPLAY_WINDOW", timedelta(0))
    again = post(api, "/hook/plain", body, plain(body))
    assert (again.status, "duplicate" in again.json) == (202, False)
    assert again.json["job_id"] != first.json["job_id"]


def test_event_of_an_agents_webhook_is_accepted_once(
    api: ApiHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, body = create_agent_webhook(api, "once"), b'{"n": 1}'
    headers = {"X-Observatory-Signature": f"sha256={mac(body)}"}
    first = api.ask("POST", path, body, token=None, headers=headers)
    again = api.ask("POST", path, body, token=None, headers=headers)
    assert (first.status, again.status) == (202, 202)
    assert again.json == {**first.json, "duplicate": True}
    other = create_agent_webhook(api, "other")
    assert "duplicate" not in api.ask("POST", other, body, token=None, headers=headers).json
    monkeypatch.setattr(webhook, "REPLAY_WINDOW", timedelta(0))
    later = api.ask("POST", path, body, token=None, headers=headers)
    assert later.json["delivery_id"] != first.json["delivery_id"]


def test_long_delivery_ids_with_the_same_beginning_differ(api: ApiHarness) -> None:
    body, begin = b'{"ref": "main"}', "x" * 300
    ids = [
        post(api, "/hook/github", body, {**plain(body), "X-GitHub-Delivery": begin + end})
        for end in ("a", "b", "a")
    ]
    first, second, repeated = (answer.json for answer in ids)
    assert first["job_id"] != second["job_id"]
    assert repeated == {**first, "duplicate": True}


def test_slack_verifies_the_address_of_an_endpoint(api: ApiHarness) -> None:
    body = b'{"token": "x", "challenge": "3eZbrw1aB", "type": "url_verification"}'
    answer = post(api, "/hook/slack", body, slack(body))
    assert (answer.status, answer.json) == (200, {"challenge": "3eZbrw1aB"})
    assert (
        post(api, "/hook/slack", body, {**slack(body), "X-Slack-Signature": "v0=00"}).status == 403
    )
    assert post(api, "/hook/stripe", body, stripe(body)).status == 202
