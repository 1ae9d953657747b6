"""Agents: the last contact of each, and its capabilities; changes are posted as notices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.core.agents.heartbeat import EVICTION_THRESHOLD_SECONDS, Heartbeat
from ductile.core.jobs.limits import document
from ductile.model import Json, Notice
from ductile.store import notices
from ductile.store.engines.api import Tx

CAPABILITIES = "gateway:capabilities"
BATCH = 500


@dataclass(frozen=True, slots=True)
class AliveAgent:
    """An agent that counts as alive."""

    agent_id: str
    cluster_id: str
    received_at: str
    """Its last contact, by the gateway's clock."""


@dataclass(frozen=True, slots=True)
class AliveWindow:
    """The period in which a contact makes an agent alive, in the ledger's time format."""

    oldest: str
    newest: str


def record_heartbeats(tx: Tx, heartbeats: Iterable[Heartbeat], now: datetime) -> None:
    """Store a batch of heartbeats; the last one of each agent counts."""
    newest = {
        each.agent_id: (each.agent_id, each.cluster_id, each.last_seen_at) for each in heartbeats
    }
    # Sorted, so that two nodes that write the same rows do not deadlock.
    rows = [newest[agent_id] for agent_id in sorted(newest)]
    tx.run("record_heartbeats", heartbeats=orjson.dumps(rows).decode(), now=to_text(now))
    tx.effects.contacts += len(rows)


def record_contact(
    tx: Tx, agent_id: str, cluster_id: str | None, last_seen_at: datetime, now: datetime
) -> None:
    """Store a contact other than a heartbeat; without a cluster the known one is kept."""
    tx.run(
        "record_contact",
        agent_id=agent_id,
        cluster_id=cluster_id,
        last_seen_at=to_text(last_seen_at),
        now=to_text(now),
    )
    tx.effects.contacts += 1


def register_capabilities(
    tx: Tx, agent_id: str, capabilities: Mapping[str, Json], shown: Json, now: datetime
) -> bool:
    """Store an agent's capabilities; whether they changed. The notice contains `shown`."""
    text = orjson.dumps(capabilities, option=orjson.OPT_SORT_KEYS).decode()
    if not tx.run("set_capabilities", agent_id=agent_id, capabilities=text):
        return False
    payload = {"agent_id": agent_id, "capabilities": shown}
    notices.post(tx, Notice(CAPABILITIES, "agent.registered", payload), now)
    return True


def remove_capabilities(tx: Tx, agent_id: str, now: datetime) -> bool:
    """Delete an agent's capabilities; whether it had any."""
    if not tx.run("set_capabilities", agent_id=agent_id, capabilities=None):
        return False
    payload = {"agent_id": agent_id, "reason": "removed"}
    notices.post(tx, Notice(CAPABILITIES, "agent.removed", payload), now)
    return True


def list_alive(tx: Tx, window: AliveWindow, limit: int) -> list[AliveAgent]:
    """The agents with a contact in this period, the latest first."""
    rows = tx.all("alive_agents", oldest=window.oldest, newest=window.newest, limit=limit)
    return [AliveAgent(*row) for row in rows]


def find_newest_contact(tx: Tx) -> str | None:
    """When any agent made contact last; reads every agent."""
    row = tx.one("newest_contact")
    return None if row is None else row[0]


def list_overdue(tx: Tx, window: AliveWindow) -> list[AliveAgent]:
    """The agents that count as alive without a contact in this period, by id; at most `BATCH`."""
    rows = tx.all("overdue_agents", oldest=window.oldest, newest=window.newest, limit=BATCH)
    return [AliveAgent(*row) for row in sorted(rows)]


def evict(tx: Tx, agent: AliveAgent, now: datetime) -> bool:
    """Mark an agent as not alive and delete its capabilities; its row stays.

    False if it has made contact since, or another node has evicted it.
    """
    if not tx.run("evict_agent", agent_id=agent.agent_id, received_at=agent.received_at):
        return False
    payload = {
        "agent_id": agent.agent_id,
        "cluster_id": agent.cluster_id,
        "reason": "evicted",
        "last_seen": agent.received_at,
        "limit_seconds": EVICTION_THRESHOLD_SECONDS,
    }
    notices.post(tx, Notice(CAPABILITIES, "agent.removed", payload), now)
    return True


def list_agents(
    tx: Tx,
    *,
    agent_id: str | None = None,
    after: str = "",
    limit: int = BATCH,
    within: AliveWindow | None = None,
) -> list[dict[str, Any]]:
    """All agents that were ever seen, by id; with `within`, only those alive in that period."""
    rows = tx.dicts(
        "agents",
        agent_id=agent_id,
        after=after,
        limit=limit,
        oldest=within.oldest if within else None,
        newest=within.newest if within else None,
    )
    return [_parse_agent(row) for row in rows]


def find_agent(tx: Tx, agent_id: str) -> dict[str, Any] | None:
    return next(iter(list_agents(tx, agent_id=agent_id)), None)


def list_capable(tx: Tx, *, after: str = "", limit: int = BATCH) -> list[dict[str, Any]]:
    """The agents that have registered capabilities, by id."""
    return [_parse_agent(row) for row in tx.dicts("capable_agents", after=after, limit=limit)]


def _parse_agent(row: dict[str, Any]) -> dict[str, Any]:
    """Capabilities that a script wrote and that are not a JSON object count as none."""
    capabilities = document(row["capabilities"] or "null")
    return {**row, "capabilities": capabilities if isinstance(capabilities, dict) else None}
