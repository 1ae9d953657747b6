"""API tokens in the ledger, on both engines."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
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
    assert ledger.read(lambda tx: tokens.find_token(tx, "a"))["id"] == "2"
    clock.advance(60)
    ledger.write(lambda tx: tokens.revoke_token(tx, "a", clock.now()))
    assert ledger.read(lambda tx: tokens.find_token(tx, "a"))["id"] == "2", "the last one"


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


def test_old_secret_is_valid_until_the_end_of_the_overlap(ledger: Ledger, clock: FakeClock) -> None:
    make(ledger, clock.now(), end=clock.now() + timedelta(seconds=30))

    def rotate(hash: str, seconds: float | None) -> None:
        until = None if seconds is None else clock.now() + timedelta(seconds=seconds)
        ledger.write(
            lambda tx: tokens.rotate_token(
                tx, "a", hash=hash, expires_at=None, now=clock.now(), old_until=until
            )
        )

    def valid() -> list[str]:
        return [token.hash for token in ledger.read(lambda tx: tokens.list_valid(tx, clock.now()))]

    rotate("h2", 60)
    assert valid() == ["h2", "h1"]
    # The old secret ends with the token, although the overlap is longer.
    assert {t.expires_at for t in ledger.read(lambda tx: tokens.list_valid(tx, clock.now()))} == {
        to_text(clock.now() + timedelta(seconds=30))
    }
    with pytest.raises(Refused, match="ductile token create a-2 --scopes"):
        rotate("h3", 10)
    assert valid() == ["h2", "h1"]
    clock.advance(20)
    rotate("h3", None)
    assert valid() == ["h3"]
    rotate("h4", 5)
    clock.advance(5)
    assert valid() == ["h4"]
    rotate("h5", 60)
    assert valid() == ["h5", "h4"]
    rotate("h6", None)
    assert valid() == ["h6"]
    ledger.write(lambda tx: tokens.revoke_token(tx, "a", clock.now()))
    assert valid() == []


def make_lease(ledger: Ledger, clock: FakeClock, **limits: int) -> None:
    ledger.write(
        lambda tx: tokens.create_token(
            tx,
            id="1",
            name="agent",
            hash="h1",
            scopes=["jobs:rw"],
            expires_at=clock.now() + timedelta(hours=1),
            now=clock.now(),
            budget=tokens.Budget(**limits),
        )
    )


def spend(ledger: Ledger, clock: FakeClock, what: tokens.Spending, count: int) -> None:
    ledger.write(lambda tx: tokens.spend(tx, "1", what, count, clock.now()))


def test_budget_ends_at_zero_and_is_not_overdrawn(ledger: Ledger, clock: FakeClock) -> None:
    make_lease(ledger, clock, runs=3)
    spend(ledger, clock, tokens.Spending.RUNS, 2)
    with pytest.raises(tokens.BudgetSpent, match="has 1 of its runs left"):
        spend(ledger, clock, tokens.Spending.RUNS, 2)
    spend(ledger, clock, tokens.Spending.RUNS, 1)
    with pytest.raises(tokens.BudgetSpent, match="has 0 of its runs left"):
        spend(ledger, clock, tokens.Spending.RUNS, 1)
    spend(ledger, clock, tokens.Spending.RUNS, 0)
    spend(ledger, clock, tokens.Spending.RETRIES, 1000)  # Not limited.
    [token] = ledger.read(tokens.list_tokens)
    assert token["lease"] is True
    assert token["budget"] == {
        "runs": {"limit": 3, "left": 0},
        "retries": {"limit": None, "left": None},
    }


def test_revoked_or_expired_lease_cannot_spend(ledger: Ledger, clock: FakeClock) -> None:
    make_lease(ledger, clock, runs=3)
    clock.advance(3600)
    with pytest.raises(tokens.BudgetSpent):
        spend(ledger, clock, tokens.Spending.RUNS, 1)


def test_concurrent_spenders_never_exceed_the_budget(ledger: Ledger, clock: FakeClock) -> None:
    make_lease(ledger, clock, retries=20)

    def try_once(_: int) -> bool:
        try:
            spend(ledger, clock, tokens.Spending.RETRIES, 1)
        except tokens.BudgetSpent:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(try_once, range(40))) == 20


@pytest.mark.parametrize("waited", [0, 30])
def test_rotation_does_not_extend_or_revive_the_old_secret(
    ledger: Ledger, clock: FakeClock, waited: float
) -> None:
    old_end = clock.now() + timedelta(seconds=30)
    make(ledger, clock.now(), end=old_end)
    clock.advance(waited)
    now = clock.now()
    new_end = now + timedelta(days=1)
    ledger.write(
        lambda tx: tokens.rotate_token(
            tx, "a", hash="h2", expires_at=new_end, now=now, old_until=now + timedelta(hours=1)
        )
    )
    found = {t.hash: t.expires_at for t in ledger.read(lambda tx: tokens.list_valid(tx, now))}
    old = {} if waited else {"h1": to_text(old_end)}
    assert found == {"h2": to_text(new_end), **old}
