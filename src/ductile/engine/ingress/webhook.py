"""A webhook's delivery, from verified bytes to its jobs: one transaction (002 §10)."""

from __future__ import annotations

from typing import Any

from ductile.clock import Ids, to_text
from ductile.config.models.http import EndpointSettings
from ductile.core.delivery.payload import field_of
from ductile.core.delivery.signatures import PLAIN, PROVIDERS, Headers, Scheme, Verified, judge
from ductile.core.values.json_values import Failure
from ductile.engine.services import Services
from ductile.model import Event, Json, Notice, SubmittedBy
from ductile.record import dataclass
from ductile.store import notices
from ductile.store.engines.api import Tx
from ductile.store.jobs import close, spawn

LONGEST_ID = 255


@dataclass(frozen=True, slots=True)
class Taken:
    """A delivery that is durably in."""

    job_id: str | None
    """The job of the endpoint's plugin."""
    duplicate: bool = False
    """Whether this delivery was taken in before; nothing was made this time."""


def scheme_of(endpoint: EndpointSettings) -> Scheme:
    return PROVIDERS[endpoint.provider] if endpoint.provider else PLAIN


def verified(
    endpoint: EndpointSettings, headers: Headers, body: bytes, now: float
) -> Verified | Failure:
    """What the signature says, or why it does not hold; that is for our log alone."""
    if not endpoint.secret:
        return Failure("the endpoint has no secret")
    own = endpoint.signature_header
    return judge(scheme_of(endpoint), endpoint.secret, headers, body, now, header=own)


class WebhookIntake:
    """The transaction that takes a delivery in: its plugin, routes and pipelines."""

    def __init__(
        self, gateway: Services, endpoint: EndpointSettings, said: Verified, payload: Json
    ) -> None:
        self._tx_config, self._path = gateway.compiled.tx_config, endpoint.path
        self._now, self._base_id = gateway.clock.now(), gateway.entropy.uuid()
        self._delivery_id = _delivery_id(endpoint, said, payload)
        name = endpoint.event_name
        event_id = gateway.entropy.uuid()
        event = Event(f"webhook.{name}", payload, None, name, self._now, event_id)
        told: dict[str, Any] = {"name": name}
        if said.event:
            told["event"] = said.event
        if self._delivery_id:
            told["delivery_id"] = self._delivery_id
        self._baggage = {"webhook": told}
        self._routing = self._tx_config.router.arrive(
            event,
            plugin=endpoint.plugin,
            submitted_by=SubmittedBy.WEBHOOK,
            baggage=self._baggage,
        )

    def __call__(self, tx: Tx) -> Taken:
        own = {"endpoint": self._path, "delivery_id": self._delivery_id}
        if self._delivery_id is not None and not tx.run(
            "insert_receipt", now=to_text(self._now), **own
        ):
            row = tx.one("receipt", **own)
            return Taken(row[0] if row else None, duplicate=True)
        ids = Ids(self._base_id)
        place = spawn.outside(tx, self._routing.intents, self._baggage, ids, self._now)
        spawned = close.write_intents(
            tx, self._routing.intents, place, self._tx_config, ids, self._now
        )
        for lost in self._routing.unrouted:
            notice = {"event_id": lost.event_id, "pipeline": lost.pipeline, "reason": lost.reason}
            notices.post(tx, Notice("events", "event.unrouted", notice), self._now)
        job_id = spawned.job_ids[0] if spawned.job_ids else None
        if self._delivery_id is not None:
            tx.run("fill_receipt", job_id=job_id, **own)
        return Taken(job_id)


def _delivery_id(endpoint: EndpointSettings, said: Verified, payload: Json) -> str | None:
    found: object = said.delivery_id
    field = scheme_of(endpoint).id_field
    if found is None and field:
        found = field_of(payload, field)
    return found[:LONGEST_ID].replace("\0", "") if isinstance(found, str) and found else None
