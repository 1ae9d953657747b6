"""What the applications of one gateway share, whichever door a request came through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from starlette.requests import Request

from ductile.engine.ingress.auth import Authenticator, Principal
from ductile.engine.ingress.rejection_limiter import RejectionLimiter
from ductile.engine.observability.metrics import Metrics
from ductile.engine.services import Services
from ductile.errors import DuctileError, LedgerError
from ductile.http.middleware.heartbeat_batch import HeartbeatBatcher
from ductile.http.middleware.single_flight import SingleFlight
from ductile.http.middleware.subscribers import Subscribers
from ductile.operations import plugin_health
from ductile.operations.backup import Backups
from ductile.operations.plugin_health import HealthCheck

BLOCKING_THREADS = 4
"""Threads for what blocks long; the others are left to those who read."""
TOKENS_WITHIN = 5.0
"""Seconds that the ledger has to say which tokens there are."""

P = ParamSpec("P")
T = TypeVar("T")


class Saturated(DuctileError):
    code = "too_many_synchronous_calls"
    http_status = 503


class AppContext:
    def __init__(self, gateway: Services) -> None:
        self.gateway = gateway
        self.authenticator = Authenticator(lambda: gateway.compiled, gateway.ledger, gateway.clock)
        self.on_the_line = 0
        """Synchronous callers (002 §9.5)."""
        self.stream = Subscribers(gateway.notice_bus)
        self.metrics = Metrics(gateway)
        self.rejections = RejectionLimiter()
        self.beats = HeartbeatBatcher(gateway)
        self.health_checks: SingleFlight[dict[str, HealthCheck]] = SingleFlight(self._check_plugins)
        """The `health` of every plugin that declares it."""
        self._tokens = SingleFlight(self._read_tokens)
        self.backups = Backups(lambda: gateway.ledger, gateway.state_dir, gateway.clock)
        gateway.on_stop.append(self.backups.stop)
        self._aside = asyncio.Semaphore(BLOCKING_THREADS)

    async def principal_of(self, token: str | None) -> Principal | None:
        """Return the owner of a token; `LedgerError` if the ledger's tokens cannot be read."""
        if token is None:
            return None
        if self.authenticator.is_stale(token):
            try:
                async with asyncio.timeout(TOKENS_WITHIN):
                    await self._tokens()
            except TimeoutError:
                raise LedgerError("the ledger does not answer") from None
        return self.authenticator.identify(token)

    def tokens_changed(self) -> None:
        """Whoever comes from now on is judged by the ledger's tokens as they are now."""
        self.authenticator.invalidate()
        self._tokens.renew()

    async def _read_tokens(self) -> None:
        await asyncio.to_thread(self.authenticator.refresh)

    async def aside(self, work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """What may block for long, off the loop; no more than a few at once."""
        async with self._aside:
            return await asyncio.to_thread(work, *args, **named)

    async def _check_plugins(self) -> dict[str, HealthCheck]:
        gateway = self.gateway
        return await self.aside(
            plugin_health.check_plugins,
            gateway.compiled,
            gateway.ledger,
            gateway.clock,
            gateway.entropy,
        )

    @contextmanager
    def line(self) -> Iterator[None]:
        """Stay on the line; `Saturated` where the configuration in force allows no more."""
        if self.on_the_line >= self.gateway.compiled.settings.api.max_concurrent_sync:
            raise Saturated("every synchronous call is in use; try again, or use ?async=true")
        self.on_the_line += 1
        try:
            yield
        finally:
            self.on_the_line -= 1

    def close(self) -> None:
        """In the loop: send away those who would stay."""
        self.stream.close()


def app_context_of(request: Request) -> AppContext:
    app_context: AppContext = request.app.state.app_context
    return app_context
