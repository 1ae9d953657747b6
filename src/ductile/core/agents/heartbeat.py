"""Heartbeats of agents: what a valid one contains, and when an agent is overdue."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from ductile._fast_dataclass import dataclass
from ductile.clock import moment_of, to_text
from ductile.model import Json

HEARTBEAT = "heartbeat"
LONGEST_ID = 200
EVICTION_THRESHOLD_SECONDS = 90
"""Silence after which an agent is evicted."""


class InvalidHeartbeat(StrEnum):
    """Why a document is not a valid heartbeat; the value is the `reason` of the response."""

    TYPE = "invalid_heartbeat_type"
    MISSING = "missing_required_field"
    AGENT_ID = "invalid_agent_id"
    CLUSTER_ID = "invalid_cluster_id"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One heartbeat."""

    agent_id: str
    cluster_id: str
    last_seen_at: str
    """By the agent's clock; in the ledger's format."""


def parse_heartbeat(document: Json, now: datetime) -> Heartbeat | InvalidHeartbeat:
    """The heartbeat; an invalid timestamp is replaced by `now`."""
    if not isinstance(document, dict) or document.get("type") != HEARTBEAT:
        return InvalidHeartbeat.TYPE
    agent_id: Json = document.get("agent_id")
    cluster_id: Json = document.get("cluster_id")
    if not (is_text(agent_id) and is_text(cluster_id)):
        return InvalidHeartbeat.MISSING
    if not is_id(agent_id):
        return InvalidHeartbeat.AGENT_ID
    if not is_id(cluster_id):
        return InvalidHeartbeat.CLUSTER_ID
    sent_at = moment_of(document.get("timestamp"))
    return Heartbeat(agent_id, cluster_id, to_text(now if sent_at is None else sent_at))


def find_missing_field(document: Json) -> str | None:
    """The first field to which `InvalidHeartbeat.MISSING` refers."""
    fields = document if isinstance(document, dict) else {}
    return next(
        (name for name in ("agent_id", "cluster_id") if not is_text(fields.get(name))), None
    )


def is_text(value: Json) -> bool:
    """Whether the value is a string with more than white space."""
    return isinstance(value, str) and bool(value.strip())


def is_id(value: Json) -> bool:
    """Whether the value is usable as the id of an agent or a cluster."""
    return is_text(value) and len(value) <= LONGEST_ID and value.isprintable()


def is_overdue(last_seen: datetime, now: datetime, threshold: float) -> bool:
    """Whether the last heartbeat is too old, or too far ahead because the clock was set back."""
    return abs((now - last_seen).total_seconds()) > threshold
