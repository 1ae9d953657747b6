"""Webhook signatures: the examples of each provider, and what is rejected."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from ductile.core.delivery.signatures import (
    OBSERVATORY,
    PLAIN,
    PROVIDERS,
    VerifiedWebhook,
    compute_signature,
    judge,
    sign_headers,
    verify,
)
from ductile.core.values.json_values import Failure

NOW = 1_770_000_000
SECRET = "It's a Secret to Everybody"
BODY = b"Hello, World!"


def mac(secret: str | bytes, data: bytes) -> bytes:
    key = secret.encode() if isinstance(secret, str) else secret
    return hmac.new(key, data, hashlib.sha256).digest()


def signed(provider: str, at: int = NOW, body: bytes = BODY) -> tuple[str, dict[str, list[str]]]:
    """The secret and the headers of a valid request."""
    if provider == "github":
        headers = {"x-hub-signature-256": ["sha256=" + mac(SECRET, body).hex()]}
        return SECRET, headers | {"x-github-delivery": ["d1"], "x-github-event": ["push"]}
    if provider == "stripe":
        signature = mac(SECRET, f"{at}.".encode() + body).hex()
        return SECRET, {"stripe-signature": [f"t={at},v1={signature},v0={'0' * 64}"]}
    if provider == "slack":
        signature = mac(SECRET, f"v0:{at}:".encode() + body).hex()
        headers = {"x-slack-signature": [f"v0={signature}"]}
        return SECRET, headers | {"x-slack-request-timestamp": [str(at)]}
    if provider == "shopify":
        signature = base64.b64encode(mac(SECRET, body)).decode()
        return SECRET, {"x-shopify-hmac-sha256": [signature], "x-shopify-webhook-id": ["d1"]}
    key = b"0123456789abcdef01234567"
    signature = base64.b64encode(mac(key, f"msg_1.{at}.".encode() + body)).decode()
    return "whsec_" + base64.b64encode(key).decode(), {
        "webhook-signature": [f"v1a,xyz v1,{signature}"],
        "webhook-id": ["msg_1"],
        "webhook-timestamp": [str(at)],
    }


every = pytest.mark.parametrize("provider", PROVIDERS)
timed = pytest.mark.parametrize("provider", ["stripe", "slack", "standard"])


def test_example_of_github() -> None:
    """docs.github.com, "Testing the webhook payload validation"."""
    value = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    headers = {"x-hub-signature-256": [value]}
    found = verify(PROVIDERS["github"], SECRET, headers, BODY, NOW)
    assert found == VerifiedWebhook(None, None, value.removeprefix("sha256="))
    bare = {"x-hub-signature-256": [value.removeprefix("sha256=")]}
    assert verify(PLAIN, SECRET, bare, BODY, NOW) is not None


def test_example_of_slack() -> None:
    """api.slack.com, "Verifying requests from Slack"."""
    body = (
        b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id="
        b"G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fweb"
        b"hook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J"
        b"%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0"
        b"bc887a14d10d2c447fce8b6703c"
    )
    headers = {
        "x-slack-signature": [
            "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
        ],
        "x-slack-request-timestamp": ["1531420618"],
    }
    secret = "8f742231b10e8888abcd99yyyzzz85a5"
    assert verify(PROVIDERS["slack"], secret, headers, body, 1531420618) is not None


def test_example_of_standard_webhooks() -> None:
    """The specification's reference test vector."""
    headers = {
        "webhook-id": ["msg_p5jXN8AQM9LWM0D4loKWxJek"],
        "webhook-timestamp": ["1614265330"],
        "webhook-signature": ["v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="],
    }
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    found = verify(PROVIDERS["standard"], secret, headers, b'{"test": 2432232314}', 1614265330)
    signature = base64.b64decode("g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=").hex()
    assert found == VerifiedWebhook("msg_p5jXN8AQM9LWM0D4loKWxJek", None, signature)


@every
def test_valid_signature_is_verified(provider: str) -> None:
    secret, headers = signed(provider)
    assert verify(PROVIDERS[provider], secret, headers, BODY, NOW + 299) is not None


@every
def test_changed_body_or_secret_is_rejected(provider: str) -> None:
    secret, headers = signed(provider)
    assert verify(PROVIDERS[provider], secret, headers, BODY + b" ", NOW) is None
    assert verify(PROVIDERS[provider], "another", headers, BODY, NOW) is None


@every
def test_repeated_header_is_rejected(provider: str) -> None:
    secret, headers = signed(provider)
    for name in headers:
        twice = {**headers, name: headers[name] * 2}
        assert verify(PROVIDERS[provider], secret, twice, BODY, NOW) is None


@every
@pytest.mark.parametrize(
    "value", ["", "sha256=", "é", "zz", "v0=", "v1,", "t=,v1=", ",", "=" * 9, "t=1,t=2,v1=00"]
)
def test_garbage_signature_is_rejected(provider: str, value: str) -> None:
    secret, headers = signed(provider)
    scheme = PROVIDERS[provider]
    assert verify(scheme, secret, {**headers, scheme.header: [value]}, BODY, NOW) is None
    assert verify(scheme, secret, {}, BODY, NOW) is None


def test_standard_signature_without_an_id_is_rejected() -> None:
    secret, headers = signed("standard")
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = base64.b64encode(mac(key, f".{NOW}.".encode() + BODY)).decode()
    for ids in ([], [""]):
        bad = {**headers, "webhook-id": ids, "webhook-signature": [f"v1,{signature}"]}
        assert verify(PROVIDERS["standard"], secret, bad, BODY, NOW) is None


@pytest.mark.parametrize(("provider", "version"), [("stripe", "v1"), ("slack", "v0")])
def test_valid_signature_under_another_version_is_rejected(provider: str, version: str) -> None:
    secret, headers = signed(provider)
    scheme = PROVIDERS[provider]
    [value] = headers[scheme.header]
    # Stripe's header ends with a signature of the version v0, which does not match.
    other = value.partition(",v0=")[0].replace(f"{version}=", "v2=")
    assert other != value
    assert verify(scheme, secret, {**headers, scheme.header: [other]}, BODY, NOW) is None


@timed
@pytest.mark.parametrize("off", [-301, 301])
def test_timestamp_must_be_recent(provider: str, off: int) -> None:
    secret, headers = signed(provider, NOW + off)
    assert verify(PROVIDERS[provider], secret, headers, BODY, NOW) is None


def test_timestamp_must_be_a_number() -> None:
    secret, headers = signed("slack")
    for value in ("x", "-1", "1e9", "٣", "9" * 400):
        bad = {**headers, "x-slack-request-timestamp": [value]}
        assert verify(PROVIDERS["slack"], secret, bad, BODY, NOW) is None


def test_empty_key_is_rejected() -> None:
    secret, at, body = "whsec_", "1614265330", b"{}"
    signature = hmac.new(b"", b"id.1614265330.{}", hashlib.sha256).digest()
    headers = {
        "webhook-id": ["id"],
        "webhook-timestamp": [at],
        "webhook-signature": [f"v1,{base64.b64encode(signature).decode()}"],
    }
    judged = judge(PROVIDERS["standard"], secret, headers, body, float(at))
    assert judged == Failure("the secret is an empty key")


def test_endpoint_may_have_its_own_signature_header() -> None:
    headers = {"x-signature": [mac(SECRET, BODY).hex()]}
    judged = judge(PLAIN, SECRET, headers, BODY, NOW, header="X-Signature")
    assert isinstance(judged, VerifiedWebhook)
    assert verify(PLAIN, SECRET, headers, BODY, NOW) is None


def test_delivery_id_and_event_are_read_from_headers() -> None:
    secret, headers = signed("github")
    found = verify(PROVIDERS["github"], secret, headers, BODY, NOW)
    assert found == VerifiedWebhook("d1", "push", mac(SECRET, BODY).hex())


def test_signature_is_hmac_sha256_in_hex() -> None:
    body = b'{"a": 1}'
    expected = hmac.new(b"secret", body, hashlib.sha256).hexdigest()
    assert compute_signature("secret", body) == expected
    headers = sign_headers("secret", "m", body, datetime.fromtimestamp(NOW, UTC))
    assert headers["X-Observatory-Signature"] == f"sha256={expected}"


@given(st.binary(), st.text(min_size=1, alphabet=st.characters(codec="utf-8")))
def test_signed_headers_verify(body: bytes, secret: str) -> None:
    at = datetime.fromtimestamp(NOW, UTC)
    headers = {k.lower(): [v] for k, v in sign_headers(secret, "m-1", body, at).items()}
    assert verify(OBSERVATORY, secret, headers, body, 0.0)
    assert verify(PROVIDERS["standard"], secret, headers, body, NOW)
    assert not verify(OBSERVATORY, secret, headers, body + b"x", 0.0)


@pytest.mark.parametrize(
    ("secret", "key"),
    [
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ("whsec_c2VjcmV0LWtleQ", "whsec_c2VjcmV0LWtleQ"),
        ("whsec_c2VjcmV0LWtleQ==", b"secret-key"),
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
        ("a plain secret!", b"a plain secret!"),
        ("geheim-ä", "geheim-ä".encode()),
    ],
)
def test_standardwebhooks_verifies_either_form_of_a_secret(secret: str, key: str | bytes) -> None:
    body = '{"text": "grüße"}'.encode()
    headers = sign_headers(secret, "msg_1", body, datetime.now(UTC))
    assert Webhook(key).verify(body, headers) == {"text": "grüße"}
