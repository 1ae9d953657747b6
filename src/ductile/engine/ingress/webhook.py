"""Webhook endpoints: how a request is verified, and the transaction that turns it into jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import Ids, to_text
from ductile.config.models.http import EndpointSettings
from ductile.core.delivery.payload import find_field
from ductile.core.delivery.signatures import (
    PLAIN,
    PROVIDERS,
    TOLERANCE,
    Headers,
    Scheme,
    VerifiedWebhook,
    judge,
)
from ductile.core.flow.debounce import webhook_target
from ductile.core.jobs.trace import TraceContext
from ductile.core.values.json_values import Failure
from ductile.engine.outbox.webhooks import EnqueueDelivery
from ductile.engine.services import Services
from ductile.model import Event, Json, Notice, SubmittedBy
from ductile.store import notices
from ductile.store.access import webhook_signatures
from ductile.store.access.webhook_signatures import SignedRequest
from ductile.store.engines.api import Tx
from ductile.store.jobs import close, spawn

LONGEST_ID = 255
REPLAY_WINDOW = timedelta(seconds=TOLERANCE)
"""How long a signature without a signed time counts as a replay if it arrives again."""


@dataclass(frozen=True, slots=True)
class AcceptedWebhook:
    """A webhook request that is stored durably."""

    job_id: str | None
    """The job of the endpoint's plugin, or the first job of its pipeline."""
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
        trace: TraceContext | None = None,
    ) -> None:
        self._trace = trace
        self._tx_config, self._path = services.compiled.tx_config, endpoint.path
        self._now, self._base_id = services.clock.now(), services.entropy.uuid()
        self._delivery_id = find_delivery_id(find_scheme(endpoint), verified.delivery_id, payload)
        self._signed = _find_signed_request(endpoint, verified, self._delivery_id)
        name = endpoint.event_name
        event_id = services.entropy.uuid()
        event = Event(f"webhook.{name}", payload, None, name, self._now, event_id)
        self._baggage = describe_request(name, verified.event, self._delivery_id)
        router = self._tx_config.router
        self._routing = router.arrive(
            event,
            plugin=endpoint.plugin,
            pipeline=endpoint.pipeline,
            submitted_by=SubmittedBy.WEBHOOK,
            baggage=self._baggage,
            debounce=router.debounces.get(webhook_target(endpoint.path)),
        )

    def __call__(self, tx: Tx) -> AcceptedWebhook:
        return self.run_together(tx, [self])[0]

    @staticmethod
    def run_together(tx: Tx, works: Sequence[AcceptWebhook]) -> list[AcceptedWebhook]:
        """Accept several requests: their receipts are read by one statement per endpoint."""
        ids: dict[str, list[str]] = {}
        for work in works:
            if work._delivery_id is not None:
                ids.setdefault(work._path, []).append(work._delivery_id)
        known = {
            (endpoint, delivery_id): job_id
            for endpoint, given in ids.items()
            for delivery_id, job_id in tx.all(
                "receipts", endpoint=endpoint, ids=orjson.dumps(given).decode()
            )
        }
        return [work._accept(tx, known) for work in works]

    def _accept(self, tx: Tx, known: dict[tuple[str, str | None], str | None]) -> AcceptedWebhook:
        """Create the jobs, unless `known` has the delivery; then add it."""
        key = self._path, self._delivery_id
        if key in known:
            return AcceptedWebhook(known[key], duplicate=True)
        if self._signed is not None:
            replay = webhook_signatures.claim(tx, self._signed, self._now)
            if replay is not None:
                return AcceptedWebhook(replay.accepted_as, duplicate=True)
        job_id = self._create_jobs(tx)
        if self._delivery_id is not None:
            known[key] = job_id
            tx.append(
                "insert_receipt",
                endpoint=self._path,
                delivery_id=self._delivery_id,
                job_id=job_id,
                now=to_text(self._now),
            )
        if self._signed is not None:
            webhook_signatures.record_result(tx, self._signed, job_id)
        return AcceptedWebhook(job_id)

    def _create_jobs(self, tx: Tx) -> str | None:
        """Returns the id of the first one."""
        ids, intents = Ids(self._base_id), self._routing.intents
        place = spawn.insert_entry_context(tx, intents, self._baggage, ids, self._now)
        if self._trace is not None:
            place = replace(place, trace=self._trace)
        spawned = close.write_intents(
            tx, intents, place, self._tx_config, ids, self._now, is_new_event=True
        )
        for lost in self._routing.unrouted:
            notice = {"event_id": lost.event_id, "pipeline": lost.pipeline, "reason": lost.reason}
            notices.post(tx, Notice("events", "event.unrouted", notice), self._now)
        return spawned.job_ids[0] if spawned.job_ids else None


def describe_request(name: str, event: str | None, delivery_id: str | None) -> dict[str, Json]:
    """The context of what a request starts."""
    details: dict[str, Json] = {"name": name}
    if event:
        details["event"] = event
    if delivery_id:
        details["delivery_id"] = delivery_id
    return {"webhook": details}


def find_delivery_id(scheme: Scheme, found: Json, payload: Json) -> str | None:
    """The delivery id: `found` in the headers, or in the body if the provider writes it there."""
    if found is None and scheme.id_field:
        found = find_field(payload, scheme.id_field)
    return shorten_id(found) if isinstance(found, str) and found else None


def shorten_id(id: str) -> str:
    """The id, or its hash if it cannot be stored as it is; two ids never become the same."""
    if len(id) <= LONGEST_ID and "\0" not in id:
        return id
    return f"sha256:{hashlib.sha256(id.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _find_signed_request(
    endpoint: EndpointSettings, verified: VerifiedWebhook, delivery_id: str | None
) -> SignedRequest | None:
    """The request by its signature; None if a delivery id identifies replays."""
    if delivery_id is not None:
        return None
    window = None if find_scheme(endpoint).timed else REPLAY_WINDOW
    return SignedRequest(endpoint.path, verified.signature, window)


@dataclass(frozen=True, slots=True)
class ReceiveEvent:
    """The transaction that stores an event for an agent's webhook, unless it is a replay."""

    signature: str
    enqueue: EnqueueDelivery

    def __call__(self, tx: Tx) -> tuple[int, bool]:
        """The id of the delivery, and whether an earlier request has created it."""
        endpoint = f"/gateway/webhooks/{self.enqueue.webhook}"
        request = SignedRequest(endpoint, self.signature, REPLAY_WINDOW)
        replay = webhook_signatures.claim(tx, request, self.enqueue.now)
        if replay is not None and replay.accepted_as is not None:
            return int(replay.accepted_as), True
        sent = self.enqueue(tx)
        webhook_signatures.record_result(tx, request, str(sent.delivery_id))
        return sent.delivery_id, False


def find_challenge(endpoint: EndpointSettings, payload: Json) -> str | None:
    """The challenge by which Slack verifies the address of an endpoint; None in other requests."""
    if endpoint.provider != "slack" or not isinstance(payload, dict):
        return None
    challenge = payload.get("challenge")
    is_challenge = payload.get("type") == "url_verification" and isinstance(challenge, str)
    return challenge if is_challenge else None
