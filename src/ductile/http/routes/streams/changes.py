"""That agents, nodes or the health of the gateway have changed, for one subscriber of events.

The events have no content: the subscriber requests what it shows. Nothing of it is stored, and only
contacts of agents with other nodes are read from the ledger.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Iterable

import orjson

from ductile.clock import to_text
from ductile.errors import LedgerError
from ductile.http.middleware.context import AppContext
from ductile.operations.cluster.nodes import find_state

SCOPES = {"agents": "agents:ro", "nodes": "system:ro", "health": "system:ro"}
"""What each kind of change takes."""
LEDGER_TIMEOUT = 1.0


class ChangeFeed:
    """Compares the state of each kind with that of the last look, at most once per second."""

    interval = 1.0
    """Seconds between two looks."""

    def __init__(self, context: AppContext, kinds: Iterable[str]) -> None:
        """`kinds` are some of `SCOPES`."""
        self._context, self._services = context, context.services
        self._kinds = frozenset(kinds)
        self.scopes = frozenset(SCOPES[kind] for kind in self._kinds)
        self._seen: dict[str, Hashable] = {}
        self._next_look = 0.0
        self._contact: str | None = None

    async def read(self) -> str:
        """The events for what has changed; none at the first look. They have no id."""
        now = asyncio.get_running_loop().time()
        if now < self._next_look:
            return ""
        self._next_look = now + self.interval
        found = await self._read_states()
        changed = [kind for kind, state in found.items() if self._seen.get(kind, state) != state]
        self._seen = found
        return "".join(self._encode(kind) for kind in changed)

    async def _read_states(self) -> dict[str, Hashable]:
        found: dict[str, Hashable] = {"nodes": self._read_nodes(), "health": self._read_health()}
        if "agents" in self._kinds:
            found["agents"] = self._services.agent_contacts, await self._read_newest_contact()
        return {kind: found[kind] for kind in self._kinds}

    def _read_nodes(self) -> Hashable:
        # Not `is_drained`, which may have changed twice since the last look.
        return self._services.drain_changes, tuple(
            (row["name"], row["boot"], row["config_hash"], find_state(row))
            for row in self._services.known_nodes()
        )

    def _read_health(self) -> Hashable:
        health = self._services.health
        failing = () if health is None else health.last_failing
        parts = frozenset((part.part, part.critical) for part in failing)
        return self._services.failure is None, parts

    async def _read_newest_contact(self) -> str | None:
        """The newest contact with any node; the known one while the ledger does not answer."""
        if self._services.has_other_nodes():
            try:
                async with asyncio.timeout(LEDGER_TIMEOUT):
                    self._contact = await self._context.newest_contact()
            except (LedgerError, TimeoutError):
                # The stream continues: it has to report the change of the health that follows.
                return self._contact
        return self._contact

    def _encode(self, kind: str) -> str:
        name, at = f"{kind}.changed", to_text(self._services.clock.now())
        text = orjson.dumps({"topic": kind, "type": name, "at": at, "data": {}}).decode()
        return f"event: {name}\ndata: {text}\n\n"
