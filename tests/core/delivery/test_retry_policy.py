"""Webhook deliveries: their states and their retries."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from ductile.core.delivery.retry_policy import (
    EDGES,
    INBOUND_DELAY,
    OUTSTANDING,
    RETRIABLE,
    RETRY_SCHEDULE_SECONDS,
    DeliveryStatus,
    DeliveryUpdate,
    mark_delivered,
    mark_failed,
    mark_rejected,
    mark_unsendable,
)

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
