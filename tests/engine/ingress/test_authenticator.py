"""Tokens of the ledger: how soon a revoked or expired one is refused."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from ductile.engine.ingress.authenticator import PREFIX, REFRESH_AFTER, Authenticator, hash_token
from ductile.store.access import tokens
from ductile.store.engines.api import Ledger
from tests.conftest import FakeClock
from tests.store.conftest import ledger, open_ledger  # noqa: F401 - fixtures

TOKEN = f"{PREFIX}0123456789"


@pytest.fixture
def authenticator(ledger: Ledger, clock: FakeClock) -> Authenticator:  # noqa: F811
    compiled: Any = SimpleNamespace(settings=SimpleNamespace(all_tokens=()))
    created = {"id": "t1", "name": "one", "hash": hash_token(TOKEN), "scopes": ["jobs:ro"]}
    expires_at = clock.now() + timedelta(hours=1)
    ledger.write(
        lambda tx: tokens.create_token(tx, **created, expires_at=expires_at, now=clock.now())
    )
    return Authenticator(lambda: compiled, ledger, clock)


def test_token_is_known_after_the_ledger_was_read(authenticator: Authenticator) -> None:
    assert authenticator.is_stale(TOKEN)
    assert authenticator.identify(TOKEN) is None
    authenticator.refresh()
    assert not authenticator.is_stale(TOKEN)
    found = authenticator.identify(TOKEN)
    assert found is not None
    assert (found.id, found.scopes) == ("t1", frozenset({"jobs:ro"}))
    assert authenticator.identify(f"{TOKEN}x") is None


def test_token_that_another_node_revoked_is_refused_a_second_later(
    authenticator: Authenticator,
    ledger: Ledger,  # noqa: F811
    clock: FakeClock,
) -> None:
    authenticator.refresh()
    ledger.write(lambda tx: tokens.revoke_token(tx, "one", clock.now()))
    clock.advance(REFRESH_AFTER)
    assert not authenticator.is_stale(TOKEN)
    clock.advance(0.001)
    assert authenticator.is_stale(TOKEN)
    authenticator.refresh()
    assert authenticator.identify(TOKEN) is None


def test_expired_token_is_refused_without_reading_the_ledger(
    authenticator: Authenticator, clock: FakeClock
) -> None:
    authenticator.refresh()
    clock.advance(3599)
    assert authenticator.identify(TOKEN) is not None
    clock.advance(1)
    assert authenticator.identify(TOKEN) is None
