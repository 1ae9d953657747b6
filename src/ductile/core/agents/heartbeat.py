"""What a heartbeat must say (004, FR-10.3), and how long a sign of life counts."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from ductile.clock import moment_of, to_text
from ductile.model import Json
from ductile.record import dataclass

HEARTBEAT = "heartbeat"
LONGEST_ID = 200


class Refusal(StrEnum):
    """Why something is no heartbeat; the words are the answer's `reason`."""

    TYPE = "invalid_heartbeat_type"
    MISSING = "missing_required_field"
    AGENT_ID = "invalid_agent_id"
    CLUSTER_ID = "invalid_cluster_id"


@dataclass(frozen=True, slots=True)
class Beat:
    """One sign of life."""

    agent_id: str
    cluster_id: str
    last_seen_at: str
    """When, by the agent's own clock; in the ledger's form."""


def read(document: Json, now: datetime) -> Beat | Refusal:
    """The heartbeat; one whose timestamp cannot be read is of `now`."""
    if not isinstance(document, dict) or document.get("type") != HEARTBEAT:
        return Refusal.TYPE
    agent_id: Json = document.get("agent_id")
    cluster_id: Json = document.get("cluster_id")
    if not (is_text(agent_id) and is_text(cluster_id)):
        return Refusal.MISSING
    if not is_id(agent_id):
        return Refusal.AGENT_ID
    if not is_id(cluster_id):
        return Refusal.CLUSTER_ID
    said = moment_of(document.get("timestamp"))
    return Beat(agent_id, cluster_id, to_text(now if said is None else said))


def missing(document: Json) -> str | None:
    """The first field that `Refusal.MISSING` is about."""
    named = document if isinstance(document, dict) else {}
    return next((name for name in ("agent_id", "cluster_id") if not is_text(named.get(name))), None)


def is_text(value: Json) -> bool:
    """Whether there is anything to read."""
    return isinstance(value, str) and bool(value.strip())


def is_id(value: Json) -> bool:
    """Whether it can name an agent or a cluster: in a topic, in a log, in a table."""
    return is_text(value) and len(value) <= LONGEST_ID and value.isprintable()


def is_overdue(last_seen: datetime, now: datetime, threshold: float) -> bool:
    """Whether the last sign is too old; or too young, from before our clock was set back."""
    return abs((now - last_seen).total_seconds()) > threshold
