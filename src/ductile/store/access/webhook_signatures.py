"""Signatures of accepted webhook requests, so that a captured request is not accepted again."""

from __future__ import annotations

from datetime import datetime, timedelta

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.store.engines.api import Tx


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A verified request, by the endpoint that received it and its signature."""

    endpoint: str
    signature: str
    window: timedelta | None
    """How long the same signature is a replay; None if a later one would be refused anyway."""


@dataclass(frozen=True, slots=True)
class Replay:
    accepted_as: str | None
    """The job or delivery of the first request."""


def claim(tx: Tx, request: SignedRequest, now: datetime) -> Replay | None:
    """Remember the request; a `Replay` if it was accepted before."""
    key = {"endpoint": request.endpoint, "signature": request.signature}
    # No stored time sorts before the empty text.
    before = "" if request.window is None else to_text(now - request.window)
    if tx.run("insert_webhook_signature", before=before, now=to_text(now), **key):
        return None
    row = tx.one("webhook_signature", **key)
    return Replay(row[0] if row else None)


def record_result(tx: Tx, request: SignedRequest, accepted_as: str | None) -> None:
    key = {"endpoint": request.endpoint, "signature": request.signature}
    tx.run("fill_webhook_signature", accepted_as=accepted_as, **key)
