"""What is on its way to other gateways: listed, and sent again."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.delivery.retry_policy import DeliveryStatus
from ductile.http.requests import is_dry, limit_of, word
from ductile.http.responses import JsonResponse, acted, gateway_of, reading, writing
from ductile.store.engines.api import Tx
from ductile.store.outbox import relays

MOST_AT_ONCE = 1000


async def listing(request: Request) -> Response:
    """`GET /relays?status=&instance=&limit=`: the newest first; bodies are not shown."""
    query = request.query_params
    status, instance = word(query, "status", DeliveryStatus), query.get("instance")
    limit = limit_of(query)
    rows = await reading(
        gateway_of(request),
        lambda tx: tx.dicts("relays", status=status, instance=instance, limit=limit),
    )
    return JsonResponse({"relays": rows})


async def retry(request: Request) -> Response:
    """`POST /relay/{relay_id}/retry`: a failed or dead one, now, with all its attempts.

    409 for one that is delivered, waits anyway, or is being sent at this moment.
    """
    gateway, id = gateway_of(request), request.path_params["relay_id"]
    dry, now = await is_dry(request), gateway.clock.now()

    def work(tx: Tx) -> str:
        return relays.retry(tx, id, now, dry=dry)

    was = await (reading if dry else writing)(gateway, work)
    return acted({"id": id, "was": was}, dry=dry, status=DeliveryStatus.PENDING)


async def retry_dead(request: Request) -> Response:
    """`POST /relays/retry`: every dead one, at most 1,000 at a time; `more` where some are left."""
    gateway, dry = gateway_of(request), await is_dry(request)
    now = gateway.clock.now()

    def work(tx: Tx) -> list[str]:
        return relays.retry_dead(tx, MOST_AT_ONCE, now, dry=dry)

    ids = await (reading if dry else writing)(gateway, work)
    more = len(ids) == MOST_AT_ONCE
    return acted({"relays": ids, "count": len(ids), "more": more}, dry=dry)
