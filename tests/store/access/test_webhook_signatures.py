"""Signatures of accepted webhook requests: which ones are replays, and how long they are kept."""

from __future__ import annotations

from datetime import timedelta

from ductile.clock import to_text
from ductile.store.access import webhook_signatures
from ductile.store.access.webhook_signatures import Replay, SignedRequest
from ductile.store.engines.api import Ledger
from tests.conftest import FakeClock

WINDOW = timedelta(minutes=5)


def claim(
    ledger: Ledger, clock: FakeClock, window: timedelta | None = WINDOW, signature: str = "ab"
) -> Replay | None:
    request = SignedRequest("/hook", signature, window)
    return ledger.write(lambda tx: webhook_signatures.claim(tx, request, clock.now()))


def test_signature_is_a_replay_within_its_window(ledger: Ledger, clock: FakeClock) -> None:
    assert claim(ledger, clock) is None
    request = SignedRequest("/hook", "ab", WINDOW)
    ledger.write(lambda tx: webhook_signatures.record_result(tx, request, "job-1"))
    clock.advance(299)
    assert claim(ledger, clock) == Replay("job-1")
    clock.advance(2)
    assert claim(ledger, clock) is None
    assert claim(ledger, clock) == Replay(None)


def test_signature_without_a_window_is_a_replay_while_it_is_stored(
    ledger: Ledger, clock: FakeClock
) -> None:
    assert claim(ledger, clock, None) is None
    clock.advance(86_000)
    assert claim(ledger, clock, None) == Replay(None)
    clock.advance(1)
    assert claim(ledger, clock, None, "a newer one") is None
    before = to_text(clock.now() + timedelta(seconds=1))
    assert ledger.write(lambda tx: tx.run("prune_webhook_signatures", before=before, limit=9)) == 1
    assert claim(ledger, clock, None) is None
