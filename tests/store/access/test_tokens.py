"""API tokens in the ledger, on both engines."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from ductile.clock import to_text
from ductile.errors import NotFound, Refused
from ductile.store.access import tokens
from ductile.store.engines.api import Ledger
from tests.conftest import FakeClock


def make(
    ledger: Ledger, now: datetime, id: str = "1", name: str = "a", end: datetime | None = None
) -> dict[str, Any]:
    return ledger.write(
        lambda tx: tokens.create_token(
            tx, id=id, name=name, hash=f"h{id}", scopes=["jobs:ro"], expires_at=end, now=now
        )
    )


def test_token_is_listed_without_its_hash(ledger: Ledger, clock: FakeClock) -> None:
    made = make(ledger, clock.now())
    assert ledger.read(tokens.list_tokens) == [made]
    assert made["scopes"] == ["jobs:ro"]
    assert "hash" not in made


def test_name_is_taken_until_its_token_is_revoked(ledger: Ledger, clock: FakeClock) -> None:
    make(ledger, clock.now())
    with pytest.raises(Refused, match="already"):
        make(ledger, clock.now(), id="2")
    ledger.write(lambda tx: tokens.revoke_token(tx, "a", clock.now()))
    assert make(ledger, clock.now(), id="2")["id"] == "2"
    with pytest.raises(Refused, match="already revoked"):
        ledger.write(lambda tx: tokens.revoke_token(tx, "1", clock.now()))


def test_revoked_and_expired_tokens_are_not_valid(ledger: Ledger, clock: FakeClock) -> None:
    make(ledger, clock.now(), "1", "lasting")
    make(ledger, clock.now(), "2", "ending", clock.now() + timedelta(seconds=10))
    make(ledger, clock.now(), "3", "revoked")
    ledger.write(lambda tx: tokens.revoke_token(tx, "revoked", clock.now()))

    def valid() -> list[str]:
        return [token.name for token in ledger.read(lambda tx: tokens.list_valid(tx, clock.now()))]

    assert valid() == ["lasting", "ending"]
    clock.advance(10)
    assert valid() == ["lasting"]


def test_rotation_changes_the_hash_and_keeps_the_expiry(ledger: Ledger, clock: FakeClock) -> None:
    end = clock.now() + timedelta(days=1)
    make(ledger, clock.now(), end=end)
    ledger.write(
        lambda tx: tokens.rotate_token(tx, "a", hash="new", expires_at=None, now=clock.now())
    )
    (token,) = ledger.read(lambda tx: tokens.list_valid(tx, clock.now()))
    assert (token.hash, token.expires_at) == ("new", to_text(end))
    with pytest.raises(NotFound):
        ledger.write(
            lambda tx: tokens.rotate_token(tx, "b", hash="x", expires_at=None, now=clock.now())
        )


def test_only_expired_and_revoked_tokens_are_pruned(ledger: Ledger, clock: FakeClock) -> None:
    make(ledger, clock.now(), "1", "lasting")
    make(ledger, clock.now(), "2", "ending", clock.now() + timedelta(seconds=1))
    clock.advance(100)
    before = to_text(clock.now())
    assert ledger.write(lambda tx: tx.run("prune_tokens", before=before, limit=10)) == 1
    assert [row["name"] for row in ledger.read(tokens.list_tokens)] == ["lasting"]
