"""Agents: the last sign of life of each, and what it can do; changes are posted with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import orjson

from ductile.clock import to_text
from ductile.core.agents.heartbeat import Beat
from ductile.core.jobs.limits import document
from ductile.model import Json, Notice
from ductile.record import dataclass
from ductile.store import notices
from ductile.store.engines.api import Tx

CAPABILITIES = "gateway:capabilities"
AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Alive:
    """An agent that counts as alive."""

    agent_id: str
    cluster_id: str
    received_at: str
    """Its last sign, by the gateway's clock."""


@dataclass(frozen=True, slots=True)
class Span:
    """The time in which a sign of life counts, both ends in the ledger's form."""

    oldest: str
    newest: str


def record(tx: Tx, beats: Iterable[Beat], now: datetime) -> None:
    """Heartbeats that have gathered; the last of an agent's counts."""
    newest = {beat.agent_id: (beat.agent_id, beat.cluster_id, beat.last_seen_at) for beat in beats}
    # In one order, so that nodes which write the same rows do not wait for each other in a ring.
    rows = [newest[agent_id] for agent_id in sorted(newest)]
    tx.run("record_beats", beats=orjson.dumps(rows).decode(), now=to_text(now))


def sign(
    tx: Tx, agent_id: str, cluster_id: str | None, last_seen_at: datetime, now: datetime
) -> None:
    """A sign of life that is no heartbeat; without a cluster the known one stays."""
    tx.run(
        "record_sign",
        agent_id=agent_id,
        cluster_id=cluster_id,
        last_seen_at=to_text(last_seen_at),
        now=to_text(now),
    )


def register(
    tx: Tx, agent_id: str, capabilities: Mapping[str, Json], shown: Json, now: datetime
) -> bool:
    """Keep what an agent can do; whether that is news. `shown` is what is posted of it."""
    text = orjson.dumps(capabilities, option=orjson.OPT_SORT_KEYS).decode()
    if not tx.run("set_capabilities", agent_id=agent_id, capabilities=text):
        return False
    payload = {"agent_id": agent_id, "capabilities": shown}
    notices.post(tx, Notice(CAPABILITIES, "agent.registered", payload), now)
    return True


def remove(tx: Tx, agent_id: str, now: datetime) -> bool:
    """Forget what an agent can do; whether there was anything."""
    if not tx.run("set_capabilities", agent_id=agent_id, capabilities=None):
        return False
    payload = {"agent_id": agent_id, "reason": "removed"}
    notices.post(tx, Notice(CAPABILITIES, "agent.removed", payload), now)
    return True


def alive(tx: Tx, span: Span, limit: int) -> list[Alive]:
    """Those that have given a sign in that time, the latest first."""
    rows = tx.all("signs_of_life", oldest=span.oldest, newest=span.newest, limit=limit)
    return [Alive(*row) for row in rows]


def overdue(tx: Tx, span: Span) -> list[Alive]:
    """Those that count as alive and gave none, by id; at most `AT_ONCE`, the others later."""
    rows = tx.all("overdue_agents", oldest=span.oldest, newest=span.newest, limit=AT_ONCE)
    return [Alive(*row) for row in sorted(rows)]


def evict(tx: Tx, agent: Alive, now: datetime) -> bool:
    """It counts as alive no more, nor what it can do; its row stays. False where another sign
    of life came, or another node was quicker.
    """
    if not tx.run("evict_agent", agent_id=agent.agent_id, received_at=agent.received_at):
        return False
    payload = {
        "agent_id": agent.agent_id,
        "cluster_id": agent.cluster_id,
        "reason": "evicted",
        "last_seen": agent.received_at,
    }
    notices.post(tx, Notice(CAPABILITIES, "agent.removed", payload), now)
    return True


def listing(
    tx: Tx,
    *,
    agent_id: str | None = None,
    after: str = "",
    limit: int = AT_ONCE,
    within: Span | None = None,
) -> list[dict[str, Any]]:
    """Every agent that was ever seen, by id; `within` a time only those alive in it."""
    rows = tx.dicts(
        "agents",
        agent_id=agent_id,
        after=after,
        limit=limit,
        oldest=within.oldest if within else None,
        newest=within.newest if within else None,
    )
    return [_agent(row) for row in rows]


def find(tx: Tx, agent_id: str) -> dict[str, Any] | None:
    return next(iter(listing(tx, agent_id=agent_id)), None)


def capable(tx: Tx, *, after: str = "", limit: int = AT_ONCE) -> list[dict[str, Any]]:
    """The agents of which it is known what they can do, by id."""
    return [_agent(row) for row in tx.dicts("capable_agents", after=after, limit=limit)]


def _agent(row: dict[str, Any]) -> dict[str, Any]:
    """As it is told; capabilities that a script wrote and nobody can read are none."""
    capabilities = document(row["capabilities"] or "null")
    return {**row, "capabilities": capabilities if isinstance(capabilities, dict) else None}
