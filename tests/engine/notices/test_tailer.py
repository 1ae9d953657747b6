"""Reading the notice stream in batches, on both engines."""

from __future__ import annotations

import pytest

from ductile.core.jobs.limits import PAGE_BYTES
from ductile.engine.notices import tailer
from ductile.engine.notices.bus import NoticeBus
from ductile.engine.notices.tailer import NoticeTailer
from ductile.model import MIB, Notice
from ductile.store import notices
from ductile.store.engines.api import BEGINNING, Ledger, StoredNotice, Tx
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
def following() -> list[str]:
    """The names of the followers of the stream."""
    return ["a subscriber"]


@pytest.fixture
def bus(following: list[str]) -> RecordingBus:
    bus = RecordingBus()
    bus.follow(lambda: None, lambda: bool(following))
    return bus


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


@pytest.mark.usefixtures("ledger")
class TestQuietStream:
    """Nothing follows the stream."""

    @pytest.fixture
    def following(self) -> list[str]:
        return []

    @pytest.fixture
    def tail(self, ledger: Ledger, bus: RecordingBus) -> NoticeTailer:  # noqa: F811
        return NoticeTailer(ledger, bus, BEGINNING)

    def test_no_notice_is_read(
        self,
        ledger: Ledger,  # noqa: F811
        bus: RecordingBus,
        tail: NoticeTailer,
    ) -> None:
        post(ledger, "job.started")
        assert tail.read_new() is False
        assert bus.pages == []

    def test_new_follower_gets_what_is_posted_after_its_position(
        self,
        ledger: Ledger,  # noqa: F811
        bus: RecordingBus,
        tail: NoticeTailer,
        following: list[str],
    ) -> None:
        post(ledger, "skipped")
        tail.read_new()
        assert bus.read_since(BEGINNING) is None, "the ring would pretend that there was nothing"
        start = ledger.read(notices.last_position)
        following.append("a subscriber")
        post(ledger, "new")
        tail.read_new()
        found = bus.read_since(start)
        assert found is not None
        assert [notice.type for notice in found] == ["new"]

    def test_follower_that_comes_during_a_read_misses_nothing(
        self,
        ledger: Ledger,  # noqa: F811
        bus: RecordingBus,
        tail: NoticeTailer,
        following: list[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        post(ledger, "old")
        start = ledger.read(notices.last_position)
        read = notices.last_position

        def read_late(tx: Tx) -> object:
            following.append("a subscriber")
            return read(tx)

        monkeypatch.setattr(notices, "last_position", read_late)
        post(ledger, "new")
        tail.read_new()
        found = bus.read_since(start)
        assert found is not None
        assert [notice.type for notice in found] == ["new"]

    def test_waiting_caller_is_notified_of_an_end_on_another_node(
        self,
        ledger: Ledger,  # noqa: F811
        bus: RecordingBus,
        tail: NoticeTailer,
    ) -> None:
        ended: list[bool] = []
        bus.add_on_end("job-1", lambda: ended.append(True))
        end = Notice("jobs", "job.succeeded", {})
        ledger.write(lambda tx: notices.post(tx, end, NOW, job_id="job-1"))
        tail.read_new()
        assert ended == [True]
