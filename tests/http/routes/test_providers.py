"""Webhooks signed as each provider signs them, and signatures made by other programs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook

from ductile.core.delivery.signatures import PROVIDERS, verify
from ductile.store.jobs import read
from tests.http.harness import CONFIG, Answer, ApiHarness, running_api

SECRET = "a-provider-secret-0123456789"
STANDARD = f"whsec_{base64.b64encode(SECRET.encode()).decode()}"
ENDPOINTS = "".join(
    f"    - {{path: /hook/{name}, plugin: echo, provider: {name},"
    f" secret: {STANDARD if name == 'standard' else SECRET}}}\n"
    for name in PROVIDERS
)
BODY = b'{"id":"evt_1","event_id":"Ev01","type":"thing.happened"}'


@pytest.fixture(scope="module")
def api(webhook_route: str) -> Iterator[ApiHarness]:
    text = f"{CONFIG}webhooks:\n  listen: 127.0.0.1:0\n  endpoints:\n{ENDPOINTS}"
    with running_api(text, working=False) as api:
        yield api


def mac(message: bytes) -> bytes:
    return hmac.new(SECRET.encode(), message, hashlib.sha256).digest()


def github(body: bytes, id: str, _at: int) -> dict[str, str]:
    return {
        "X-Hub-Signature-256": f"sha256={mac(body).hex()}",
        "X-Hub-Signature": f"sha1={'0' * 40}",
        "X-GitHub-Delivery": id,
        "X-GitHub-Event": "push",
    }


def stripe(body: bytes, _id: str, at: int) -> dict[str, str]:
    good = mac(b"%d.%b" % (at, body)).hex()
    return {"Stripe-Signature": f"t={at},v1={'0' * 64},v1={good},v0={'1' * 64}"}


def slack(body: bytes, _id: str, at: int) -> dict[str, str]:
    signature = mac(b"v0:%d:%b" % (at, body)).hex()
    return {"X-Slack-Signature": f"v0={signature}", "X-Slack-Request-Timestamp": str(at)}


def shopify(body: bytes, id: str, _at: int) -> dict[str, str]:
    return {
        "X-Shopify-Hmac-Sha256": base64.b64encode(mac(body)).decode(),
        "X-Shopify-Webhook-Id": id,
        "X-Shopify-Topic": "orders/create",
    }


def standard(body: bytes, id: str, at: int) -> dict[str, str]:
    """Signed by the library of the Standard Webhooks specification."""
    moment = datetime.fromtimestamp(at, UTC)
    signature = Webhook(STANDARD).sign(id, moment, body.decode())
    return {
        "webhook-id": id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(b'0' * 32).decode()} {signature}",
    }


Signer = Callable[[bytes, str, int], dict[str, str]]
SIGNERS: Mapping[str, Signer] = {
    "github": github,
    "stripe": stripe,
    "slack": slack,
    "shopify": shopify,
    "standard": standard,
}
every = pytest.mark.parametrize("provider", SIGNERS)


def post(api: ApiHarness, provider: str, body: bytes, headers: Mapping[str, str]) -> Answer:
    sent = {"Content-Type": "application/json", **headers}
    return api.ask("POST", f"/hook/{provider}", body, token=None, headers=sent, listener="webhooks")


def test_every_provider_is_tested() -> None:
    assert SIGNERS.keys() == PROVIDERS.keys()


@every
def test_delivery_is_accepted_once(api: ApiHarness, provider: str) -> None:
    headers = SIGNERS[provider](BODY, "delivery-1", int(time.time()))
    first = post(api, provider, BODY, headers)
    assert (first.status, first.json.get("duplicate")) == (202, None)
    again = post(api, provider, BODY, headers)
    assert (again.status, again.json["duplicate"]) == (202, True)
    assert again.json["job_id"] == first.json["job_id"]
    job: Any = api.gateway.ledger.read(lambda tx: read.describe_job(tx, first.json["job_id"]))
    assert job["payload"]["type"] == f"webhook.{provider}"
    assert job["payload"]["payload"]["type"] == "thing.happened"


@every
def test_changed_body_is_refused(api: ApiHarness, provider: str) -> None:
    headers = SIGNERS[provider](BODY, "delivery-2", int(time.time()))
    answer = post(api, provider, BODY + b" ", headers)
    assert (answer.status, answer.raw) == (403, b'{"error":"forbidden","code":"forbidden"}\n')


@pytest.mark.parametrize("provider", [name for name in SIGNERS if PROVIDERS[name].timed])
def test_old_delivery_is_refused(api: ApiHarness, provider: str) -> None:
    headers = SIGNERS[provider](BODY, "delivery-3", int(time.time()) - 600)
    assert post(api, provider, BODY, headers).status == 403


def test_signature_that_the_stripe_library_accepts() -> None:
    """Verified with stripe-python 16.1.0, which refuses `v0` alone as well."""
    body, at = b'{"id":"evt_1","object":"event","type":"charge.succeeded"}', 1492774577
    figure = "91110bb4292e56d95b06660f55b3f65c0157840684729f1271e6da44c1ed57eb"

    def judged(header: str) -> bool:
        headers = {"stripe-signature": [header]}
        found = verify(PROVIDERS["stripe"], "whsec_test_secret", headers, body, at)
        return found is not None

    assert judged(f"t={at},v1={figure},v0=6ffb")
    assert judged(f"t={at},v1=00,v1={figure}")
    assert not judged(f"t={at},v0={figure}")
    assert not judged(f"t={at + 1},v1={figure}")


def test_signature_of_another_program_for_shopify() -> None:
    """From SQLPage's tests of its own HMAC function."""
    body = b'{"id":1234567890,"email":"customer@example.com","total_price":"123.45"}'
    headers = {"x-shopify-hmac-sha256": ["QNyObTlKbMx2qDlPF/ZOZcBqg5OgPg+2oky3zldc0Gw="]}
    assert verify(PROVIDERS["shopify"], "test-webhook-secret", headers, body, 0.0) is not None
