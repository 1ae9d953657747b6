"""Pauses of plugins, of pipelines and of the gateway."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.flow.pauses import PauseKind
from ductile.http.middleware.caller import caller_of
from ductile.http.responses import JsonResponse, change_response, run_transaction, services_of
from ductile.operations.flow import pauses
from ductile.operations.flow.pauses import PauseChange

if TYPE_CHECKING:
    from ductile.http.models.bodies import ActionBody, PauseBody


async def list_pauses(request: Request) -> Response:
    """`GET /pauses`: List what is paused, with who, why and until when."""
    return JsonResponse(
        {"pauses": await asyncio.to_thread(pauses.list_pauses, services_of(request))}
    )


async def pause_plugin(request: Request, body: PauseBody) -> Response:
    """`POST /plugins/{name}/pause`: Keep the jobs of a plugin queued."""
    return await _pause(request, body, PauseKind.PLUGIN)


async def resume_plugin(request: Request, body: ActionBody) -> Response:
    """`POST /plugins/{name}/resume`: Run the jobs of a paused plugin again."""
    return await _resume(request, body, PauseKind.PLUGIN)


async def pause_pipeline(request: Request, body: PauseBody) -> Response:
    """`POST /pipelines/{name}/pause`: Keep the jobs of a pipeline queued."""
    return await _pause(request, body, PauseKind.PIPELINE)


async def resume_pipeline(request: Request, body: ActionBody) -> Response:
    """`POST /pipelines/{name}/resume`: Run the jobs of a paused pipeline again."""
    return await _resume(request, body, PauseKind.PIPELINE)


async def pause_system(request: Request, body: PauseBody) -> Response:
    """`POST /system/pause`: Keep all jobs queued."""
    return await _pause(request, body, PauseKind.SYSTEM)


async def resume_system(request: Request, body: ActionBody) -> Response:
    """`POST /system/resume`: Run jobs again after a pause of the gateway."""
    return await _resume(request, body, PauseKind.SYSTEM)


def _change(request: Request, kind: PauseKind, *, dry: bool) -> PauseChange:
    name = request.path_params.get("name", "")
    return PauseChange(services_of(request), kind, name, caller_of(request).actor, dry=dry)


async def _pause(request: Request, body: PauseBody, kind: PauseKind) -> Response:
    change = _change(request, kind, dry=body.dry_run)
    change.check_exists()
    pause = change.build_pause(body.reason, body.duration, body.until)
    done = await run_transaction(
        services_of(request), lambda tx: change.pause(tx, pause), dry_run=body.dry_run
    )
    return change_response(done, dry_run=body.dry_run)


async def _resume(request: Request, body: ActionBody, kind: PauseKind) -> Response:
    # Not checked for existence: a plugin that was removed from the configuration can be resumed.
    change = _change(request, kind, dry=body.dry_run)
    done = await run_transaction(services_of(request), change.resume, dry_run=body.dry_run)
    return change_response(done, dry_run=body.dry_run)
