"""Tokens in the ledger: hashed, named once, ended, rotated, revoked, pruned."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from ductile.clock import to_text
from ductile.errors import NotFound, Refused
from ductile.store import tokens
from ductile.store.engines.api import Ledger
from tests.conftest import FakeClock


def make(
    ledger: Ledger, now: datetime, id: str = "1", name: str = "a", end: datetime | None = None
) -> dict[str, Any]:
    return ledger.write(
        lambda tx: tokens.create(
            tx, id=id, name=name, hash=f"h{id}", scopes=["jobs:ro"], expires_at=end, now=now
        )
    )


def test_a_token_is_listed_without_its_hash(ledger: Ledger, clock: FakeClock) -> None:
    made = make(ledger, clock.now())
    assert ledger.read(tokens.listing) == [made]
    assert made["scopes"] == ["jobs:ro"]
    assert "hash" not in made


def test_a_name_is_taken_until_it_is_revoked(ledger: Ledger, clock: FakeClock) -> None:
    make(ledger, clock.now())
    with pytest.raises(Refused, match="already"):
        make(ledger, clock.now(), id="2")
    ledger.write(lambda tx: tokens.revoke(tx, "a", clock.now()))
    assert make(ledger, clock.now(), id="2")["id"] == "2"
    with pytest.raises(Refused, match="revoked already"):
        ledger.write(lambda tx: tokens.revoke(tx, "1", clock.now()))


def test_what_opens_a_door(ledger: Ledger, clock: FakeClock) -> None:
    make(ledger, clock.now(), "1", "lasting")
    make(ledger, clock.now(), "2", "ending", clock.now() + timedelta(seconds=10))
    make(ledger, clock.now(), "3", "revoked")
    ledger.write(lambda tx: tokens.revoke(tx, "revoked", clock.now()))

    def good() -> list[str]:
        return [token.name for token in ledger.read(lambda tx: tokens.good(tx, clock.now()))]

    assert good() == ["lasting", "ending"]
    clock.advance(10)
    assert good() == ["lasting"]


def test_rotation_changes_the_hash_and_keeps_the_end(ledger: Ledger, clock: FakeClock) -> None:
    end = clock.now() + timedelta(days=1)
    make(ledger, clock.now(), end=end)
    ledger.write(lambda tx: tokens.rotate(tx, "a", hash="new", expires_at=None, now=clock.now()))
    (token,) = ledger.read(lambda tx: tokens.good(tx, clock.now()))
    assert (token.hash, token.expires_at) == ("new", to_text(end))
    with pytest.raises(NotFound):
        ledger.write(lambda tx: tokens.rotate(tx, "b", hash="x", expires_at=None, now=clock.now()))


def test_only_what_is_void_is_pruned(ledger: Ledger, clock: FakeClock) -> None:
    make(ledger, clock.now(), "1", "lasting")
    make(ledger, clock.now(), "2", "ending", clock.now() + timedelta(seconds=1))
    clock.advance(100)
    before = to_text(clock.now())
    assert ledger.write(lambda tx: tx.run("prune_tokens", before=before, limit=10)) == 1
    assert [row["name"] for row in ledger.read(tokens.listing)] == ["lasting"]
