"""The stream where several nodes write: one reader a node, in the order that all of them see."""

from __future__ import annotations

from ductile.core.jobs.limits import PAGE_BYTES, fitting
from ductile.engine.notices.bus import NoticeBus
from ductile.log import logger
from ductile.record import dataclass
from ductile.store import notices
from ductile.store.engines.api import Ledger, Position, StoredNotice, Tx

AT_ONCE = 1000
"""Notices; of large ones no more than a page has room for."""


@dataclass(frozen=True, slots=True)
class _Page:
    found: list[StoredNotice]
    is_last: bool
    held: bool
    """Whether there is more that cannot be read yet."""


class NoticeTailer:
    """Reads on behind what it has read, and fills the ring with it."""

    def __init__(self, ledger: Ledger, notice_bus: NoticeBus, start: Position) -> None:
        self._ledger, self._notice_bus, self._position = ledger, notice_bus, start
        self._log = logger("tail")

    def look(self) -> bool:
        """Take in what is new; whether there is more that cannot be read yet.

        Only one thread may call it.
        """
        try:
            while True:
                page = self._ledger.read(self._read)
                if page.found:
                    self._position = page.found[-1].position
                    self._notice_bus.append(page.found)
                if page.is_last:
                    return page.held
        except Exception as error:  # noqa: BLE001 - the next look may succeed, and misses nothing
            self._log.crash("the stream cannot be read", error)
            return False

    def _read(self, tx: Tx) -> _Page:
        place = {"xact": self._position.xact, "after": self._position.id}
        sizes = [size for (size,) in tx.all("notice_sizes", **place, limit=AT_ONCE)]
        count = fitting(sizes, PAGE_BYTES)
        found = notices.after(tx, self._position, count) if count else []
        return _Page(found, count == len(sizes) < AT_ONCE, notices.held(tx))
