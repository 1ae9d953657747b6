"""Heartbeats of a moment, committed together; each is answered once its own row is durable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ductile.core.agents.heartbeat import Beat
from ductile.engine.services import Services
from ductile.errors import LedgerError
from ductile.store import agents

PAUSE = 0.05
"""Between two commits, so that many agents share one; alone, a heartbeat does not wait."""

Done = Callable[[BaseException | None], None]


class HeartbeatBatcher:
    """Lives in the loop."""

    def __init__(self, gateway: Services) -> None:
        self._gateway = gateway
        self._gathered: list[tuple[Beat, Done]] = []
        self._next = 0.0

    def add(self, beat: Beat, done: Done) -> None:
        """Call `done` in the loop once it is durable, or with what kept it from that."""
        self._gathered.append((beat, done))
        if len(self._gathered) == 1:
            loop = asyncio.get_running_loop()
            loop.call_at(self._next, self._commit, loop)

    async def record(self, beat: Beat) -> None:
        """Return when it is durable."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(error: BaseException | None) -> None:
            if future.done():
                return  # Its caller is gone.
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

        self.add(beat, done)
        await future

    def _commit(self, loop: asyncio.AbstractEventLoop) -> None:
        gathered, self._gathered = self._gathered, []
        self._next = loop.time() + PAUSE
        beats, now = [beat for beat, _ in gathered], self._gateway.clock.now()

        def tell(error: BaseException | None) -> None:
            for _, done in gathered:
                done(error)

        def committed(_: None, error: BaseException | None) -> None:
            loop.call_soon_threadsafe(tell, error)

        try:
            self._gateway.ledger.submit(lambda tx: agents.record(tx, beats, now), committed)
        except LedgerError as error:
            tell(error)
