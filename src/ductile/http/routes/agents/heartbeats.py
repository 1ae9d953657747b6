"""Heartbeats, decision logs and capabilities of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ductile.agents.heartbeats import HeartbeatManagerUnavailable, build_alive_span
from ductile.core.agents import decision_log, heartbeat
from ductile.core.agents.heartbeat import InvalidHeartbeat
from ductile.core.values.json_values import Failure
from ductile.http.middleware.auth import principal_of
from ductile.http.middleware.context import app_context_of
from ductile.http.requests import read_body
from ductile.http.responses import (
    JsonResponse,
    agent_error,
    read_ledger,
    services_of,
    split_page,
    write_ledger,
)
from ductile.http.server.connection import MAX_HELD_BODY
from ductile.store import agents

if TYPE_CHECKING:
    from ductile.http.models.queries import AgentQuery, CapabilityQuery

MAX_HEARTBEAT = MAX_HELD_BODY
MAX_DECISION_LOG = 64 * 1024


async def record_heartbeat(request: Request) -> Response:
    """`POST /gateway/heartbeat`: Record that an agent is alive."""
    services = services_of(request)
    raw = await read_body(request, MAX_HEARTBEAT)
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return agent_error(400, "invalid_json")
    reported = heartbeat.parse_heartbeat(document, services.clock.now())
    if isinstance(reported, InvalidHeartbeat):
        is_missing = reported is InvalidHeartbeat.MISSING
        field = heartbeat.find_missing_field(document) if is_missing else None
        return agent_error(422, reported, **({"field": field} if field else {}))
    try:
        services.agents.heartbeats.record_heartbeat(reported.agent_id, reported.cluster_id)
    except HeartbeatManagerUnavailable as error:
        return agent_error(error.http_status, error.code)
    await app_context_of(request).heartbeats.record(reported)
    return JsonResponse({"status": "ok"})


async def publish_message(request: Request) -> Response:
    """`POST /gateway/messages`: Publish a valid decision log on `gateway:messages`."""
    services = services_of(request)
    raw = await read_body(request, MAX_DECISION_LOG)
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return agent_error(400, "invalid_json")
    log = decision_log.parse_log(document, raw)
    decisions = services.agents.decisions
    if isinstance(log, Failure):
        principal = principal_of(request)
        sender = None if principal is None else principal.name
        await write_ledger(services, decisions.build_rejection(log, raw, sender))
        refusal = {"status": "rejected", "reason": "schema_violation", "detail": log.reason}
        return JsonResponse({**refusal, "trace_id": None}, 422)
    try:
        work = decisions.build_acceptance(log)
    except HeartbeatManagerUnavailable as error:
        return agent_error(error.http_status, error.code)
    decisions.finish_acceptance(await write_ledger(services, work))
    return JsonResponse({"status": "accepted", "trace_id": log.trace_id}, 202)


async def list_agents(request: Request, query: AgentQuery) -> Response:
    """`GET /gateway/heartbeats`: List agents by id, and whether their heartbeats arrive."""
    services = services_of(request)
    span = build_alive_span(services.clock.now())
    found = await read_ledger(
        services,
        lambda tx: agents.list_agents(
            tx,
            agent_id=query.agent_id,
            after=query.after,
            limit=query.limit + 1,
            within=span if query.live else None,
        ),
    )
    rows, cursor = split_page(found, query.limit, "agent_id")
    return JsonResponse({"agents": [_with_state(row, span) for row in rows], "cursor": cursor})


def _with_state(row: dict[str, Any], span: agents.AliveWindow) -> dict[str, Any]:
    seen = row["received_at"]
    is_live = seen is not None and span.oldest <= seen <= span.newest
    return {**row, "state": "live" if is_live else "gone"}


async def list_capabilities(request: Request, query: CapabilityQuery) -> Response:
    """`GET /gateway/capabilities`: List the capabilities that agents have declared."""
    found = await read_ledger(
        services_of(request),
        lambda tx: agents.list_capable(tx, after=query.after, limit=query.limit + 1),
    )
    rows, cursor = split_page(found, query.limit, "agent_id")
    keys = ("agent_id", "cluster_id", "capabilities")
    shown = [{key: row[key] for key in keys} for row in rows]
    return JsonResponse({"agents": shown, "cursor": cursor})
