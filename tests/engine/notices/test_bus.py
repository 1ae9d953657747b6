"""The ring of recent notices: what it returns, and when it says that something is missing."""

from __future__ import annotations

import pytest

from ductile.engine.notices import bus
from ductile.engine.notices.bus import NoticeBus
from ductile.store.engines.api import BEGINNING, StoredNotice


def notice(id: int, payload: str = "{}") -> StoredNotice:
    return StoredNotice(id, "jobs", "job.queued", f"j{id}", payload, "2026-02-08T10:00:00Z")


def ids(found: list[StoredNotice] | None) -> list[int] | None:
    return None if found is None else [each.id for each in found]


def test_ring_returns_what_follows_a_position() -> None:
    ring = NoticeBus()
    ring.append([notice(n) for n in (1, 2, 3)])
    assert ids(ring.read_since(BEGINNING)) == [1, 2, 3]
    assert ids(ring.read_since(notice(2).position)) == [3]
    assert ids(ring.read_since(notice(3).position)) == []


def test_ring_that_has_dropped_notices_reports_the_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus, "RING_NOTICES", 2)
    ring = NoticeBus()
    ring.append([notice(n) for n in (1, 2, 3, 4)])
    assert ring.read_since(BEGINNING) is None
    assert ring.read_since(notice(1).position) is None
    assert ids(ring.read_since(notice(2).position)) == [3, 4]


def test_large_payloads_make_the_ring_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus, "RING_BYTES", 100)
    ring = NoticeBus()
    ring.append([notice(n, "x" * 60) for n in (1, 2)])
    assert ring.read_since(BEGINNING) is None
    assert ids(ring.read_since(notice(1).position)) == [2]


def test_position_before_the_start_of_the_ring_is_a_gap() -> None:
    ring = NoticeBus()
    ring.start(notice(5).position)
    assert ring.read_since(notice(4).position) is None
    assert ids(ring.read_since(notice(5).position)) == []
