"""What is on its way to other gateways: listed, and sent again."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ductile.errors import UsageError
from ductile.http.answers import JsonResponse, gateway_of, object_of, reading, writing
from ductile.http.jobs import limit_of
from ductile.store import relays
from ductile.store.ledger import Tx

STATUSES = ("pending", "delivered", "failed", "dead")
MOST_AT_ONCE = 1000


async def listing(request: Request) -> Response:
    """`GET /relays?status=&instance=&limit=`: the newest first; bodies are not shown."""
    asked = request.query_params
    status = asked.get("status")
    if status is not None and status not in STATUSES:
        raise UsageError(f"status must be one of {', '.join(STATUSES)}")
    limit, instance = limit_of(request), asked.get("instance")
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
    body, now = await object_of(request), gateway.clock.now()
    if body.get("dry_run"):
        was = await reading(gateway, lambda tx: relays.retry(tx, id, now, dry=True))
        return JsonResponse({"id": id, "was": was, "dry_run": True})
    was = await writing(gateway, lambda tx: relays.retry(tx, id, now))
    return JsonResponse({"id": id, "was": was, "status": "pending"}, 202)


async def retry_dead(request: Request) -> Response:
    """`POST /relays/retry`: every dead one, at most 1,000 at a time; `more` where some are left."""
    gateway, body = gateway_of(request), await object_of(request)
    now, dry = gateway.clock.now(), bool(body.get("dry_run"))

    def work(tx: Tx) -> list[str]:
        return relays.retry_dead(tx, MOST_AT_ONCE, now, dry=dry)

    ids = await (reading if dry else writing)(gateway, work)
    answer = {"relays": ids, "count": len(ids), "more": len(ids) == MOST_AT_ONCE}
    return JsonResponse({**answer, "dry_run": True} if dry else answer, 200 if dry else 202)
