"""The parts of a gateway that serve agents."""

from __future__ import annotations

from collections.abc import Callable

from ductile.agents.capabilities import CapabilityRegistry
from ductile.agents.decisions import DecisionLogIntake
from ductile.agents.heartbeats import HeartbeatManager
from ductile.agents.reminders import ReminderScheduler
from ductile.clock import Clock
from ductile.model import Json
from ductile.store.engines.api import Ledger


class Agents:
    """Heartbeats work between `start` and `stop`; reminders can be stored and read at any time."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        *,
        redact: Callable[[Json], Json],
        wake: Callable[[], None],
    ) -> None:
        """`redact` removes secrets from a document; `wake` wakes the loop of the reminders."""
        self.heartbeats = HeartbeatManager(ledger, clock)
        self.capabilities = CapabilityRegistry(ledger, clock, redact)
        self.reminders = ReminderScheduler(ledger, clock, redact, wake)
        self.decisions = DecisionLogIntake(self.heartbeats, self.reminders, clock, redact)
