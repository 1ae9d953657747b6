"""Sessions of the dashboard, stored by the hash of their cookie."""

from __future__ import annotations

from datetime import datetime, timedelta

from ductile._fast_dataclass import dataclass
from ductile.clock import from_text, to_text
from ductile.store.engines.api import Tx

IDLE_LIMIT = timedelta(hours=12)
TOTAL_LIMIT = timedelta(days=7)
MAX_SESSIONS = 20
"""Open sessions of one token, and of the local socket."""


@dataclass(frozen=True, slots=True)
class StoredSession:
    hash: str
    token_hash: str | None
    """The token that the session was opened with; None: it was opened over the local socket."""
    created_at: datetime
    seen_at: datetime

    def expires_at(self) -> datetime:
        return min(self.seen_at + IDLE_LIMIT, self.created_at + TOTAL_LIMIT)


def open_session(tx: Tx, hash: str, token_hash: str | None, now: datetime) -> StoredSession:
    """Store a session; delete those that have ended, and the oldest ones above the limit."""
    tx.run("delete_ended_ui_sessions", **_limits(now))
    same = [session for session in list_open(tx, now) if session.token_hash == token_hash]
    same.sort(key=lambda session: session.created_at, reverse=True)
    for surplus in same[MAX_SESSIONS - 1 :]:
        close_session(tx, surplus.hash)
    tx.run("insert_ui_session", hash=hash, token_hash=token_hash, now=to_text(now))
    return StoredSession(hash, token_hash, now, now)


def list_open(tx: Tx, now: datetime) -> list[StoredSession]:
    rows = tx.all("ui_sessions", **_limits(now))
    return [StoredSession(r[0], r[1], from_text(r[2]), from_text(r[3])) for r in rows]


def touch_session(tx: Tx, hash: str, now: datetime) -> None:
    """Record that the session is in use."""
    tx.run("touch_ui_session", hash=hash, now=to_text(now))


def close_session(tx: Tx, hash: str) -> None:
    tx.run("delete_ui_session", hash=hash)


def close_all(tx: Tx) -> int:
    """End every session, and return their number."""
    return tx.run("delete_ui_sessions")


def _limits(now: datetime) -> dict[str, str]:
    return {
        "idle_before": to_text(now - IDLE_LIMIT),
        "created_before": to_text(now - TOTAL_LIMIT),
    }
