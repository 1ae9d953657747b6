"""Idempotency keys: one body, one day, one commit with the work."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs.idempotency import IdempotencyKey, KeyReused, run_once
from tests.conftest import FakeClock

KEY = IdempotencyKey("me", "POST", "/x", "k", "hash")


def test_work_runs_once_per_key(ledger: Ledger, clock: FakeClock) -> None:
    done = []

    def work(tx: Tx) -> str:
        done.append(1)
        return f"answer {len(done)}"

    def ask(key: IdempotencyKey = KEY) -> str:
        return ledger.write(run_once(key, work, clock.now(), encode=str, decode=str))

    assert [ask(), ask()] == ["answer 1", "answer 1"]
    for other in (
        IdempotencyKey("you", "POST", "/x", "k", "hash"),
        IdempotencyKey("me", "PUT", "/x", "k", "hash"),
        IdempotencyKey("me", "POST", "/y", "k", "hash"),
        IdempotencyKey("me", "POST", "/x", "l", "hash"),
    ):
        before = len(done)
        assert ask(other) == f"answer {before + 1}"
    with pytest.raises(KeyReused):
        ask(IdempotencyKey("me", "POST", "/x", "k", "other"))
    clock.advance(24 * 3600 + 1)
    assert ask(IdempotencyKey("me", "POST", "/x", "k", "other")) == "answer 6"


def test_key_is_known_to_every_process_of_the_ledger(
    open_ledger: Callable[[], Ledger], clock: FakeClock
) -> None:
    answers = iter(("first", "second"))

    def ask() -> str:
        work = run_once(KEY, lambda tx: next(answers), clock.now(), encode=str, decode=str)
        return open_ledger().write(work)

    assert [ask(), ask()] == ["first", "first"]


@pytest.mark.parametrize(("hours", "holds"), [(24 - 1e-6, True), (24 + 1e-6, False)])
def test_key_is_valid_for_a_day(
    ledger: Ledger, clock: FakeClock, hours: float, holds: bool
) -> None:
    answers = iter(("first", "second"))

    def ask() -> str:
        work = run_once(KEY, lambda tx: next(answers), clock.now(), encode=str, decode=str)
        return ledger.write(work)

    assert ask() == "first"
    clock.advance(hours * 3600)
    assert ask() == ("first" if holds else "second")


def test_failed_work_stores_no_key(ledger: Ledger, clock: FakeClock) -> None:
    def fails(tx: Tx) -> str:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        ledger.write(run_once(KEY, fails, clock.now(), encode=str, decode=str))
    found = ledger.write(run_once(KEY, lambda tx: "yes", clock.now(), encode=str, decode=str))
    assert found == "yes"


def test_key_is_pruned_after_a_day(ledger: Ledger, clock: FakeClock) -> None:
    ledger.write(run_once(KEY, lambda tx: "yes", clock.now(), encode=str, decode=str))
    run = {"before": "2026-02-08T10:00:00.000000Z", "limit": 10}
    assert ledger.write(lambda tx: tx.run("prune_idempotency_keys", **run)) == 0
    run["before"] = "2026-02-09T10:00:00.000001Z"
    assert ledger.write(lambda tx: tx.run("prune_idempotency_keys", **run)) == 1
