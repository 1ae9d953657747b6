"""Deliveries of webhooks: send, list, show and retry them."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ductile.clock import to_text
from ductile.core.delivery.retry_policy import DeliveryStatus
from ductile.core.delivery.target_url import redact_target
from ductile.core.jobs.limits import document
from ductile.engine.outbox.webhooks import EnqueuedDelivery, EnqueueDelivery
from ductile.errors import NotFound
from ductile.http.middleware.budget import charge
from ductile.http.middleware.caller import trace_of
from ductile.http.middleware.idempotency import run_once
from ductile.http.models.fields import value_of
from ductile.http.requests import row_id
from ductile.http.responses import (
    JsonResponse,
    action_response,
    read_ledger,
    run_transaction,
    services_of,
    split_page,
    write_ledger,
)
from ductile.operations.redeliver import redeliver
from ductile.store.access.tokens import Spending
from ductile.store.engines.api import Tx
from ductile.store.outbox import deliveries

if TYPE_CHECKING:
    from ductile.http.models.bodies import (
        ActionBody,
        DeliveryBody,
        DiscardBody,
        RedeliveryBody,
    )
    from ductile.http.models.queries import DeliveryQuery


async def send_delivery(request: Request, body: DeliveryBody) -> Response:
    """`POST /gateway/deliveries`: Send an event by a webhook.

    The webhook is given by its id, or by `source_identifier` and `event_type`.
    """
    services = services_of(request)
    payload = orjson.dumps(body.payload).decode()
    now, message_id = services.clock.now(), services.entropy.uuid()
    enqueue = EnqueueDelivery(
        _webhook(body), payload, message_id, now, trace=trace_of(request.scope, services)
    )
    charged = charge(
        request,
        enqueue,
        Spending.RUNS,
        lambda _: 1,
        action="delivery.send",
        created=lambda sent: {"delivery_id": sent.delivery_id},
    )
    work = run_once(request, charged, EnqueuedDelivery, dry_run=body.dry_run)
    if body.dry_run:
        webhook = await read_ledger(services, enqueue.find)
        plan = {"webhook_id": webhook.id, "target_url": redact_target(webhook.target)}
        return JsonResponse({**plan, "bytes": len(payload.encode()), "dry_run": True})
    sent = await write_ledger(services, work)
    shown = {**asdict(sent), "target_url": redact_target(sent.target_url)}
    return JsonResponse({"status": DeliveryStatus.PENDING, **shown}, 202)


def _webhook(body: DeliveryBody) -> int | tuple[str, str]:
    if body.webhook_id is not None:
        return int(body.webhook_id)
    assert body.source_identifier is not None
    assert body.event_type is not None
    return body.source_identifier, body.event_type


async def list_deliveries(request: Request, query: DeliveryQuery) -> Response:
    """`GET /gateway/deliveries`: List deliveries, newest first."""
    filters = {
        "status": value_of(query.status),
        "webhook_id": query.webhook_id,
        "since": None if query.since is None else to_text(query.since),
        "before": query.before or None,
        "limit": query.limit + 1,
    }
    found = await read_ledger(services_of(request), lambda tx: tx.dicts("deliveries", **filters))
    rows, cursor = split_page(found, query.limit, "id")
    return JsonResponse({"deliveries": [_without_secrets(row) for row in rows], "cursor": cursor})


def _without_secrets(row: dict[str, Any]) -> dict[str, Any]:
    """Return the row without its signature, with which the payload could be sent once more, and
    without the part of its URL that may be a credential."""
    kept = {key: value for key, value in row.items() if key not in ("id", "signature", "owner")}
    return {"delivery_id": row["id"], **kept, "target_url": redact_target(row["target_url"])}


async def show_delivery(request: Request) -> Response:
    """`GET /gateway/deliveries/{delivery_id}`: Show a delivery with its payload."""
    services, id = services_of(request), _delivery_id(request)
    row = await read_ledger(services, lambda tx: deliveries.find_delivery(tx, id))
    row["payload"] = services.compiled.redactor.document(document(row["payload"]))
    return JsonResponse({**_without_secrets(row), "sending": row["owner"] is not None})


def _delivery_id(request: Request) -> int:
    text = request.path_params["delivery_id"]
    id = row_id(text)
    if id is None:
        raise NotFound(f"there is no delivery {text!r}")
    return id


async def retry_delivery(request: Request, body: ActionBody) -> Response:
    """`POST /gateway/deliveries/{delivery_id}/retry`: Send a delivery again, with all attempts."""
    services, id, dry_run = services_of(request), _delivery_id(request), body.dry_run
    now = services.clock.now()

    def retry(tx: Tx) -> dict[str, Any]:
        return deliveries.retry_delivery(tx, id, now, dry=dry_run)

    work = charge(request, retry, Spending.RETRIES, lambda _: 1, dry_run=dry_run)
    row = await run_transaction(services, work, dry_run=dry_run)
    plan = {"delivery_id": id, "was": row["status"]}
    return action_response(plan, dry_run=dry_run, status=DeliveryStatus.PENDING)


async def discard_delivery(request: Request, body: ActionBody) -> Response:
    """`POST /gateway/deliveries/{delivery_id}/discard`: Delete a dead delivery."""
    services, id, dry_run = services_of(request), _delivery_id(request), body.dry_run
    await run_transaction(
        services, lambda tx: deliveries.discard_delivery(tx, id, dry=dry_run), dry_run=dry_run
    )
    return action_response({"delivery_id": id}, dry_run=dry_run)


async def discard_deliveries(request: Request, body: DiscardBody) -> Response:
    """`POST /gateway/deliveries/discard`: Delete dead deliveries, oldest first."""
    services, dry_run, limit = services_of(request), body.dry_run, body.limit
    until = None if body.until is None else to_text(body.until)
    ids = await run_transaction(
        services,
        lambda tx: deliveries.discard_dead(tx, until, limit, dry=dry_run),
        dry_run=dry_run,
    )
    plan = {"deliveries": ids, "count": len(ids), "more": len(ids) == limit}
    return action_response(plan, dry_run=dry_run)


async def retry_deliveries(request: Request, body: RedeliveryBody) -> Response:
    """`POST /gateway/deliveries/retry`: Send every dead or failed delivery again."""
    since = None if body.since is None else to_text(body.since)
    found = await asyncio.to_thread(
        redeliver,
        services_of(request),
        body.status,
        since,
        body.limit,
        dry=body.dry_run,
        expected=body.expected,
        webhook=body.webhook,
        around=lambda work: charge(request, work, Spending.RETRIES, len),
    )
    plan = {"deliveries": found.ids, "count": len(found.ids), "more": found.more}
    return action_response(plan, dry_run=body.dry_run)
