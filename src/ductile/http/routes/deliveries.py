"""WebhookOutbox of webhooks (004): sent, listed, and tried again."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ductile.core.delivery.retry_policy import RETRIABLE, DeliveryStatus
from ductile.core.jobs.limits import document
from ductile.engine.outbox.webhooks import EnqueuedDelivery, EnqueueDelivery
from ductile.errors import NotFound, UsageError
from ductile.http.middleware.idempotency import once
from ductile.http.requests import (
    before,
    flag_of,
    is_dry,
    limit_of,
    moment,
    number_of,
    object_of,
    row_id,
    text_of,
    whole,
    word,
)
from ductile.http.responses import JsonResponse, acted, cursor, gateway_of, reading, writing
from ductile.operations.redeliver import redeliver
from ductile.store.engines.api import Tx
from ductile.store.outbox import deliveries

MOST_AT_ONCE = 10_000


async def send(request: Request) -> Response:
    """`POST /gateway/deliveries` `{webhook_id, payload}`: send an event by this webhook.

    `source_identifier` and `event_type` together name one as well.
    """
    gateway, body = gateway_of(request), await object_of(request)
    payload = orjson.dumps(body.get("payload", {})).decode()
    now, message_id = gateway.clock.now(), gateway.entropy.uuid()
    sending, dry = EnqueueDelivery(_named(body), payload, message_id, now), flag_of(body, "dry_run")
    work = once(request, sending, EnqueuedDelivery, dry=dry)
    if dry:
        webhook = await reading(gateway, sending.find)
        told = {"webhook_id": webhook.id, "target_url": webhook.target}
        return JsonResponse({**told, "bytes": len(payload.encode()), "dry_run": True})
    sent = await writing(gateway, work)
    return JsonResponse({"status": DeliveryStatus.PENDING, **asdict(sent)}, 202)


def _named(body: dict[str, Any]) -> int | tuple[str, str]:
    id, source = body.get("webhook_id"), text_of(body, "source_identifier")
    event = text_of(body, "event_type")
    if type(id) is int and source is None and event is None and row_id(str(id)) is not None:
        return id
    if id is None and source is not None and event is not None and (source + event).isprintable():
        return source, event
    raise UsageError("name webhook_id, or source_identifier and event_type")


async def listing(request: Request) -> Response:
    """`GET /gateway/deliveries`: the newest first; `before` (a `cursor`) goes on.

    `since` means tried since then or, where it was not tried yet, made since then.
    """
    gateway, query = gateway_of(request), request.query_params
    limit = limit_of(query)
    asked = {
        "status": word(query, "status", DeliveryStatus),
        "webhook_id": whole(query, "webhook_id"),
        "since": moment(query, "since"),
        "before": before(query),
        "limit": limit,
    }
    rows = await reading(gateway, lambda tx: tx.dicts("deliveries", **asked))
    shown = [_shown(row) for row in rows]
    return JsonResponse({"deliveries": shown, "cursor": cursor(rows, limit, "id")})


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Without its signature: whoever has it can have the payload accepted once more."""
    kept = {key: value for key, value in row.items() if key not in ("id", "signature", "owner")}
    return {"delivery_id": row["id"], **kept}


async def show(request: Request) -> Response:
    """`GET /gateway/deliveries/{delivery_id}`: one, with its payload."""
    gateway, id = gateway_of(request), _id(request)
    row = await reading(gateway, lambda tx: deliveries.get(tx, id))
    row["payload"] = gateway.compiled.redactor.document(document(row["payload"]))
    return JsonResponse({**_shown(row), "sending": row["owner"] is not None})


def _id(request: Request) -> int:
    text = request.path_params["delivery_id"]
    id = row_id(text)
    if id is None:
        raise NotFound(f"there is no delivery {text!r}")
    return id


async def retry(request: Request) -> Response:
    """`POST /gateway/deliveries/{delivery_id}/retry`: now, and with all six sends again."""
    gateway, id = gateway_of(request), _id(request)
    now, dry = gateway.clock.now(), await is_dry(request)

    def work(tx: Tx) -> dict[str, Any]:
        return deliveries.retry(tx, id, now, dry=dry)

    row = await (reading if dry else writing)(gateway, work)
    told = {"delivery_id": id, "was": row["status"]}
    return acted(told, dry=dry, status=DeliveryStatus.PENDING)


async def retry_many(request: Request) -> Response:
    """`POST /gateway/deliveries/retry` `{status, since?, limit?}`: all dead or failed ones."""
    gateway, body = gateway_of(request), await object_of(request)
    allowed = sorted(RETRIABLE - {DeliveryStatus.PENDING})
    if (status := word(body, "status", allowed)) is None:
        raise UsageError(f"status must be one of {', '.join(allowed)}")
    since, dry = moment(body, "since"), flag_of(body, "dry_run")
    limit = number_of(body, "limit", MOST_AT_ONCE, most=MOST_AT_ONCE)
    found = await asyncio.to_thread(
        redeliver, gateway, DeliveryStatus(status), since, limit, dry=dry
    )
    ids = found.ids
    return acted({"deliveries": ids, "count": len(ids), "more": found.more}, dry=dry)
