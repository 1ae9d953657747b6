"""Snapshots of configurations that ran; on both engines."""

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
    """The hashes that still have a snapshot."""
    found = {record(ledger, clock, f"new {hash}", hash) for hash in ("h1", "h2")}
    return {id for id in found if not id.startswith("new ")}


def pruned(ledger: Ledger, clock: FakeClock) -> None:
    now = clock.now()
    for batch in retention.prune_batches(RETENTION, now):
        ledger.write(batch)


def test_snapshots_are_listed_by_the_time_they_were_last_in_force(
    ledger: Ledger, clock: FakeClock
) -> None:
    for id, config_hash in (("a", "h1"), ("b", "h2"), ("c", "h1")):
        record(ledger, clock, id, config_hash)
        clock.advance(60)
    rows = ledger.read(lambda tx: snapshots.list_snapshots(tx, 10))
    assert [row["id"] for row in rows] == ["a", "b"]
    assert rows[0]["created_at"] < rows[1]["created_at"] < rows[0]["adopted_at"]
    found = ledger.read(lambda tx: snapshots.find_snapshot(tx, "b"))
    assert found == snapshots.Snapshot(
        "b", {"service": {"name": "b"}}, [{"purpose": "x", "fingerprint": "y"}], "h2"
    )
    assert ledger.read(lambda tx: snapshots.find_snapshot(tx, "c")) is None


def test_same_configuration_is_stored_once(ledger: Ledger, clock: FakeClock) -> None:
    assert record(ledger, clock, "a", "h1") == "a"
    assert record(ledger, clock, "b", "h1") == "a"


def test_changed_configuration_is_a_new_snapshot(ledger: Ledger, clock: FakeClock) -> None:
    assert record(ledger, clock, "a", "h1") == "a"
    assert record(ledger, clock, "b", "h2") == "b"


def test_old_snapshot_is_pruned(ledger: Ledger, clock: FakeClock) -> None:
    record(ledger, clock, "a", "h1")
    clock.advance(40 * DAY)
    record(ledger, clock, "b", "h2")
    pruned(ledger, clock)
    assert kept(ledger, clock) == {"b"}


def test_current_snapshot_is_kept_whatever_its_age(ledger: Ledger, clock: FakeClock) -> None:
    record(ledger, clock, "a", "h1")
    clock.advance(400 * DAY)
    pruned(ledger, clock)
    assert kept(ledger, clock) == {"a"}


def test_current_snapshot_is_kept_after_another_was_tried(ledger: Ledger, clock: FakeClock) -> None:
    """From A to B and back to A: A is current, although B is the newest row."""
    record(ledger, clock, "a", "h1")
    clock.advance(40 * DAY)
    record(ledger, clock, "b", "h2")
    assert record(ledger, clock, "c", "h1") == "a"
    pruned(ledger, clock)
    assert "a" in kept(ledger, clock)
