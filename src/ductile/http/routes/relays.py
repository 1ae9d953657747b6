"""Events that are relayed to other gateways: send and list them, and retry failed ones."""

from __future__ import annotations

from dataclasses import asdict
from shlex import quote
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.config import Settings
from ductile.core.delivery.relay import build_envelope
from ductile.core.delivery.retry_policy import DeliveryStatus
from ductile.core.pipelines.intents import SendRelay
from ductile.core.pipelines.step_io import RelayMessage
from ductile.core.values.json_values import Failure
from ductile.core.values.suggest import did_you_mean
from ductile.errors import NotFound, Refused, UsageError
from ductile.http.middleware.budget import charge
from ductile.http.middleware.idempotency import run_once
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
    from ductile.http.models.bodies import ActionBody, DiscardBody, RelayBody
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


@dataclass(frozen=True, slots=True)
class QueuedRelay:
    id: str
    event_id: str


async def send_relay(request: Request, body: RelayBody) -> Response:
    """`POST /relays`: Send an event to another gateway, again until it has accepted it."""
    services, now, dry_run = services_of(request), services_of(request).clock.now(), body.dry_run
    queued = QueuedRelay(services.entropy.uuid(), services.entropy.uuid())
    settings = services.compiled.settings

    def send(tx: Tx) -> QueuedRelay:
        # Here: a repeated request gets its answer although the instance is disabled by now.
        sent = _compose(settings, body, queued.event_id)
        if not dry_run:
            relays.enqueue_relay(tx, sent, id=queued.id, now=now)
        return queued

    charged = charge(request, send, Spending.RUNS, lambda _: 1, dry_run=dry_run)
    work = run_once(request, charged, QueuedRelay, dry_run=dry_run)
    done = await run_transaction(services, work, dry_run=dry_run)
    plan = {"to": body.to, "event": body.event}
    return action_response(plan, dry_run=dry_run, **asdict(done), status=DeliveryStatus.PENDING)


def _compose(settings: Settings, body: RelayBody, event_id: str) -> SendRelay:
    """The relay of a request; raises for one that could not be sent."""
    instances = {instance.name: instance for instance in settings.instances}
    instance = instances.get(body.to)
    if instance is None:
        close = did_you_mean(body.to, instances)
        raise NotFound(f"`instances` has no gateway {body.to!r}{close}")
    if not instance.enabled:
        raise Refused(
            f"instance {body.to} is disabled",
            run=f"ductile config set {quote(f'instances[{body.to}].enabled')} true "
            "&& ductile system reload",
        )
    if instance.allow and body.event not in instance.allow:
        raise Refused(
            f"instance {body.to} does not allow the event type {body.event!r}",
            run=f"ductile config set {quote(f'instances[{body.to}].allow[+]')} {quote(body.event)} "
            "&& ductile system reload",
        )
    message = RelayMessage(body.to, body.event, body.payload, body.dedupe_key, body.baggage, {})
    sender = settings.service.name
    envelope = build_envelope(message, instance=sender, plugin=None, job_id=None, event_id=event_id)
    if isinstance(envelope, Failure):
        raise UsageError(envelope.reason)
    return SendRelay(None, body.to, event_id, body.event, envelope)


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
