"""Relay between gateways: the courier's lane to others, and the door for what they send."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

from ductile.clock import Clock, Entropy, Ids, to_text
from ductile.config.models.relay import InstanceSettings, PeerSettings
from ductile.core.delivery.relay import (
    ANYWHERE,
    RETRY_SECONDS,
    Peer,
    Refusal,
    Relayed,
    Request,
    Terms,
    after_send,
    is_final,
    is_receipt,
    named,
    signed_headers,
    verify,
)
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.outbox.queue import (
    UNREADABLE,
    Ending,
    LedgerOutbox,
    OutboundRequest,
    SendResult,
)
from ductile.errors import DuctileError
from ductile.model import Event, Notice, SubmittedBy
from ductile.store import notices
from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs import close, spawn
from ductile.store.outbox import relays
from ductile.store.outbox.relays import Claimed, Receipt

NOT_ALLOWED = "not sent: the instance does not allow this event type any more"
CANNOT_TAKE = "the gateway cannot take this event"


class ReplayedRelay(DuctileError):
    code = "forbidden"
    http_status = 403


class RelayOutbox(LedgerOutbox[Claimed]):
    """Events on their way to the instances of the configuration in force."""

    name, noun = "relay", "relay"
    schedule = RETRY_SECONDS
    poll, soon = 5.0, 1.0

    def __init__(self, ledger: Ledger, compiled: Callable[[], CompiledConfig], owner: str) -> None:
        super().__init__(relays, ledger, compiled, owner)

    def _due(self, tx: Tx, compiled: CompiledConfig, _now: datetime) -> datetime | None:
        return min(relays.next_due(tx, tuple(_enabled(compiled))).values(), default=None)

    def _foreign(self, tx: Tx, compiled: CompiledConfig) -> list[str]:
        return relays.foreign(tx, tuple(_enabled(compiled)))

    def _take(self, tx: Tx, compiled: CompiledConfig, now: datetime) -> list[Claimed]:
        due = relays.next_due(tx, tuple(_enabled(compiled)))
        ready = [name for name, at in due.items() if at <= now]
        return relays.claim(tx, ready, self._owner, now)

    def _parcel(self, claimed: Claimed, compiled: CompiledConfig, now: datetime) -> OutboundRequest:
        us, instance = compiled.settings.service.name, _enabled(compiled)[claimed.instance]
        body = named(claimed.body, us)
        if body is None:
            return OutboundRequest.unsent(claimed.id, UNREADABLE)
        if instance.allow and claimed.event_type not in instance.allow:
            return OutboundRequest.unsent(claimed.id, NOT_ALLOWED)
        return _addressed(claimed.id, instance, us, body, now)

    def _ending(self, claimed: Claimed, answer: SendResult, now: datetime) -> Ending:
        final = is_final(answer.status, answer.body)
        error = _error(answer, final)
        return Ending(after_send(claimed.attempts, error, final=final, now=now), error)

    def _told(self, claimed: Claimed) -> dict[str, int | str]:
        return {**super()._told(claimed), "instance": claimed.instance}


def _enabled(compiled: CompiledConfig) -> dict[str, InstanceSettings]:
    return {item.name: item for item in compiled.settings.instances if item.enabled}


def _addressed(
    id: str, instance: InstanceSettings, us: str, body: bytes, now: datetime
) -> OutboundRequest:
    path = instance.url.partition("://")[2].partition("/")[2]
    peer = Peer(instance.name, instance.secret or "", instance.key_id)
    return OutboundRequest(
        id=id,
        url=instance.url,
        body=body,
        headers=signed_headers(us, peer, unquote(f"/{path}"), body, now),
        timeout=instance.timeout,
        networks=ANYWHERE,
        plain_http=instance.url.startswith("http://"),
    )


def _error(answer: SendResult, final: bool) -> str | None:
    """Why it counts as not delivered: in our own words, nothing that the other side said."""
    if is_receipt(answer.status, answer.body):
        return None
    if answer.delivered:
        return f"HTTP {answer.status}, but no receipt of a gateway"
    error = answer.error or f"HTTP {answer.status}"
    return f"{error}: {CANNOT_TAKE}" if final else error


class Ingress:
    """What peers may send, by the configuration in force."""

    def __init__(self, compiled: CompiledConfig) -> None:
        settings = compiled.settings.remote_ingress
        self.prefix = settings.listen_path.rstrip("/") + "/"
        self.largest_body = settings.max_body_size
        self._compiled = compiled
        self._terms = Terms(timedelta(seconds=settings.allowed_clock_skew), settings.require_key_id)
        self._peers = {
            peer.name: _peer(peer, peer.secret)
            for peer in settings.peers
            if peer.enabled and peer.secret
        }

    def is_for(self, path: str) -> bool:
        return bool(self._peers) and path.startswith(self.prefix)

    def peer(self, path: str) -> Peer | None:
        """Who may send to this path."""
        return self._peers.get(path.removeprefix(self.prefix))

    def verify(self, request: Request, now: datetime) -> Relayed | Refusal:
        """Who is not listed learns no more than who signs wrongly."""
        peer = self.peer(request.path)
        if peer is None:
            return Refusal(403, "forbidden", "no such peer")
        return verify(request, peer, self._terms, now)

    def arrival(self, relayed: Relayed, clock: Clock, entropy: Entropy) -> RelayReceipt:
        return RelayReceipt(self._compiled, relayed, clock, entropy)


def _peer(settings: PeerSettings, secret: str) -> Peer:
    return Peer(
        name=settings.name,
        secret=secret,
        key_id=settings.key_id,
        accept=frozenset(settings.accept),
        baggage=frozenset(settings.baggage.allow),
    )


class RelayReceipt:
    """The transaction that takes a peer's event in, as a fresh local root."""

    def __init__(
        self, compiled: CompiledConfig, relayed: Relayed, clock: Clock, entropy: Entropy
    ) -> None:
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
        """Raises `ReplayedRelay` for bytes that were let in before."""
        peer, event_id, now = self._relayed.peer, self._relayed.event_id, self._now
        fresh = tx.run(
            "insert_relay_signature",
            peer=peer,
            signature=self._relayed.signature,
            now=to_text(now),
        )
        if not fresh:
            raise ReplayedRelay("forbidden")
        known = relays.receive(
            tx, peer=peer, event_id=event_id, receiver_event_id=self._event_id, now=now
        )
        if known is not None:
            return known
        ids, intents = Ids(self._base_id), self._routing.intents
        place = spawn.outside(tx, intents, self._relayed.baggage, ids, now)
        spawned = close.write_intents(tx, intents, place, self._tx_config, ids, now)
        job_id = next(iter((*spawned.job_ids, *spawned.existing)), None)
        if event_id is not None:
            tx.run("fill_relay_receipt", peer=peer, event_id=event_id, job_id=job_id)
        self._tell(tx, job_id)
        needless = bool(spawned.existing) and not spawned.job_ids
        return Receipt(self._event_id, job_id, deduplicated=needless)

    def _tell(self, tx: Tx, job_id: str | None) -> None:
        told: dict[str, Any] = {
            "peer": self._relayed.peer,
            "event_type": self._relayed.event_type,
            "event_id": self._relayed.event_id,
            "receiver_event_id": self._event_id,
            "job_id": job_id,
        }
        notices.post(tx, Notice(relays.TOPIC, "relay.received", told), self._now, job_id=job_id)
        for lost in self._routing.unrouted:
            why = {"event_id": lost.event_id, "pipeline": lost.pipeline, "reason": lost.reason}
            notices.post(tx, Notice("events", "event.unrouted", why), self._now)
