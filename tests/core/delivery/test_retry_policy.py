"""WebhookOutbox: their states, their retries, their signatures (004)."""

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
    after_failure,
    after_success,
    given_up,
    signature,
    signed_headers,
)
from ductile.core.delivery.signatures import PROVIDERS, verify

NOW = datetime(2026, 2, 8, 10, 0, tzinfo=UTC)
P, OK, F, D = DeliveryStatus


def test_fr_10_9_the_schedule_is_a_tuple_that_is_looked_up() -> None:
    assert RETRY_SCHEDULE_SECONDS == (30, 120, 600, 3600, 21600)


@pytest.mark.parametrize(("before", "delay"), list(enumerate(RETRY_SCHEDULE_SECONDS)))
def test_fr_10_9_a_failure_waits_by_the_count_before_it(before: int, delay: int) -> None:
    verdict = after_failure(before, NOW)
    assert verdict.status is F
    assert verdict.attempt_count == before + 1
    assert verdict.next_retry_at == NOW + timedelta(seconds=delay)


def test_fr_10_9_the_sixth_failure_is_death() -> None:
    verdict = after_failure(5, NOW)
    assert (verdict.status, verdict.attempt_count, verdict.next_retry_at) == (D, 6, None)


def test_six_sends_in_all() -> None:
    verdict, sends = after_failure(0, NOW), 1
    while verdict.status is not D:
        verdict, sends = after_failure(verdict.attempt_count, NOW), sends + 1
    assert sends == 6


@given(st.integers(-(10**6), 10**6))
def test_fr_10_9_no_count_makes_a_retry_in_the_past(count: int) -> None:
    verdict = after_failure(count, NOW)
    assert verdict.next_retry_at is None or verdict.next_retry_at > NOW


@pytest.mark.parametrize("count", range(6))
def test_a_success_does_not_change_the_count(count: int) -> None:
    verdict = after_success(count)
    assert (verdict.status, verdict.attempt_count, verdict.next_retry_at) == (OK, count, None)


def test_what_is_given_up_is_dead_and_counts_no_send() -> None:
    assert given_up(3).status is D
    assert given_up(3).attempt_count == 3


def test_inbound_waits_thirty_seconds() -> None:
    assert timedelta(seconds=30) == INBOUND_DELAY


def test_the_table_of_states() -> None:
    assert {F, D, P} == RETRIABLE
    assert {P, F} == OUTSTANDING
    illegal = set(itertools.product(DeliveryStatus, DeliveryStatus)) - set(EDGES)
    assert {edge for edge in illegal if edge[0] is OK} == {(OK, s) for s in DeliveryStatus}
    assert (D, OK) in illegal
    assert (D, F) in illegal


def test_fr_10_10_the_signature_is_hmac_sha256_in_hex() -> None:
    body = b'{"a": 1}'
    assert signature("secret", body) == hmac.new(b"secret", body, hashlib.sha256).hexdigest()
    headers = signed_headers("secret", "m", body, NOW)
    assert headers["X-Observatory-Signature"] == f"sha256={signature('secret', body)}"


@given(st.binary(), st.text(min_size=1, alphabet=st.characters(codec="utf-8")))
def test_what_is_signed_verifies(body: bytes, secret: str) -> None:
    headers = {k.lower(): [v] for k, v in signed_headers(secret, "m-1", body, NOW).items()}
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
def test_the_published_package_verifies_either_form_of_a_secret(
    secret: str, key: str | bytes
) -> None:
    body = '{"text": "grüße"}'.encode()
    headers = signed_headers(secret, "msg_1", body, datetime.now(UTC))
    assert Webhook(key).verify(body, headers) == {"text": "grüße"}
