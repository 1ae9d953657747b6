"""What the applications of one gateway share, whichever door a request came through."""

from __future__ import annotations

import asyncio

from ductile.http.stream import Stream
from ductile.runtime.doors import Doorkeeper
from ductile.runtime.gateway import Gateway
from ductile.runtime.metrics import Metrics


class Lobby:
    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.keeper = Doorkeeper(lambda: gateway.blueprint, gateway.ledger, gateway.clock)
        self.synchronous = asyncio.Semaphore(gateway.blueprint.settings.api.max_concurrent_sync)
        """Callers that stay on the line (002 §9.5)."""
        self.stream = Stream(gateway.bridge)
        self.metrics = Metrics(gateway)

    def close(self) -> None:
        """In the loop: send away those who would stay."""
        self.stream.close()
