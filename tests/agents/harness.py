"""The parts of a gateway that serve agents, on both engines and a fake clock."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ductile.agents.agents import Agents
from ductile.store import agents, notices, reminders
from ductile.store.engines.api import BEGINNING, Ledger
from tests.conftest import FakeClock


class AgentsHarness:
    """One node; its notices go to the ledger, its log to stdout."""

    def __init__(self, ledger: Ledger, clock: FakeClock) -> None:
        self.ledger, self.clock = ledger, clock
        self.woken = 0
        self.start()

    def start(self) -> None:
        """Start over, like a new gateway process."""
        self.agents = Agents(self.ledger, self.clock, redact=lambda value: value, wake=self._wake)
        self.agents.heartbeats.start()

    def _wake(self) -> None:
        self.woken += 1

    def read_notices(self, topic: str) -> list[tuple[str, Any]]:
        found = self.ledger.read(lambda tx: notices.list_after(tx, BEGINNING, 10_000))
        return [(n.type, json.loads(n.payload)) for n in found if n.topic == topic]

    def rows(self) -> dict[str, dict[str, Any]]:
        return {row["agent_id"]: row for row in self.ledger.read(agents.list_agents)}

    def reminders(self) -> list[dict[str, Any]]:
        return self.ledger.read(reminders.list_reminders)


class LogCapture:
    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def lines(self) -> list[dict[str, Any]]:
        """The lines since the last call."""
        return [json.loads(line) for line in self._capsys.readouterr().out.splitlines()]
