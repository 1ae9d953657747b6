"""Webhooks for agents (004): made, removed, and what comes in by them."""

from __future__ import annotations

import base64
import secrets
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.clock import to_text
from ductile.core.delivery import ssrf
from ductile.core.delivery.payload import to_json_text
from ductile.core.delivery.retry_policy import INBOUND_DELAY, OBSERVATORY
from ductile.core.delivery.signatures import verify
from ductile.core.jobs.commands import HANDLE
from ductile.core.values import scopes
from ductile.engine.outbox.webhooks import EnqueueDelivery
from ductile.engine.services import Services
from ductile.errors import LedgerError, UsageError
from ductile.http.middleware.auth import MissingScope, principal_of
from ductile.http.middleware.context import app_context_of
from ductile.http.requests import body_of, flag, flag_of, headers_of, object_of, row_id, text_of
from ductile.http.responses import JsonResponse, gateway_of, reading, refuse_agent, writing
from ductile.model import Notice
from ductile.operations.pipelines import find_pipeline
from ductile.store import notices
from ductile.store.outbox import deliveries
from ductile.store.outbox.deliveries import TOPIC, NewWebhook, Webhook, WebhookNotFound

LONGEST_TEXT = 200
SHORTEST_SECRET, LONGEST_SECRET = 8, 512
SECRET_BYTES = 32
DOOR = "/gateway/webhooks"


async def receive(request: Request) -> Response:
    """`POST /gateway/webhooks/{webhook_id}`: an event, authenticated by its signature alone.

    202 once it is durable; it is tried 30 seconds later.
    """
    gateway, metrics = gateway_of(request), app_context_of(request).metrics
    try:
        id = _id(request)
        webhook = await reading(gateway, lambda tx: deliveries.find_webhook(tx, id))
        body = await body_of(request)
        headers = headers_of(request)
        now = gateway.clock.now()
        if verify(OBSERVATORY, webhook.secret, headers, body, now.timestamp()) is None:
            metrics.count_webhook(DOOR, "signature_mismatch")
            return await _mismatched(request, webhook)
        text = to_json_text(body, headers.get("content-type", [""])[0])
        sending = EnqueueDelivery(id, text, gateway.entropy.uuid(), now, delay=INBOUND_DELAY)
        sent = await writing(gateway, sending)
    except WebhookNotFound as error:
        metrics.count_webhook(DOOR, error.code)
        return refuse_agent(404, error.code)
    metrics.count_webhook(DOOR, "accepted")
    return JsonResponse({"status": "accepted", "delivery_id": sent.delivery_id}, 202)


def _id(request: Request) -> int:
    text = request.path_params["webhook_id"]
    id = row_id(text)
    if id is None:
        raise WebhookNotFound(f"there is no webhook {text!r}")
    return id


async def _mismatched(request: Request, webhook: Webhook) -> Response:
    gateway = gateway_of(request)
    now = gateway.clock.now()
    unrecorded = app_context_of(request).rejections.admit(webhook.id, now)
    if unrecorded is not None:
        told = {"webhook_id": webhook.id, "unrecorded": unrecorded}
        notice = Notice(TOPIC, "WebhookSignatureFailureEvent", told)
        # It is refused whether or not the ledger can say so.
        with suppress(LedgerError):
            await writing(gateway, lambda tx: notices.post(tx, notice, now))
    return refuse_agent(401, "signature_mismatch")


async def listing(request: Request) -> Response:
    """`GET /gateway/webhook-configs`: every webhook, never with its secret."""
    rows = await reading(gateway_of(request), lambda tx: tx.dicts("webhook_configs"))
    return JsonResponse({"webhooks": rows})


async def add(request: Request) -> Response:
    """`POST /gateway/webhook-configs`: a webhook; a secret that is made here is shown this once.

    To name a plugin or pipeline takes the scope to run it.
    """
    gateway, body = gateway_of(request), await object_of(request)
    new = _new(gateway, body)
    _permit(request, new)
    given = _secret(body)
    secret = given or f"whsec_{base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()}"
    if flag_of(body, "dry_run"):
        return JsonResponse({**asdict(new), "dry_run": True})
    now = gateway.clock.now()
    id = await writing(gateway, lambda tx: deliveries.add_webhook(tx, new, secret, now))
    answer = {"id": id, **asdict(new), "created_at": to_text(now)}
    return JsonResponse(answer if given else {**answer, "secret": secret}, 201)


def _new(gateway: Services, body: dict[str, Any]) -> NewWebhook:
    new = NewWebhook(
        _text(body, "source_identifier"),
        _text(body, "event_type"),
        _text(body, "agent_intent", ""),
        _text(body, "target_session"),
        text_of(body, "target_url"),
        text_of(body, "plugin"),
        text_of(body, "pipeline"),
    )
    if sum(place is not None for place in (new.target_url, new.plugin, new.pipeline)) > 1:
        raise UsageError("name at most one of target_url, plugin and pipeline")
    if new.target_url is not None:
        _check_url(new.target_url, gateway.compiled.settings.gateway.allowed_networks)
    if new.plugin is not None:
        gateway.check(new.plugin, HANDLE)
    if new.pipeline is not None:
        find_pipeline(gateway.compiled.tx_config.router, new.pipeline)
    return new


def _text(body: dict[str, Any], key: str, default: str | None = None) -> str:
    value = text_of(body, key)
    if value is None and default is not None:
        return default
    if value is None or len(value) > LONGEST_TEXT or not value.isprintable():
        raise UsageError(f"{key} must be a text of 1 to {LONGEST_TEXT} printable characters")
    return value


def _check_url(url: str, networks: tuple[str, ...]) -> None:
    """What can be said before anything is looked up; a send checks it all again."""
    try:
        target = ssrf.parse_url(url, networks)
        if target.literal:
            ssrf.check_addresses(target, [target.host], networks)
        if not (target.secure or networks):
            raise ssrf.Forbidden("it must be https: gateway.allowed_networks names nothing")
    except ssrf.Forbidden as refusal:
        raise UsageError(f"target_url: {refusal}") from None


def _permit(request: Request, new: NewWebhook) -> None:
    """Who may not run a plugin or pipeline may not have a webhook run it either."""
    principal = principal_of(request)
    granted = frozenset[str]() if principal is None else principal.scopes
    if new.plugin is not None and not scopes.allows_command(granted, new.plugin, reads=False):
        raise MissingScope(f"this token may not run {new.plugin}", scope=f"{new.plugin}:rw")
    if new.pipeline is not None and not scopes.allows(granted, "plugin:rw"):
        raise MissingScope("this token may not start pipelines", scope="plugin:rw")


def _secret(body: dict[str, Any]) -> str | None:
    secret = text_of(body, "secret")
    if secret is None:
        return None
    if not (SHORTEST_SECRET <= len(secret) <= LONGEST_SECRET and secret.isprintable()):
        raise UsageError(
            f"secret must be {SHORTEST_SECRET} to {LONGEST_SECRET} printable characters"
        )
    return secret


async def remove(request: Request) -> Response:
    """`DELETE /gateway/webhook-configs/{webhook_id}`: nothing comes or goes by it any more.

    With `?dry_run=true` it only says what it would remove.
    """
    gateway, id = gateway_of(request), _id(request)
    now, dry = gateway.clock.now(), flag(request.query_params, "dry_run")
    if dry:
        found = await reading(gateway, lambda tx: deliveries.find_webhook(tx, id))
    else:
        found = await writing(gateway, lambda tx: deliveries.remove_webhook(tx, id, now))
    told = {"id": id, "source_identifier": found.source_identifier, "event_type": found.event_type}
    return JsonResponse({**told, **({"dry_run": True} if dry else {"removed": True})})
