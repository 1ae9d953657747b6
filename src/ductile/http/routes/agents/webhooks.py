"""Webhooks for agents: create, list and remove them, and receive their events."""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import asdict
from ipaddress import ip_address, ip_network
from shlex import quote
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ductile.clock import to_text
from ductile.core.delivery import ssrf
from ductile.core.delivery.payload import to_json_text
from ductile.core.delivery.retry_policy import INBOUND_DELAY
from ductile.core.delivery.signatures import OBSERVATORY, verify
from ductile.core.delivery.target_url import redact_target
from ductile.core.jobs.commands import HANDLE
from ductile.core.values import scopes
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.ingress.authenticator import LOCAL
from ductile.engine.ingress.webhook import ReceiveEvent
from ductile.engine.outbox.webhooks import EnqueueDelivery
from ductile.engine.services import Services
from ductile.errors import UsageError
from ductile.http.middleware.auth import missing_scope, principal_of
from ductile.http.middleware.context import app_context_of
from ductile.http.requests import headers_of, read_body, row_id
from ductile.http.responses import (
    JsonResponse,
    agent_error,
    change_response,
    read_ledger,
    run_transaction,
    services_of,
    write_ledger,
)
from ductile.log import logger
from ductile.model import Notice
from ductile.operations.pipelines import find_pipeline
from ductile.store import notices
from ductile.store.engines.api import Tx
from ductile.store.outbox import webhooks
from ductile.store.outbox.deliveries import TOPIC
from ductile.store.outbox.webhooks import NewWebhook, Webhook, WebhookNotFound

if TYPE_CHECKING:
    from ductile.http.models.bodies import NewWebhookBody
    from ductile.http.models.queries import WebhookRemovalQuery

SECRET_BYTES = 32
OWN_NETWORKS = tuple(
    map(ip_network, ("127.0.0.0/8", "::1/128", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
)
"""Where the receivers of an operator usually are."""
METRIC_NAME = "/gateway/webhooks"


async def receive_event(request: Request) -> Response:
    """`POST /gateway/webhooks/{webhook_id}`: Receive an event, authenticated by its signature.

    202 once it is durable; it is delivered 30 seconds later. The same signature within five
    minutes is a replay: the response names the first delivery.
    """
    services, metrics = services_of(request), app_context_of(request).metrics
    try:
        id = _webhook_id(request)
        webhook = await read_ledger(services, lambda tx: webhooks.find_webhook(tx, id))
        body = await read_body(request)
        headers = headers_of(request.scope)
        now = services.clock.now()
        verified = verify(OBSERVATORY, webhook.secret, headers, body, now.timestamp())
        if verified is None:
            metrics.count_webhook(METRIC_NAME, "signature_mismatch")
            count = app_context_of(request).refused_webhooks.count
            count(f"{METRIC_NAME}/{webhook.id}", "the signature does not match")
            return _refuse_signature(request, webhook)
        text = to_json_text(body, headers.get("content-type", [""])[0])
        enqueue = EnqueueDelivery(id, text, services.entropy.uuid(), now, delay=INBOUND_DELAY)
        work = ReceiveEvent(verified.signature, enqueue)
        delivery_id, duplicate = await write_ledger(services, work)
    except WebhookNotFound as error:
        metrics.count_webhook(METRIC_NAME, error.code)
        return agent_error(404, error.code)
    metrics.count_webhook(METRIC_NAME, "duplicate" if duplicate else "accepted")
    accepted = {"status": "accepted", "delivery_id": delivery_id}
    return JsonResponse(accepted | {"duplicate": True} if duplicate else accepted, 202)


def _webhook_id(request: Request) -> int:
    text = request.path_params["webhook_id"]
    id = row_id(text)
    if id is None:
        raise WebhookNotFound(f"there is no webhook {text!r}")
    return id


def _refuse_signature(request: Request, webhook: Webhook) -> Response:
    services = services_of(request)

    def publish(unrecorded: int) -> None:
        payload = {"webhook_id": webhook.id, "unrecorded": unrecorded}
        notice = Notice(TOPIC, "WebhookSignatureFailureEvent", payload)
        now = services.clock.now()
        # The request is refused whether or not the notice can be stored.
        services.ledger.submit(lambda tx: notices.post(tx, notice, now), _log_lost_notice)

    app_context_of(request).record_rejection(webhook.id, publish)
    return agent_error(401, "signature_mismatch")


def _log_lost_notice(_result: object, error: BaseException | None) -> None:
    if error is not None:
        logger("webhooks").warning("signature failure was not published", error=str(error))


async def list_webhooks(request: Request) -> Response:
    """`GET /gateway/webhook-configs`: List webhooks, without secrets and paths of URLs."""
    rows = await read_ledger(services_of(request), lambda tx: tx.dicts("webhook_configs"))
    shown = [{**row, "target_url": redact_target(row["target_url"])} for row in rows]
    return JsonResponse({"webhooks": shown})


async def create_webhook(request: Request, body: NewWebhookBody) -> Response:
    """`POST /gateway/webhook-configs`: Create a webhook; a generated secret is shown once.

    To name a plugin or pipeline requires the scope to run it.
    """
    services = services_of(request)
    new = _new_webhook(services, body, is_operator=principal_of(request) is LOCAL)
    _check_scope(request, new)
    secret = body.secret or _generate_secret()
    if body.dry_run:
        return change_response(asdict(new), dry_run=True)
    now = services.clock.now()
    id = await write_ledger(services, lambda tx: webhooks.add_webhook(tx, new, secret, now))
    created = {"id": id, **asdict(new), "created_at": to_text(now)}
    return JsonResponse(created if body.secret else {**created, "secret": secret}, 201)


def _generate_secret() -> str:
    return f"whsec_{base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()}"


def _new_webhook(services: Services, body: NewWebhookBody, *, is_operator: bool) -> NewWebhook:
    if body.target_url is not None:
        _check_url(body.target_url, services.compiled, is_operator=is_operator)
    if body.plugin is not None:
        services.check(body.plugin, HANDLE)
    if body.pipeline is not None:
        find_pipeline(services.compiled.tx_config.router, body.pipeline)
    return NewWebhook(
        body.source_identifier,
        body.event_type,
        body.agent_intent or "",
        body.target_session,
        body.target_url,
        body.plugin,
        body.pipeline,
    )


def _check_url(url: str, compiled: CompiledConfig, *, is_operator: bool) -> None:
    """Check what is known before a DNS look-up; each send checks everything again.

    Only an operator learns how to allow an address, and which ones are allowed.
    """
    networks = compiled.settings.gateway.allowed_networks
    try:
        target = ssrf.parse_url(url, networks)
        if target.literal:
            ssrf.check_addresses(target, [target.host], networks)
        if not (target.secure or networks):
            raise ssrf.Forbidden("must be https, since gateway.allowed_networks is empty")
    except ssrf.Forbidden as refusal:
        run = _allow_host(url, networks) if is_operator else None
        message, details = f"target_url: {refusal}", {} if run is None else {"run": run}
        raise UsageError(message, **details) from None


def _allow_host(url: str, networks: tuple[str, ...]) -> str | None:
    """The command that allows a private address; None for names and all other addresses, such as
    those that serve the credentials of a cloud machine.
    """
    try:
        target = ssrf.parse_url(url, networks)
        address = ip_address(target.host)
    except (ssrf.Forbidden, ValueError):
        return None
    if not any(address in network for network in OWN_NETWORKS):
        return None
    allowed = json.dumps([*networks, f"{address}/{address.max_prefixlen}"])
    path = "gateway.allowed_networks"
    return f"ductile config set {path} {quote(allowed)} && ductile system reload"


def _check_scope(request: Request, new: NewWebhook) -> None:
    """Refuse a webhook that would run what its creator may not run."""
    principal = principal_of(request)
    assert principal is not None, "the route is not public"
    granted = principal.scopes
    if new.plugin is not None and not scopes.allows_command(granted, new.plugin, reads=False):
        raise missing_scope(principal, f"{new.plugin}:rw")
    if new.pipeline is not None and not scopes.allows(granted, "plugin:rw"):
        raise missing_scope(principal, "plugin:rw")


async def remove_webhook(request: Request, query: WebhookRemovalQuery) -> Response:
    """`DELETE /gateway/webhook-configs/{webhook_id}`: Remove a webhook."""
    services, id, dry_run = services_of(request), _webhook_id(request), query.dry_run
    now = services.clock.now()

    def work(tx: Tx) -> Webhook:
        if dry_run:
            return webhooks.find_webhook(tx, id)
        return webhooks.remove_webhook(tx, id, now)

    found = await run_transaction(services, work, dry_run=dry_run)
    shown = {"id": id, "source_identifier": found.source_identifier, "event_type": found.event_type}
    return JsonResponse({**shown, **({"dry_run": True} if dry_run else {"removed": True})})
