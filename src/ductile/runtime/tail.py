"""The stream where several nodes write: one reader a node, in the order that all of them see."""

from __future__ import annotations

from ductile.log import logger
from ductile.runtime.bridge import Bridge
from ductile.store import notices
from ductile.store.ledger import Ledger, Position, StoredNotice, Tx

AT_ONCE = 1000


class Tail:
    """Reads on behind what it has read, and fills the ring with it."""

    def __init__(self, ledger: Ledger, bridge: Bridge, start: Position) -> None:
        self._ledger, self._bridge, self._position = ledger, bridge, start
        self._log = logger("tail")

    def look(self) -> bool:
        """Take in what is new; whether there is more that cannot be read yet.

        Only one thread may call it.
        """
        try:
            while True:
                found, held = self._ledger.read(self._read)
                if found:
                    self._position = found[-1].position
                    self._bridge.append(found)
                if len(found) < AT_ONCE:
                    return held
        except Exception as error:  # noqa: BLE001 - the next look may succeed, and misses nothing
            self._log.crash("the stream cannot be read", error)
            return False

    def _read(self, tx: Tx) -> tuple[list[StoredNotice], bool]:
        return notices.after(tx, self._position, AT_ONCE), notices.held(tx)
