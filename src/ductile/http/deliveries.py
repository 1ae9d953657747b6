"""Deliveries of webhooks (004): sent, listed, and tried again."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import datetime
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ductile.clock import from_text, to_text
from ductile.core.bounds import document
from ductile.core.delivery import RETRIABLE, DeliveryStatus
from ductile.errors import DuctileError, NotFound, UsageError
from ductile.http.answers import JsonResponse, gateway_of, object_of, reading, writing
from ductile.http.jobs import limit_of, text_of
from ductile.http.once import once
from ductile.record import dataclass
from ductile.runtime.deliveries import Sending, Sent
from ductile.runtime.gateway import Gateway
from ductile.store import deliveries
from ductile.store.ledger import Tx

LONGEST_ID = 18
"""Digits that every engine has room for."""
AT_ONCE = 200
MOST_AT_ONCE = 10_000


def whole(text: str) -> int | None:
    """An id; None for what is none."""
    good = text.isascii() and text.isdigit() and len(text) <= LONGEST_ID
    return int(text) if good else None


async def send(request: Request) -> Response:
    """`POST /gateway/deliveries` `{webhook_id | source_identifier + event_type, payload}`."""
    gateway, body = gateway_of(request), await object_of(request)
    payload = orjson.dumps(body.get("payload", {})).decode()
    now, message_id = gateway.clock.now(), gateway.entropy.uuid()
    work = Sending(_named(body), payload, message_id, now)
    if body.get("dry_run"):
        webhook = await reading(gateway, work.find)
        told = {"webhook_id": webhook.id, "target_url": webhook.target}
        return JsonResponse({**told, "bytes": len(payload.encode()), "dry_run": True})
    sent = await writing(gateway, once(request, work, Sent))
    return JsonResponse({"status": DeliveryStatus.PENDING, **asdict(sent)}, 202)


def _named(body: dict[str, Any]) -> int | tuple[str, str]:
    id, source = body.get("webhook_id"), text_of(body, "source_identifier")
    event = text_of(body, "event_type")
    if type(id) is int and source is None and event is None and whole(str(id)) is not None:
        return id
    if id is None and source is not None and event is not None and (source + event).isprintable():
        return source, event
    raise UsageError("name webhook_id, or source_identifier and event_type")


async def listing(request: Request) -> Response:
    """`GET /gateway/deliveries`: the newest first; `before` (a `cursor`) goes on.

    `since` means tried since then or, where it was not tried yet, made since then.
    """
    gateway, limit, query = gateway_of(request), limit_of(request), request.query_params
    status = query.get("status")
    if status is not None and status not in list(DeliveryStatus):
        raise UsageError(f"status must be one of {', '.join(DeliveryStatus)}")
    asked = {
        "status": status,
        "webhook_id": _number(request, "webhook_id"),
        "since": _moment(query.get("since")),
        "before": _number(request, "before"),
    }
    rows = await reading(gateway, lambda tx: tx.dicts("deliveries", limit=limit, **asked))
    cursor = rows[-1]["id"] if len(rows) == limit else None
    return JsonResponse({"deliveries": [_shown(row) for row in rows], "cursor": cursor})


def _number(request: Request, name: str) -> int | None:
    text = request.query_params.get(name)
    if text is not None and whole(text) is None:
        raise UsageError(f"{name} must be a number")
    return None if text is None else whole(text)


def _moment(text: str | None) -> str | None:
    try:
        return None if text is None else to_text(from_text(text))
    except (ValueError, OverflowError):
        raise UsageError("since must be a time (ISO 8601)") from None


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Without its signature: whoever has it can have the payload accepted once more."""
    kept = {key: value for key, value in row.items() if key not in ("id", "signature", "owner")}
    return {"delivery_id": row["id"], **kept}


async def show(request: Request) -> Response:
    """`GET /gateway/deliveries/{delivery_id}`: one, with its payload."""
    gateway, id = gateway_of(request), _id(request)
    row = await reading(gateway, lambda tx: deliveries.get(tx, id))
    row["payload"] = gateway.blueprint.redactor.document(document(row["payload"]))
    return JsonResponse({**_shown(row), "sending": row["owner"] is not None})


def _id(request: Request) -> int:
    text = request.path_params["delivery_id"]
    id = whole(text)
    if id is None:
        raise NotFound(f"there is no delivery {text!r}")
    return id


async def retry(request: Request) -> Response:
    """`POST /gateway/deliveries/{delivery_id}/retry`: now, and with all six sends again."""
    gateway, id = gateway_of(request), _id(request)
    now, dry = gateway.clock.now(), bool((await object_of(request)).get("dry_run"))

    def work(tx: Tx) -> dict[str, Any]:
        return deliveries.retry(tx, id, now, dry=dry)

    if dry:
        row = await reading(gateway, work)
        return JsonResponse({"delivery_id": id, "was": row["status"], "dry_run": True})
    row = await writing(gateway, work)
    told = {"delivery_id": id, "was": row["status"], "status": DeliveryStatus.PENDING}
    return JsonResponse(told, 202)


async def retry_many(request: Request) -> Response:
    """`POST /gateway/deliveries/retry` `{status: dead | failed, since?, limit?}`."""
    gateway, body = gateway_of(request), await object_of(request)
    status, since = text_of(body, "status"), _moment(text_of(body, "since"))
    allowed = sorted(RETRIABLE - {DeliveryStatus.PENDING})
    if status not in allowed:
        raise UsageError(f"status must be one of {', '.join(allowed)}")
    limit, dry = body.get("limit", MOST_AT_ONCE), bool(body.get("dry_run"))
    if type(limit) is not int or not 1 <= limit <= MOST_AT_ONCE:
        raise UsageError(f"limit must be a whole number from 1 to {MOST_AT_ONCE}")
    wanted = DeliveryStatus(status)
    ids, more = await asyncio.to_thread(_retry_many, gateway, wanted, since, limit, dry)
    answer = {"deliveries": ids, "count": len(ids), "more": more}
    return JsonResponse({**answer, "dry_run": True} if dry else answer, 200 if dry else 202)


def _retry_many(
    gateway: Gateway, status: DeliveryStatus, since: str | None, limit: int, dry: bool
) -> tuple[list[int], bool]:
    """A small batch a transaction, so that nobody waits for all of them; whether some are left."""
    found = gateway.ledger.read(lambda tx: deliveries.to_retry(tx, status, since, limit + 1))
    ids, more = found[:limit], len(found) > limit
    if dry:
        return ids, more
    now, done = gateway.clock.now(), []
    for start in range(0, len(ids), AT_ONCE):
        done += gateway.ledger.write(_Retrying(ids[start : start + AT_ONCE], now))
    return done, more


@dataclass(frozen=True, slots=True)
class _Retrying:
    ids: list[int]
    now: datetime

    def __call__(self, tx: Tx) -> list[int]:
        return [id for id in self.ids if self._retried(tx, id)]

    def _retried(self, tx: Tx, id: int) -> bool:
        """False where it was taken up, or pruned, since it was listed."""
        try:
            deliveries.retry(tx, id, self.now)
        except DuctileError:
            return False
        return True
