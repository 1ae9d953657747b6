"""Relay between gateways: the courier's lane to others, and the door for what they send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote, urlsplit

from ductile.clock import Clock, Entropy, Ids, to_text
from ductile.config.relay import InstanceSettings, PeerSettings
from ductile.core.relay import Peer, Refusal, Relayed, Request, Terms, signed_headers, verify
from ductile.errors import DuctileError
from ductile.failpoint import failpoint
from ductile.log import logger
from ductile.model import Event, Notice, SubmittedBy
from ductile.runtime.blueprint import Blueprint
from ductile.runtime.lane import Answer, Parcel
from ductile.store import finish, notices, relays
from ductile.store.ledger import Ledger, Tx
from ductile.store.relays import Receipt
from ductile.store.spawn import Place

IDLE = 30.0
"""Seconds after which the ledger is asked again for what another node may have handed over."""
BUSY = 1.0
"""Seconds until the next look while something is due that may not be sent yet."""
ANYWHERE = ("0.0.0.0/0", "::/0")
"""An instance is named by the operator, who may mean a private address."""


class ReplayedRelay(DuctileError):
    code = "forbidden"
    http_status = 403


class RelayLane:
    """Events on their way to the instances of the configuration in force."""

    name = "relay"

    def __init__(self, ledger: Ledger, blueprint: Callable[[], Blueprint], owner: str) -> None:
        self._ledger, self._blueprint, self._owner = ledger, blueprint, owner

    def claim(self, now: datetime) -> tuple[Sequence[Parcel], float]:
        settings = self._blueprint().settings
        instances = {item.name: item for item in settings.instances if item.enabled}
        if not instances:
            return (), IDLE
        names = tuple(instances)
        due = self._ledger.read(lambda tx: relays.next_due(tx, names))
        if due is None:
            return (), IDLE
        if due > now:
            return (), min(IDLE, (due - now).total_seconds())
        parcels = [
            _parcel(settings.service.name, instance, item, now)
            for instance in instances.values()
            for item in self._ledger.write(_Claim(instance.name, self._owner, now))
        ]
        failpoint("relay.claimed")
        return parcels, 0.0 if parcels else BUSY

    def settle(self, parcel: Parcel, answer: Answer, now: datetime) -> None:
        failpoint("relay.sent")
        error = None if answer.delivered else answer.error or f"HTTP {answer.status}"
        status = self._ledger.write(
            lambda tx: relays.settle(tx, parcel.id, self._owner, error, now)
        )
        failpoint("relay.settled")
        if status == "dead":
            logger("relay").error("a relay is dead", relay=parcel.id, error=error)

    def recover(self) -> None:
        """What a dead gateway was sending is due again; whether it arrived is not known."""
        for (owner,) in self._ledger.read(lambda tx: tx.all("relay_owners")):
            if self._ledger.boot_is_dead(owner):
                self._ledger.write(_Release(owner))


class _Claim:
    def __init__(self, instance: str, owner: str, now: datetime) -> None:
        self._instance, self._owner, self._now = instance, owner, now

    def __call__(self, tx: Tx) -> list[relays.Due]:
        return relays.claim(tx, self._instance, self._owner, self._now)


class _Release:
    def __init__(self, owner: str) -> None:
        self._owner = owner

    def __call__(self, tx: Tx) -> int:
        return tx.run("release_relays", owner=self._owner)


def _parcel(us: str, instance: InstanceSettings, due: relays.Due, now: datetime) -> Parcel:
    url = instance.base_url.rstrip("/") + instance.ingress_path
    body = due.body.encode()
    peer = Peer(instance.name, instance.secret or "", instance.key_id)
    return Parcel(
        id=due.id,
        url=url,
        body=body,
        headers=signed_headers(us, peer, unquote(urlsplit(url).path), body, now),
        timeout=instance.timeout,
        networks=ANYWHERE,
        plain_http=url.startswith("http://"),
    )


class Ingress:
    """What peers may send, by the configuration in force."""

    def __init__(self, blueprint: Blueprint) -> None:
        settings = blueprint.settings.remote_ingress
        self.prefix = settings.listen_path.rstrip("/") + "/"
        self.largest_body = settings.max_body_size
        self._blueprint = blueprint
        self._terms = Terms(timedelta(seconds=settings.allowed_clock_skew), settings.require_key_id)
        self._peers = {peer.name: _peer(peer) for peer in settings.peers if peer.enabled}

    def is_for(self, path: str) -> bool:
        return bool(self._peers) and path.startswith(self.prefix)

    def verify(self, request: Request, now: datetime) -> Relayed | Refusal:
        """Who is not listed learns no more than who signs wrongly."""
        peer = self._peers.get(request.path.removeprefix(self.prefix))
        if peer is None:
            return Refusal(403, "forbidden", "no such peer")
        return verify(request, peer, self._terms, now)

    def arrival(self, relayed: Relayed, clock: Clock, entropy: Entropy) -> RelayArrival:
        return RelayArrival(self._blueprint, relayed, clock, entropy)


def _peer(settings: PeerSettings) -> Peer:
    return Peer(
        name=settings.name,
        secret=settings.secret or "",
        key_id=settings.key_id,
        accept=frozenset(settings.accept),
        baggage=frozenset(settings.baggage.allow),
    )


class RelayArrival:
    """The transaction that takes a peer's event in, as a fresh local root."""

    def __init__(
        self, blueprint: Blueprint, relayed: Relayed, clock: Clock, entropy: Entropy
    ) -> None:
        self._relayed, self._chart = relayed, blueprint.chart
        self._now, self._base_id, self._event_id = clock.now(), entropy.uuid(), entropy.uuid()
        event = Event(
            relayed.event_type,
            relayed.payload,
            relayed.dedupe_key,
            f"relay:{relayed.peer}",
            self._now,
            self._event_id,
        )
        self._routing = self._chart.router.arrive(
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
        ids = Ids(self._base_id)
        spawned = finish.write_intents(tx, self._routing.intents, Place(), self._chart, ids, now)
        job_id = spawned.job_ids[0] if spawned.job_ids else None
        if event_id is not None:
            tx.run("fill_relay_receipt", peer=peer, event_id=event_id, job_id=job_id)
        self._tell(tx, job_id)
        return Receipt(self._event_id, job_id)

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
