"""Events that are relayed to other gateways: list them, and retry failed ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ductile.clock import to_text
from ductile.core.delivery.retry_policy import DeliveryStatus
from ductile.http.middleware.lease import charge
from ductile.http.models.fields import value_of
from ductile.http.responses import (
    JsonResponse,
    action_response,
    read_ledger,
    run_transaction,
    services_of,
)
from ductile.store.access.tokens import Spending
from ductile.store.engines.api import Tx
from ductile.store.outbox import relays

if TYPE_CHECKING:
    from ductile.http.models.bodies import ActionBody, DiscardBody
    from ductile.http.models.queries import RelayQuery

MAX_RETRIES = 1000


async def list_relays(request: Request, query: RelayQuery) -> Response:
    """`GET /relays`: List relayed events, newest first, without their bodies."""
    filters = {
        "status": value_of(query.status),
        "instance": query.instance,
        "limit": query.limit,
    }
    rows = await read_ledger(services_of(request), lambda tx: tx.dicts("relays", **filters))
    return JsonResponse({"relays": rows})


async def retry_relay(request: Request, body: ActionBody) -> Response:
    """`POST /relay/{relay_id}/retry`: Send a failed or dead event again, with all its attempts.

    409 if it is delivered, queued already, or being sent at this moment.
    """
    services, id = services_of(request), request.path_params["relay_id"]
    now, dry_run = services.clock.now(), body.dry_run

    def retry(tx: Tx) -> str:
        return relays.retry_relay(tx, id, now, dry=dry_run)

    work = charge(request, retry, Spending.RETRIES, lambda _: 1, dry_run=dry_run)
    was = await run_transaction(services, work, dry_run=dry_run)
    plan = {"id": id, "was": was}
    return action_response(plan, dry_run=dry_run, status=DeliveryStatus.PENDING)


async def retry_dead_relays(request: Request, body: ActionBody) -> Response:
    """`POST /relays/retry`: Send every dead event again, at most 1,000 per request."""
    services, dry_run = services_of(request), body.dry_run
    now = services.clock.now()

    def retry(tx: Tx) -> list[str]:
        return relays.retry_dead(tx, MAX_RETRIES, now, dry=dry_run)

    work = charge(request, retry, Spending.RETRIES, len, dry_run=dry_run)
    ids = await run_transaction(services, work, dry_run=dry_run)
    plan = {"relays": ids, "count": len(ids), "more": len(ids) == MAX_RETRIES}
    return action_response(plan, dry_run=dry_run)


async def discard_relay(request: Request, body: ActionBody) -> Response:
    """`POST /relay/{relay_id}/discard`: Delete a dead event."""
    services, id, dry_run = services_of(request), request.path_params["relay_id"], body.dry_run
    await run_transaction(
        services, lambda tx: relays.discard_relay(tx, id, dry=dry_run), dry_run=dry_run
    )
    return action_response({"id": id}, dry_run=dry_run)


async def discard_dead_relays(request: Request, body: DiscardBody) -> Response:
    """`POST /relays/discard`: Delete dead events, oldest first."""
    services, dry_run, limit = services_of(request), body.dry_run, body.limit
    until = None if body.until is None else to_text(body.until)
    ids = await run_transaction(
        services,
        lambda tx: relays.discard_dead(tx, until, limit, dry=dry_run),
        dry_run=dry_run,
    )
    plan = {"relays": ids, "count": len(ids), "more": len(ids) == limit}
    return action_response(plan, dry_run=dry_run)
