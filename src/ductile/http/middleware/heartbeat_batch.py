"""Heartbeats that arrive together share one commit; each is answered once its row is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ductile.core.agents.heartbeat import Heartbeat
from ductile.engine.services import Services
from ductile.errors import LedgerError
from ductile.store import agents

BATCH_INTERVAL = 0.05
"""Seconds between two commits. A single heartbeat is committed at once."""

Committed = Callable[[BaseException | None], None]


class HeartbeatBatcher:
    """Used in the event loop only."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._batch: list[tuple[Heartbeat, Committed]] = []
        self._next_commit = 0.0

    def add(self, heartbeat: Heartbeat, committed: Committed) -> None:
        """Call `committed` in the loop once the heartbeat is durable, or with the error."""
        self._batch.append((heartbeat, committed))
        if len(self._batch) == 1:
            loop = asyncio.get_running_loop()
            loop.call_at(self._next_commit, self._commit, loop)

    async def record(self, heartbeat: Heartbeat) -> None:
        """Return when the heartbeat is durable."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def committed(error: BaseException | None) -> None:
            if future.done():
                return  # The caller has gone.
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.add(heartbeat, committed)
        await future

    def _commit(self, loop: asyncio.AbstractEventLoop) -> None:
        batch, self._batch = self._batch, []
        self._next_commit = loop.time() + BATCH_INTERVAL
        heartbeats, now = [heartbeat for heartbeat, _ in batch], self._services.clock.now()

        def report(error: BaseException | None) -> None:
            for _, committed in batch:
                committed(error)

        def on_commit(_: None, error: BaseException | None) -> None:
            loop.call_soon_threadsafe(report, error)

        try:
            self._services.ledger.submit(
                lambda tx: agents.record_heartbeats(tx, heartbeats, now), on_commit
            )
        except LedgerError as error:
            report(error)
