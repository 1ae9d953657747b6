"""What agents tell us (004), and what operators see of them."""

from __future__ import annotations

from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ductile.agents.heartbeats import HeartbeatManagerUnavailable, build_alive_span
from ductile.config import Settings
from ductile.core.agents import decision_log, heartbeat
from ductile.core.agents.heartbeat import InvalidHeartbeat
from ductile.core.values.json_values import Failure
from ductile.http.middleware.auth import principal_of
from ductile.http.middleware.context import app_context_of
from ductile.http.requests import LARGEST_PAGE, body_of, flag, limit_of
from ductile.http.responses import JsonResponse, cursor, gateway_of, reading, refuse_agent, writing
from ductile.http.server.connection import MAX_HELD_BODY
from ductile.store import agents

LARGEST_BEAT = MAX_HELD_BODY
LARGEST_LOG = 64 * 1024
_OK = {"status": "ok"}


def is_public(settings: Settings) -> bool:
    return settings.gateway.open


async def beat(request: Request) -> Response:
    """`POST /gateway/heartbeat` `{type, agent_id, cluster_id, timestamp}`: an agent lives."""
    gateway = gateway_of(request)
    raw = await body_of(request, LARGEST_BEAT)
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return refuse_agent(400, "invalid_json")
    read = heartbeat.parse_heartbeat(document, gateway.clock.now())
    if isinstance(read, InvalidHeartbeat):
        field = None
        if read is InvalidHeartbeat.MISSING:
            field = heartbeat.find_missing_field(document)
        return refuse_agent(422, read, **({"field": field} if field else {}))
    try:
        gateway.agents.heartbeats.record_heartbeat(read.agent_id, read.cluster_id)
    except HeartbeatManagerUnavailable as error:
        return refuse_agent(error.http_status, error.code)
    await app_context_of(request).beats.record(read)
    return JsonResponse(_OK)


async def message(request: Request) -> Response:
    """`POST /gateway/messages`: a decision log, published on `gateway:messages` if it is one."""
    gateway = gateway_of(request)
    raw = await body_of(request, LARGEST_LOG)
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return refuse_agent(400, "invalid_json")
    log = decision_log.parse_log(document, raw)
    decisions = gateway.agents.decisions
    if isinstance(log, Failure):
        principal = principal_of(request)
        sender = None if principal is None else principal.name
        await writing(gateway, decisions.build_rejection(log, raw, sender))
        told = {"status": "rejected", "reason": "schema_violation", "detail": log.reason}
        return JsonResponse({**told, "trace_id": None}, 422)
    try:
        work = decisions.build_acceptance(log)
    except HeartbeatManagerUnavailable as error:
        return refuse_agent(error.http_status, error.code)
    decisions.finish_acceptance(await writing(gateway, work))
    return JsonResponse({"status": "accepted", "trace_id": log.trace_id}, 202)


async def listing(request: Request) -> Response:
    """`GET /gateway/heartbeats`: every agent, by id; `?live=true` those that live, `?agent_id=`."""
    gateway, query = gateway_of(request), request.query_params
    span, limit = build_alive_span(gateway.clock.now()), limit_of(query, LARGEST_PAGE)
    agent_id, after = query.get("agent_id"), query.get("after", "")
    within = span if flag(query, "live") else None
    rows = await reading(
        gateway,
        lambda tx: agents.listing(tx, agent_id=agent_id, after=after, limit=limit, within=within),
    )
    shown = [_shown(row, span) for row in rows]
    return JsonResponse({"agents": shown, "cursor": cursor(rows, limit, "agent_id")})


def _shown(row: dict[str, Any], span: agents.Span) -> dict[str, Any]:
    seen = row["received_at"]
    alive = seen is not None and span.oldest <= seen <= span.newest
    return {**row, "state": "live" if alive else "gone"}


async def capabilities(request: Request) -> Response:
    """`GET /gateway/capabilities`: what each agent can do, as it said."""
    gateway, query = gateway_of(request), request.query_params
    limit, after = limit_of(query, LARGEST_PAGE), query.get("after", "")
    rows = await reading(gateway, lambda tx: agents.capable(tx, after=after, limit=limit))
    kept = ("agent_id", "cluster_id", "capabilities")
    shown = [{key: row[key] for key in kept} for row in rows]
    return JsonResponse({"agents": shown, "cursor": cursor(rows, limit, "agent_id")})
