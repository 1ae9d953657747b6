"""What the applications of one gateway share, whichever door a request came through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from starlette.requests import Request

from ductile.engine.gateway import Gateway
from ductile.engine.ingress.auth import Doorkeeper, Principal
from ductile.engine.observability.metrics import Metrics
from ductile.engine.outbox.webhooks import Mismatches
from ductile.errors import DuctileError, LedgerError
from ductile.http.middleware.heartbeat_batch import Beats
from ductile.http.middleware.single_flight import Shared
from ductile.http.middleware.subscribers import Stream
from ductile.operations import plugin_health
from ductile.operations.backup import Backups
from ductile.operations.plugin_health import Checkup

ASIDE = 4
"""Threads for what blocks long; the others are left to those who read."""
TOKENS_WITHIN = 5.0
"""Seconds that the ledger has to say which tokens there are."""

P = ParamSpec("P")
T = TypeVar("T")


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
        self.checkups: Shared[dict[str, Checkup]] = Shared(self._check_up)
        """The `health` of every plugin that declares it."""
        self._tokens = Shared(self._read_tokens)
        self.backups = Backups(lambda: gateway.ledger, gateway.state_dir, gateway.clock)
        gateway.on_stop.append(self.backups.stop)
        self._aside = asyncio.Semaphore(ASIDE)

    async def who(self, token: str | None) -> Principal | None:
        """Whose token it is now; `LedgerError` where only the ledger knows, and does not say."""
        if token is None:
            return None
        if self.keeper.is_stale(token):
            try:
                async with asyncio.timeout(TOKENS_WITHIN):
                    await self._tokens()
            except TimeoutError:
                raise LedgerError("the ledger does not answer") from None
        return self.keeper.who(token)

    def tokens_changed(self) -> None:
        """Whoever comes from now on is judged by the ledger's tokens as they are now."""
        self.keeper.forget()
        self._tokens.renew()

    async def _read_tokens(self) -> None:
        await asyncio.to_thread(self.keeper.refresh)

    async def aside(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """What may block for long, off the loop; no more than a few at once."""
        async with self._aside:
            return await asyncio.to_thread(work, *args, **named)

    async def _check_up(self) -> dict[str, Checkup]:
        gateway = self.gateway
        return await self.aside(
            plugin_health.check_up,
            gateway.blueprint,
            gateway.ledger,
            gateway.clock,
            gateway.entropy,
        )

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


def lobby_of(request: Request) -> Lobby:
    lobby: Lobby = request.app.state.lobby
    return lobby
