"""Which agents live: signs of life by the gateway's own clock, and the end of those without."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from functools import partial
from typing import Literal

from ductile.clock import Clock, moment_of, to_text
from ductile.core.agents.heartbeat import is_overdue
from ductile.errors import DuctileError
from ductile.log import logger
from ductile.record import dataclass
from ductile.store import agents
from ductile.store.agents import Alive, Span
from ductile.store.engines.api import Ledger, Tx

EVICTION_THRESHOLD_SECONDS = 90
CHECK_INTERVAL_MS = 30_000
MOST_AGENTS = 100_000


class HeartbeatManagerUnavailable(DuctileError):
    code = "heartbeat_manager_unavailable"
    http_status = 503


class TooManyAgents(DuctileError):
    code = "too_many_agents"
    http_status = 503


@dataclass(frozen=True, slots=True)
class Seen:
    last_seen: datetime
    cluster_id: str


def span_at(now: datetime) -> Span:
    """The time in which a sign of life counts."""
    reach = timedelta(seconds=EVICTION_THRESHOLD_SECONDS)
    return Span(to_text(now - reach), to_text(now + reach))


class HeartbeatManager:
    """Thread-safe. Up between `start` and `stop`, and down before and after."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger, self._clock = ledger, clock
        self._lock = threading.Lock()
        self._state: dict[str, Seen] = {}
        self._up = False
        self._log = logger("agents")

    @property
    def state(self) -> dict[str, Seen]:
        """Who lives, by id."""
        with self._lock:
            return dict(self._state)

    def start(self) -> None:
        """Take up what the ledger remembers; those that died meanwhile go with the first check."""
        now = self._clock.now()
        known = self._ledger.read(lambda tx: agents.alive(tx, span_at(now), MOST_AGENTS))
        seen = {
            row.agent_id: Seen(at, row.cluster_id)
            for row in known
            if (at := moment_of(row.received_at)) is not None
        }
        with self._lock:
            self._state = seen
            self._up = True

    def stop(self) -> None:
        with self._lock:
            self._up = False

    def record_heartbeat(self, agent_id: str, cluster_id: str | None) -> Literal["ok"]:
        """It lives; without a cluster, in the one that is known.

        Raises `HeartbeatManagerUnavailable` while the manager is down.
        """
        now = self._clock.now()
        with self._lock:
            if not self._up:
                raise HeartbeatManagerUnavailable("the heartbeat manager is not running")
            known = self._state.get(agent_id)
            if known is None and len(self._state) >= MOST_AGENTS:
                raise TooManyAgents(f"more than {MOST_AGENTS} agents at once")
            if cluster_id is None:
                cluster_id = "" if known is None else known.cluster_id
            self._state[agent_id] = Seen(now, cluster_id)
        return "ok"

    def tick(self, now: datetime) -> float:
        """Check every agent; the seconds until the next check."""
        self._forget_overdue(now)
        span = span_at(now)
        while True:
            page = self._ledger.read(partial(agents.overdue, span=span))
            if not self._evict(page, now) or len(page) < agents.AT_ONCE:
                return CHECK_INTERVAL_MS / 1000

    def _forget_overdue(self, now: datetime) -> None:
        threshold = EVICTION_THRESHOLD_SECONDS
        known = self.state.items()
        overdue = [item for item in known if is_overdue(item[1].last_seen, now, threshold)]
        with self._lock:
            for agent_id, seen in overdue:
                # It may have beaten while the others were looked at.
                if self._state.get(agent_id) is seen:
                    del self._state[agent_id]

    def _evict(self, page: list[Alive], now: datetime) -> bool:
        """Those of whom nothing was heard here either; whether there were any."""
        with self._lock:
            silent = [agent for agent in page if agent.agent_id not in self._state]
        if not silent:
            return False

        def work(tx: Tx) -> list[Alive]:
            return [agent for agent in silent if agents.evict(tx, agent, now)]

        for agent in self._ledger.write(work):
            self._log.info(
                "evicted",
                agent_id=agent.agent_id,
                cluster_id=agent.cluster_id,
                last_seen=agent.received_at,
            )
        return True
