"""Heartbeats: which agents are alive by the gateway's clock, and the eviction of silent ones."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from ductile._fast_dataclass import dataclass
from ductile.clock import Clock, moment_of, to_text
from ductile.core.agents.heartbeat import EVICTION_THRESHOLD_SECONDS, is_overdue
from ductile.errors import DuctileError
from ductile.log import logger
from ductile.store import agents
from ductile.store.agents import AliveAgent, AliveWindow
from ductile.store.engines.api import Ledger, Tx

CHECK_INTERVAL_MS = 30_000
MAX_AGENTS = 100_000


class HeartbeatManagerUnavailable(DuctileError):
    code = "heartbeat_manager_unavailable"
    http_status = 503


class TooManyAgents(DuctileError):
    code = "too_many_agents"
    http_status = 503


@dataclass(frozen=True, slots=True)
class LastSeen:
    last_seen: datetime
    cluster_id: str


def build_alive_span(now: datetime) -> AliveWindow:
    """The times of a last heartbeat at which an agent counts as alive."""
    threshold = timedelta(seconds=EVICTION_THRESHOLD_SECONDS)
    return AliveWindow(to_text(now - threshold), to_text(now + threshold))


class HeartbeatManager:
    """Accepts heartbeats between `start` and `stop`. Thread-safe."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger, self._clock = ledger, clock
        self._lock = threading.Lock()
        self._state: dict[str, LastSeen] = {}
        self._running = False
        self._log = logger("agents")

    @property
    def state(self) -> dict[str, LastSeen]:
        """The living agents, by id."""
        with self._lock:
            return dict(self._state)

    def start(self) -> None:
        """Load the living agents from the ledger; the first check evicts the silent ones."""
        now = self._clock.now()
        known = self._ledger.read(
            lambda tx: agents.list_alive(tx, build_alive_span(now), MAX_AGENTS)
        )
        seen = {
            row.agent_id: LastSeen(at, row.cluster_id)
            for row in known
            if (at := moment_of(row.received_at)) is not None
        }
        with self._lock:
            self._state = seen
            self._running = True

    def stop(self) -> None:
        with self._lock:
            self._running = False

    def record_heartbeat(self, agent_id: str, cluster_id: str | None) -> Literal["ok"]:
        """Record that the agent is alive; without a cluster id it keeps the known one.

        Raises `HeartbeatManagerUnavailable` unless the manager is running.
        """
        now = self._clock.now()
        with self._lock:
            if not self._running:
                raise HeartbeatManagerUnavailable("the heartbeat manager is not running")
            known = self._state.get(agent_id)
            if known is None and len(self._state) >= MAX_AGENTS:
                raise TooManyAgents(f"more than {MAX_AGENTS} agents")
            if cluster_id is None:
                cluster_id = "" if known is None else known.cluster_id
            self._state[agent_id] = LastSeen(now, cluster_id)
        return "ok"

    def tick(self, now: datetime) -> float:
        """Evict silent agents; returns the seconds until the next check."""
        self._forget_overdue(now)
        span = build_alive_span(now)
        while True:
            page = self._ledger.read(partial(agents.list_overdue, window=span))
            if not self._evict(page, now) or len(page) < agents.BATCH:
                return CHECK_INTERVAL_MS / 1000

    def _forget_overdue(self, now: datetime) -> None:
        threshold = EVICTION_THRESHOLD_SECONDS
        known = self.state.items()
        overdue = [item for item in known if is_overdue(item[1].last_seen, now, threshold)]
        with self._lock:
            for agent_id, seen in overdue:
                # A heartbeat may have arrived meanwhile.
                if self._state.get(agent_id) is seen:
                    del self._state[agent_id]

    def _evict(self, page: list[AliveAgent], now: datetime) -> bool:
        """Evict the agents of which this node has not heard either; whether there were any."""
        with self._lock:
            silent = [agent for agent in page if agent.agent_id not in self._state]
        if not silent:
            return False

        def work(tx: Tx) -> list[AliveAgent]:
            return [agent for agent in silent if agents.evict(tx, agent, now)]

        for agent in self._ledger.write(work):
            self._log.info(
                "agent evicted",
                agent_id=agent.agent_id,
                cluster_id=agent.cluster_id,
                last_seen=agent.received_at,
                limit_seconds=EVICTION_THRESHOLD_SECONDS,
            )
        return True
