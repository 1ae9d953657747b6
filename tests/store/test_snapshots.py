"""Configurations that ran, kept once each; on both engines."""

from __future__ import annotations

from ductile.store import retention, snapshots
from ductile.store.engines.api import Ledger
from tests.conftest import FakeClock

DAY = 86_400.0
RETENTION = retention.Retention(
    jobs=30 * DAY,
    logs=30 * DAY,
    transitions=30 * DAY,
    breaker_transitions=90 * DAY,
    facts=None,
    dedupe_ttl=DAY,
)


def record(ledger: Ledger, clock: FakeClock, id: str, config_hash: str) -> str:
    now = clock.now()
    return ledger.write(
        lambda tx: snapshots.record_snapshot(
            tx,
            id=id,
            config_hash=config_hash,
            config={"service": {"name": id}},
            fingerprints=[{"purpose": "x", "fingerprint": "y"}],
            now=now,
        )
    )


def kept(ledger: Ledger, clock: FakeClock) -> set[str]:
    """Those that a configuration with their hash is found to be."""
    found = {record(ledger, clock, f"new {hash}", hash) for hash in ("h1", "h2")}
    return {id for id in found if not id.startswith("new ")}


def pruned(ledger: Ledger, clock: FakeClock) -> None:
    now = clock.now()
    for batch in retention.prune_batches(RETENTION, now):
        ledger.write(batch)


def test_the_same_configuration_is_kept_once(ledger: Ledger, clock: FakeClock) -> None:
    assert record(ledger, clock, "a", "h1") == "a"
    assert record(ledger, clock, "b", "h1") == "a"


def test_another_configuration_is_another_snapshot(ledger: Ledger, clock: FakeClock) -> None:
    assert record(ledger, clock, "a", "h1") == "a"
    assert record(ledger, clock, "b", "h2") == "b"


def test_a_snapshot_that_ran_long_ago_is_forgotten(ledger: Ledger, clock: FakeClock) -> None:
    record(ledger, clock, "a", "h1")
    clock.advance(40 * DAY)
    record(ledger, clock, "b", "h2")
    pruned(ledger, clock)
    assert kept(ledger, clock) == {"b"}


def test_the_one_in_force_stays_however_old_it_is(ledger: Ledger, clock: FakeClock) -> None:
    record(ledger, clock, "a", "h1")
    clock.advance(400 * DAY)
    pruned(ledger, clock)
    assert kept(ledger, clock) == {"a"}


def test_the_one_in_force_stays_though_another_was_tried_since(
    ledger: Ledger, clock: FakeClock
) -> None:
    """A to B and back to A: A is what runs, and B is the newest row."""
    record(ledger, clock, "a", "h1")
    clock.advance(40 * DAY)
    record(ledger, clock, "b", "h2")
    assert record(ledger, clock, "c", "h1") == "a"
    pruned(ledger, clock)
    assert "a" in kept(ledger, clock)
