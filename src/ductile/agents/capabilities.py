"""The capabilities that agents have registered. They are in the ledger, so all nodes share them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ductile.clock import Clock
from ductile.model import Json
from ductile.store import agents
from ductile.store.engines.api import Ledger, Tx


class CapabilityRegistry:
    """Posts every change on `gateway:capabilities` in the transaction that makes it."""

    def __init__(self, ledger: Ledger, clock: Clock, redact: Callable[[Json], Json]) -> None:
        self._ledger, self._clock, self._redact = ledger, clock, redact

    def register_agent(self, agent_id: str, capabilities: Mapping[str, Json]) -> bool:
        """Whether this changes anything. A registration counts as a heartbeat."""
        now = self._clock.now()

        def work(tx: Tx) -> bool:
            agents.record_contact(tx, agent_id, None, now, now)
            shown = self._redact(capabilities)
            return agents.register_capabilities(tx, agent_id, capabilities, shown, now)

        return self._ledger.write(work)

    def remove_agent(self, agent_id: str) -> bool:
        """Whether the agent was registered."""
        now = self._clock.now()
        return self._ledger.write(lambda tx: agents.remove_capabilities(tx, agent_id, now))

    def get_agent(self, agent_id: str) -> dict[str, Any] | None:
        """The agent's row with `capabilities`; None if it has none."""
        found = self._ledger.read(lambda tx: agents.find_agent(tx, agent_id))
        return None if found is None or found["capabilities"] is None else found

    def list_agents(self) -> list[dict[str, Any]]:
        """All agents with capabilities, by id."""
        found: list[dict[str, Any]] = []
        while True:
            after = found[-1]["agent_id"] if found else ""
            page = self._ledger.read(partial(agents.list_capable, after=after))
            found += page
            if len(page) < agents.BATCH:
                return found
