"""The audit log: who did what, when and from where. Entries are appended and never changed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.store.engines.api import Tx


@dataclass(frozen=True, slots=True)
class AuditEntry:
    actor: str
    """`token:NAME`, `user:NAME`, `session:local`, `signal` or `anonymous`."""
    source: str
    """An address, `local socket` or `command line`."""
    action: str
    """A noun and a verb: `token.create`."""
    target: str | None = None
    details: Mapping[str, Any] | None = None


def append(tx: Tx, entry: AuditEntry, now: datetime) -> None:
    tx.run(
        "insert_audit_entry",
        now=to_text(now),
        actor=_without_nul(entry.actor),
        source=entry.source,
        action=entry.action,
        target=None if entry.target is None else _without_nul(entry.target),
        details=None if entry.details is None else _encode(entry.details),
    )


def list_entries(
    tx: Tx,
    *,
    limit: int,
    before: int | None = None,
    actor: str | None = None,
    action: str | None = None,
    since: datetime | None = None,
) -> list[dict[str, Any]]:
    """The newest first; `action` is a whole action or its noun, `before` the id of an entry."""
    rows = tx.dicts(
        "audit_entries",
        limit=limit,
        before=before,
        actor=actor,
        action=action,
        since=None if since is None else to_text(since),
    )
    return [{**row, "details": _parse(row["details"])} for row in rows]


def _parse(details: str | None) -> Any:
    return None if details is None else orjson.loads(details)


def _encode(details: Mapping[str, Any]) -> str:
    # PostgreSQL does not store U+0000 in text; JSON escapes it.
    return orjson.dumps(details, default=str).decode()


def _without_nul(text: str) -> str:
    return text.replace("\0", "\ufffd")
