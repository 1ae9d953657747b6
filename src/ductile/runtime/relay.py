"""Relay between gateways: the courier's lane to others, and the door for what they send."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import unquote

from ductile.clock import Clock, Entropy, Ids, to_text
from ductile.config.relay import InstanceSettings, PeerSettings
from ductile.core.delivery import DeliveryStatus
from ductile.core.relay import (
    ANYWHERE,
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
from ductile.errors import DuctileError
from ductile.failpoint import failpoint
from ductile.log import logger
from ductile.model import Event, Notice, SubmittedBy
from ductile.record import dataclass
from ductile.runtime.blueprint import Blueprint
from ductile.runtime.held import Held
from ductile.runtime.lane import Answer, Parcel
from ductile.store import finish, notices, relays, spawn
from ductile.store.ledger import Ledger, Tx
from ductile.store.relays import Claimed, Receipt

IDLE = 5.0
"""Seconds after which the ledger is asked again for what another node has left."""
BUSY = 1.0
"""Seconds until the next look while something is due that may not be sent yet."""
NOT_ALLOWED = "not sent: the instance does not allow this event type any more"
CANNOT_TAKE = "the gateway cannot take this event"
UNREADABLE = "not sent: its row cannot be read"


class ReplayedRelay(DuctileError):
    code = "forbidden"
    http_status = 403


class RelayLane:
    """Events on their way to the instances of the configuration in force. Thread-safe."""

    name = "relay"

    def __init__(self, ledger: Ledger, blueprint: Callable[[], Blueprint], owner: str) -> None:
        self._ledger, self._blueprint, self._owner = ledger, blueprint, owner
        self._held: Held[str, _Outgoing] = Held(
            self.name, ledger, owner, relays.under_way, relays.release
        )
        self._log = logger(self.name)

    def claim(self, now: datetime) -> tuple[Sequence[Parcel], float]:
        settings = self._blueprint().settings
        instances = {item.name: item for item in settings.instances if item.enabled}
        due, under_way = self._ledger.read(
            lambda tx: (relays.next_due(tx, tuple(instances)), relays.under_way(tx))
        )
        if self._held.released(under_way, now):
            return (), 0.0
        ready = [name for name, at in due.items() if at <= now]
        if not ready:
            return (), min([IDLE, *((at - now).total_seconds() for at in due.values())])
        found = self._ledger.write(lambda tx: relays.claim(tx, ready, self._owner, now))
        failpoint("relay.claimed")
        us = settings.service.name
        parcels = [self._parcel(claimed, instances[claimed.instance], us, now) for claimed in found]
        return parcels, 0.0 if found else BUSY

    def recover(self) -> None:
        self._held.recover()

    def _parcel(
        self, claimed: Claimed, instance: InstanceSettings, us: str, now: datetime
    ) -> Parcel:
        """What is sent; without a URL where it may not be."""
        body, refusal = named(claimed.body, us), None
        if body is None:
            refusal = UNREADABLE
        elif instance.allow and claimed.event_type not in instance.allow:
            refusal = NOT_ALLOWED
        self._held.hold(claimed.id, _Outgoing(claimed, refusal))
        if body is None or refusal is not None:
            return Parcel(claimed.id, "", b"", {}, instance.timeout)
        return _addressed(claimed.id, instance, us, body, now)

    def settle(self, parcel: Parcel, answer: Answer, now: datetime) -> None:
        failpoint("relay.sent")
        with self._held.ending(parcel.id) as held:
            claimed, final = held.claimed, is_final(answer.status, answer.body)
            error = self._blueprint().redactor.maybe(held.refusal or _error(answer, final))
            verdict = after_send(claimed.attempts, error, final=final, now=now)
            recorded = self._ledger.write(
                lambda tx: relays.settle(tx, claimed, self._owner, verdict, error, now)
            )
        failpoint("relay.settled")
        if recorded and error is not None:
            dead = verdict.status is DeliveryStatus.DEAD
            level, what = ("error", "is dead") if dead else ("warn", "failed")
            told = {"relay": claimed.id, "instance": claimed.instance, "error": error}
            self._log.log(level, f"a relay {what}", **told)

    def give_back(self, parcel: Parcel) -> None:
        with self._held.ending(parcel.id) as held:
            self._ledger.write(lambda tx: relays.give_back(tx, held.claimed, self._owner))


@dataclass(frozen=True, slots=True)
class _Outgoing:
    claimed: Claimed
    refusal: str | None
    """Why it is not sent at all."""


def _addressed(id: str, instance: InstanceSettings, us: str, body: bytes, now: datetime) -> Parcel:
    path = instance.url.partition("://")[2].partition("/")[2]
    peer = Peer(instance.name, instance.secret or "", instance.key_id)
    return Parcel(
        id=id,
        url=instance.url,
        body=body,
        headers=signed_headers(us, peer, unquote(f"/{path}"), body, now),
        timeout=instance.timeout,
        networks=ANYWHERE,
        plain_http=instance.url.startswith("http://"),
    )


def _error(answer: Answer, final: bool) -> str | None:
    """Why it counts as not delivered: in our own words, nothing that the other side said."""
    if is_receipt(answer.status, answer.body):
        return None
    if answer.delivered:
        return f"HTTP {answer.status}, but no receipt of a gateway"
    error = answer.error or f"HTTP {answer.status}"
    return f"{error}: {CANNOT_TAKE}" if final else error


class Ingress:
    """What peers may send, by the configuration in force."""

    def __init__(self, blueprint: Blueprint) -> None:
        settings = blueprint.settings.remote_ingress
        self.prefix = settings.listen_path.rstrip("/") + "/"
        self.largest_body = settings.max_body_size
        self._blueprint = blueprint
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

    def arrival(self, relayed: Relayed, clock: Clock, entropy: Entropy) -> RelayArrival:
        return RelayArrival(self._blueprint, relayed, clock, entropy)


def _peer(settings: PeerSettings, secret: str) -> Peer:
    return Peer(
        name=settings.name,
        secret=secret,
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
        ids, intents = Ids(self._base_id), self._routing.intents
        place = spawn.outside(tx, intents, self._relayed.baggage, ids, now)
        spawned = finish.write_intents(tx, intents, place, self._chart, ids, now)
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
