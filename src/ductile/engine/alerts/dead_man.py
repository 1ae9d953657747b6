"""Requests to an outside monitor while the gateway is healthy: a dead gateway sends none."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ductile.engine.outbox.policy import OutboundRequest, SendResult
from ductile.engine.services import Services
from ductile.log import logger

TIMEOUT = 5.0
IDLE_SECONDS = 60.0
"""Without a URL; a reload wakes the loop."""


class DeadManPinger:
    """A loop calls `tick`. A request that fails is logged and counted, and not repeated."""

    def __init__(self, gateway: Services, send: Callable[[OutboundRequest], SendResult]) -> None:
        self._gateway, self._send, self._log = gateway, send, logger("dead-man")
        self._sent_at = float("-inf")
        self._url: str | None = None
        self._error: str | None = None
        """Why the last request failed."""

    def tick(self, _now: datetime) -> float:
        """Send a request if one is due; returns the seconds until the next call."""
        settings = self._gateway.compiled.settings
        dead_man = settings.dead_man
        if dead_man is None:
            self._gateway.counters.dead_man_error = None
            return IDLE_SECONDS
        monotonic = self._gateway.clock.monotonic()
        wait = self._sent_at + dead_man.every - monotonic
        if wait > 0 and dead_man.url == self._url:
            return wait
        self._sent_at, self._url = monotonic, dead_man.url
        health = self._gateway.health
        if health is not None and any(part.critical for part in health.last_failing):
            self._log.warning("no request to the outside monitor: the gateway is not healthy")
            return dead_man.every
        networks = settings.gateway.allowed_networks
        result = self._send(
            OutboundRequest(dead_man.url, b"", {}, timeout=TIMEOUT, networks=networks)
        )
        self._gateway.counters.count_dead_man(result.error)
        if result.error is not None:
            # The URL often is a secret. The counter says how often.
            if result.error != self._error:
                self._log.warning("the request to the outside monitor failed", error=result.error)
        elif self._error is not None:
            self._log.info("the outside monitor accepts requests again")
        self._error = result.error
        return dead_man.every
