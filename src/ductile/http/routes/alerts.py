"""Alert rules: their state, a test message, silences."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ductile.http.middleware.budget import charge
from ductile.http.middleware.caller import caller_of
from ductile.http.responses import JsonResponse, change_response, run_transaction, services_of
from ductile.operations.alerts import rules
from ductile.operations.alerts.rules import AlertSilence, AlertTest
from ductile.store.access.tokens import Spending

if TYPE_CHECKING:
    from ductile.http.models.bodies import ActionBody, SilenceBody


async def list_alerts(request: Request) -> Response:
    """`GET /alerts`: List the alert rules with their state."""
    return JsonResponse(await asyncio.to_thread(rules.list_rules, services_of(request)))


async def show_alert(request: Request) -> Response:
    """`GET /alerts/{name}`: Show a rule with its groups and its last messages."""
    name = request.path_params["name"]
    return JsonResponse(await asyncio.to_thread(rules.show_rule, services_of(request), name))


async def test_alert(request: Request, body: ActionBody) -> Response:
    """`POST /alerts/{name}/test`: Send a test message to the target of a rule."""
    services, dry_run = services_of(request), body.dry_run
    test = AlertTest(services, request.path_params["name"], dry=dry_run)
    work = charge(request, test, Spending.RUNS, lambda _: 1, dry_run=dry_run)
    sent = await run_transaction(services, work, dry_run=dry_run)
    if dry_run:
        return change_response(sent, dry_run=True)
    return JsonResponse(sent, 202)


async def silence_alert(request: Request, body: SilenceBody) -> Response:
    """`POST /alerts/{name}/silence`: Send no messages of a rule until the given end."""
    change = _change(request, dry=body.dry_run)
    until = change.choose_end(body.duration, body.until)
    services = services_of(request)
    done = await run_transaction(
        services, lambda tx: change.silence(tx, until), dry_run=body.dry_run
    )
    return _respond(request, done, dry_run=body.dry_run)


async def unsilence_alert(request: Request, body: ActionBody) -> Response:
    """`POST /alerts/{name}/unsilence`: Send messages of a silenced rule again."""
    change = _change(request, dry=body.dry_run)
    done = await run_transaction(services_of(request), change.unsilence, dry_run=body.dry_run)
    return _respond(request, done, dry_run=body.dry_run)


def _change(request: Request, *, dry: bool) -> AlertSilence:
    name, actor = request.path_params["name"], caller_of(request).actor
    return AlertSilence(services_of(request), name, actor, dry=dry)


def _respond(request: Request, done: dict[str, object], *, dry_run: bool) -> Response:
    if dry_run:
        return change_response(done, dry_run=True)
    services_of(request).loops.wake("alerts")
    return JsonResponse(done)
