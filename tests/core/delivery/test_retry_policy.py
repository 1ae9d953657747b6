"""Webhook deliveries: their states, their retries, their signatures."""

from __future__ import annotations

import hashlib
import hmac
import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook

from ductile.core.delivery.retry_policy import (
    EDGES,
    INBOUND_DELAY,
    OBSERVATORY,
    OUTSTANDING,
    RETRIABLE,
    RETRY_SCHEDULE_SECONDS,
    DeliveryStatus,
    DeliveryUpdate,
    compute_signature,
    mark_delivered,
    mark_failed,
    mark_rejected,
    mark_unsendable,
    sign_headers,
)
from ductile.core.delivery.signatures import PROVIDERS, verify

NOW = datetime(2026, 2, 8, 10, 0, tzinfo=UTC)
P, OK, F, D = DeliveryStatus


def test_retry_schedule() -> None:
    assert RETRY_SCHEDULE_SECONDS == (30, 120, 600, 3600, 21600)


def test_failed_delivery_is_dead_after_six_sends() -> None:
    delays, update = [], mark_failed(0, "no luck", NOW)
    while update.next_retry_at is not None:
        assert (update.status, update.error) == (F, "no luck")
        delays.append((update.next_retry_at - NOW).total_seconds())
        assert update.attempt_count == len(delays)
        update = mark_failed(update.attempt_count, "no luck", NOW)
    assert delays == list(RETRY_SCHEDULE_SECONDS)
    assert update == DeliveryUpdate(D, 6, None, "no luck")


@given(st.integers(-(10**6), 10**6))
def test_no_attempt_count_makes_a_retry_in_the_past(count: int) -> None:
    update = mark_failed(count, "no luck", NOW)
    assert update.next_retry_at is None or update.next_retry_at > NOW


def test_success_does_not_change_the_attempt_count() -> None:
    assert mark_delivered(3) == DeliveryUpdate(OK, 3, None, None)


def test_rejected_send_counts_and_an_unsendable_one_does_not() -> None:
    assert mark_rejected(3, "why") == DeliveryUpdate(D, 4, None, "why")
    assert mark_unsendable(3, "why") == DeliveryUpdate(D, 3, None, "why")


def test_inbound_delay_is_thirty_seconds() -> None:
    assert timedelta(seconds=30) == INBOUND_DELAY


def test_legal_state_changes() -> None:
    assert {F, D, P} == RETRIABLE
    assert {P, F} == OUTSTANDING
    illegal = set(itertools.product(DeliveryStatus, DeliveryStatus)) - set(EDGES)
    assert {edge for edge in illegal if edge[0] is OK} == {(OK, s) for s in DeliveryStatus}
    assert (D, OK) in illegal
    assert (D, F) in illegal


def test_signature_is_hmac_sha256_in_hex() -> None:
    body = b'{"a": 1}'
    expected = hmac.new(b"secret", body, hashlib.sha256).hexdigest()
    assert compute_signature("secret", body) == expected
    headers = sign_headers("secret", "m", body, NOW)
    assert headers["X-Observatory-Signature"] == f"sha256={expected}"


@given(st.binary(), st.text(min_size=1, alphabet=st.characters(codec="utf-8")))
def test_signed_headers_verify(body: bytes, secret: str) -> None:
    headers = {k.lower(): [v] for k, v in sign_headers(secret, "m-1", body, NOW).items()}
    assert verify(OBSERVATORY, secret, headers, body, 0.0)
    assert verify(PROVIDERS["standard"], secret, headers, body, NOW.timestamp())
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
