"""What agents tell us (004), and what operators see of them."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ductile.agents.heartbeats import HeartbeatManagerUnavailable, span_at
from ductile.config import Settings
from ductile.core import decision_log, heartbeat
from ductile.core.bounds import DEEPEST, too_deep
from ductile.core.heartbeat import Refusal
from ductile.core.values import Failure
from ductile.http.answers import JsonResponse, body_of, gateway_of, reading, writing
from ductile.http.guard import principal_of
from ductile.http.protocol import LARGEST_HELD
from ductile.http.query import flag
from ductile.http.reminders import limit_of
from ductile.store import agents

LARGEST_BEAT = LARGEST_HELD
LARGEST_LOG = 64 * 1024
_OK = {"status": "ok"}
_TOO_DEEP = Failure(f"a decision log must not be nested more than {DEEPEST} levels deep")


def is_open(settings: Settings) -> bool:
    return settings.gateway.open


def _refused(status: int, reason: str, **more: str) -> Response:
    return JsonResponse({"status": "error", "reason": reason, **more}, status)


async def beat(request: Request) -> Response:
    """`POST /gateway/heartbeat` `{type: heartbeat, agent_id, cluster_id, timestamp}`."""
    gateway = gateway_of(request)
    raw = await body_of(request, LARGEST_BEAT)
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _refused(400, "invalid_json")
    read = heartbeat.read(document, gateway.clock.now())
    if isinstance(read, Refusal):
        field = heartbeat.missing(document) if read is Refusal.MISSING else None
        return _refused(422, read, **({"field": field} if field else {}))
    try:
        gateway.agents.heartbeats.record_heartbeat(read.agent_id, read.cluster_id)
    except HeartbeatManagerUnavailable as error:
        return _refused(error.http_status, error.code)
    await request.app.state.lobby.beats.record(read)
    return JsonResponse(_OK)


async def message(request: Request) -> Response:
    """`POST /gateway/messages`: a decision log, published on `gateway:messages` if it is one."""
    gateway = gateway_of(request)
    raw = await body_of(request, LARGEST_LOG)
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return _refused(400, "invalid_json")
    log = _TOO_DEEP if too_deep(document, raw) else decision_log.read(document)
    decisions = gateway.agents.decisions
    if isinstance(log, Failure):
        principal = principal_of(request)
        sender = None if principal is None else principal.name
        await writing(gateway, decisions.rejecting(log, raw, sender))
        told = {"status": "rejected", "reason": "schema_violation", "detail": log.reason}
        return JsonResponse({**told, "trace_id": None}, 422)
    try:
        work = decisions.accepting(log)
    except HeartbeatManagerUnavailable as error:
        return _refused(error.http_status, error.code)
    decisions.accepted(await writing(gateway, work))
    return JsonResponse({"status": "accepted", "trace_id": log.trace_id}, 202)


async def listing(request: Request) -> Response:
    """`GET /gateway/heartbeats`: every agent, by id; `?live=true` those that live, `?agent_id=`."""
    gateway, limit, query = gateway_of(request), limit_of(request), request.query_params
    span, agent_id, after = span_at(gateway.clock.now()), query.get("agent_id"), query.get("after")
    within = span if flag(request, "live") else None
    rows = await reading(
        gateway,
        lambda tx: agents.listing(
            tx, agent_id=agent_id, after=after or "", limit=limit, within=within
        ),
    )
    cursor = rows[-1]["agent_id"] if len(rows) == limit else None
    return JsonResponse({"agents": [_shown(row, span) for row in rows], "cursor": cursor})


def _shown(row: dict[str, Any], span: agents.Span) -> dict[str, Any]:
    seen = row["received_at"]
    alive = seen is not None and span.oldest <= seen <= span.newest
    return {**row, "state": "live" if alive else "gone"}


async def capabilities(request: Request) -> Response:
    """`GET /gateway/capabilities`: what each agent can do, as it said."""
    gateway, limit = gateway_of(request), limit_of(request)
    after = request.query_params.get("after", "")
    rows = await reading(gateway, lambda tx: agents.capable(tx, after=after, limit=limit))
    cursor = rows[-1]["agent_id"] if len(rows) == limit else None
    kept = ("agent_id", "cluster_id", "capabilities")
    return JsonResponse({"agents": [{k: row[k] for k in kept} for row in rows], "cursor": cursor})
