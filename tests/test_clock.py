"""Times as the ledger keeps them, and the doors to time and chance."""

from __future__ import annotations

import threading
import uuid
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.clock import Ids, SystemClock, SystemEntropy, TrustedTime, from_text, to_text
from tests.conftest import FakeClock

ZONES = st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m)))
MOMENTS = st.datetimes(
    datetime(1000, 1, 1),  # noqa: DTZ001 - hypothesis adds the zone
    datetime(9998, 1, 1),  # noqa: DTZ001
    timezones=ZONES,
)


@given(MOMENTS)
def test_a_time_comes_back_as_it_went_in(moment):
    assert from_text(to_text(moment)) == moment


@given(MOMENTS, MOMENTS)
def test_text_order_is_time_order(one, other):
    assert (to_text(one) < to_text(other)) == (one < other)


@given(MOMENTS)
def test_every_time_is_as_wide_as_any_other(moment):
    text = to_text(moment)
    assert (len(text), text[-1]) == (27, "Z")


def test_a_time_of_another_zone_is_written_in_utc():
    vienna = timezone(timedelta(hours=1))
    assert to_text(datetime(2026, 2, 8, 11, 0, tzinfo=vienna)) == "2026-02-08T10:00:00.000000Z"


@pytest.mark.parametrize(
    "text",
    [
        "2026-02-08 10:00:00",
        "2026-02-08T10:00:00Z",
        "2026-02-08T10:00:00.000000Z",
        "2026-02-08T11:00:00+01:00",
        "20260208T100000Z",
        " 2026-02-08 10:00:00 ",
        "2026-02-08 10:00",
    ],
)
def test_any_iso_form_is_read(text):
    assert from_text(text) == datetime(2026, 2, 8, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "2026-13-01", "2026-02-08T25:00:00Z", "0001-01-01T00:00:00+08:00"],
)
def test_text_that_is_not_a_time_is_refused(text):
    with pytest.raises(ValueError):
        from_text(text)


def test_ids_are_uuids_that_sort_by_when_they_were_made():
    entropy = SystemEntropy()
    ids = [entropy.uuid() for _ in range(5000)]
    assert sorted(ids) == ids
    assert len(set(ids)) == len(ids)
    assert uuid.UUID(ids[0]).version == 7


def test_chance_lies_between_nought_and_one():
    entropy = SystemEntropy()
    assert all(0.0 <= entropy.uniform() < 1.0 for _ in range(1000))


def test_the_systems_time_is_aware_and_in_utc():
    assert SystemClock().now().utcoffset() == timedelta(0)


def test_a_wait_returns_whether_it_was_woken():
    clock, wake = SystemClock(), threading.Event()
    assert clock.wait(wake, 0.0) is False
    wake.set()
    assert clock.wait(wake, 60.0) is True


def test_monotonic_time_never_runs_back():
    clock = SystemClock()
    seen = [clock.monotonic() for _ in range(1000)]
    assert sorted(seen) == seen


# Ids that follow from one


@given(st.uuids(version=4))
def test_a_transaction_that_is_run_again_makes_the_same_ids(base):
    first, again = Ids(str(base)), Ids(str(base))
    assert [first.next() for _ in range(5)] == [again.next() for _ in range(5)]


def test_ids_of_many_bases_never_meet():
    entropy = SystemEntropy()
    bases = [entropy.uuid() for _ in range(300)]
    made = [ids.next() for ids in map(Ids, bases) for _ in range(30)]
    assert len({*made, *bases}) == len(made) + len(bases)


def test_ids_are_uuids_of_their_bases_time():
    base = SystemEntropy().uuid()
    ids = Ids(base)
    for _ in range(50):
        made = ids.next()
        assert uuid.UUID(made).version == 7
        assert uuid.UUID(made).variant == uuid.RFC_4122
        assert made[:13] == base[:13]


def test_ids_of_a_later_base_sort_after_those_of_an_earlier_one():
    earlier, later = (
        Ids("01930000-0000-7000-8000-ffffffffffff"),
        Ids("01930000-0001-7000-8000-000000000000"),
    )
    assert max(earlier.next() for _ in range(20)) < min(later.next() for _ in range(20))


def test_trusted_time_follows_a_clock_set_forward_after_a_day(clock: FakeClock) -> None:
    trusted = TrustedTime(clock)
    start = clock.now()
    clock.moment += timedelta(days=365)
    assert trusted.read(clock.now()) == start
    clock.advance(3600)
    assert trusted.read(clock.now()) == start + timedelta(hours=1)
    clock.advance(23 * 3600)
    assert trusted.read(clock.now()) == clock.now()


def test_trusted_time_follows_a_clock_set_back_at_once(clock: FakeClock) -> None:
    trusted = TrustedTime(clock)
    clock.moment -= timedelta(days=365)
    assert trusted.read(clock.now()) == clock.now()
    clock.moment += timedelta(days=365)
    trusted.read(clock.now())
    clock.moment -= timedelta(days=364)
    assert trusted.read(clock.now()) == clock.now() - timedelta(days=1)
    clock.moment -= timedelta(days=2)
    assert trusted.read(clock.now()) == clock.now()
