"""Checks of agents: heartbeats that arrive more slowly than their limit."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from shlex import quote

from ductile.clock import from_text
from ductile.core.agents.heartbeat import EVICTION_THRESHOLD_SECONDS
from ductile.core.jobs.limits import PAGE_BYTES
from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, warning
from ductile.store import notices
from ductile.store.engines.api import Tx

RECENT = timedelta(hours=1)
SEARCHED = 5000
"""Number of newest events that are searched for evictions."""
TOO_OFTEN = 2
"""Evictions within `RECENT`: an agent that was stopped is evicted once."""


def slow(context: DoctorContext) -> Iterator[Finding]:
    """Agents that were evicted and returned several times."""
    if context.rows is None:
        return
    since = context.now - RECENT
    evictions = context.rows.read(lambda tx: _count_evictions(tx, since))
    for agent, count in sorted(evictions.items()):
        if count >= TOO_OFTEN:
            yield warning(
                "agents",
                f"agent {agent} was evicted {count} times within an hour",
                f"it sends heartbeats more slowly than one per {EVICTION_THRESHOLD_SECONDS} s, "
                "the limit; have it send one every 30 s",
                context.command(f"agent show {quote(agent)}"),
            )


def _count_evictions(tx: Tx, since: datetime) -> Counter[str]:
    evictions: Counter[str] = Counter()
    position, left = notices.last_position(tx, skipped=SEARCHED), SEARCHED
    while left > 0 and (page := notices.list_after(tx, position, left, PAGE_BYTES)):
        position, left = page[-1].position, left - len(page)
        for notice in page:
            if notice.type == "agent.removed" and from_text(notice.created_at) >= since:
                payload = json.loads(notice.payload)
                evictions[payload["agent_id"]] += payload.get("reason") == "evicted"
    return evictions
