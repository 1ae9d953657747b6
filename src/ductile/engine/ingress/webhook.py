"""Webhook endpoints: how a request is verified, and the transaction that turns it into jobs."""

from __future__ import annotations

from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.clock import Ids, to_text
from ductile.config.models.http import EndpointSettings
from ductile.core.delivery.payload import find_field
from ductile.core.delivery.signatures import (
    PLAIN,
    PROVIDERS,
    Headers,
    Scheme,
    VerifiedWebhook,
    judge,
)
from ductile.core.values.json_values import Failure
from ductile.engine.services import Services
from ductile.model import Event, Json, Notice, SubmittedBy
from ductile.store import notices
from ductile.store.engines.api import Tx
from ductile.store.jobs import close, spawn

LONGEST_ID = 255


@dataclass(frozen=True, slots=True)
class AcceptedWebhook:
    """A webhook request that is stored durably."""

    job_id: str | None
    """The job of the endpoint's plugin."""
    duplicate: bool = False
    """Whether this delivery was accepted before; then nothing is created."""


def find_scheme(endpoint: EndpointSettings) -> Scheme:
    return PROVIDERS[endpoint.provider] if endpoint.provider else PLAIN


def verify_webhook(
    endpoint: EndpointSettings, headers: Headers, body: bytes, now: float
) -> VerifiedWebhook | Failure:
    """Verify the signature. The reason of a failure is for the log, not for the sender."""
    if not endpoint.secret:
        return Failure("the endpoint has no secret")
    header = endpoint.signature_header
    return judge(find_scheme(endpoint), endpoint.secret, headers, body, now, header=header)


class AcceptWebhook:
    """The transaction that stores a verified request and creates the jobs that it triggers."""

    def __init__(
        self,
        services: Services,
        endpoint: EndpointSettings,
        verified: VerifiedWebhook,
        payload: Json,
    ) -> None:
        self._tx_config, self._path = services.compiled.tx_config, endpoint.path
        self._now, self._base_id = services.clock.now(), services.entropy.uuid()
        self._delivery_id = _find_delivery_id(endpoint, verified, payload)
        name = endpoint.event_name
        event_id = services.entropy.uuid()
        event = Event(f"webhook.{name}", payload, None, name, self._now, event_id)
        details: dict[str, Any] = {"name": name}
        if verified.event:
            details["event"] = verified.event
        if self._delivery_id:
            details["delivery_id"] = self._delivery_id
        self._baggage = {"webhook": details}
        self._routing = self._tx_config.router.arrive(
            event,
            plugin=endpoint.plugin,
            submitted_by=SubmittedBy.WEBHOOK,
            baggage=self._baggage,
        )

    def __call__(self, tx: Tx) -> AcceptedWebhook:
        key = {"endpoint": self._path, "delivery_id": self._delivery_id}
        if self._delivery_id is not None and not tx.run(
            "insert_receipt", now=to_text(self._now), **key
        ):
            row = tx.one("receipt", **key)
            return AcceptedWebhook(row[0] if row else None, duplicate=True)
        ids = Ids(self._base_id)
        place = spawn.insert_entry_context(tx, self._routing.intents, self._baggage, ids, self._now)
        spawned = close.write_intents(
            tx, self._routing.intents, place, self._tx_config, ids, self._now
        )
        for lost in self._routing.unrouted:
            notice = {"event_id": lost.event_id, "pipeline": lost.pipeline, "reason": lost.reason}
            notices.post(tx, Notice("events", "event.unrouted", notice), self._now)
        job_id = spawned.job_ids[0] if spawned.job_ids else None
        if self._delivery_id is not None:
            tx.run("fill_receipt", job_id=job_id, **key)
        return AcceptedWebhook(job_id)


def _find_delivery_id(
    endpoint: EndpointSettings, verified: VerifiedWebhook, payload: Json
) -> str | None:
    found: object = verified.delivery_id
    field = find_scheme(endpoint).id_field
    if found is None and field:
        found = find_field(payload, field)
    return found[:LONGEST_ID].replace("\0", "") if isinstance(found, str) and found else None
