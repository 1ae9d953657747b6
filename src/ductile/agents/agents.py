"""The agents' side of a gateway, in one hand."""

from __future__ import annotations

from collections.abc import Callable

from ductile.agents.capabilities import CapabilityMap
from ductile.agents.decisions import SchemaInterceptor
from ductile.agents.heartbeats import HeartbeatManager
from ductile.agents.reminders import CronScheduler
from ductile.clock import Clock
from ductile.model import Json
from ductile.store.engines.api import Ledger


class Agents:
    """Works between `start` and `stop`; reminders can be kept and read at any time."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        *,
        redact: Callable[[Json], Json],
        wake: Callable[[], None],
    ) -> None:
        """`redact` takes the secrets out of a document, `wake` has the reminders looked at."""
        self.heartbeats = HeartbeatManager(ledger, clock)
        self.capabilities = CapabilityMap(ledger, clock, redact)
        self.cron = CronScheduler(ledger, clock, redact, wake)
        self.decisions = SchemaInterceptor(self.heartbeats, self.cron, clock, redact)
