"""The nodes that share the ledger."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ductile.http.middleware.context import app_context_of
from ductile.http.responses import JsonResponse, change_response, services_of
from ductile.operations.cluster.nodes import change_drain, forget_node, report_nodes
from ductile.operations.cluster.reload_all import reload_all

if TYPE_CHECKING:
    from ductile.http.models.bodies import ActionBody


async def list_nodes(request: Request) -> Response:
    """`GET /nodes`: List the nodes that share the ledger, with their state and running jobs."""
    return JsonResponse(await asyncio.to_thread(report_nodes, services_of(request)))


async def drain_node(request: Request, body: ActionBody) -> Response:
    """`POST /node/{name}/drain`: Stop a node from claiming jobs; its running jobs end."""
    return await _change_drain(request, body, drained=True)


async def resume_node(request: Request, body: ActionBody) -> Response:
    """`POST /node/{name}/resume`: Let a drained node claim jobs again."""
    return await _change_drain(request, body, drained=False)


async def forget(request: Request, body: ActionBody) -> Response:
    """`POST /node/{name}/forget`: Delete a stopped or lost node; jobs no longer wait for it."""
    services, name = services_of(request), request.path_params["name"]
    done = await asyncio.to_thread(forget_node, services, name, dry=body.dry_run)
    return change_response(done, dry_run=body.dry_run)


async def reload_nodes(request: Request, body: ActionBody) -> Response:
    """`POST /nodes/reload`: Have every node reload its files; returns the answer of each."""
    run_blocking = app_context_of(request).run_blocking
    done = await run_blocking(partial(reload_all, services_of(request), dry=body.dry_run))
    return change_response(done, dry_run=body.dry_run)


async def _change_drain(request: Request, body: ActionBody, *, drained: bool) -> Response:
    services, name = services_of(request), request.path_params["name"]
    done = await asyncio.to_thread(change_drain, services, name, drained=drained, dry=body.dry_run)
    return change_response(done, dry_run=body.dry_run)
