"""Reading the notice stream in batches, on both engines."""

from __future__ import annotations

import pytest

from ductile.core.jobs.limits import PAGE_BYTES
from ductile.engine.notices import tailer
from ductile.engine.notices.bus import NoticeBus
from ductile.engine.notices.tailer import NoticeTailer
from ductile.model import MIB, Notice
from ductile.store import notices
from ductile.store.engines.api import BEGINNING, Ledger, StoredNotice
from tests.conftest import FakeClock
from tests.store.conftest import ledger, open_ledger  # noqa: F401 - fixtures

NOW = FakeClock().now()


class RecordingBus(NoticeBus):
    """Records the batches."""

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[list[StoredNotice]] = []

    def append(self, notices: list[StoredNotice]) -> None:
        self.pages.append(notices)
        super().append(notices)


@pytest.fixture
def bus() -> RecordingBus:
    return RecordingBus()


def post(ledger: Ledger, name: str, size: int = 0) -> None:  # noqa: F811
    notice = Notice("jobs", name, {"text": "x" * size})
    ledger.write(lambda tx: notices.post(tx, notice, NOW))


def read_names(bus: RecordingBus) -> list[str]:
    return [notice.type for page in bus.pages for notice in page]


def test_large_notices_are_read_in_small_batches(
    ledger: Ledger,  # noqa: F811
    bus: RecordingBus,
) -> None:
    for name in "abcde":
        post(ledger, name, 3 * MIB // 2)
    post(ledger, "f", 2 * PAGE_BYTES)
    post(ledger, "g")
    read_new = NoticeTailer(ledger, bus, BEGINNING).read_new
    assert read_new() is False
    assert read_names(bus) == list("abcdefg")
    sizes = [sum(len(notice.payload) for notice in page) for page in bus.pages]
    assert all(
        size <= PAGE_BYTES or len(page) == 1 for size, page in zip(sizes, bus.pages, strict=True)
    )


def test_many_notices_are_read_in_pages(
    ledger: Ledger,  # noqa: F811
    bus: RecordingBus,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tailer, "BATCH", 2)
    for name in "abcd":
        post(ledger, name)
    read_new = NoticeTailer(ledger, bus, BEGINNING).read_new
    read_new()
    assert read_names(bus) == list("abcd")
    post(ledger, "e")
    read_new()
    read_new()
    assert read_names(bus) == list("abcde")
