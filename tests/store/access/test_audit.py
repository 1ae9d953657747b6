"""The audit log is append-only, filtered and paged."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ductile.clock import SystemClock, to_text
from ductile.store.access import audit
from ductile.store.access.audit import AuditEntry
from ductile.store.engines.api import Ledger
from tests.store.conftest import execute

NOW = SystemClock().now()


def append(ledger: Ledger, action: str, actor: str = "token:ci", *, days_ago: float = 0) -> None:
    entry = AuditEntry(actor, "10.0.0.1", action, "a\0b", {"x": "\0"})
    now = NOW - timedelta(days=days_ago)
    ledger.write(lambda tx: audit.append(tx, entry, now))


def actions(ledger: Ledger, **filters: object) -> list[str]:
    asked: dict[str, object] = {"limit": 10, **filters}
    entries = ledger.read(lambda tx: audit.list_entries(tx, **asked))  # type: ignore[arg-type]
    return [entry["action"] for entry in entries]


def test_entries_are_filtered_and_paged(ledger: Ledger) -> None:
    for action in ("token.create", "token.revoke", "tokens.x", "job.cancel"):
        append(ledger, action)
    append(ledger, "token.create", "user:root")
    assert actions(ledger, action="token") == ["token.create", "token.revoke", "token.create"]
    assert actions(ledger, actor="user:root") == ["token.create"]
    assert actions(ledger, since=NOW + timedelta(seconds=1)) == []
    newest, older = ledger.read(lambda tx: audit.list_entries(tx, limit=2))
    assert actions(ledger, before=older["id"], limit=1) == ["tokens.x"]
    assert (newest["target"], newest["details"]) == ("a\ufffdb", {"x": "\0"})


def test_entries_cannot_be_changed(ledger: Ledger) -> None:
    append(ledger, "token.create", days_ago=400)
    with pytest.raises(Exception, match="cannot be changed"):
        execute(ledger, "UPDATE audit_log SET actor = 'nobody'")


def test_entries_are_kept_for_a_year(ledger: Ledger) -> None:
    append(ledger, "old", days_ago=400)
    append(ledger, "young", days_ago=364)
    with pytest.raises(Exception, match="are kept for a year"):
        execute(ledger, "DELETE FROM audit_log")
    before = to_text(NOW + timedelta(days=1))
    run = {"before": before, "window": 10, "limit": 10}
    assert ledger.write(lambda tx: tx.run("prune_audit_log", **run)) == 1
    assert actions(ledger) == ["young"]
