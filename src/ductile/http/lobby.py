"""What the applications of one gateway share, whichever door a request came through."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from ductile.errors import DuctileError
from ductile.http.beats import Beats
from ductile.http.stream import Stream
from ductile.runtime.deliveries import Mismatches
from ductile.runtime.doors import Doorkeeper, Principal
from ductile.runtime.gateway import Gateway
from ductile.runtime.metrics import Metrics


class Saturated(DuctileError):
    code = "too_many_synchronous_calls"
    http_status = 503


class Lobby:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.keeper = Doorkeeper(lambda: gateway.blueprint, gateway.ledger, gateway.clock)
        self.on_the_line = 0
        """Synchronous callers (002 §9.5)."""
        self.stream = Stream(gateway.bridge)
        self.metrics = Metrics(gateway)
        self.mismatches = Mismatches()
        self.beats = Beats(gateway)

    async def who(self, token: str | None) -> Principal | None:
        """Whose token it is now."""
        if token is None:
            return None
        if self.keeper.is_stale(token):
            await asyncio.to_thread(self.keeper.refresh)
        return self.keeper.who(token)

    @contextmanager
    def line(self) -> Iterator[None]:
        """Stay on the line; `Saturated` where the configuration in force allows no more."""
        if self.on_the_line >= self.gateway.blueprint.settings.api.max_concurrent_sync:
            raise Saturated("every synchronous call is in use; try again, or use ?async=true")
        self.on_the_line += 1
        try:
            yield
        finally:
            self.on_the_line -= 1

    def close(self) -> None:
        """In the loop: send away those who would stay."""
        self.stream.close()
