"""Events that other gateways relay to this one: how they are verified and stored."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from ductile.clock import Clock, Entropy, Ids, to_text
from ductile.config.models.relay import PeerSettings
from ductile.core.delivery.relay import (
    Peer,
    RelayedEvent,
    RelayRejection,
    RelayRequest,
    SignatureRules,
    verify_request,
)
from ductile.core.jobs.trace import TraceContext
from ductile.engine.config.compiled import CompiledConfig
from ductile.errors import DuctileError
from ductile.model import Event, Notice, SubmittedBy
from ductile.store import notices
from ductile.store.engines.api import Tx
from ductile.store.jobs import close, spawn
from ductile.store.outbox import relays
from ductile.store.outbox.relays import Receipt


class ReplayedRelay(DuctileError):
    code = "forbidden"
    http_status = 403


class RelayIngressRules:
    """Which peers may send what, by one compiled configuration."""

    def __init__(self, compiled: CompiledConfig) -> None:
        settings = compiled.settings.remote_ingress
        self.prefix = settings.listen_path.rstrip("/") + "/"
        self.largest_body = settings.max_body_size
        self._compiled = compiled
        self._rules = SignatureRules(
            timedelta(seconds=settings.allowed_clock_skew), settings.require_key_id
        )
        self._peers = {
            peer.name: _build_peer(peer, peer.secret)
            for peer in settings.peers
            if peer.enabled and peer.secret
        }

    def matches(self, path: str) -> bool:
        return bool(self._peers) and path.startswith(self.prefix)

    def find_peer(self, path: str) -> Peer | None:
        """The peer that may send to this path."""
        return self._peers.get(path.removeprefix(self.prefix))

    def verify(self, request: RelayRequest, now: datetime) -> RelayedEvent | RelayRejection:
        """An unknown peer gets the same response as a wrong signature."""
        peer = self.find_peer(request.path)
        if peer is None:
            return RelayRejection(403, "forbidden", "unknown peer")
        return verify_request(request, peer, self._rules, now)

    def accept(
        self,
        relayed: RelayedEvent,
        clock: Clock,
        entropy: Entropy,
        trace: TraceContext | None = None,
    ) -> AcceptRelay:
        return AcceptRelay(self._compiled, relayed, clock, entropy, trace)


def _build_peer(settings: PeerSettings, secret: str) -> Peer:
    return Peer(
        name=settings.name,
        secret=secret,
        key_id=settings.key_id,
        accept=frozenset(settings.accept),
        baggage=frozenset(settings.baggage.allow),
    )


class AcceptRelay:
    """The transaction that stores a peer's event and routes it as the root of a new job tree."""

    def __init__(
        self,
        compiled: CompiledConfig,
        relayed: RelayedEvent,
        clock: Clock,
        entropy: Entropy,
        trace: TraceContext | None = None,
    ) -> None:
        self._trace = trace
        self._relayed, self._tx_config = relayed, compiled.tx_config
        self._now, self._base_id, self._event_id = clock.now(), entropy.uuid(), entropy.uuid()
        event = Event(
            relayed.event_type,
            relayed.payload,
            relayed.dedupe_key,
            f"relay:{relayed.peer}",
            self._now,
            self._event_id,
        )
        self._routing = self._tx_config.router.arrive(
            event, plugin=None, submitted_by=SubmittedBy.RELAY, baggage=relayed.baggage
        )

    def __call__(self, tx: Tx) -> Receipt:
        """Raises `ReplayedRelay` if a request with this signature was accepted before."""
        peer, event_id, now = self._relayed.peer, self._relayed.event_id, self._now
        fresh = tx.run(
            "insert_relay_signature",
            peer=peer,
            signature=self._relayed.signature,
            now=to_text(now),
        )
        if not fresh:
            raise ReplayedRelay("forbidden")
        known = relays.record_receipt(
            tx, peer=peer, event_id=event_id, receiver_event_id=self._event_id, now=now
        )
        if known is not None:
            return known
        ids, intents = Ids(self._base_id), self._routing.intents
        place = spawn.insert_entry_context(tx, intents, self._relayed.baggage, ids, now)
        place = replace(place, trace=self._trace)
        spawned = close.write_intents(tx, intents, place, self._tx_config, ids, now)
        job_id = next(iter((*spawned.job_ids, *spawned.existing)), None)
        if event_id is not None:
            tx.run("fill_relay_receipt", peer=peer, event_id=event_id, job_id=job_id)
        self._post_notices(tx, job_id)
        deduplicated = bool(spawned.existing) and not spawned.job_ids
        return Receipt(self._event_id, job_id, deduplicated=deduplicated)

    def _post_notices(self, tx: Tx, job_id: str | None) -> None:
        details: dict[str, Any] = {
            "peer": self._relayed.peer,
            "event_type": self._relayed.event_type,
            "event_id": self._relayed.event_id,
            "receiver_event_id": self._event_id,
            "job_id": job_id,
        }
        notices.post(tx, Notice(relays.TOPIC, "relay.received", details), self._now, job_id=job_id)
        for lost in self._routing.unrouted:
            details = {"event_id": lost.event_id, "pipeline": lost.pipeline, "reason": lost.reason}
            notices.post(tx, Notice("events", "event.unrouted", details), self._now)
