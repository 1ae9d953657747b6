"""The number of refused webhook requests of the last hour."""

from __future__ import annotations

import pytest

from ductile.engine.ingress import recent_refusals
from ductile.engine.ingress.recent_refusals import RecentRefusals
from tests.conftest import FakeClock


def counts(refusals: RecentRefusals) -> list[tuple[str | None, str, int]]:
    return [(row.endpoint, row.reason, row.requests) for row in refusals.read()]


def test_requests_are_counted_by_endpoint_and_reason_for_an_hour(clock: FakeClock) -> None:
    refusals = RecentRefusals(clock)
    for _ in range(3):
        refusals.count("/a", "forged")
    refusals.count("/a", "too large")
    clock.advance(30 * 60)
    refusals.count("/a", "forged")
    refusals.count(None, "unknown")
    assert counts(refusals)[0] == ("/a", "forged", 4)
    assert refusals.read()[0].last_at == clock.now()
    clock.advance(30 * 60)
    assert counts(refusals) == [(None, "unknown", 1), ("/a", "forged", 1)]
    clock.advance(3 * 3600)
    assert counts(refusals) == []


def test_number_of_series_is_bounded(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_refusals, "MAX_SERIES", 2)
    refusals = RecentRefusals(clock)
    for path in ("/a", "/b", "/c", "/d"):
        refusals.count(path, "forged")
    assert ("other", "other", 2) in counts(refusals)
    assert len(counts(refusals)) == 3
    clock.advance(3600)
    refusals.count("/e", "forged")
    assert counts(refusals) == [("/e", "forged", 1)]
