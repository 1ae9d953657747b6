"""Webhooks that agents register, on both engines."""

from __future__ import annotations

import pytest

from ductile.errors import NotFound, Refused
from ductile.store.engines.api import Ledger
from ductile.store.outbox import webhooks
from tests.store.outbox.delivery_harness import NOW, SECRET, add


def test_webhook_is_stored_and_listed_without_its_secret(ledger: Ledger) -> None:
    id = add(ledger, plugin="echo", pipeline="flow", target_url="https://example.com/")
    found = ledger.read(lambda tx: webhooks.find_webhook(tx, id))
    assert (found.secret, found.target, found.plugin) == (SECRET, "https://example.com/", "echo")
    assert SECRET not in repr(found)
    (shown,) = ledger.read(lambda tx: tx.dicts("webhook_configs"))
    assert shown["id"] == id
    assert "secret" not in shown
    assert SECRET not in str(shown)


def test_webhook_without_a_url_targets_its_session(ledger: Ledger) -> None:
    id = add(ledger)
    assert ledger.read(lambda tx: webhooks.find_webhook(tx, id)).target == "internal://session/s-1"


def test_second_webhook_for_a_source_and_event_is_refused(ledger: Ledger) -> None:
    add(ledger)
    add(ledger, "release")
    with pytest.raises(Refused):
        add(ledger)


def test_removed_webhook_is_not_found_and_its_secret_deleted(ledger: Ledger) -> None:
    id = add(ledger)
    ledger.write(lambda tx: webhooks.remove_webhook(tx, id, NOW))
    with pytest.raises(NotFound):
        ledger.read(lambda tx: webhooks.find_webhook(tx, id))
    kept = ledger.read(lambda tx: webhooks.load_webhook(tx, id))
    assert kept is not None
    assert (kept.removed, kept.secret) == (True, "")
    with pytest.raises(NotFound):
        ledger.write(lambda tx: webhooks.remove_webhook(tx, id, NOW))
    assert add(ledger) != id
