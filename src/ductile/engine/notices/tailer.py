"""Reads the notice stream that several nodes write: one reader per node, in the same order.

While nothing on this node follows the stream, no notice is read: the cost does not depend on the
number of nodes and jobs.
"""

from __future__ import annotations

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.limits import PAGE_BYTES, fitting
from ductile.engine.notices.bus import NoticeBus
from ductile.log import logger
from ductile.store import notices
from ductile.store.engines.api import Ledger, Position, StoredNotice, Tx

BATCH = 1000
"""Notices per read; fewer if they are larger than a page."""


@dataclass(frozen=True, slots=True)
class _NoticePage:
    found: list[StoredNotice]
    is_last: bool
    held: bool
    """Whether there are notices that cannot be read yet."""


class NoticeTailer:
    """Appends new notices to the bus."""

    def __init__(self, ledger: Ledger, notice_bus: NoticeBus, start: Position) -> None:
        self._ledger, self._notice_bus, self._position = ledger, notice_bus, start
        self._log = logger("tail")

    def read_new(self) -> bool:
        """Append the new notices; whether there are more that cannot be read yet.

        Only one thread may call it.
        """
        try:
            if self._notice_bus.is_followed:
                return self._read_all()
            last = max(self._ledger.read(notices.last_position), self._position)
            if not self._notice_bus.skip_to(last):
                # It is followed since then, by one that may have read the ledger before this read.
                return self._read_all()
            self._position = last
        except Exception as error:  # noqa: BLE001 - the next call may succeed, and misses nothing
            self._log.crash("notice stream cannot be read", error)
        return False

    def _read_all(self) -> bool:
        while True:
            page = self._ledger.read(self._read_page)
            if page.found:
                self._position = page.found[-1].position
                self._notice_bus.append(page.found)
            if page.is_last:
                return page.held

    def _read_page(self, tx: Tx) -> _NoticePage:
        place = {"xact": self._position.xact, "after": self._position.id}
        sizes = [size for (size,) in tx.all("notice_sizes", **place, limit=BATCH)]
        count = fitting(sizes, PAGE_BYTES)
        found = notices.list_after(tx, self._position, count) if count else []
        return _NoticePage(found, count == len(sizes) < BATCH, notices.has_held_back(tx))
